"""A diff as JSON: ``kind=diff``, for a series ``kind=trend``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from gdbmem.analysis.profiles.query import Query
from gdbmem.analysis.profiles.ranking import rank
from gdbmem.errors import Notice
from gdbmem.model.holding import Holding
from gdbmem.model.judgement import Judgement
from gdbmem.model.profiles.diff import Diff, Side
from gdbmem.records import asdict, replace
from gdbmem.report.document import Document, head, to_json
from gdbmem.report.judgement import judgement_object
from gdbmem.report.profiles.headline import answer_diff, answer_snapshot
from gdbmem.report.profiles.holdings import holdings_document
from gdbmem.report.profiles.own_code import unused_known
from gdbmem.report.profiles.ranking_json import rows
from gdbmem.text import printable


def diff_json(
    diff: Diff,
    query: Query,
    *,
    notices: Iterable[Notice] = (),
    is_change: bool = True,
    held: Sequence[Holding] = (),
    judgement: Optional[Judgement] = None,
) -> str:
    """Return the text of diff_document(); not *is_change*: *diff* is one snapshot, against nothing.

    *held* are the containers that hold what grew; *judgement* is that of --fail-on.
    """
    document = diff_document(diff, query, notices=notices)
    if judgement is not None:
        document["judgement"] = judgement_object(judgement)
    if held:
        document["containers"] = holdings_document(held)
    if not is_change:
        document["answer"] = answer_snapshot(diff, query, moment=printable(diff.after_side.name))
    return to_json(document)


def diff_document(diff: Diff, query: Query, *, notices: Iterable[Notice] = ()) -> Document:
    """Return *diff* as ``kind=diff`` or ``kind=trend``: every path, unless *query* has --top or --min.

    ``paths`` plus ``rest``, ``unmatched`` and ``known`` add up to ``delta_bytes``.
    """
    said = [*unused_known(diff, query), *notices, *diff.notices]
    if diff.course:
        return {**head("trend", said), **_change(diff, query), "snapshots": [_side(s) for s in diff.sides]}
    sides = {"before": _side(diff.before_side), "after": _side(diff.after_side)}
    if diff.is_relative:
        sides = {name: {**side, "total_bytes": None} for name, side in sides.items()}
    return {**head("diff", said), **sides, **_change(diff, query)}


def _change(diff: Diff, query: Query) -> Document:
    listed = replace(query, unchanged=True, all_frames=query.all_frames or query.by == "path")
    ranking = rank(diff, listed)
    return {
        "answer": answer_diff(diff, query),
        "unit": diff.unit,
        "delta_bytes": diff.delta_bytes,
        "delta_blocks": ranking.total.delta_blocks,
        "outside_heap": [{**asdict(one), "delta_bytes": one.delta_bytes} for one in diff.outside],
        "by": query.by,
        **rows(ranking, is_change=True),
    }


def _side(side: Side) -> Document:
    return {"source": side.source, "name": side.name, "total_bytes": side.total_bytes}
