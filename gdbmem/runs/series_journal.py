"""The glances of the last second, in a file of their own: one write each, safe when the monitor is killed.

The database takes them over in one go with the next whole look, and the file is emptied.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gdbmem.linux.glance import Glance, pack_glance, unpack_glances

_NAME = "series.glances"


class Journal:
    """Writes glances."""

    def __init__(self, folder: Path) -> None:
        """Open the journal in *folder*; what it holds stays until clear()."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(folder / _NAME, flags, 0o600)

    def append(self, glance: Glance) -> None:
        """Write *glance*, or nothing where the disk is full: what was half written is passed over in reading."""
        try:  # noqa: SIM105  (suppress() costs more than the write)
            os.write(self._descriptor, pack_glance(glance))
        except OSError:
            pass  # the database will have the same trouble, and says so

    def clear(self) -> None:
        """Forget what was written."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def read_journal(folder: Path) -> list[Glance]:
    """Return what the journal in *folder* holds; nothing where there is none."""
    try:
        return unpack_glances((folder / _NAME).read_bytes())
    except OSError:
        return []


def forget_journal(folder: Path) -> None:
    """Remove the journal in *folder*: its glances belong to a database that is no more."""
    (folder / _NAME).unlink(missing_ok=True)
