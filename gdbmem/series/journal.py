"""The quick samples since the last complete one, in a mapped file that survives the end of a killed monitor.

Writing each into the database would cost several times as much as reading it. The database takes over all of them with
the next complete sample, and the file is emptied. The last one is followed by zeros.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path
from typing import Optional

from gdbmem.linux.monitoring.quick_sample import FRAME, Glance, unpack_glances

_NAME = "series.glances"
_ROOM = 1 << 16  # bytes; doubled when they are used up


class Journal:
    """Writes glances."""

    def __init__(self, folder: Path) -> None:
        """Open the journal in *folder*; its content is kept until clear()."""
        self._descriptor = os.open(
            folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        self._map: Optional[mmap.mmap] = None
        self._size = 0
        self._used = len(_read(folder))

    def append(self, glance: Glance) -> None:
        """Write *glance*, or nothing if the disk is full: the database then reports that."""
        data = FRAME % glance
        begin, self._used = self._used, self._used + len(data)
        if self._used > self._size and not self._grow():
            self._used = begin
            return
        self._map[begin : self._used] = data  # type: ignore[index]  # _grow() has made it

    def _grow(self) -> bool:
        size = max(2 * self._size, -(-self._used // _ROOM) * _ROOM)
        try:
            os.posix_fallocate(self._descriptor, 0, size)  # or a full disk would end this process later
            self._map = mmap.mmap(self._descriptor, size)
        except OSError:
            return False
        self._size = size
        return True

    def clear(self) -> None:
        """Forget what was written."""
        if self._used and (self._size or self._grow()):
            self._map[: self._used] = bytes(self._used)  # type: ignore[index]
            self._used = 0

    def close(self) -> None:
        """Close the file."""
        if self._map is not None:
            self._map.close()
        with contextlib.suppress(OSError):  # zeros at the end do no harm
            os.ftruncate(self._descriptor, self._used)
        os.close(self._descriptor)


def read_journal(folder: Path) -> list[Glance]:
    """Return what the journal in *folder* holds; nothing if there is none."""
    try:
        return unpack_glances(_read(folder))
    except OSError:
        return []


def _read(folder: Path) -> bytes:
    return (folder / _NAME).read_bytes().partition(b"\0")[0]


def forget_journal(folder: Path) -> None:
    """Remove the journal in *folder*: its glances belong to a database that no longer exists."""
    (folder / _NAME).unlink(missing_ok=True)
