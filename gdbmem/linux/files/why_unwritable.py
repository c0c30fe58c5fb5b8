"""Reasons why a process can't write files into one of our folders, as far as the kernel shows them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.linux.process.living import memory_folder
from gdbmem.linux.process.status import soft_limit, status_fields
from gdbmem.text import printable
from gdbmem.units import format_size

_LEAST_BYTES = (
    1 << 20
)  # of a file: a process with a lower limit would be killed for writing a heap profile (SIGXFSZ)


class WriteObstacle(NamedTuple):
    """The reason why a process can't write, in words, and what to do."""

    reason: str
    hint: str


def file_limit(pid: int) -> Optional[WriteObstacle]:
    """Return why process *pid* can't write a file of some size; it would be killed for trying."""
    most = soft_limit(pid, "Max file size")
    if most is None or most >= _LEAST_BYTES:
        return None
    return WriteObstacle(
        f"the program may write files of {format_size(most)} at most, and would be killed for a larger one",
        "raise that limit (ulimit -f)",
    )


def why_unwritable(pid: int, folder: Path) -> Optional[WriteObstacle]:
    """Return why process *pid* can't write into *folder*; None if no reason is known.

    Source: proc(5), limits and status.
    """
    with contextlib.suppress(OSError, ValueError):
        return (
            file_limit(pid) or _root(pid, folder) or _user(pid, folder) or _descriptors(pid) or _disk(folder)
        )
    return None


def _root(pid: int, folder: Path) -> Optional[WriteObstacle]:
    if Path(f"{memory_folder(pid)}/root/").samefile("/"):
        return None
    root = printable(str(Path(f"{memory_folder(pid)}/root").readlink()))
    return WriteObstacle(
        f"the program's root is {root} (chroot), which does not contain {printable(str(folder))}",
        "take the snapshot before that, or --massif, which writes from outside",
    )


def _user(pid: int, folder: Path) -> Optional[WriteObstacle]:
    user = int(status_fields(pid).get("Uid", "0").split()[-1])  # for files
    if user in (0, folder.stat().st_uid):
        return None
    return WriteObstacle(
        f"the program now runs as user {user}, who may not write to {printable(str(folder))}",
        "take the snapshot before it changes its user, or launch it as that user",
    )


def _descriptors(pid: int) -> Optional[WriteObstacle]:
    most = soft_limit(pid, "Max open files")
    if most is None or len(os.listdir(f"{memory_folder(pid)}/fd")) < most:  # noqa: PTH208  (names only)
        return None
    return WriteObstacle(
        f"the program has reached its limit of {most} open files", "raise that limit (ulimit -n)"
    )


def _disk(folder: Path) -> Optional[WriteObstacle]:
    if os.statvfs(folder).f_bavail:
        return None
    return WriteObstacle(
        f"the disk of {printable(str(folder))} is full",
        "free some space there, or launch with --run DIR on another disk",
    )
