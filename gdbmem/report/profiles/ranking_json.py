"""The rows of a ranking in JSON reports. Sizes are bytes; an unknown value is null, never 0."""

from __future__ import annotations

from typing import Optional

from gdbmem.analysis.profiles.ranking import Amount, Ranking, Row
from gdbmem.report.document import Document
from gdbmem.report.profiles.own_code import applied_rules, applied_wrappers


def rows(ranking: Ranking, *, is_change: bool = False) -> Document:
    """Return the rows of *ranking* and the amounts outside of them; together they are the total.

    With *is_change* each has its kind of change.
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
        "site": None if row.site is None else row.site._asdict(),
        **({"block_bytes_at_most": row.site.line} if row.site is not None and row.site.is_size_class else {}),
        "below_threshold": row.is_pruned,
        "frames": [frame._asdict() for frame in row.frames],
    }


def _became(amount: Amount) -> Document:
    change: Document = {"change": amount.change, "percent": _percent(amount)}
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
