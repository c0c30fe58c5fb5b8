"""A piece of a heaptrack file taken apart: what it defines, and how often each allocation is made and freed.

Two ways to the same numbers: with numpy, which looks at all lines at once but takes a tenth of a second to import,
and without.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from typing import Any, NamedTuple, Optional, Protocol

_DEFINITION = re.compile(rb"^(?![+\-cR#IS])[^\n]+", re.MULTILINE)
_OTHERS = b"+-cR#IS\n"  # how lines begin that define nothing
_INDEX = re.compile(rb"[0-9a-f]{1,8}")
_LONGEST_INDEX = 8
_SHORT_INDEX = 7  # that many digits fit 31 bits
_NUMPY_FROM_BYTES = 3 << 20


class Events(NamedTuple):
    """How often each allocation, by its index, was made and freed."""

    made: Counter[int]
    freed: Counter[int]


class Peak(NamedTuple):
    """The highest of a course, after how many lines, and where the course ends; bytes."""

    highest: int
    lines: int
    last: int


class BadLineError(ValueError):
    """A line that says + or - of something that is no allocation; ``args[0]`` is the line."""


class Lines(Protocol):
    """What a piece, whole lines, holds."""

    def definitions(self) -> Iterator[bytes]:
        """Yield the lines that define something."""
        ...

    def events(self, known: int, first: Optional[int] = None) -> Events:
        """Count the events among the *first* lines; raises BadLineError where an index is not under *known*."""
        ...

    def peak(self, sizes: Sequence[int], in_use: int) -> Peak:
        """Return the peak of the piece, which begins with *in_use* bytes."""
        ...

    def __len__(self) -> int: ...


def take_apart(piece: bytes, *, whole_bytes: int) -> Lines:
    """Return the lines of *piece*, a part of a file of *whole_bytes*."""
    if whole_bytes >= _NUMPY_FROM_BYTES:
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

    def events(self, known: int, first: Optional[int] = None) -> Events:
        events = Events(Counter(), Counter())
        for line, count in Counter(self._lines[:first]).items():
            if line[:1] in (b"+", b"-"):
                if line[1:2] != b" " or not _INDEX.fullmatch(line, 2) or int(line[2:], 16) >= known:
                    raise BadLineError(line)
                events[line[:1] == b"-"][int(line[2:], 16)] += count
        return events

    def peak(self, sizes: Sequence[int], in_use: int) -> Peak:
        deltas = {b"+ %x" % index: size for index, size in enumerate(sizes)}
        deltas.update({b"- %x" % index: -size for index, size in enumerate(sizes)})
        course = list(accumulate(map(deltas.get, self._lines, repeat(0)), initial=in_use))
        highest = max(course)
        return Peak(highest, course.index(highest), course[-1])


class ArrayLines:
    """All lines at once. Raises ImportError where there is no numpy."""

    def __init__(self, piece: bytes) -> None:
        import numpy as np

        self._np: Any = np
        self._piece = piece
        self._data = np.frombuffer(piece, np.uint8)
        self._ends = np.flatnonzero(self._data == ord("\n"))
        self._starts = np.concatenate(([0], self._ends[:-1] + 1)) if len(self._ends) else self._ends
        self._first = self._data[self._starts]

    def __len__(self) -> int:
        return len(self._ends)

    def definitions(self) -> Iterator[bytes]:
        is_other = self._np.zeros(256, bool)
        is_other[list(_OTHERS)] = True
        at = self._np.flatnonzero(~is_other[self._first])
        piece = self._piece
        return (piece[a:b] for a, b in zip(self._starts[at].tolist(), self._ends[at].tolist()))

    def events(self, known: int, first: Optional[int] = None) -> Events:
        counted = []
        for sign in b"+-":
            at = self._np.flatnonzero(self._first[:first] == sign)
            counts = self._np.bincount(self._indices(at, known), minlength=1)
            used = self._np.flatnonzero(counts)
            counted.append(Counter(dict(zip(used.tolist(), counts[used].tolist()))))
        return Events(*counted)

    def peak(self, sizes: Sequence[int], in_use: int) -> Peak:
        np = self._np
        of_index = np.array(sizes, np.int64)
        course = np.zeros(len(self) + 1, np.int64)
        for sign, factor in ((ord("+"), 1), (ord("-"), -1)):
            at = np.flatnonzero(self._first == sign)
            course[at + 1] = factor * of_index[self._indices(at, len(sizes))]
        course[0] = in_use
        np.cumsum(course, out=course)
        top = int(course.argmax())
        return Peak(int(course[top]), top, int(course[-1]))

    def _indices(self, at: Any, known: int) -> Any:
        """Return the index of each of the lines *at*: '+ 1f' names 31."""
        np = self._np
        if not len(at):
            return np.zeros(0, np.int64)
        all_alike = len(at) == len(self)  # then nothing need be picked
        starts, place = (
            (self._starts, self._ends.copy()) if all_alike else (self._starts.take(at), self._ends.take(at))
        )
        digits = place - starts - 2
        most = int(digits.max())
        wrong = (digits < 1) | (digits > _LONGEST_INDEX) | (self._data.take(starts + 1) != ord(" "))
        indices = np.zeros(len(at), np.int64 if most > _SHORT_INDEX else np.int32)
        for number in range(min(most, _LONGEST_INDEX)):
            place -= 1
            char = self._data.take(place, mode="clip")
            is_letter = char >= ord("a")
            digit = char - ord("0") - is_letter * np.uint8(ord("a") - ord("9") - 1)  # wraps where it is none
            is_wrong = (digit > 15) | (is_letter & (digit < 10))
            if number:
                has = digits > number
                is_wrong &= has
                digit *= has
            wrong |= is_wrong
            indices |= digit.astype(indices.dtype) << (4 * number)
        wrong = np.flatnonzero(wrong | (indices >= known))
        if len(wrong):
            line = at[wrong[0]]
            raise BadLineError(self._piece[int(self._starts[line]) : int(self._ends[line])])
        return indices
