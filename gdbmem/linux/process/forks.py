"""Processes that a fork has made and that run the same program since."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from gdbmem.linux.process.auxv import random_bytes
from gdbmem.linux.process.status import status_fields

_START_CODE, _START_STACK = 25, 27  # fields of /proc/PID/stat, counted from 0


def forked_from(pid: int) -> Optional[int]:
    """Return the parent of *pid* if it runs the same program in the same memory since a fork; else None."""
    parent = int(status_fields(pid, pid).get("PPid", "0"))
    return parent if parent > 1 and runs_same_program(parent, pid) else None


def runs_same_program(parent: int, child: int) -> Optional[bool]:
    """Return whether neither *parent* nor *child* has executed a program since the fork; None if this is unknown.

    A process that did has nothing of its parent's memory, even if its mappings are at the same addresses. Each exec
    gets other random bytes.
    """
    for identity in (random_bytes, _places):
        ours, theirs = identity(parent), identity(child)
        if ours and theirs:
            return ours == theirs
    return None


def _places(pid: int) -> Optional[tuple[int, ...]]:
    """Return the places of program and stack, which the kernel chooses at each exec, and the file; None: unknown.

    They are 0 for a process that may not be traced, and may be equal where addresses are not randomised.
    Source: Linux, Documentation/filesystems/proc.rst.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        file = os.stat(f"/proc/{pid}/exe")  # noqa: PTH116
    except OSError:
        return None
    # The name, in parentheses, may have any characters.
    fields = [b"", b"", *text.rpartition(b")")[2].split()]
    places = tuple(int(fields[number]) for number in (_START_CODE, _START_STACK))
    return (*places, file.st_dev, file.st_ino) if all(places) else None
