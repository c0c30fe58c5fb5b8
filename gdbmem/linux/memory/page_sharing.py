"""The pages of processes, and which of them two processes share, by /proc/PID/pagemap, in numpy."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from gdbmem.arrays import import_numpy
from gdbmem.linux.memory.maps import PAGE, open_pagemap

# Bits of an entry (Documentation/admin-guide/mm/pagemap.rst): in memory, swapped out, mapped once, of a file.
_PRESENT, _SWAPPED, _FILE, _ALONE = 63, 62, 61, 56
_FRAME = (1 << 55) - 1  # the number of the page frame; 0 without CAP_SYS_ADMIN
_ENTRIES = 1 << 20  # entries read at once


class Pages(NamedTuple):
    """The entries of adjacent pages of one process."""

    entries: Any  # uint64

    @property
    def present(self) -> Any:
        return self._bit(_PRESENT)

    @property
    def swapped(self) -> Any:
        return self._bit(_SWAPPED)

    @property
    def is_anonymous(self) -> Any:
        """True where the page is in memory and neither a file's nor shared memory's."""
        return self.present & ~self._bit(_FILE)

    @property
    def alone(self) -> Any:
        """True where no other process maps the page."""
        return self.present & self._bit(_ALONE)

    @property
    def frames(self) -> Any:
        """The numbers of the page frames; 0 where there is none, and everywhere if this process may not know them."""
        np = import_numpy()
        return np.where(self.present, self.entries & np.uint64(_FRAME), np.uint64(0))

    def _bit(self, number: int) -> Any:
        np = import_numpy()
        return (self.entries >> np.uint64(number) & np.uint64(1)).astype(bool)


class PageSharing:
    """The entries of one process's pages. Leave with the context manager."""

    def __init__(self, pid: int) -> None:
        """Open the entries of *pid*. Raises TargetError if they can't be read."""
        self._descriptor = open_pagemap(pid)

    def __enter__(self) -> PageSharing:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def of(self, start: int, end: int) -> Pages:
        """Return the pages from *start* to *end*."""
        np = import_numpy()
        entries = np.zeros((end - start) // PAGE, np.uint64)
        for first in range(0, len(entries), _ENTRIES):
            count = min(_ENTRIES, len(entries) - first)
            data = os.pread(self._descriptor, 8 * count, (start // PAGE + first) * 8)
            read = np.frombuffer(data[: len(data) // 8 * 8], np.uint64)
            entries[first : first + len(read)] = read
        return Pages(entries)


def same_pages(ours: Pages, theirs: Pages) -> Any:
    """Return where two processes map the same page of memory.

    Without the numbers of the frames: where each of them shares its page with some process.
    """
    np = import_numpy()
    both = ours.present & theirs.present
    known = (ours.frames != 0) & (theirs.frames != 0)
    return both & np.where(known, ours.frames == theirs.frames, ~ours.alone & ~theirs.alone)
