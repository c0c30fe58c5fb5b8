"""Memory that the results of a run can't show, by what the run knows of itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Optional, Union

from gdbmem.errors import InputError
from gdbmem.json_values import as_json, from_fields, from_json
from gdbmem.model.calltree import GROWN_BYTES, HEAP_BYTES, PAGE_BYTES
from gdbmem.model.judgement import Unseen, describe_end, name_status, unseen_end
from gdbmem.runs.distrust import split_name
from gdbmem.runs.run import Run, SnapshotRecord
from gdbmem.runs.saved_results import HEAP, LEDGER, SavedResult, find_saved, saved_records
from gdbmem.text import format_size, plural, printable

SNAP = "snap"
Record = Union[SnapshotRecord, SavedResult]

# Bytes: less comes and goes with libraries, buffers and stacks, and natively with the tables of the profiler.
_LEAST_OUTSIDE = {"massif": 64 << 10, "memcheck": 64 << 10, "faults": 64 << 10}
_LEAST_OUTSIDE_NATIVE = 128 << 10
_STACK_BYTES = 8 << 20  # of a thread, by default
_SEES_ALL = (
    "engine: none with do: [ledger] and metric: rss sees it, engine: faults by the lines that touched it"
)
_SEES_CHILDREN = "'gdbmem monitor --fail-on growing -- PROGRAM' judges all processes"
_OUTSIDE_UNKNOWN = (
    "what the process holds beside that could not be read: the kernel forbids it for a program that has changed its"
    " user or its namespaces, or is not dumpable (prctl); run gdbmem as root"
)
_UNREAD = (
    "how much its pipes and sockets hold can't be read: files are under way in them (SCM_RIGHTS), pieces in a pipe may"
    " be a page each (packets, vmsplice), the kernel tells nothing of the ring that a socket for packets may have, or"
    " the kernel (before Linux 5.6) or a filter (seccomp) forbids to look into them"
)
_WORDS = {SNAP: "snapshot", LEDGER: "ledger", HEAP: "heap"}


class RunEnd(NamedTuple):
    """How the program of a recipe ended, as `run.json` has it."""

    status: Optional[int] = None  # as in a shell; None: unknown
    meant: Optional[int] = 0  # the status that the recipe says; None: any
    what: str = ""  # what is known beside the status, a clause with the program as its subject
    failure: str = ""  # of gdbmem, gdb or valgrind
    replaced: bool = False  # the program executed another one, which the engine did not follow
    forks: int = 0  # children that ran the program's own code
    own: int = 0  # processes that it started of its own file, or of one that may be a copy
    fork_peak_bytes: Optional[int] = None  # the most that one of them had mapped; None: unknown
    signalled: str = ""  # the signal of an error of the program after which nothing was recorded

    def unseen(self, mapped_bytes: Optional[int] = None) -> Iterator[Unseen]:
        """Yield the reasons why the program may not have done all that it was to do, or not alone.

        *mapped_bytes* is what it had mapped before: what its children have beyond that is theirs; None: unknown.
        """
        if self.failure:
            yield Unseen("launch-failed", self.failure)
            return
        remedy = (
            ""
            if self.status is None
            else f"write 'ends: {name_status(self.status)}' if it is meant to end so"
        )
        if self.replaced:
            yield Unseen("program-ended", self.what)
            return
        end = unseen_end(self.status, self.meant, what=self.what, remedy=remedy)
        if end is not None:
            yield end
        elif self.signalled and self.meant is not None:
            text = f"the program got {printable(self.signalled)} after that, and {describe_end(self.status or 0)}"
            yield Unseen("program-failed", f"{text}; write 'ends: any' if it is meant to end so")
        if self.own:
            started = plural(self.own, "process", "processes")
            text = (
                f"the program started {started} of its own file (or a copy, a deleted file, or a setuid one)"
            )
            yield Unseen("children", f"{text}, whose memory is in no snapshot; {_SEES_CHILDREN}")
        if self.forks:
            text = f"the program forked {plural(self.forks, 'child', 'children')}, whose memory is in no snapshot"
            hidden = None
            if self.fork_peak_bytes is not None and mapped_bytes is not None:
                hidden = max(self.fork_peak_bytes - mapped_bytes, 0) * self.forks
            yield Unseen(
                "children", f"{text}; {_SEES_CHILDREN}, and massif with --pages-as-heap these", hidden
            )


class PointFacts(NamedTuple):
    """One point of a recipe, as `run.json` has it."""

    name: str
    at: str = ""
    hits: int = 0
    failed: Mapping[str, str] = {}  # the errors of actions that failed the last time


def end_of(run: Run) -> RunEnd:
    """Return how the program of *run* ended; of a run without a recipe, that it doesn't matter. Raises InputError."""
    with _refused(run):
        return from_fields(RunEnd, run.facts["end"]) if "end" in run.facts else RunEnd(status=0)


def _points(run: Run) -> list[PointFacts]:
    with _refused(run):
        return [from_fields(PointFacts, row) for row in from_json(list[object], run.facts.get("points", []))]


@contextlib.contextmanager
def _refused(run: Run) -> Iterator[None]:
    """Raise InputError for a damaged fact: no gate may pass over it."""
    try:
        yield
    except ValueError as error:
        raise InputError(
            f"run.json of {printable(run.folder.name)} can't be read: {error}",
            slug="run-damaged",
            hint="don't trust this run; record it again",
        ) from None


def end_facts(end: RunEnd) -> dict[str, object]:
    """Return *end* as `end_of` reads it back from the facts of a run."""
    return as_json(end)


def unseen_in_run(run: Run, kind: str, names: Sequence[str], *, unit: str = HEAP_BYTES) -> tuple[Unseen, ...]:
    """Return the reasons why memory may be missing from the change between two results of *kind*, called *names*.

    *kind* is SNAP, or that of `saved_results`; *unit* is what the snapshots count.
    """
    records = [record for record in (_find(run, kind, name) for name in names) if record is not None]
    before = records[0] if records else None
    mapped_bytes = before.heap_bytes if isinstance(before, SnapshotRecord) and unit == PAGE_BYTES else None
    found = [*end_of(run).unseen(mapped_bytes), *_failures(run, kind, names)]
    if len(records) == 2:
        found += _of_two(*records)
        if kind not in (SNAP, HEAP) or (kind == SNAP and unit in (HEAP_BYTES, GROWN_BYTES)):
            found += _outside(run, *records)
    return tuple(found)


def check_order(run: Run, kind: str, names: Sequence[str]) -> None:
    """Raise InputError unless the first of *names* was recorded before the second: they may be one and the same."""
    known: Sequence[Record] = run.snapshots if kind == SNAP else saved_records(run, kind)
    files = [record.file for record in known]
    places = [
        files.index(found.file) for found in (_find(run, kind, name) for name in names) if found is not None
    ]
    if len(places) != 2:
        return
    before, after = map(printable, names)
    if places[0] == places[1]:
        what, hits = _WORDS.get(kind, "scan"), _hits(run, names[1])
        failed = "".join(f"; {one.message}" for one in _failures(run, kind, names))
        raise InputError(f"'{before}' and '{after}' are the same {what}{hits}{failed}", slug="recorded-once")
    if places[0] > places[1]:
        text = f"'{before}' was recorded later than '{after}'"
        raise InputError(text, slug="recorded-later", hint="name the earlier one first")


def _hits(run: Run, name: str) -> str:
    """Return how often the point of *name* was hit, if the run is of a recipe."""
    base = split_name(name)[0]
    for point in _points(run):
        if point.name == base:
            return f": '{printable(point.at)}' was hit {plural(point.hits, 'time')}"
    return ""


def _find(run: Run, kind: str, name: str) -> Optional[Record]:
    with contextlib.suppress(InputError):
        return run.record(name) if kind == SNAP else find_saved(run, kind, name)
    return None


def _failures(run: Run, kind: str, names: Sequence[str]) -> Iterator[Unseen]:
    """Yield the failures after the last result of a name without a number."""
    failed = {point.name: point.failed for point in _points(run)}
    for name in names:
        base, number = split_name(name)
        error = failed.get(base, {}).get(kind)
        if number is None and error:
            text = f"the last {_WORDS.get(kind, 'scan')} at '{printable(base)}' failed: {printable(error)}"
            yield Unseen("action-failed", text)


def _of_two(before: Record, after: Record) -> Iterator[Unseen]:
    """Yield a reason if the results are of two processes or, in one, of two programs."""
    if before.execution and after.execution and before.execution != after.execution:
        text = "the program executed another one (exec) in between, or was started again: they are of two programs"
        yield Unseen("other-process", f"{text}; put both points after that")


def _outside(run: Run, before: Record, after: Record) -> Iterator[Unseen]:
    """Yield what the kernel knows to have grown outside what was measured."""
    engine = printable(after.engine) if isinstance(after, SnapshotRecord) else ""
    if isinstance(after, SnapshotRecord):
        yield from _other_malloc(run, after)
    if any(one.execution is not None and one.outside_bytes is None for one in (before, after)):
        yield Unseen("outside-unknown", _OUTSIDE_UNKNOWN)
    least = _LEAST_OUTSIDE.get(engine, _LEAST_OUTSIDE_NATIVE)
    if after.unread_bytes > least:
        yield Unseen("outside-unread", _UNREAD, after.unread_bytes)
    grown = _grown(before.outside_bytes, after.outside_bytes, least)
    if isinstance(before, SnapshotRecord) and isinstance(after, SnapshotRecord):
        grown = max(grown, _stacks(before, after))
    if grown:
        unmapped = _grown(before.unmapped_bytes, after.unmapped_bytes, 0)
        yield Unseen("outside-growth", _grown_outside(engine, grown, unmapped), grown)


def _stacks(before: SnapshotRecord, after: SnapshotRecord) -> int:
    """Return the most that the stacks of new threads can hold, which pages that malloc keeps unwritten may outweigh."""
    started = (after.threads or 0) - (before.threads or 0)
    if started <= 0 or before.own_bytes is None or after.own_bytes is None:
        return 0
    return _grown(
        before.own_bytes,
        min(after.own_bytes, before.own_bytes + started * _STACK_BYTES),
        _LEAST_OUTSIDE_NATIVE,
    )


def _other_malloc(run: Run, after: SnapshotRecord) -> Iterator[Unseen]:
    """Yield a reason if the program has a malloc that the engine can't replace."""
    engine = printable(after.engine)
    if any(notice.slug == "static-binary" for notice in run.notices):
        remedy = "; options: {pages-as-heap: yes} counts its pages" if engine == "massif" else ""
        text = f"{engine} can't count the heap of a statically linked program{remedy}; {_SEES_ALL}"
        yield Unseen("static-binary", text)
    elif after.unseen_malloc:
        text = f"{engine} does not see {printable(after.unseen_malloc)}; {_SEES_ALL}"
        yield Unseen("own-allocator", text)


def _grown_outside(engine: str, grown: int, unmapped: int) -> str:
    """Return the sentence on memory that *engine* does not count, of which *unmapped* bytes are in no mapping."""
    size = format_size(grown)
    if 2 * unmapped > grown:
        which = " of memory" if unmapped >= grown else f", {format_size(unmapped)} of it memory"
        how = (
            "that its mappings don't show (files in memory, System V segments, queues, full pipes or sockets,"
            " buffers of the kernel)"
        )
        return (
            f"the process grew by {size}{which} {how}; 'ls -lR /dev/shm', 'ipcs' and 'ss -m', in its namespaces, and"
            " /proc/PID/fdinfo list some of them"
        )
    if not engine or engine == "tracemalloc":
        how = "memory that is not in its resident set (swapped, or in huge pages)"
        remedy = "'gdbmem monitor' records its cgroup's; engine: faults counts huge pages"
        return f"the process grew by {size} of {how}; {remedy}"
    if engine == "faults":
        how = "memory that no page fault explains (MAP_POPULATE, mlock, huge pages, lost samples)"
        return f"the process grew by {size} of {how}; engine: none with do: [ledger] and metric: rss sees it"
    how = f"memory that {engine} does not count (an allocator of its own, mmap, stacks)"
    return f"the process grew by {size} of {how}; {_SEES_ALL}"


def _grown(before: Optional[int], after: Optional[int], least: int) -> int:
    """Return the growth from *before* to *after*; 0 if it is unknown, or at most *least*."""
    if before is None or after is None or after - before <= least:
        return 0
    return after - before
