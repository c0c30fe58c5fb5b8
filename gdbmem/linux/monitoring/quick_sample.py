"""The cheapest sample of processes: the statm of each, kept as raw text and decoded later.

Decoding and storing in batches costs a fraction of doing it after each sleep, when the processor's caches
have gone cold.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Callable, NamedTuple, Optional

from gdbmem.model.series.series import TREE, ProcessSample

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_WORDS_IN_STATM = 7
FRAME = b"@%a %b\n%b%b"  # a Glance as text; any number of them can follow each other
_FAMILY = b"family "


class Glance(NamedTuple):
    """The bytes of statm of some processes at one time, not yet decoded."""

    t: float
    lines: bytes  # their line numbers, separated by spaces
    statm: bytes  # a text line for each of them, which may have its minor faults as an eighth word
    family: bytes = b""  # a text line: the memory of the program's own cgroup

    @property
    def family_bytes(self) -> Optional[int]:
        """The memory of the program's own cgroup; None if it has none."""
        return int(self.family[len(_FAMILY) :]) if self.family else None

    def readings(self) -> list[tuple[int, ProcessSample]]:
        """Return it decoded; the tree's own is that of its only process, else empty: RSS has no sum."""
        found = [
            (line, ProcessSample(rss_bytes=resident * PAGE_BYTES, shared_bytes=shared * PAGE_BYTES))
            for line, _, resident, shared, _ in sizes_of([self])
        ]
        total = found[0][1] if len(found) == 1 else ProcessSample()
        return [*found, (TREE, total._replace(family_bytes=self.family_bytes))]


class Glances(NamedTuple):
    """Reading RSS between two complete samples."""

    until: float  # when the next complete sample is due
    lines: bytes  # of the processes, in the form of a Glance
    read: Callable[[], bytes]  # the texts of their statm; b"" if one of them has ended
    read_family: Optional[Callable[[], Optional[int]]] = None


def family_row(size_bytes: Optional[int]) -> bytes:
    """Return the text line of a Glance's family."""
    return b"" if size_bytes is None else b"%b%d\n" % (_FAMILY, size_bytes)


def sizes_of(glances: Sequence[Glance]) -> Iterator[tuple[int, float, int, int, Optional[int]]]:
    """Yield line, time, resident and shared pages, minor faults, line by line; the *glances* are at the same lines.

    Without a Python loop: this is most of the cost of storing a glance.
    """
    numbers = glances[0].lines.split()
    words = b"".join([glance.statm for glance in glances]).split()
    times, count = [glance.t for glance in glances], len(numbers)
    width = len(words) // (count * len(times))
    resident, shared = words[1::width], words[2::width]
    faults: Iterable[Optional[int]] = repeat(None)
    for place, number in enumerate(numbers):
        if width > _WORDS_IN_STATM:
            faults = map(int, words[_WORDS_IN_STATM + place * width :: count * width])
        yield from zip(
            repeat(int(number)),
            times,
            map(int, resident[place::count]),
            map(int, shared[place::count]),
            faults,
        )


def faults_reader(descriptors: Sequence[tuple[int, int]]) -> Callable[[], bytes]:
    """Return a reader like statm_reader(), with minor faults, for the (statm, stat) of several processes."""
    pread = os.pread

    def read_all() -> bytes:
        try:
            found = [
                b"%b %b\n"
                % (pread(statm, 128, 0)[:-1], pread(stat, 512, 0).rpartition(b")")[2].split(None, 8)[7])
                for statm, stat in descriptors
            ]
        except (ProcessLookupError, IndexError):
            return b""
        rows = b"".join(found)
        return b"" if rows.startswith((b"0 ", b" ")) or b"\n0 " in rows or b"\n " in rows else rows

    return read_all


def statm_reader(descriptors: Sequence[int]) -> Callable[[], bytes]:
    """Return a reader of the statm behind each of *descriptors*; it returns b"" if a process has ended."""
    pread = os.pread

    def read_one() -> bytes:
        try:
            statm = pread(first, 128, 0)
        except ProcessLookupError:
            return b""
        # A zombie has a size of 0; a collected one has no text.
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
    """Return the glances in *data*, FRAMEs; a truncated one is omitted."""
    found = []
    for frame in data.split(b"@")[1:]:
        head, _, statm = frame.partition(b"\n")
        t, _, lines = head.partition(b" ")
        statm, family, size = statm.partition(_FAMILY)
        if _is_whole(lines.split(), statm) and (not family or size[-1:] == b"\n"):
            found.append(Glance(float(t), lines, statm, family + size))
    return found


def _is_whole(lines: Sequence[bytes], statm: bytes) -> bool:
    rows = statm.split(b"\n")
    return (
        bool(lines)
        and rows.pop() == b""
        and len(rows) == len(lines)
        and {len(row.split()) for row in rows} in ({_WORDS_IN_STATM}, {_WORDS_IN_STATM + 1})
    )
