"""heaptrack's interpreted files, versions 1 to 3: every allocation of a run, in order.

Tens of millions of lines are "+ INDEX" or "- INDEX". They are counted without parsing, one piece of the file at a
time; only the few lines that define strings, addresses, traces and allocations are parsed one by one.
"""

from __future__ import annotations

import contextlib
import math
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice, repeat
from operator import sub
from typing import Any, Callable, NamedTuple, Optional, Protocol, Union

from gdbmem.arrays import import_numpy
from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
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

_EVENT = re.compile(rb"\n[+-] [0-9a-f]{1,8}(?=\n)")
_DEFINITION = re.compile(rb"\n([^+\-cR#IS\n][^\n]*)")
_OTHERS = frozenset(b"+-cR#IS\n")  # how lines begin that define nothing
_LONGEST_INDEX = 8
_SHORT_INDEX = 7  # that many digits, and one bit, fit 31 bits
_COUNTED_TOGETHER = 1 << 16
NUMPY_FROM_BYTES = 3 << 20  # to import it takes as long as to count so much without it
NO_EVENT = -1
_KINDS = (b"\n+ %x".__mod__, b"\n- %x".__mod__)  # the line of an event


class Events(NamedTuple):
    """The number of times that each allocation, by its index, was made and freed."""

    made: Sequence[int]
    freed: Sequence[int]


class EventCounts:
    """Adds events up, piece by piece."""

    def __init__(self) -> None:
        self._lines: Counter[bytes] = Counter()  # such as b"\n+ 1f"
        self._keys: list[Any] = []  # arrays that are not counted yet
        self._waiting = 0  # in them
        self._counts: Any = None

    def add(self, lines: Iterable[bytes]) -> None:
        """Count lines of one event each, the newline before it included."""
        self._lines.update(lines)

    def add_keys(self, keys: Any, known: int) -> None:
        """Count an array with one number per event: twice the index, plus one for a free.

        Indices are below *known*.
        """
        self._keys.append(keys)
        self._waiting += len(keys)
        # With fewer, counting would take longer than the events do.
        if self._waiting > max(_COUNTED_TOGETHER, 2 * known):
            self._count()

    def events(self, known: int) -> Events:
        """Return the sums for each of *known* allocations. Raises BadLineError for an event of another one."""
        self._count()
        made, freed = (
            array("q", map(self._lines.pop, map(kind, range(known)), repeat(0))) for kind in _KINDS
        )
        for line in self._lines:
            raise BadLineError(line[1:])
        if self._counts is not None:
            sums = array("q", bytes(16 * known))
            sums[: len(self._counts)] = array("q", self._counts.astype("q").tobytes())
            return Events(sums[0::2], sums[1::2])
        return Events(made, freed)

    def _count(self) -> None:
        if not self._keys:
            return
        np = import_numpy()
        counts = np.bincount(np.concatenate(self._keys))
        if self._counts is not None:
            few, counts = sorted((self._counts, counts), key=len)
            counts[: len(few)] += few
        self._counts, self._keys, self._waiting = counts, [], 0


class Peak(NamedTuple):
    """The peak of a sequence in bytes, how many bytes of the file stand before it, and the final value."""

    highest: int
    offset: int
    last: int


class BadLineError(ValueError):
    """A line with + or - for something that is not an allocation; ``args[0]`` is the line."""


class HeaptrackLines(Protocol):
    """The records of a piece of whole lines."""

    def definitions(self) -> Iterable[bytes]:
        """Return the lines that define something."""

    def count(self, tally: EventCounts, known: int) -> None:
        """Count the events; raises BadLineError if an index is not under *known*."""

    def temporaries(self, tally: EventCounts, known: int, last: int) -> int:
        """Count each allocation that the very next event frees; *last* is the event before the piece, and returned.

        An event is twice the index, and one more where it is freed; NO_EVENT: there is none.
        """

    def peak(self, sizes: array[int], in_use: int) -> Peak:
        """Return the peak of the piece, which begins with *in_use* bytes."""


def take_apart(piece: bytes, *, is_big: bool) -> HeaptrackLines:
    """Return the lines of *piece*; *is_big*: there are enough to be worth importing numpy."""
    if is_big:
        try:
            return ArrayLines(piece)
        except ImportError:  # gdb's Python
            pass
    return PlainLines(piece)


class PlainLines:
    """Lines, one by one."""

    def __init__(self, piece: bytes) -> None:
        self._text = b"\n" + piece

    def definitions(self) -> Iterable[bytes]:
        return _DEFINITION.findall(self._text)

    def count(self, tally: EventCounts, known: int) -> None:
        events = _EVENT.findall(self._text)
        if len(events) < self._text.count(b"\n+") + self._text.count(b"\n-"):
            lines = self._text.split(b"\n")
            raise BadLineError(
                next(
                    line for line in lines if line[:1] in (b"+", b"-") and not _EVENT.match(b"\n%b\n" % line)
                )
            )
        tally.add(events)

    def temporaries(self, tally: EventCounts, known: int, last: int) -> int:
        before = _KINDS[last & 1](last >> 1) if last != NO_EVENT else b""
        events = [before, *_EVENT.findall(self._text)]
        pairs = zip(events, events[1:])
        tally.add(made for made, freed in pairs if freed[1] == ord("-") and made == b"\n+" + freed[2:])
        last_line = events[-1]
        return 2 * int(last_line[3:], 16) + (last_line[1] == ord("-")) if last_line else NO_EVENT

    def peak(self, sizes: array[int], in_use: int) -> Peak:
        deltas = {b"+ %x" % index: size for index, size in enumerate(sizes)}
        deltas.update({b"- %x" % index: -size for index, size in enumerate(sizes)})
        lines = self._text.split(b"\n")[1:-1]
        course = list(accumulate(map(deltas.get, lines, repeat(0)), initial=in_use))
        highest = max(course)
        top = course.index(highest)
        return Peak(highest, sum(map(len, lines[:top])) + top, course[-1])


class ArrayLines:
    """All lines at once. Raises ImportError if there is no numpy."""

    def __init__(self, piece: bytes) -> None:
        self._np = np = import_numpy()
        self._piece = piece
        self._data = np.frombuffer(piece, np.uint8)
        self._ends = np.flatnonzero(self._data == ord("\n"))
        self._starts = np.zeros_like(self._ends)
        np.add(self._ends[:-1], 1, out=self._starts[1:])
        first = self._data.take(self._starts)
        self._is_freed = first == ord("-")
        self._is_event = self._is_freed | (first == ord("+"))
        self._others = np.flatnonzero(~self._is_event)

    def definitions(self) -> Iterable[bytes]:
        piece = self._piece
        bounds = zip(self._starts[self._others].tolist(), self._ends[self._others].tolist())
        return (piece[a:b] for a, b in bounds if piece[a] not in _OTHERS)

    def count(self, tally: EventCounts, known: int) -> None:
        at = self._events()
        indices = self._indices(at, known)
        indices <<= 1
        indices |= self._is_freed[at]
        tally.add_keys(indices, known)

    def temporaries(self, tally: EventCounts, known: int, last: int) -> int:
        np = self._np
        at = self._events()
        events = self._indices(at, known).astype(np.int64) * 2 + self._is_freed[at]
        if not len(events):
            return last
        before = np.append(last, events[:-1])
        tally.add_keys(events[(events & 1 == 1) & (before == events - 1)] - 1, known)
        return int(events[-1])

    def peak(self, sizes: array[int], in_use: int) -> Peak:
        np = self._np
        at = self._events()
        changes = np.frombuffer(sizes, np.int64).take(self._indices(at, len(sizes)))
        course = np.zeros(len(self._ends) + 1, np.int64)
        course[1:][at] = np.where(self._is_freed[at], -changes, changes)
        course[0] = in_use
        np.cumsum(course, out=course)
        top = int(course.argmax())
        return Peak(int(course[top]), int(self._ends[top - 1]) + 1 if top else 0, int(course[-1]))

    def _events(self) -> Any:
        # The numbers of their lines; a slice, which is faster, if they are all lines.
        return self._np.flatnonzero(self._is_event) if len(self._others) else slice(None)

    def _indices(self, at: Any, known: int) -> Any:
        """Return the index of each of the lines *at*: '+ 1f' names 31."""
        np = self._np
        starts, ends = self._starts[at], self._ends[at]
        if not len(starts):
            return np.zeros(0, np.int32)
        indices, wrong = self._numbers(starts + 2, ends)
        wrong |= self._data.take(starts + 1) != ord(" ")
        if wrong.any() or int(indices.max()) >= known:
            line = np.arange(len(self._ends))[at][np.flatnonzero(wrong | (indices >= known))[0]]
            raise BadLineError(self._piece[int(self._starts[line]) : int(self._ends[line])])
        return indices

    def _numbers(self, starts: Any, ends: Any) -> tuple[Any, Any]:
        """Return the hexadecimal number between each start and end, and which are none of up to eight digits."""
        np, data = self._np, self._data
        digits, place = ends - starts, ends - 1
        least, most = int(digits.min()), int(digits.max())
        wrong = np.zeros(len(digits), bool)
        if least < 1 or most > _LONGEST_INDEX:
            wrong |= (digits < 1) | (digits > _LONGEST_INDEX)
        numbers = np.zeros(len(digits), np.int64 if most > _SHORT_INDEX else np.int32)
        for number in range(min(most, _LONGEST_INDEX)):
            char = data.take(place, mode="clip")
            place -= 1
            letter = char - np.uint8(ord("a"))  # these wrap where it is none
            is_letter = letter < 6
            digit = char - np.uint8(ord("0"))
            is_wrong = (digit > 9) & ~is_letter
            np.copyto(digit, letter + np.uint8(10), where=is_letter)
            if number >= least:
                has = digits > number
                is_wrong &= has
                digit *= has
            wrong |= is_wrong
            numbers |= digit.astype(numbers.dtype) << (4 * number)
        return numbers, wrong


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
        with self._locate_bad_events():
            lines.count(tally, len(self.tables.allocations))

    def _events(self, tally: EventCounts) -> Events:
        with self._locate_bad_events():
            return tally.events(len(self.tables.allocations))

    @contextlib.contextmanager
    def _locate_bad_events(self) -> Iterator[None]:
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
