"""A diff as JSON, ``kind=diff``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gdbmem.analysis.query import Query
from gdbmem.analysis.ranking import rank
from gdbmem.errors import Notice
from gdbmem.model.diff import Diff, Side
from gdbmem.report.answer import answer_diff
from gdbmem.report.document import Document, head, rows, to_json


def diff_json(diff: Diff, query: Query, *, notices: Iterable[Notice] = ()) -> str:
    """Return the text of diff_document()."""
    return to_json(diff_document(diff, query, notices=notices))


def diff_document(diff: Diff, query: Query, *, notices: Iterable[Notice] = ()) -> Document:
    """Return *diff* as ``kind=diff``: every path, unless *query* says --top or --min.

    ``paths`` plus ``rest``, ``unmatched`` and ``known`` add up to ``delta_bytes``.
    """
    ranking = rank(diff, replace(query, all_frames=True) if query.by == "path" else query)
    return {
        **head("diff", [*notices, *diff.notices]),
        "answer": answer_diff(diff, query),
        "before": _side(diff.before_side),
        "after": _side(diff.after_side),
        "unit": diff.unit,
        "delta_bytes": diff.delta_bytes,
        "delta_blocks": ranking.total.delta_blocks,
        "by": query.by,
        **rows(ranking),
    }


def _side(side: Side) -> Document:
    return {"source": side.source, "name": side.name, "total_bytes": side.total_bytes}
