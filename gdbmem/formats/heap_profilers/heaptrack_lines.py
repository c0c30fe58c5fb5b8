"""Parsing a piece of a heaptrack file: which lines define something, and how often each allocation is made and freed.

Two implementations with the same result: numpy handles all lines at once but takes 0.1 s to import; the other one
needs no package.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from typing import Any, NamedTuple, Protocol

from gdbmem.arrays import import_numpy

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
