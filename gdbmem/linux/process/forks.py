"""Processes that a fork has made and that run the same program since."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from gdbmem.linux.process.status import status_fields

_START_CODE, _START_STACK = 25, 27  # fields of /proc/PID/stat, counted from 0


def forked_from(pid: int) -> Optional[int]:
    """Return the parent of *pid* if it runs the same program in the same memory since a fork; else None.

    The kernel chooses the places of program and stack at each exec; a fork keeps them. They are 0 for a process that
    may not be traced: unknown. Source: Linux, Documentation/filesystems/proc.rst.
    """
    parent = int(status_fields(pid, pid).get("PPid", "0"))
    own = _places(pid)
    return parent if parent > 1 and own is not None and own == _places(parent) else None


def _places(pid: int) -> Optional[tuple[int, ...]]:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        file = os.stat(f"/proc/{pid}/exe")  # noqa: PTH116
    except OSError:
        return None
    # The name, in parentheses, may have any characters.
    fields = [b"", b"", *text.rpartition(b")")[2].split()]
    places = tuple(int(fields[number]) for number in (_START_CODE, _START_STACK))
    return (*places, file.st_dev, file.st_ino) if all(places) else None
