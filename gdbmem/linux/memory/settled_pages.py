"""Pages whose next access can't change the resident set, by pagemap."""

from __future__ import annotations

import os
from typing import Optional

from gdbmem.linux.memory.resident import PAGE_BYTES

# Of the most significant byte of an entry. Source: Linux, Documentation/admin-guide/mm/pagemap.rst.
_PRESENT, _FILE, _EXCLUSIVE = 0x80, 0x20, 0x01


class SettledPages:
    """Reads the state of a process's pages, as long as it executes no other program."""

    def __init__(self, pid: int) -> None:
        self._descriptor: Optional[int] = None
        try:
            self._descriptor = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return

    def are_settled(self, start: int, end: int) -> bool:
        """Return whether all pages between two addresses are present, and none is the shared page of zeros.

        A copied page replaces the one that it is copied from. False if it can't be read.
        """
        if self._descriptor is None:
            return False
        first, last = start // PAGE_BYTES, -(-end // PAGE_BYTES)
        try:
            data = os.pread(self._descriptor, (last - first) * 8, first * 8)
        except OSError:
            return False
        states = data[7::8]
        return len(states) == last - first and all(
            state & _PRESENT and state & (_FILE | _EXCLUSIVE) for state in states
        )

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
