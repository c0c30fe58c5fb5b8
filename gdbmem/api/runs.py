"""Ledgers and scans of containers in a run, and the containers that hold the growth of a diff."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from gdbmem.errors import InputError, UsageError
from gdbmem.model.calltree import PRUNED, TRACING, UNTRACED
from gdbmem.model.diff import Diff
from gdbmem.model.judgement import Judgement, Unseen
from gdbmem.profiles.paths import Query, matches
from gdbmem.profiles.ranking import rank
from gdbmem.profiles.unseen import (
    nameless_growth,
    of_one_process,
    samples_off,
    sampling_error,
    unseen_in_diff,
)
from gdbmem.runs.distrust import split_name
from gdbmem.runs.operand import find_operand
from gdbmem.runs.run import Run, asked_for
from gdbmem.runs.saved_results import CONTAINERS, HEAP, LEDGER, saved_records
from gdbmem.runs.unseen import SNAP, check_order, end_of, unseen_in_run
from gdbmem.text import format_delta, format_size, printable

if TYPE_CHECKING:
    from gdbmem.containers.containers import ContainerGrowth
    from gdbmem.model.containers import Holding, Survey
    from gdbmem.model.heap_graph import HeapView


# Ledgers and containers are imported where they are read, for every `show` and `diff` of a profile imports this:
# a sixth of its start.

__all__ = [
    "CONTAINERS",
    "HEAP",
    "LEDGER",
    "Run",
    "containers_holding",
    "growth",
    "is_of_one_run",
    "judge_growth",
    "kept_kind",
    "kind_of",
    "load_heap_view",
    "load_kept",
    "load_kept_pair",
    "saved_records",
    "unseen_between",
]


_HEAP = re.compile(rb'\s*\{\s*"format_version": ?\d+,\s*"kind": ?"heap",')
_START = 80  # bytes of a file in which this is


def kind_of(run: Run, name: str) -> str:
    """Return the kind of *name* in *run*: LEDGER, CONTAINERS or HEAP; "" for a heap snapshot or an unknown name."""
    base = split_name(name)[0]
    if any(record.base_name == base for record in run.snapshots):
        return ""
    return next((record.kind for record in saved_records(run) if record.base_name == base), "")


def kept_kind(place: Union[Path, Run], name: Optional[str], asked: Optional[str] = None) -> str:
    """Return LEDGER, CONTAINERS or HEAP: the kind *asked* for, or that of *name* in *place*; "" for a heap snapshot."""
    if asked:
        return asked
    if not isinstance(place, Run):
        return HEAP if _is_heap(place) else ""
    return kind_of(place, name) if name is not None else ""


def _is_heap(path: Path) -> bool:
    """Return whether `gdbmem heap` wrote the file *path*."""
    if not path.is_file():
        return False  # nothing is taken from a FIFO
    try:
        with path.open("rb") as stream:
            return _HEAP.match(stream.read(_START)) is not None
    except OSError:
        return False


def load_kept(place: Union[Path, Run], kind: str, name: Optional[str]) -> Any:
    """Return the Ledger, Survey or SavedHeap in the file *place*, or that the run *place* keeps as *name* (None: last).

    Raises InputError if there is none.
    """
    from gdbmem.formats.documents import read_heap, read_ledger, read_survey  # not always needed
    from gdbmem.runs.saved_documents import saved_document  # with these

    read: Callable[[str, str], Any] = {LEDGER: read_ledger, CONTAINERS: read_survey, HEAP: read_heap}[kind]
    return read(*saved_document(place, kind, name))


def load_heap_view(place: Union[Path, Run], name: Optional[str]) -> HeapView:
    """Return the answer on the heap in the file *place*, or that the run *place* keeps as *name* (None: its last)."""
    from gdbmem.formats.documents import read_heap_view  # as above
    from gdbmem.runs.saved_documents import saved_document  # with it

    return read_heap_view(*saved_document(place, HEAP, name))


def load_kept_pair(kind: str, operands: Sequence[str]) -> tuple[tuple[Any, Any], tuple[str, str]]:
    """Return two Ledgers, Surveys or SavedHeaps and their names: those of two operands, or the last two of one run."""
    if len(operands) == 2:
        found = [find_operand(text) for text in operands]
        values = [load_kept(place, kind, name) for place, name in found]
        return (values[0], values[1]), (found[0][1] or operands[0], found[1][1] or operands[1])
    place, name = find_operand(operands[0])
    if not isinstance(place, Run) or name is not None:
        raise UsageError("gdbmem diff needs a second one to compare", hint="gdbmem diff A B, or a run alone")
    records = saved_records(place, kind)
    if len(records) < 2:
        raise InputError(
            f"{printable(place.folder.name)} holds fewer than two of this kind: nothing to compare",
            slug="too-few-snapshots",
            hint="name another: gdbmem diff A B",
        )
    first, second = records[-2].name, records[-1].name
    return (load_kept(place, kind, first), load_kept(place, kind, second)), (first, second)


def growth(before: Survey, after: Survey) -> Sequence[ContainerGrowth]:
    """Return the containers whose size or bytes changed, the largest change first."""
    from gdbmem.containers import containers  # not always needed

    return containers.growth(before, after)


def is_of_one_run(operands: Sequence[str]) -> bool:
    """Return whether all *operands* name snapshots of the same run."""
    places = [find_operand(text)[0] for text in operands]
    return isinstance(places[0], Run) and all(
        isinstance(place, Run) and place.folder == places[0].folder for place in places
    )


def unseen_between(
    operands: Sequence[str], kind: str = SNAP, *, is_series: bool = False, is_stretch: bool = False
) -> list[Unseen]:
    """Return the reasons why memory may be missing from the change between the first and the last of *operands*.

    With *is_stretch* it is that within the only one.
    """
    places = [find_operand(text) for text in operands]
    if is_series:
        return _unseen_in_series(*places[0])
    first, last = places[0], places[-1]
    if is_stretch:
        return _unseen_at(first[0]) if isinstance(first[0], Run) else []
    if len(places) == 1 and isinstance(first[0], Run):
        records = saved_records(first[0], kind) if kind != SNAP else asked_for(first[0].snapshots)
        first, last = (first[0], records[-2].name), (first[0], records[-1].name)
    run = first[0]
    if isinstance(run, Run) and isinstance(last[0], Run):
        if run.folder != last[0].folder:
            return [*_unseen_at(run), *_unseen_at(last[0])]
        names = [name or asked_for(run.snapshots)[-1].name for _, name in (first, last)]
        found = list(unseen_in_run(run, kind, names))
        try:
            check_order(run, kind, names)
        except InputError as error:
            found.append(Unseen(error.slug, str(error)))
        return found
    if isinstance(run, Path) and isinstance(last[0], Path) and len(places) > 1 and first[1] == last[1]:
        return _same_file(run, last[0])
    return [one for place, _ in (first, last) if isinstance(place, Run) for one in _unseen_at(place)]


def _unseen_in_series(place: Union[Path, Run], name: Optional[str]) -> list[Unseen]:
    """Return the reasons of a run's series of snapshots, those called *name* (None: all)."""
    if not isinstance(place, Run):
        return []
    records = [one for one in asked_for(place.snapshots) if name in (None, one.base_name)]
    return list(unseen_in_run(place, SNAP, (records[0].name, records[-1].name))) if records else []


def _unseen_at(run: Run) -> list[Unseen]:
    """Return the reasons why memory may be missing from one snapshot of *run*."""
    return [
        *end_of(run).unseen(),
        *(
            Unseen(one.slug, one.message)
            for one in run.notices
            if one.slug in ("static-binary", "massif-blind")
        ),
    ]


def _same_file(before: Path, after: Path) -> list[Unseen]:
    with contextlib.suppress(OSError):
        if before.samefile(after):
            text = f"{printable(str(before))} and {printable(str(after))} are the same file"
            return [Unseen("recorded-once", f"{text}; name two that were written at different times")]
    return []


def containers_holding(operands: Sequence[str], diff: Diff, query: Query) -> Sequence[Holding]:
    """Return the containers that hold the growth in *diff* of *operands*, if these are snapshots of one run."""
    places = [find_operand(text) for text in operands]
    run = places[0][0]
    if not isinstance(run, Run) or not is_of_one_run(operands):
        return []
    from gdbmem.runs.saved_documents import holdings  # not always needed

    if len(places) == 1:
        return holdings(run, asked_for(run.snapshots)[-2:], diff, query)
    chosen = [run.record(name) if name is not None else asked_for(run.snapshots)[-1] for _, name in places]
    return holdings(run, chosen, diff, query)


# Verdicts on whether a difference exceeds a limit, including the uncertainty of the data.


def judge_growth(
    diff: Diff,
    query: Query,
    limit_bytes: Optional[int],
    *,
    one_process: bool = False,
    unseen: Sequence[Unseen] = (),
) -> Judgement:
    """Judge whether *diff*, without the paths that *query* excludes or knows, grew by at most *limit_bytes*.

    *limit_bytes* None: only the growth is wanted. *one_process*: both sides are of the same process, so that equal
    samples of a path are the same blocks. *unseen* are the reasons why memory may be missing from the sides.
    """
    if one_process:
        diff = of_one_process(diff)
    ranking = rank(diff, query._replace(by="line", top=None, min_bytes=0))
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
    ranking = rank(diff, query._replace(by="line", top=None, min_bytes=0, unchanged=True))
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
