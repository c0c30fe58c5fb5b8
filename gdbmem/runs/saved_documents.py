"""Ledgers, container scans and heaps of a run: loading, saving, and the containers that hold the growth of a diff."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, Union

from gdbmem.containers.containers import containers_json
from gdbmem.errors import InputError, UsageError
from gdbmem.formats.addresses import Symbols
from gdbmem.formats.documents import read_heap, read_heap_map, read_ledger, read_survey
from gdbmem.formats.opening import OpenOptions
from gdbmem.ledger.answer import retained_bytes
from gdbmem.ledger.document import ledger_json
from gdbmem.ledger.pinners import PinnerPaths, join_paths
from gdbmem.model.calltree import Snapshot
from gdbmem.model.containers import Holding, Survey
from gdbmem.model.diff import Diff
from gdbmem.model.heap_blocks import HeapMap
from gdbmem.model.heap_graph import HeapView, SavedHeap
from gdbmem.model.ledger import Ledger
from gdbmem.profiles.containers_behind_growth import find_holdings
from gdbmem.profiles.paths import Query
from gdbmem.runs import saved_results
from gdbmem.runs.operand import find_operand, format_of, load_operand
from gdbmem.runs.run import Run, SnapshotRecord
from gdbmem.text import printable

_MOST_SURVEYS = 50


def holdings(run: Run, chosen: Sequence[SnapshotRecord], diff: Diff, query: Query) -> Sequence[Holding]:
    """Return the containers that hold the growth in *diff*, of the snapshots *chosen* of *run*.

    None are returned if the run has no container scans with the names and locations of the first and the last.
    """
    kept = saved_results.saved_records(run, saved_results.CONTAINERS)
    ends = [_of_moment(kept, record) for record in (chosen[0], chosen[-1])]
    if not kept or None in ends or chosen[0].process != chosen[-1].process:
        return []
    first, last = (kept.index(one) for one in ends if one is not None)
    if first >= last:
        return []
    between = [one for one in kept[first : last + 1] if one.place == kept[last].place]
    if len(between) > _MOST_SURVEYS:
        between = [between[0], between[-1]]
    try:
        surveys = [read_survey(saved_results.saved_text(run, one), one.file) for one in between]
    except InputError:
        return []  # one is damaged: the diff goes without
    return find_holdings(diff, query, surveys)


def _of_moment(
    kept: Sequence[saved_results.SavedResult], record: SnapshotRecord
) -> Optional[saved_results.SavedResult]:
    same = [one for one in kept if (one.base_name, one.ordinal) == (record.base_name, record.ordinal)]
    return next((one for one in same if (one.place, one.hit) == (record.place, record.hit)), None)


# The call paths that allocate blocks pinning free pages, from a snapshot of another run.


def paths_of_pinners(operand: str, ledger: Ledger, symbols: Symbols) -> PinnerPaths:
    """Return the call paths that allocate blocks of the pinning sizes in *ledger*, from the snapshot *operand*."""
    snapshot, source_format = snapshot_and_format(operand, symbols)
    return join_paths(ledger, snapshot, source_format=source_format)


def snapshot_and_format(operand: str, symbols: Symbols) -> tuple[Snapshot, str]:
    """Return the snapshot that *operand* names, with names, and the format of its file."""
    reading = OpenOptions(symbols=symbols)
    return load_operand(operand, reading).snapshot, format_of(operand, reading)


# An earlier ledger or container scan to compare with, from a file or a run, for the command and for gdb.


def load_ledger(text: str) -> Ledger:
    """Return the ledger that *text* names: a file, RUN:NAME, or RUN for its last; raises InputError."""
    return read_ledger(*_document(text, saved_results.LEDGER))


def load_heap_map(text: str) -> Optional[HeapMap]:
    """Return the map of the heap beside the ledger that *text* names; None if there is none."""
    return read_heap_map(*_document(text, saved_results.LEDGER))


def load_heap(text: str) -> SavedHeap:
    """Return the heap that *text* names as for `load_ledger`."""
    return read_heap(*_document(text, saved_results.HEAP))


def _document(text: str, kind: str) -> tuple[str, str]:
    place, name = find_operand(text)
    return saved_document(place, kind, name)


def saved_document(place: Union[Path, Run], kind: str, name: Optional[str]) -> tuple[str, str]:
    """Return the JSON in the file *place*, or that the run *place* keeps as *name* (None: its last), and its label.

    Raises InputError if there is none.
    """
    if not isinstance(place, Run):
        return saved_results.file_text(place), str(place)
    if name is None:
        names = [record.name for record in saved_results.saved_records(place, kind)]
        if not names:
            raise saved_results.nothing_saved(place, kind)
        name = names[-1]
    record = saved_results.find_saved(place, kind, name)
    return saved_results.saved_text(place, record), record.file


def place_to_save(text: str) -> tuple[Run, str]:
    """Parse *text*, RUN:NAME, into the run and the name in it; raises UsageError for any other form."""
    place, name = find_operand(text)
    if not isinstance(place, Run) or not name:
        raise UsageError(
            f"--save takes RUN:NAME, the folder of a run and a new name, not '{printable(text)}'",
            hint="'gdbmem show RUN' lists what a run holds; --json -o FILE writes a file",
        )
    return place, name


def save_ledger(run: Run, name: str, ledger: Ledger, **where: Any) -> saved_results.SavedResult:
    """Save *ledger* in *run* under *name*; *where* are fields of `SavedResult`."""
    sums = {"total_bytes": ledger.rss_bytes, "unused_bytes": retained_bytes(ledger)}
    return saved_results.keep(run, saved_results.LEDGER, name, ledger_json(ledger), **sums, **where)


def save_survey(run: Run, name: str, survey: Survey, **where: Any) -> saved_results.SavedResult:
    """Save *survey* in *run* under *name*; *where* are fields of `SavedResult`."""
    sums = {"total_bytes": survey.held_bytes, "unused_bytes": survey.slack_bytes}
    return saved_results.keep(run, saved_results.CONTAINERS, name, containers_json(survey), **sums, **where)


def save_heap(run: Run, name: str, text: str, view: HeapView, **where: Any) -> saved_results.SavedResult:
    """Save the document *text* of a heap in *run* under *name*; *view* is the answer in it."""
    sums = {"total_bytes": view.live_bytes, "unused_bytes": view.leaks.least_bytes}
    return saved_results.keep(run, saved_results.HEAP, name, text, **sums, **where)
