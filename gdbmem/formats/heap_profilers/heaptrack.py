"""heaptrack's interpreted files, versions 1 to 3: every allocation of a run, in order.

Tens of millions of lines are "+ INDEX" or "- INDEX". They are counted without parsing, one piece of the file at a
time; only the few lines that define strings, addresses, traces and allocations are parsed one by one.
"""

from __future__ import annotations

import contextlib
import math
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import sub
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
    take_apart,
)
from gdbmem.formats.stacks import (
    ALLOCATED,
    DEEPEST,
    IN_USE,
    LARGEST,
    TEMPORARY,
    Content,
    Singles,
    Stack,
    StackProfile,
    bad_line,
    check_count,
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
_WIDTH = array("i").itemsize
_DEFINED = "a line of heaptrack's, with indices that it has given before"

Blocks = Callable[[], Iterator[bytes]]  # what a file holds, from its start each time


@dataclass
class _Tables:
    # Indices of strings, addresses and traces count from 1, those of allocations from 0. There may be millions, most
    # of memory that was freed: their lines are parsed when they are needed.
    version: int = 0
    command: str = ""
    strings: list[str] = field(default_factory=lambda: [""])
    addresses: list[bytes] = field(default_factory=lambda: [b""])
    traces: list[bytes] = field(default_factory=lambda: [b""])
    allocations: list[bytes] = field(default_factory=list)
    first_trace: array[int] = field(default_factory=lambda: array("i", [0]))  # that may name each address
    first_allocation: array[int] = field(default_factory=lambda: array("i", [0]))  # that may name each trace


class _Course(NamedTuple):
    events: Events
    at_peak: int  # bytes from the start of the file to the peak


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
        events = reader.events_between(0, course.at_peak)
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
    made, freed = events
    counts = made if metric in (ALLOCATED, TEMPORARY) else array("q", map(sub, made, freed))
    if min(counts, default=0) < 0:
        index = next(number for number, left in enumerate(counts) if left < 0)
        raise InputError(
            f"{printable(reader.source)} frees allocation {index:x} more often than it makes it",
            slug="negative-count",
            hint="the file is damaged",
        )
    held = [(count, *reader.allocation(index)) for index, count in enumerate(counts) if count]
    total = sum(count * size for count, size, _ in held)
    if total > LARGEST:
        raise count_too_big(printable(reader.source))
    profile = StackProfile(
        source=reader.source,
        source_format="heaptrack",
        metric=metric,
        metrics=metrics,
        total_bytes=total,
        load=lambda profile: _load(profile, reader, held),
        command=reader.tables.command,
        time=time,
        notices=reader.notices,
    )
    profile.has_block_sizes = True
    return profile


def _load(profile: StackProfile, reader: _HeaptrackReader, held: Sequence[tuple[int, int, int]]) -> Content:
    traces, frames = {trace for _, _, trace in held}, _FrameNumbers(reader)
    paths = _paths(traces, frames, DEEPEST)
    if paths is None:
        paths = _paths(traces, frames, _LONGEST_STACK)
        text = f"{printable(profile.source)} holds stacks that together are far longer than the file;"
        text += f" {_LONGEST_STACK} frames of each are shown, from the allocation on"
        profile.add_notices([Notice("stacks-cut", text)])
    assert paths is not None
    sums: dict[tuple[bytes, int], list[int]] = {}
    for count, size, trace in held:
        pair = sums.setdefault((paths[trace], size if profile.by_size else -1), [0, 0])
        pair[0] += count * size
        pair[1] += count
    stacks = [
        Stack(array("i", path), total, blocks, block_bytes=size)
        for (path, size), (total, blocks) in sums.items()
    ]
    return Content(stacks, Singles(list(frames.numbers)))


class _FrameNumbers(dict[int, bytes]):
    """The numbers of an address's frames, innermost first, as an array has them: given when first asked for."""

    def __init__(self, reader: _HeaptrackReader) -> None:
        super().__init__()
        self.reader = reader
        self.numbers: dict[Frame, int] = {}

    def __missing__(self, address: int) -> bytes:
        numbers = self.numbers
        frames = self.reader.frames(address)
        self[address] = found = array(
            "i", [numbers.setdefault(one, len(numbers)) for one in frames]
        ).tobytes()
        return found


def _paths(traces: Collection[int], own: _FrameNumbers, deepest: int) -> Optional[dict[int, bytes]]:
    """Return up to *deepest* frames of each of *traces*; None if all together are too many.

    A chain of traces takes the square of its length.
    """
    paths, call = {0: b""}, own.reader.call
    left = _MOST_FRAMES + _LONGEST_STACK * len(traces)
    for trace in sorted(traces):
        parts: list[bytes] = []
        at = trace
        while at not in paths and len(parts) < deepest:  # a caller stands before what it calls: this ends
            address, at = call(at)
            parts.append(own[address])
        paths[trace] = path = b"".join((*parts, paths.get(at, b"")))[: deepest * _WIDTH]
        left -= len(path) // _WIDTH
        if left < 0:
            return None
    return paths


def _slices(data: Data) -> Iterator[bytes]:
    return (data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES))


class _HeaptrackReader:
    def __init__(self, blocks: Blocks, source: str) -> None:
        self.blocks = blocks
        self.source = source
        self.tables = _Tables()
        self.notices: list[Notice] = []
        self._known_sizes = array("q")  # of allocations, for the peak
        self.has_trailer = False  # heaptrack's interpreter ends each file with counts
        self._is_big = False
        self._is_attached = False  # an "A" is in the piece
        self._start = 0  # of the counting, in bytes: after the last "A", where heaptrack was attached
        self._piece, self._offset = b"", 0  # what is being read, and how many bytes stand before it
        self.moments: Sequence[float] = ()  # to be looked for, seconds
        self.last_time = 0.0  # of the recording, seconds; only known if moments are looked for
        self._found: dict[
            float, tuple[int, float]
        ] = {}  # of each: the first line with a time that is not before it

    def read(self, *, wants_peak: bool) -> _Course:
        tally = EventCounts()
        in_use = peak = at_peak = 0
        for piece in self._first_time():
            self._piece = piece
            lines = take_apart(piece, is_big=self._is_big)
            self._define(lines)
            self._note_times(self._offset)
            attached = self._attached_at()
            if attached:
                tally = EventCounts()
                in_use = peak = at_peak = 0
                self._start = self._offset + attached
                lines = take_apart(piece[attached:], is_big=self._is_big)
            self._count(tally, lines)
            if wants_peak:
                top = lines.peak(self._sizes(), in_use)
                if top.highest > peak:
                    peak, at_peak = top.highest, self._offset + attached + top.offset
                in_use = top.last
            self._offset += len(piece)
        return _Course(self._events(tally), at_peak)

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
                return chain(ahead, pieces)
        return [b"".join(ahead)]

    def _count(self, tally: EventCounts, lines: HeaptrackLines) -> None:
        with self._naming_bad_events():
            lines.count(tally, len(self.tables.allocations))

    def _events(self, tally: EventCounts) -> Events:
        with self._naming_bad_events():
            return tally.events(len(self.tables.allocations))

    @contextlib.contextmanager
    def _naming_bad_events(self) -> Iterator[None]:
        try:
            yield
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
            last = lines.temporaries(tally, len(self.tables.allocations), last)
        return self._events(tally)

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
        return self._events(tally)

    def _define(self, lines: HeaptrackLines) -> None:
        tables = self.tables
        traces, allocations = tables.traces, tables.allocations
        for line in lines.definitions():
            try:
                kind = line[0]
                if kind == 116:  # t
                    traces.append(line)
                    tables.first_allocation.append(len(allocations))
                elif kind == 97:  # a
                    allocations.append(line)
                elif kind == 105:  # i
                    tables.addresses.append(line)
                    tables.first_trace.append(len(traces))
                elif kind == 115:  # s
                    tables.strings.append(self._string(line))
                elif not self._other(line):
                    raise ValueError
            except (ValueError, IndexError):
                raise self._bad(line) from None

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

    def _string(self, line: bytes) -> str:
        text = line[2:]
        if self.tables.version >= 3:
            size, _, text = text.partition(b" ")
            if int(size, 16) != len(text):
                raise ValueError
        return text.decode("utf-8", "surrogateescape")

    def _sizes(self) -> array[int]:
        known = range(len(self._known_sizes), len(self.tables.allocations))
        self._known_sizes.extend(self.allocation(index)[0] for index in known)
        return self._known_sizes

    def allocation(self, index: int) -> tuple[int, int]:
        """Return the bytes of an allocation, and its trace."""
        tables, line = self.tables, self.tables.allocations[index]
        try:
            _, size, trace = line.split(b" ")
            found = int(size, 16), int(trace, 16)
            if min(found) < 0 or tables.first_allocation[found[1]] > index:
                raise IndexError
        except (ValueError, IndexError):
            raise self._bad(line, start=b"a", number=index + 1) from None
        check_count(found[0], self.source)
        return found

    def call(self, trace: int) -> tuple[int, int]:
        """Return the address of a trace, and the trace of its caller."""
        tables, line = self.tables, self.tables.traces[trace]
        try:
            _, address, caller = line.split(b" ")
            found = int(address, 16), int(caller, 16)
            if not (found[0] > 0 and tables.first_trace[found[0]] <= trace and 0 <= found[1] < trace):
                raise IndexError
        except (ValueError, IndexError):
            raise self._bad(line, start=b"t", number=trace) from None
        return found

    def frames(self, address: int) -> Sequence[Frame]:
        """Return the frames of an address, innermost first."""
        line, strings = self.tables.addresses[address], self.tables.strings
        try:
            words = [int(word, 16) for word in line[2:].split()]
            module = strings[words[1]] or None
            chain = []
            rest = words[2:]
            while rest:
                function = strings[rest[0]] or None
                file = strings[rest[1]] if len(rest) > 1 else ""
                number = rest[2] if len(rest) > 2 else None
                chain.append(Frame(function, file or None, number if file else None, module))
                rest = rest[3:]
        except (ValueError, IndexError):
            raise self._bad(line, start=b"i", number=address) from None
        chain = [frame._replace(inlined=True) for frame in chain[:-1]] + chain[-1:]
        return chain or (Frame(object=module),)

    def _bad(
        self, line: bytes, expected: str = _DEFINED, *, start: bytes = b"", number: int = 1
    ) -> InputError:
        """Return the error for *line*, the *number*-th with that *start*; without one, the first that is equal."""
        start = start or line + b"\n"
        lines = (one + b"\n" for piece in self._pieces() for one in piece.split(b"\n")[:-1])
        places = (place for place, one in enumerate(lines, start=1) if one.startswith(start))
        return bad_line(self.source, next(islice(places, number - 1, None)), line, expected)
