"""A diff as JSON: ``kind=diff``, of a series ``kind=trend``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gdbmem.analysis.query import Query
from gdbmem.analysis.ranking import rank
from gdbmem.errors import Notice
from gdbmem.model.diff import Diff, Side
from gdbmem.report.answer import answer_diff, answer_snapshot
from gdbmem.report.document import Document, head, rows, to_json
from gdbmem.text import printable


def diff_json(diff: Diff, query: Query, *, notices: Iterable[Notice] = (), is_change: bool = True) -> str:
    """Return the text of diff_document(); not *is_change*: *diff* is one snapshot, against nothing."""
    document = diff_document(diff, query, notices=notices)
    if not is_change:
        document["answer"] = answer_snapshot(diff, query, moment=printable(diff.after_side.name))
    return to_json(document)


def diff_document(diff: Diff, query: Query, *, notices: Iterable[Notice] = ()) -> Document:
    """Return *diff* as ``kind=diff`` or ``kind=trend``: every path, unless *query* says --top or --min.

    ``paths`` plus ``rest``, ``unmatched`` and ``known`` add up to ``delta_bytes``.
    """
    said = [*notices, *diff.notices]
    if diff.course:
        return {**head("trend", said), **_change(diff, query), "snapshots": [_side(s) for s in diff.sides]}
    sides = {"before": _side(diff.before_side), "after": _side(diff.after_side)}
    return {**head("diff", said), **sides, **_change(diff, query)}


def _change(diff: Diff, query: Query) -> Document:
    ranking = rank(diff, replace(query, all_frames=True) if query.by == "path" else query)
    return {
        "answer": answer_diff(diff, query),
        "unit": diff.unit,
        "delta_bytes": diff.delta_bytes,
        "delta_blocks": ranking.total.delta_blocks,
        "by": query.by,
        **rows(ranking, is_change=True),
    }


def _side(side: Side) -> Document:
    return {"source": side.source, "name": side.name, "total_bytes": side.total_bytes}
