"""The common part of all JSON reports. Sizes are bytes; an unknown value is null, never 0."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Optional

from gdbmem.analysis.profiles.ranking import Amount, Ranking, Row
from gdbmem.errors import Notice
from gdbmem.model.calltree import Frame
from gdbmem.report.profiles.own_code import applied_rules, applied_wrappers

# 1: first version.
FORMAT_VERSION = 1

Document = dict[str, Any]


def to_json(document: Document) -> str:
    """Return *document* as text, ASCII only: bytes that are no UTF-8 come out as escaped lone surrogates."""
    return json.dumps(document, indent=1) + "\n"


def head(kind: str, notices: Iterable[Notice]) -> Document:
    """Return what every document begins with."""
    return {
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "warnings": [{"slug": notice.slug, "message": notice.message} for notice in notices],
    }


def rows(ranking: Ranking, *, is_change: bool = False) -> Document:
    """Return the rows of *ranking* and what is in none of them; together they are the total.

    *is_change* tells of each what became of it.
    """
    return {
        "paths": [_row(row, is_change=is_change) for row in ranking.rows],
        "rest": _amount(ranking.rest, "paths"),
        "unmatched": _amount(ranking.unmatched, "paths"),
        "known": _amount(ranking.known, "paths"),
        "own_code": {"rules": applied_rules(ranking), "wrappers": applied_wrappers(ranking)},
    }


def _row(row: Row, *, is_change: bool) -> Document:
    return {
        **_amount(row.amount),
        **(_became(row.amount) if is_change else {}),
        "site": None if row.site is None else _frame(row.site),
        **({"block_bytes_at_most": row.site.line} if row.site is not None and row.site.is_size_class else {}),
        "below_threshold": row.is_pruned,
        "frames": [_frame(frame) for frame in row.frames],
    }


def _became(amount: Amount) -> Document:
    change = {"change": amount.change, "percent": _percent(amount)}
    if not amount.course:
        return change
    trend = amount.trend
    return {**change, "trend": trend.kind, "kept_bytes": trend.kept_bytes}


def _percent(amount: Amount) -> Optional[float]:
    if amount.is_relative or not amount.before_bytes:
        return None
    return round(100 * amount.delta_bytes / amount.before_bytes, 3)


def _amount(amount: Amount, count: str = "") -> Document:
    counted = {count: amount.paths} if count else {}
    return {
        **counted,
        "delta_bytes": amount.delta_bytes,
        "before_bytes": None if amount.is_relative else amount.before_bytes,
        "after_bytes": None if amount.is_relative else amount.after_bytes,
        "delta_blocks": amount.delta_blocks,
        "uncertain_bytes": amount.uncertain_bytes,
        "standard_error_bytes": amount.error_bytes,
        **({"course_bytes": amount.course} if amount.course else {}),
    }


def _frame(frame: Frame) -> Document:
    return frame._asdict()
