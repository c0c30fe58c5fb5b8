"""memray's files, through memray itself: its format is private, and changes with its version."""

from __future__ import annotations

import importlib
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.stacks import (
    IN_USE,
    KEPT,
    Content,
    Singles,
    Stack,
    StackProfile,
    check_count,
    check_depth,
    choose_metric,
    make_profile,
)
from gdbmem.model.calltree import BYTES_MISSING, PEAK, THREAD, Frame, Moment, Stretch
from gdbmem.text import format_moment, printable

_RECORDS = {IN_USE: "get_leaked_allocation_records", PEAK: "get_high_watermark_allocation_records"}
_OF_STRETCH = (KEPT, IN_USE)


def read_memray(
    data: Data,
    source: str,
    metric: Optional[str],
    *,
    stretch: Optional[Stretch] = None,
    by_thread: bool = False,
) -> StackProfile:
    """Read the file *source* with memray, or a *stretch* of it, *by_thread* with the thread in front of each stack.

    Raises InputError if memray is not installed, can't read it, or if the stretch is not in it.
    """
    chosen = choose_metric(metric, list(_RECORDS) if stretch is None else _OF_STRETCH, source)
    reader = _reader(source)
    try:
        with reader:
            found = _Reading(reader, source, by_thread=by_thread)
            if stretch is not None:
                profile = found.stretch(stretch, chosen)
            else:
                records = getattr(reader, _RECORDS[chosen])(merge_threads=not by_thread)
                sizes = ((r, r.size, r.n_allocations) for r in records)
                profile = found.profile(chosen, list(_RECORDS), sizes)
            if bytes(data[:6]) == b"memray":  # memray compresses a file when the program ends
                text = f"{printable(source)} is as a killed program leaves it, or was recorded with --no-compress"
                profile.add_notices([Notice(BYTES_MISSING, f"{text}: what was written last may be missing")])
            return profile
    except NotImplementedError:  # a RuntimeError, too
        raise InputError(
            f"{printable(source)} was recorded with --aggregate: it has no times",
            slug="no-stretch",
            hint="leave --from and --until out, or record without --aggregate",
        ) from None
    except (OSError, RuntimeError, ValueError) as error:
        raise _unreadable(source, error) from None


class _Reading:
    def __init__(self, reader: Any, source: str, *, by_thread: bool) -> None:
        self._reader, self._source, self._by_thread = reader, source, by_thread
        self._metadata = reader.metadata
        self._frames: dict[Frame, int] = {}

    def profile(
        self, metric: str, metrics: Sequence[str], records: Iterable[tuple[Any, int, int]], time: float = 0.0
    ) -> StackProfile:
        """Return the profile of *records*, each with its bytes and blocks."""
        stacks = [self._stack(*record) for record in records]
        content, command = Content(stacks, Singles(list(self._frames))), str(self._metadata.command_line)
        return make_profile(content, self._source, "memray", metric, metrics, command=command, time=time)

    def stretch(self, stretch: Stretch, metric: str) -> StackProfile:
        """Return what was allocated in *stretch* and not freed by its end, or what is in use at both of its ends."""
        if not hasattr(self._reader, "get_temporal_allocation_records"):
            raise InputError(
                f"the memray here reads no times out of {printable(self._source)}",
                slug="no-stretch",
                hint="memray 1.8 and later do; leave --from and --until out",
            )
        begin, end = stretch.values_in("s", self._source)
        start = self._metadata.start_time.timestamp()
        times = [round(one.time / 1000 - start, 3) for one in self._reader.get_memory_snapshots()]
        last_time = max(self._metadata.end_time.timestamp() - start, *times, 0.0)
        if begin >= last_time or not last_time:
            raise stretch.after_end(self._source, format_moment(last_time, "s"))
        # Blocks are known as of these snapshots.
        first, last = (bisect_left(times, at) for at in (begin, end))
        began, ended = ((times[at] if at < len(times) else last_time) for at in (first, last))
        if first == last:
            raise stretch.too_short(self._source, format_moment(ended, "s"))
        if not begin:
            first, began = -1, 0.0
        spans = list(self._reader.get_temporal_allocation_records(merge_threads=not self._by_thread))

        def held(at: int, since: int = -1) -> Iterator[tuple[Any, int, int]]:
            for record in spans:
                live = [
                    one
                    for one in record.intervals
                    if _is_live(one, at) and one.allocated_before_snapshot > since
                ]
                if live:
                    yield record, sum(one.n_bytes for one in live), sum(one.n_allocations for one in live)

        if metric == KEPT:
            profile = self.profile(metric, _OF_STRETCH, held(last, first), ended)
            text = f"of memory allocated from {format_moment(began, 's')} on, what was not freed by"
            profile.add_notices([Notice("stretch", f"{text} {format_moment(ended, 's')} is counted")])
        else:
            profile = self.profile(metric, _OF_STRETCH, held(last), ended)
            profile.earlier = self.profile(metric, _OF_STRETCH, held(first), began)
        profile.covered = Stretch(Moment(began, "s"), Moment(ended, "s"))
        if last_time < end < math.inf:
            profile.add_notices([stretch.cut_by(self._source, format_moment(last_time, "s"))])
        return profile

    def _stack(self, record: Any, size: int, blocks: int) -> Stack:
        is_native = self._metadata.has_native_traces
        places = record.hybrid_stack_trace() if is_native else record.stack_trace()
        check_depth(len(places), self._source)
        path = [
            Frame(function, file or None, line if file and line > 0 else None)
            for function, file, line in places
        ]
        if self._by_thread:
            path.insert(0, _thread(record))
        frames = self._frames
        numbers = [frames.setdefault(frame, len(frames)) for frame in path]
        return Stack(numbers, check_count(size, self._source), check_count(blocks, self._source))


def _is_live(interval: Any, at: int) -> bool:
    freed = interval.deallocated_before_snapshot
    return bool(interval.allocated_before_snapshot <= at and (freed is None or freed > at))


def _thread(record: Any) -> Frame:
    name = str(getattr(record, "thread_name", "") or "")
    is_named = name not in ("", hex(record.tid))  # some versions name the others by their number
    return Frame(f"{name} (thread {record.tid})" if is_named else f"thread {record.tid}", object=THREAD)


def _reader(source: str) -> Any:
    try:
        read: Any = importlib.import_module("memray").FileReader
    except ImportError:
        raise InputError(
            f"{printable(source)} is a file of memray, which is not installed here",
            slug="memray-missing",
            hint="type 'pip install memray' in gdbmem's environment; only memray can read its files",
        ) from None
    try:
        return read(source)
    except (OSError, RuntimeError, ValueError) as error:
        raise _unreadable(source, error) from None


def _unreadable(source: str, error: Exception) -> InputError:
    return InputError(
        f"memray can't read {printable(source)}: {printable(str(error))}",
        slug="memray-unreadable",
        hint="unpack it if it is compressed; a file of another memray may need that version",
    )
