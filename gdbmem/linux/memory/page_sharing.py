"""Private and shared pages of a process, by /proc/PID/pagemap, in numpy."""

from __future__ import annotations

import os
from typing import Any

from gdbmem.arrays import import_numpy
from gdbmem.linux.memory.pages import PAGE, open_pagemap

_PRESENT, _ALONE = 63, 56  # bits of an entry (Documentation/admin-guide/mm/pagemap.rst)
_ENTRIES = 1 << 20  # entries read at once


class PageSharing:
    """The entries of one process's pages. Leave with the context manager."""

    def __init__(self, pid: int) -> None:
        """Open the entries of *pid*. Raises TargetError if they can't be read."""
        self._descriptor = open_pagemap(pid)

    def __enter__(self) -> PageSharing:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def of(self, start: int, end: int) -> tuple[Any, Any]:
        """Return for each page from *start* to *end* whether it is present, and whether no other process maps it."""
        np = import_numpy()
        present = np.zeros((end - start) // PAGE, bool)
        alone = np.zeros_like(present)
        for first in range(0, len(present), _ENTRIES):
            count = min(_ENTRIES, len(present) - first)
            data = os.pread(self._descriptor, 8 * count, (start // PAGE + first) * 8)
            entries = np.frombuffer(data[: len(data) // 8 * 8], np.uint64)
            stop = first + len(entries)
            present[first:stop] = entries >> np.uint64(_PRESENT) & np.uint64(1)
            alone[first:stop] = entries >> np.uint64(_ALONE) & np.uint64(1)
        return present, alone & present
