"""The cheapest look at processes there is: what statm says of each, kept as it is and decoded later.

Decoding and storing in batches costs a fraction of doing it after each sleep, when the processor's caches
have gone cold.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Callable, NamedTuple

from gdbmem.model.series import TREE, Reading

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_WORDS_IN_STATM = 7
FRAME = b"@%a %b\n%b"  # a Glance as text; any number of them can follow each other


class Glance(NamedTuple):
    """What statm said of some processes at one time, unread."""

    t: float
    lines: bytes  # their lines' numbers, with blanks between
    statm: bytes  # a text line for each of them

    def sizes(self) -> Iterator[tuple[int, float, int, int]]:
        """Yield line, time, resident and shared pages of each process."""
        return sizes_of([self])

    def readings(self) -> list[tuple[int, Reading]]:
        """Return it decoded; the tree's own is that of its only process, else empty: RSS has no sum."""
        found = [
            (line, Reading(rss_bytes=resident * PAGE_BYTES, shared_bytes=shared * PAGE_BYTES))
            for line, _, resident, shared in self.sizes()
        ]
        return [*found, (TREE, found[0][1] if len(found) == 1 else Reading())]


class Glances(NamedTuple):
    """How RSS is read between two whole looks."""

    until: float  # when the next whole look is due
    lines: bytes  # of the processes, as a Glance has them
    read: Callable[[], bytes]  # what their statm say; b"" where one of them has gone


def sizes_of(glances: Sequence[Glance]) -> Iterator[tuple[int, float, int, int]]:
    """Yield line, time, resident and shared pages, line by line; the *glances* are at the same lines.

    No loop of Python's own: this is most of what storing a glance costs.
    """
    numbers = glances[0].lines.split()
    words = b"".join([glance.statm for glance in glances]).split()
    resident, shared = words[1::_WORDS_IN_STATM], words[2::_WORDS_IN_STATM]
    times, count = [glance.t for glance in glances], len(numbers)
    for place, number in enumerate(numbers):
        yield from zip(
            repeat(int(number)), times, map(int, resident[place::count]), map(int, shared[place::count])
        )


def statm_reader(descriptors: Sequence[int]) -> Callable[[], bytes]:
    """Return what reads the statm behind each of *descriptors*; it returns b"" where a process has gone."""
    pread = os.pread

    def read_one() -> bytes:
        try:
            statm = pread(first, 128, 0)
        except ProcessLookupError:
            return b""
        # A zombie has a size of 0; one that has been waited for has no text.
        return b"" if statm.startswith(b"0 ") else statm

    def read_all() -> bytes:
        try:
            found = [pread(descriptor, 128, 0) for descriptor in descriptors]
        except ProcessLookupError:
            return b""
        statm = b"".join(found)
        return b"" if statm.startswith(b"0 ") or b"\n0 " in statm or not all(found) else statm

    first, *others = descriptors or (-1,)
    return read_all if others else read_one


def unpack_glances(data: bytes) -> list[Glance]:
    """Return the glances in *data*, FRAMEs; one that was cut short in writing is left out."""
    found = []
    for frame in data.split(b"@")[1:]:
        head, _, statm = frame.partition(b"\n")
        t, _, lines = head.partition(b" ")
        if _is_whole(lines.split(), statm):
            found.append(Glance(float(t), lines, statm))
    return found


def _is_whole(lines: Sequence[bytes], statm: bytes) -> bool:
    rows = statm.split(b"\n")
    return (
        bool(lines)
        and rows.pop() == b""
        and len(rows) == len(lines)
        and all(len(row.split()) == _WORDS_IN_STATM for row in rows)
    )
