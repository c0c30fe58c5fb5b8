"""A heap profile as JSON, ``kind=profile``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Optional

from gdbmem.errors import Notice
from gdbmem.json_values import as_json
from gdbmem.model.calltree import Profile, Snapshot, Stretch, Totals
from gdbmem.model.diff import Diff, Side
from gdbmem.model.judgement import Judgement
from gdbmem.profiles import text
from gdbmem.profiles.diff import as_growth
from gdbmem.profiles.paths import Query
from gdbmem.profiles.ranking import Amount, Ranking, Row, RowUses, Uses, annotate, rank, row_key
from gdbmem.profiles.timeline import course_of
from gdbmem.terminal.document import Document, head, judgement_object, to_json
from gdbmem.terminal.drawing import SourceLines
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.model.containers import Holding

_UNKNOWN = RowUses()

# The rows of a ranking in JSON reports. Sizes are bytes; an unknown value is null, never 0.


def rows(
    ranking: Ranking,
    *,
    is_change: bool = False,
    uses: RowUses = _UNKNOWN,
    query: Optional[Query] = None,
) -> Document:
    """Return the rows of *ranking* and the amounts outside of them; together they are the total.

    *uses* are how the blocks of its rows, by *query*, were used.

    With *is_change* each has its kind of change.
    """
    return {
        "paths": [
            {**_row(row, is_change=is_change), **_use(row, uses, query or Query())} for row in ranking.rows
        ],
        "rest": _amount(ranking.rest, "paths"),
        "unmatched": _amount(ranking.unmatched, "paths"),
        "known": _amount(ranking.known, "paths"),
        "own_code": {"rules": text.applied_rules(ranking), "wrappers": text.applied_wrappers(ranking)},
    }


def _row(row: Row, *, is_change: bool) -> Document:
    return {
        **_amount(row.amount),
        **(_became(row.amount) if is_change else {}),
        "site": None if row.site is None else row.site._asdict(),
        **({"block_bytes_at_most": row.site.line} if row.site is not None and row.site.is_size_class else {}),
        **({"thread": row.site.function} if row.site is not None and row.site.is_thread else {}),
        "below_threshold": row.is_pruned,
        "frames": [frame._asdict() for frame in row.frames],
    }


def _use(row: Row, uses: RowUses, query: Query) -> Document:
    key = row_key(row, query)
    sides = {"use": uses.after.get(key), "use_before": (uses.before or {}).get(key)}
    return {name: as_json(use) for name, use in sides.items() if use is not None}


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


def profile_json(
    profile: Profile,
    query: Optional[Query] = None,
    *,
    snapshot: Optional[Snapshot] = None,
    uses: Optional[Uses] = None,
) -> str:
    """Return the text of profile_document()."""
    return to_json(profile_document(profile, query or Query(), snapshot=snapshot, uses=uses))


def profile_document(
    profile: Profile, query: Query, *, snapshot: Optional[Snapshot], uses: Optional[Uses] = None
) -> Document:
    """Return *profile* as ``kind=profile``; if *snapshot* is given, with its rows and their *uses* as ``sites``."""
    peak = profile.snapshots[profile.peak_index] if profile.snapshots else None
    course = course_of(profile.snapshots)
    return {
        **head("profile", profile.notices),
        "source": profile.source,
        "source_format": profile.source_format,
        "command": profile.command,
        "unit": profile.unit,
        "stretch": _stretch(getattr(profile, "covered", None)),
        "snapshots": [_totals(totals, profile.time_unit) for totals in profile.snapshots],
        "peak": None if peak is None else {"index": peak.index, "total_bytes": peak.total_bytes},
        "course": None if course is None else course._asdict(),
        "sites": None if snapshot is None else _sites(snapshot, query, uses),
        **({} if snapshot is None else _annotated(as_growth(snapshot), query)),
    }


def _stretch(covered: Optional[Stretch]) -> Optional[Document]:
    if covered is None or covered.begin is None or covered.end is None:
        return None
    return {"from": covered.begin.value, "to": covered.end.value, "time_unit": covered.end.unit}


def _totals(totals: Totals, time_unit: str) -> Document:
    return {
        **as_json(totals, "index", "name", "time"),
        "time_unit": time_unit,
        **as_json(totals, "heap_bytes", "extra_bytes", "stacks_bytes", "total_bytes", "has_tree", "beside"),
    }


def _sites(snapshot: Snapshot, query: Query, uses: Optional[Uses]) -> Document:
    growth = as_growth(snapshot)
    ranking = rank(growth, query._replace(all_frames=True) if query.by == "path" else query)
    return {
        "index": snapshot.totals.index,
        "by": query.by,
        "total_bytes": growth.after[0],
        **rows(ranking, uses=RowUses(uses or {}), query=query),
    }


# A diff as JSON: ``kind=diff``, for a series ``kind=trend``.


def diff_json(
    diff: Diff,
    query: Query,
    *,
    notices: Iterable[Notice] = (),
    is_change: bool = True,
    held: Sequence[Holding] = (),
    judgement: Optional[Judgement] = None,
    uses: RowUses = _UNKNOWN,
) -> str:
    """Return the text of diff_document(); not *is_change*: *diff* is one snapshot, against nothing.

    *held* are the containers that hold what grew; *judgement* is that of --fail-on; *uses* say how blocks were used.
    """
    document = diff_document(diff, query, notices=notices, uses=uses)
    if judgement is not None:
        document["judgement"] = judgement_object(judgement)
    if held:
        from gdbmem.profiles.containers_behind_growth import holdings_document  # few have any

        document["containers"] = holdings_document(held)
    if not is_change:
        document["answer"] = text.answer_snapshot(diff, query, moment=printable(diff.after_side.name))
    return to_json(document)


def diff_document(
    diff: Diff, query: Query, *, notices: Iterable[Notice] = (), uses: RowUses = _UNKNOWN
) -> Document:
    """Return *diff* as ``kind=diff`` or ``kind=trend``: every path, unless *query* has --top or --min.

    ``paths`` plus ``rest``, ``unmatched`` and ``known`` add up to ``delta_bytes``.
    """
    said = [*text.unused_known(diff, query), *notices, *diff.notices]
    if diff.course:
        return {
            **head("trend", said),
            **_change(diff, query, uses),
            "snapshots": [_side(s) for s in diff.sides],
        }
    sides = {"before": _side(diff.before_side), "after": _side(diff.after_side)}
    if diff.is_relative:
        sides = {name: {**side, "total_bytes": None} for name, side in sides.items()}
    return {**head("diff", said), **sides, "stretch": _stretch(diff.covered), **_change(diff, query, uses)}


def _change(diff: Diff, query: Query, uses: RowUses) -> Document:
    listed = query._replace(unchanged=True, all_frames=query.all_frames or query.by == "path")
    ranking = rank(diff, listed)
    return {
        "answer": text.answer_diff(diff, query),
        "unit": diff.unit,
        "delta_bytes": diff.delta_bytes,
        "delta_blocks": ranking.total.delta_blocks,
        "outside_heap": [{**as_json(one), **as_json(one, "delta_bytes")} for one in diff.outside],
        "by": query.by,
        **rows(ranking, is_change=True, uses=uses, query=listed),
        **_annotated(diff, query),
    }


def _annotated(diff: Diff, query: Query) -> Document:
    """Return the lines of the source file that *query* annotates; {} if there is none."""
    if query.annotate is None:
        return {}
    found = annotate(diff, query, query.annotate)
    sources = SourceLines(query.source_folders, query.source_roots)
    said = text.source_doubts(found, sources, query.annotate, diff)
    source = sources.source(found.file)
    lines = [
        {
            "line": one.line,
            **_amount(one.amount or Amount(0, 0, 0)),
            "through_bytes": one.through_bytes,
            "text": sources.indented_line(found.file, one.line),
        }
        for one in found.lines
    ]
    return {
        "annotated": {
            "file": found.file,
            "source": None if source is None else source.path,
            "doubts": [{"slug": one.slug, "message": one.message} for one in said],
            "lines": lines,
            "inside": _amount(found.inside),
            "elsewhere": _amount(found.elsewhere, "places"),
        }
    }


def _side(side: Side) -> Document:
    return as_json(side, "source", "name", "total_bytes")
