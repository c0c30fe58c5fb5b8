"""Verdicts on whether a difference exceeds a limit, including the uncertainty of the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gdbmem.analysis.profiles.query import Query, matches
from gdbmem.analysis.profiles.ranking import rank
from gdbmem.analysis.profiles.samples import of_one_process, samples_off, sampling_error
from gdbmem.analysis.profiles.unseen import nameless_growth, unseen_in_diff
from gdbmem.model.judgement import Judgement, Unseen
from gdbmem.model.profiles.calltree import PRUNED
from gdbmem.model.profiles.diff import Diff
from gdbmem.model.profiles.snapshot import TRACING, UNTRACED
from gdbmem.records import replace
from gdbmem.units import format_delta, format_size

__all__ = ["judge_growth"]


def judge_growth(
    diff: Diff, query: Query, limit_bytes: int, *, one_process: bool = False, unseen: Sequence[Unseen] = ()
) -> Judgement:
    """Judge whether *diff*, without the paths that *query* excludes or knows, grew by at most *limit_bytes*.

    *one_process*: both sides are of the same process, so that equal samples of a path are the same blocks. *unseen* are
    the reasons why memory may be missing from the sides.
    """
    if one_process:
        diff = of_one_process(diff)
    ranking = rank(diff, replace(query, by="line", top=None, min_bytes=0))
    grown, rows = ranking.delta_matched_bytes, ranking.rows
    # The total is exact; the part that remains without known or unmatched paths may be larger than it appears.
    divided = bool(query.known or query.filters)
    hidden = rows.together().hidden_bytes if divided else 0
    if divided:
        before, after = _unlisted(diff)
        # The growth of these paths is anything from -before to +after.
        grown -= (after - before) // 2
        hidden += (after + before) // 2
    sampling = sampling_error(
        sum(amount.error_bytes**2 for amount in rows.amounts()) if divided else sum(diff.variance or ())
    )
    # Untraced resident memory also changes with the program's code.
    judged = [one for one in diff.outside if one.name not in (TRACING, UNTRACED)]
    outside = 0 if query.filters else sum(one.delta_bytes for one in judged)
    grown += outside
    return Judgement(
        "growth",
        _seen(grown, outside, hidden, sampling),
        limit=limit_bytes,
        measured=grown,
        low=grown - hidden - sampling,
        high=grown + hidden + sampling,
        unseen=(*unseen, *unseen_in_diff(diff), *_unselected(diff, query)),
    )


def _seen(grown: int, outside: int, hidden: int, sampling: int) -> str:
    text = f"it grew by {format_size(grown)}" if grown > 0 else f"it changed by {format_delta(grown)}"
    text += f", {format_delta(outside)} of it in no call tree" if outside else ""
    text += f", give or take {format_size(hidden)}" if hidden else ""
    return f"{text}, and {samples_off(sampling)}" if sampling else text


def _unselected(diff: Diff, query: Query) -> Iterator[Unseen]:
    """Yield a reason if the filters of *query* select no path of *diff*, as with a misspelt name, or may miss some."""
    if not query.filters:
        return
    ranking = rank(diff, replace(query, by="line", top=None, min_bytes=0, unchanged=True))
    if not any(True for _ in ranking.rows.amounts()):
        yield Unseen(
            "nothing-selected", "no path matches the filters; see the names with  gdbmem show FILE --by path"
        )
    if query.focus is not None:
        yield from nameless_growth(diff, [matches(query.focus, frame) for frame in diff.frames])


def _unlisted(diff: Diff) -> tuple[int, int]:
    """Return the bytes that each side counts without naming their paths: all of them may be known, or none."""
    places = [number for number, frame in enumerate(diff.frame) if frame == PRUNED] if diff.is_cut else []
    return sum(diff.before[place] for place in places), sum(diff.after[place] for place in places)
