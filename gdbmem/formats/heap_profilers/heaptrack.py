"""heaptrack's interpreted files, versions 1 to 3: every allocation of a run, in order.

Tens of millions of lines are "+ INDEX" or "- INDEX". They are counted without parsing, one piece of the file at a
time; only the few lines that define strings, addresses, traces and allocations are parsed one by one.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Callable, NamedTuple, Optional, Union

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.heap_profilers.heaptrack_lines import (
    NO_EVENT,
    NUMPY_FROM_BYTES,
    BadLineError,
    EventCounts,
    Events,
    HeaptrackLines,
    Tables,
    take_apart,
)
from gdbmem.formats.stacks import (
    ALLOCATED,
    DEEPEST,
    IN_USE,
    LARGEST,
    TEMPORARY,
    Content,
    Stack,
    StackProfile,
    bad_line,
    check_count,
    check_depth,
    choose_metric,
    count_too_big,
    several_dumps,
)
from gdbmem.model.calltree import BYTES_MISSING, PEAK, Frame, Moment, Stretch
from gdbmem.text import format_moment, format_size, printable

METRICS = (IN_USE, PEAK, ALLOCATED, TEMPORARY)
_OF_STRETCH = (IN_USE, ALLOCATED, TEMPORARY)
_TIME = re.compile(rb"^c ([0-9a-f]{1,12})\n", re.MULTILINE)  # milliseconds
_VERSIONS = (1, 2, 3)
_TRAILER, _TRAILER_WITHIN = b"# strings: ", 200  # bytes of its end
_LONGEST_LINE_BYTES = 64 << 20
_PIECE_BYTES = 128 << 10  # what is worked out of a piece then stays in the processor's cache

_LONGEST_STACK = 64  # frames that heaptrack itself records of one
_MOST_FRAMES = 1 << 20  # of all stacks together, should some be longer

Blocks = Callable[[], Iterator[bytes]]  # what a file holds, from its start each time


def _column(*values: int) -> array[int]:
    return array("q", values)


@dataclass
class _Tables:
    # Indices of strings, addresses and traces count from 1, those of allocations from 0. There may be millions.
    version: int = 0
    command: str = ""
    strings: list[str] = field(default_factory=lambda: [""])
    chains: list[Sequence[Frame]] = field(default_factory=lambda: [()])
    trace_address: array[int] = field(default_factory=lambda: _column(0))
    trace_caller: array[int] = field(default_factory=lambda: _column(0))  # another trace
    size: array[int] = field(default_factory=_column)  # of each allocation, bytes
    trace: array[int] = field(default_factory=_column)  # of each allocation

    def add(self, more: Tables) -> bool:
        """Add *more*, unless it refers to something undefined; return whether it was added."""
        if not more.name_what_is_known(len(self.chains), len(self.trace_caller)):
            return False
        columns = (self.trace_address, self.trace_caller, self.size, self.trace)
        for column, values in zip(columns, (more.addresses, more.callers, more.sizes, more.traces)):
            column.frombytes(values.astype("q").tobytes())
        return True


class _Course(NamedTuple):
    events: Events
    at_peak: int  # lines from the start of the counting to the peak


def read_heaptrack(
    data: Union[Data, Blocks], source: str, metric: Optional[str], *, stretch: Optional[Stretch] = None
) -> StackProfile:
    """Read *data*, which need not be in memory as a whole; only a *stretch* of it, if that is given.

    Raises InputError, naming the line, for a file that is damaged, and for a stretch that is not in it.
    """
    metrics = METRICS if stretch is None else _OF_STRETCH
    chosen = choose_metric(metric, metrics, source)
    reader = _HeaptrackReader(data if callable(data) else lambda: _slices(data), source)
    if stretch is not None:
        return _read_stretch(reader, chosen, stretch)
    course = reader.read(wants_peak=chosen == PEAK)
    events = course.events
    if chosen == PEAK:
        events = reader.events_until(course.at_peak)
    elif chosen == TEMPORARY:
        events = reader.temporaries()
    return _profile(reader, events, chosen, metrics)


def _read_stretch(reader: _HeaptrackReader, metric: str, stretch: Stretch) -> StackProfile:
    """Return what was counted between two moments; of what is in use both, as the blocks themselves aren't known."""
    begin, end = stretch.values_in("s", reader.source)
    reader.moments = [begin, end]
    whole = reader.read(wants_peak=False).events
    (first, began), (last, ended) = reader.found_moments()
    if first == math.inf or not reader.last_time:
        raise stretch.after_end(reader.source, format_moment(reader.last_time, "s"))
    if first >= last:
        raise stretch.too_short(reader.source, format_moment(ended, "s"))
    if reader.last_time < end < math.inf:
        reader.notices.append(stretch.cut_by(reader.source, format_moment(reader.last_time, "s")))
    covered = Stretch(Moment(began, "s"), Moment(ended, "s"))
    if metric != IN_USE:
        count = reader.temporaries if metric == TEMPORARY else reader.events_between
        profile = _profile(reader, count(first, last), metric, _OF_STRETCH, time=ended)
        text = f"only {format_moment(began, 's')} to {format_moment(ended, 's')} of the recording is counted"
        profile.add_notices([Notice("stretch", text)])
        profile.covered = covered
        return profile
    later = whole if last == math.inf else reader.events_between(0, last)
    profile = _profile(reader, later, metric, _OF_STRETCH, time=ended)
    profile.covered, reader.notices = covered, []  # which are said once
    profile.earlier = _profile(reader, reader.events_between(0, first), metric, _OF_STRETCH, time=began)
    return profile


def _profile(
    reader: _HeaptrackReader, events: Events, metric: str, metrics: Sequence[str], *, time: float = 0.0
) -> StackProfile:
    tables = reader.tables
    stacks = _stacks(tables, events, metric, reader.source, by_size=False)
    profile = StackProfile(
        source=reader.source,
        source_format="heaptrack",
        metric=metric,
        metrics=metrics,
        total_bytes=sum(stack.bytes for stack in stacks),
        load=lambda profile: _load(profile, stacks, tables, events),
        command=tables.command,
        time=time,
        notices=reader.notices,
    )
    profile.has_block_sizes = True
    return profile


def _load(profile: StackProfile, stacks: Sequence[Stack], tables: _Tables, events: Events) -> Content:
    if profile.by_size:
        stacks = _stacks(tables, events, profile.metric, profile.source, by_size=True)
    merged = _merged(stacks, tables)
    deepest = _deepest(merged, tables)
    if deepest < DEEPEST:
        text = f"{printable(profile.source)} holds stacks that together are far longer than the file;"
        text += f" {deepest} frames of each are shown, from the allocation on"
        profile.add_notices([Notice("stacks-cut", text)])
    return Content(_with_paths(merged, tables, profile.source, deepest), tables.chains)


def _stacks(tables: _Tables, events: Events, metric: str, source: str, *, by_size: bool) -> list[Stack]:
    """Return one stack a trace (and size); its only "frame" is the trace's number, until its path is asked for."""
    sizes: Counter[tuple[int, int]] = Counter()
    blocks: Counter[tuple[int, int]] = Counter()
    made, freed = events
    counts = made if metric in (ALLOCATED, TEMPORARY) else [a - b for a, b in zip(made, freed)]
    for count, size, trace in zip(counts, tables.size, tables.trace):
        if count > 0:
            key = (trace, size if by_size else 0)
            sizes[key] += count * size
            blocks[key] += count
        elif count < 0:
            index = next(number for number, left in enumerate(counts) if left < 0)
            raise InputError(
                f"{printable(source)} frees allocation {index:x} more often than it makes it",
                slug="negative-count",
                hint="the file is damaged",
            )
    if sum(sizes.values()) > LARGEST:
        raise count_too_big(printable(source))
    return [
        Stack((trace,), total, blocks[trace, size], block_bytes=size if by_size else -1)
        for (trace, size), total in sizes.items()
    ]


def _merged(stacks: Sequence[Stack], tables: _Tables) -> list[Stack]:
    """Return *stacks*, merging those with equal frames at different addresses: usually few are left."""
    addresses, callers = tables.trace_address, tables.trace_caller
    numbers: dict[Sequence[Frame], int] = {}
    same_frames = [numbers.setdefault(tuple(frames), number) for number, frames in enumerate(tables.chains)]
    first: dict[int, int] = {0: 0}  # trace → the first one with the same frames
    known: dict[tuple[int, int], int] = {}
    sums: dict[tuple[int, int], Stack] = {}
    for stack in stacks:
        trace, way = stack.frames[0], []
        while trace not in first:  # a caller stands before what it calls: this ends
            way.append(trace)
            trace = callers[trace]
        found = first[trace]
        for trace in reversed(way):
            found = first[trace] = known.setdefault((same_frames[addresses[trace]], found), trace)
        before = sums.get((found, stack.block_bytes))
        size, blocks = (before.bytes, before.blocks) if before is not None else (0, 0)
        sums[found, stack.block_bytes] = Stack(
            (found,), size + stack.bytes, blocks + stack.blocks, block_bytes=stack.block_bytes
        )
    return list(sums.values())


def _deepest(stacks: Sequence[Stack], tables: _Tables) -> int:
    """Return how many frames of each stack to list: a chain of traces takes the square of its length."""
    depth = _column(0)
    for caller in islice(tables.trace_caller, 1, None):
        depth.append(depth[caller] + 1)
    together = sum(depth[stack.frames[0]] for stack in stacks)
    return DEEPEST if together <= _MOST_FRAMES + _LONGEST_STACK * len(stacks) else _LONGEST_STACK


def _with_paths(stacks: Sequence[Stack], tables: _Tables, source: str, deepest: int) -> list[Stack]:
    traces = [stack.frames[0] for stack in stacks]
    if deepest == DEEPEST:
        paths: Iterable[Sequence[int]] = (_whole_path(trace, tables, source) for trace in traces)
    else:
        paths = _cut_paths(traces, tables, deepest)
    return [
        Stack(path, stack.bytes, stack.blocks, block_bytes=stack.block_bytes)
        for stack, path in zip(stacks, paths)
    ]


def _whole_path(trace: int, tables: _Tables, source: str) -> Sequence[int]:
    path = array("i")  # 4 bytes a frame
    while trace:
        path.append(tables.trace_address[trace])
        trace = tables.trace_caller[trace]
    check_depth(len(path), source)
    return path


def _cut_paths(traces: Iterable[int], tables: _Tables, deepest: int) -> Iterator[Sequence[int]]:
    # Most are their caller's path with one more frame and without the outermost.
    addresses, callers = tables.trace_address, tables.trace_caller
    known: dict[int, array[int]] = {0: array("i")}
    for trace in traces:
        way = []
        while trace not in known:
            way.append(trace)
            trace = callers[trace]
        path = known[trace]
        for trace in reversed(way):
            path = known[trace] = array("i", (addresses[trace],)) + path[: deepest - 1]
        yield path


def _slices(data: Data) -> Iterator[bytes]:
    return (data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES))


class _HeaptrackReader:
    def __init__(self, blocks: Blocks, source: str) -> None:
        self.blocks = blocks
        self.source = source
        self.tables = _Tables()
        self.notices: list[Notice] = []
        self.has_trailer = False  # heaptrack's interpreter ends each file with counts
        self._is_big = False
        self._is_attached = False  # an "A" is in the piece
        self._start = 0  # of the counting, in bytes: after the last "A", where heaptrack was attached
        self._piece, self._lines = b"", 0  # what is being read, and how many lines stand before it
        self.moments: Sequence[float] = ()  # to be looked for, seconds
        self.last_time = 0.0  # of the recording, seconds; only known if moments are looked for
        self._found: dict[
            float, tuple[int, float]
        ] = {}  # of each: the first line with a time that is not before it

    def read(self, *, wants_peak: bool) -> _Course:
        tally = EventCounts()
        in_use = peak = at_peak = line = offset = 0
        for piece in self._first_time():
            self._piece = piece
            lines = take_apart(piece, is_big=self._is_big)
            count = len(lines)
            self._define(lines)
            self._note_times(offset)
            attached = self._attached_at()
            if attached:
                tally = EventCounts()
                in_use = peak = at_peak = line = 0
                self._start = offset + attached
                lines = take_apart(piece[attached:], is_big=self._is_big)
            self._count(tally, lines)
            if wants_peak:
                top = lines.peak(self.tables.size, in_use)
                if top.highest > peak:
                    peak, at_peak = top.highest, line + top.lines
                in_use = top.last
                line += len(lines)
            self._lines += count
            offset += len(piece)
        return _Course(tally.events(len(self.tables.size)), at_peak)

    def _note_times(self, offset: int) -> None:
        for match in _TIME.finditer(self._piece) if self.moments else ():
            self.last_time = max(int(match[1], 16) / 1000, self.last_time)
            for moment in self.moments:
                if moment <= self.last_time:
                    self._found.setdefault(moment, (offset + match.start(), self.last_time))

    def found_moments(self) -> list[tuple[float, float]]:
        """Return where each of the moments is, in bytes from the start, and its time: the file has one each 10 ms."""
        found: list[tuple[float, float]] = []
        for moment in self.moments:
            at, time = self._found.get(moment, (math.inf, self.last_time)) if moment else (0, 0.0)
            found.append((max(at, self._start), time))
        return found

    def _attached_at(self) -> int:
        """Return the offset in the piece where counting restarts, after its last "A"; 0 if it doesn't."""
        if not self._is_attached:
            return 0
        self._is_attached = False
        return self._piece.rfind(b"\nA\n") + 3 if b"\nA\n" in self._piece else len(b"A\n")

    def _first_time(self) -> Iterable[bytes]:
        # So much is held before it is known whether there is more.
        ahead, size, pieces = [], 0, self._pieces()
        for piece in pieces:
            ahead.append(piece)
            size += len(piece)
            if size >= NUMPY_FROM_BYTES:
                self._is_big = True
                break
        return chain(ahead, pieces)

    def _count(self, tally: EventCounts, lines: HeaptrackLines, first: Optional[int] = None) -> None:
        try:
            lines.count(tally, len(self.tables.size), first)
        except BadLineError as error:
            raise self._bad(error.args[0], "'+ INDEX' or '- INDEX' of an allocation") from None

    def _pieces(self) -> Iterator[bytes]:
        """Yield complete lines, in groups; any data after the last one is an incomplete line."""
        waiting: list[bytes] = []  # of a line that goes on
        start = 0  # where that line begins, bytes
        for block in self.blocks():
            if b"\n" not in block:
                waiting.append(block)
                if sum(map(len, waiting)) > _LONGEST_LINE_BYTES:
                    expected = f"a line of up to {format_size(_LONGEST_LINE_BYTES)}"
                    raise bad_line(self.source, self._line_at(start), waiting[0], expected)
                continue
            block = b"".join([*waiting, block])
            at = 0
            while stop := block.rfind(b"\n", at, at + _PIECE_BYTES) + 1 or block.find(b"\n", at) + 1:
                self.has_trailer = block.find(_TRAILER, max(at, stop - _TRAILER_WITHIN), stop) >= 0
                yield block[at:stop]
                at = stop
            waiting = [block[at:]]
            start += at
        if any(waiting) and not self.notices:
            text = f"{printable(self.source)} was truncated at line {self._line_at(start)}"
            self.notices.append(Notice(BYTES_MISSING, text))
        elif not self.has_trailer and not self.notices:
            text = f"{printable(self.source)} lacks the last lines that heaptrack writes: its end was cut off"
            self.notices.append(Notice(BYTES_MISSING, text))

    def _line_at(self, offset: int) -> int:
        """Return the number of the line that begins after *offset* bytes; needed only for damaged files."""
        number = 1
        for block in self.blocks():
            number += block.count(b"\n", 0, offset)
            offset -= len(block)
            if offset <= 0:
                break
        return number

    def temporaries(self, begin: float = 0, end: float = math.inf) -> Events:
        """Return how often each allocation was freed by the very next event, between these bytes of the file.

        As heaptrack counts them, but that it takes a free of its first allocation after another free for one, too.
        """
        tally, last = EventCounts(), NO_EVENT
        for lines in self._counted(begin, end):
            last = lines.temporaries(tally, len(self.tables.size), last)
        return tally.events(len(self.tables.size))

    def _counted(self, begin: float = 0, end: float = math.inf) -> Iterator[HeaptrackLines]:
        """Yield the lines of the counting, piece by piece, once more; only those between these bytes of the file."""
        begin, offset = max(begin, self._start), 0
        for piece in self._pieces():
            first, offset = offset, offset + len(piece)
            if first >= end:
                break
            if offset > begin:
                part = slice(int(max(begin - first, 0)), int(min(end - first, len(piece))))
                yield take_apart(piece[part], is_big=self._is_big)

    def events_between(self, begin: float, end: float) -> Events:
        """Return the events of the counting between these bytes of the file, at which lines begin."""
        tally = EventCounts()
        for lines in self._counted(begin, end):
            self._count(tally, lines)
        return tally.events(len(self.tables.size))

    def events_until(self, count: int) -> Events:
        """Return the events among the first *count* lines of the counting."""
        tally = EventCounts()
        for lines in self._counted():
            self._count(tally, lines, count)
            count -= len(lines)
            if count <= 0:
                break
        return tally.events(len(self.tables.size))

    def _define(self, lines: HeaptrackLines) -> None:
        more = lines.tables()
        at_once = more is not None and self.tables.add(more)
        readers = {115: self._string, 105: self._address, 116: self._trace, 97: self._allocation}  # s i t a
        for line in lines.definitions_beside_tables() if at_once else lines.definitions():
            try:
                if line[0] in readers:
                    readers[line[0]](line)
                elif not self._other(line):
                    raise ValueError
            except (ValueError, IndexError):
                expected = "a line of heaptrack's, with indices that it has given before"
                raise self._bad(line, expected) from None

    def _other(self, line: bytes) -> bool:
        if line.startswith(b"v ") and self.tables.version:
            raise several_dumps(self.source, "v ")
        if line.startswith(b"v "):
            self.tables.version = int(line.split()[2], 16)
            if self.tables.version not in _VERSIONS:
                raise InputError(
                    f"{printable(self.source)} is of version {self.tables.version} of heaptrack's format",
                    slug="format-unreadable",
                    hint="versions 1 to 3 can be read; heaptrack_print reads those of its own heaptrack",
                )
        elif line.startswith(b"X "):
            self.tables.command = line[2:].decode("utf-8", "surrogateescape")
        elif line[:2] in (b"x ", b"m "):
            raise InputError(
                f"{printable(self.source)} is raw data of heaptrack, without names",
                slug="format-unreadable",
                hint="pipe it through heaptrack_interpret first, as the heaptrack script does",
            )
        else:
            self._is_attached = line == b"A"
            return self._is_attached
        return True

    def _string(self, line: bytes) -> None:
        text = line[2:]
        if self.tables.version >= 3:
            size, _, text = text.partition(b" ")
            if int(size, 16) != len(text):
                raise ValueError
        self.tables.strings.append(text.decode("utf-8", "surrogateescape"))

    def _address(self, line: bytes) -> None:
        words = [int(word, 16) for word in line[2:].split()]
        strings = self.tables.strings
        module = strings[words[1]] or None
        chain = []
        rest = words[2:]
        while rest:
            function = strings[rest[0]] or None
            file = strings[rest[1]] if len(rest) > 1 else ""
            number = rest[2] if len(rest) > 2 else None
            chain.append(Frame(function, file or None, number if file else None, module))
            rest = rest[3:]
        chain = [frame._replace(inlined=True) for frame in chain[:-1]] + chain[-1:]
        self.tables.chains.append(chain or (Frame(object=module),))

    def _trace(self, line: bytes) -> None:
        _, first, second = line.split(b" ")
        address, caller = int(first, 16), int(second, 16)
        if not (0 < address < len(self.tables.chains) and 0 <= caller < len(self.tables.trace_caller)):
            raise IndexError
        self.tables.trace_address.append(address)
        self.tables.trace_caller.append(caller)

    def _allocation(self, line: bytes) -> None:
        first, _, second = line[2:].partition(b" ")
        size, trace = int(first, 16), int(second, 16)
        if not 0 <= trace < len(self.tables.trace_caller) or size < 0:
            raise IndexError
        self.tables.size.append(check_count(size, self.source))
        self.tables.trace.append(trace)

    def _bad(self, line: bytes, expected: str) -> InputError:
        before = (b"\n" + self._piece).find(b"\n" + line + b"\n")
        number = self._lines + self._piece.count(b"\n", 0, before) + 1
        return bad_line(self.source, number, line, expected)
