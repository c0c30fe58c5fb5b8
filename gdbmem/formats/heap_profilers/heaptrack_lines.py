"""Parsing a piece of a heaptrack file: its definitions, and how often each allocation is made and freed.

Two implementations with the same result: numpy handles all lines at once but takes 0.1 s to import; the other one
needs no package.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from typing import Any, NamedTuple, Optional, Protocol

from gdbmem.arrays import import_numpy

_DEFINITION = re.compile(rb"^(?![+\-cR#IS])[^\n]+", re.MULTILINE)
_OTHERS = frozenset(b"+-cR#IS\n")  # how lines begin that define nothing
_INDEX = re.compile(rb"[0-9a-f]{1,8}")
_LONGEST_INDEX = 8
_LONGEST_NUMBER = 15  # digits that fit 63 bits
_SHORT_INDEX = 7  # that many digits, and one bit, fit 31 bits
_COUNTED_TOGETHER = 1 << 16
NUMPY_FROM_BYTES = 3 << 19
NO_EVENT = -1
LEAST_TABLES = 300  # definitions; fewer are read faster one by one


class Events(NamedTuple):
    """The number of times that each allocation, by its index, was made and freed."""

    made: Sequence[int]
    freed: Sequence[int]


class EventCounts:
    """Adds events up, piece by piece."""

    def __init__(self) -> None:
        self._counter: Counter[int] = Counter()  # by key: twice the index, and one more where it is freed
        self._keys: list[Any] = []  # arrays that are not counted yet
        self._waiting = 0  # in them
        self._counts: Any = None

    def add(self, index: int, *, is_freed: bool, times: int) -> None:
        """Count *times* events of one allocation."""
        self._counter[2 * index + is_freed] += times

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
        """Return the sums for each of *known* allocations."""
        self._count()
        sums = array("q", bytes(16 * known))
        if self._counts is not None:
            sums[: len(self._counts)] = array("q", self._counts.astype("q").tobytes())
        for key, times in self._counter.items():
            sums[key] += times
        return Events(sums[0::2], sums[1::2])

    def _count(self) -> None:
        if not self._keys:
            return
        np = import_numpy()
        counts = np.bincount(np.concatenate(self._keys))
        if self._counts is not None:
            few, counts = sorted((self._counts, counts), key=len)
            counts[: len(few)] += few
        self._counts, self._keys, self._waiting = counts, [], 0


class Tables(NamedTuple):
    """The traces and allocations that a piece defines, as arrays, in order."""

    addresses: Any  # of each trace
    callers: Any  # of each trace: another one
    addresses_before: Any  # how many addresses the piece defines before each trace
    sizes: Any  # of each allocation, bytes
    traces: Any  # of each allocation
    traces_before: Any  # how many traces the piece defines before each allocation

    def name_what_is_known(self, addresses: int, traces: int) -> bool:
        """Return whether they refer only to earlier entries, given the number defined before the piece."""
        own = import_numpy().arange(len(self.callers)) + traces
        return bool(
            (self.addresses > 0).all()
            and (self.addresses < self.addresses_before + addresses).all()
            and (self.callers < own).all()
            and (self.traces < self.traces_before + traces).all()
        )


class Peak(NamedTuple):
    """The peak of a sequence in bytes, the number of lines before it, and the final value."""

    highest: int
    lines: int
    last: int


class BadLineError(ValueError):
    """A line with + or - for something that is not an allocation; ``args[0]`` is the line."""


class HeaptrackLines(Protocol):
    """The records of a piece of whole lines."""

    def definitions(self) -> Iterator[bytes]:
        """Yield the lines that define something."""

    def tables(self) -> Optional[Tables]:
        """Return the traces and allocations, which are most definitions; None if definitions() is needed."""

    def definitions_beside_tables(self) -> Iterator[bytes]:
        """Yield what tables() leaves out."""

    def count(self, tally: EventCounts, known: int, first: Optional[int] = None) -> None:
        """Count the events among the *first* lines; raises BadLineError if an index is not under *known*."""

    def temporaries(self, tally: EventCounts, known: int, last: int) -> int:
        """Count each allocation that the very next event frees; *last* is the event before the piece, and returned.

        An event is twice the index, and one more where it is freed; NO_EVENT: there is none.
        """

    def peak(self, sizes: array[int], in_use: int) -> Peak:
        """Return the peak of the piece, which begins with *in_use* bytes."""

    def __len__(self) -> int: ...


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
        self._piece = piece
        self._split: list[bytes] = []

    @property
    def _lines(self) -> list[bytes]:
        if not self._split:
            self._split = self._piece.split(b"\n")
            del self._split[-1]  # what follows the last newline
        return self._split

    def __len__(self) -> int:
        return len(self._lines)

    def definitions(self) -> Iterator[bytes]:
        return (match[0] for match in _DEFINITION.finditer(self._piece))

    def tables(self) -> Optional[Tables]:
        return None

    def definitions_beside_tables(self) -> Iterator[bytes]:
        return self.definitions()

    def count(self, tally: EventCounts, known: int, first: Optional[int] = None) -> None:
        for line, count in Counter(self._lines[:first]).items():
            if line[:1] in (b"+", b"-"):
                if line[1:2] != b" " or not _INDEX.fullmatch(line, 2) or int(line[2:], 16) >= known:
                    raise BadLineError(line)
                tally.add(int(line[2:], 16), is_freed=line[:1] == b"-", times=count)

    def temporaries(self, tally: EventCounts, known: int, last: int) -> int:
        for line in self._lines:
            if line[:1] in (b"+", b"-"):
                event = 2 * int(line[2:], 16) + (line[:1] == b"-")
                if event & 1 and last == event - 1:
                    tally.add(event >> 1, is_freed=False, times=1)
                last = event
        return last

    def peak(self, sizes: array[int], in_use: int) -> Peak:
        deltas = {b"+ %x" % index: size for index, size in enumerate(sizes)}
        deltas.update({b"- %x" % index: -size for index, size in enumerate(sizes)})
        course = list(accumulate(map(deltas.get, self._lines, repeat(0)), initial=in_use))
        highest = max(course)
        return Peak(highest, course.index(highest), course[-1])


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
        self._kinds = first[self._others]

    def __len__(self) -> int:
        return len(self._ends)

    def definitions(self) -> Iterator[bytes]:
        return self._lines_at(self._others)

    def tables(self) -> Optional[Tables]:
        if len(self._others) < LEAST_TABLES:
            return None
        traces, allocations, addresses = (self._others[self._kinds == ord(kind)] for kind in "tai")
        of_traces, of_allocations = self._pairs(traces), self._pairs(allocations)
        if of_traces is None or of_allocations is None:
            return None
        before = self._np.searchsorted
        return Tables(*of_traces, before(addresses, traces), *of_allocations, before(traces, allocations))

    def definitions_beside_tables(self) -> Iterator[bytes]:
        return self._lines_at(self._others[(self._kinds != ord("t")) & (self._kinds != ord("a"))])

    def _lines_at(self, at: Any) -> Iterator[bytes]:
        piece = self._piece
        bounds = zip(self._starts[at].tolist(), self._ends[at].tolist())
        return (piece[a:b] for a, b in bounds if piece[a] not in _OTHERS)

    def _pairs(self, at: Any) -> Optional[tuple[Any, Any]]:
        """Return both numbers of each of the lines *at*, such as 'a 1f 2'; None if one of them has another form."""
        np, data = self._np, self._data
        starts, ends = self._starts[at], self._ends[at]
        if not len(at):
            return starts, starts
        blanks = np.flatnonzero(data[: ends[-1]] == ord(" "))
        middle = np.append(blanks, len(data)).take(np.searchsorted(blanks, starts + 2))
        if (data.take(starts + 1) != ord(" ")).any() or (middle >= ends).any():
            return None
        (first, wrong), (second, also_wrong) = (
            self._numbers(begin, end, _LONGEST_NUMBER)
            for begin, end in ((starts + 2, middle), (middle + 1, ends))
        )
        return None if wrong.any() or also_wrong.any() else (first, second)

    def count(self, tally: EventCounts, known: int, first: Optional[int] = None) -> None:
        at = self._events(first)
        indices = self._indices(at, known)
        indices <<= 1
        indices |= self._is_freed[at]
        tally.add_keys(indices, known)

    def temporaries(self, tally: EventCounts, known: int, last: int) -> int:
        np = self._np
        at = self._events(None)
        events = self._indices(at, known).astype(np.int64) * 2 + self._is_freed[at]
        if not len(events):
            return last
        before = np.append(last, events[:-1])
        tally.add_keys(events[(events & 1 == 1) & (before == events - 1)] - 1, known)
        return int(events[-1])

    def peak(self, sizes: array[int], in_use: int) -> Peak:
        np = self._np
        at = self._events(None)
        changes = np.frombuffer(sizes, np.int64).take(self._indices(at, len(sizes)))
        course = np.zeros(len(self) + 1, np.int64)
        course[1:][at] = np.where(self._is_freed[at], -changes, changes)
        course[0] = in_use
        np.cumsum(course, out=course)
        top = int(course.argmax())
        return Peak(int(course[top]), top, int(course[-1]))

    def _events(self, first: Optional[int]) -> Any:
        # The numbers of their lines; a slice, which is faster, if they are all lines.
        is_event = self._is_event[:first]
        return slice(0, len(is_event)) if is_event.all() else self._np.flatnonzero(is_event)

    def _indices(self, at: Any, known: int) -> Any:
        """Return the index of each of the lines *at*: '+ 1f' names 31."""
        np = self._np
        starts, ends = self._starts[at], self._ends[at]
        if not len(starts):
            return np.zeros(0, np.int32)
        indices, wrong = self._numbers(starts + 2, ends, _LONGEST_INDEX)
        wrong |= self._data.take(starts + 1) != ord(" ")
        if wrong.any() or int(indices.max()) >= known:
            line = np.arange(len(self))[at][np.flatnonzero(wrong | (indices >= known))[0]]
            raise BadLineError(self._piece[int(self._starts[line]) : int(self._ends[line])])
        return indices

    def _numbers(self, starts: Any, ends: Any, longest: int) -> tuple[Any, Any]:
        """Return the hexadecimal number between each start and end, and which are none of up to *longest* digits."""
        np, data = self._np, self._data
        digits, place = ends - starts, ends - 1
        least, most = int(digits.min()), int(digits.max())
        wrong = np.zeros(len(digits), bool)
        if least < 1 or most > longest:
            wrong |= (digits < 1) | (digits > longest)
        numbers = np.zeros(len(digits), np.int64 if most > _SHORT_INDEX else np.int32)
        for number in range(min(most, longest)):
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
