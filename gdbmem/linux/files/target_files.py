"""Reading the files that a process has loaded, without trusting the process or its user.

A file is opened directly if it has the same name here and the process's user can't have changed the meaning of that
name. Every other file is read through linux/files/target_side.py, with the process's own rights.
"""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import BinaryIO, Optional

from gdbmem.errors import TargetError
from gdbmem.files import open_regular
from gdbmem.linux.files.target_side import TargetSide, rights_of
from gdbmem.linux.files.target_side_helper import Rights
from gdbmem.linux.process.process import memory_folder

_PIECE = 1 << 16
_MOST_LINKS = 40  # symbolic links in a path, the kernel's limit


class TargetFiles:
    """The files of process *pid*; without one (a core) those of the same names here. Leave with the context manager."""

    def __init__(self, pid: Optional[int] = None) -> None:
        """Start a helper if one is needed; without one only trusted files are opened."""
        self.rights: Optional[Rights] = None  # rights for reading untrusted files; None: ours
        self.is_elsewhere = False
        self._side: Optional[TargetSide] = None
        if pid is None:
            return
        try:
            self.is_elsewhere = not has_our_view(pid)
            rights = rights_of(pid)
        except OSError:
            return  # it has just ended
        if not self.is_elsewhere and rights.uid == os.geteuid():
            return
        self.rights = rights
        try:
            self._side = TargetSide(pid)
        except TargetError:
            self._side = None

    def __enter__(self) -> TargetFiles:
        return self

    def __exit__(self, *_: object) -> None:
        if self._side is not None:
            self._side.close()

    def is_trusted(self, name: str) -> bool:
        """Return whether only root and the current user can change the meaning of *name* for the process."""
        return not self.is_elsewhere and _is_unchangeable(Path(name))

    def open(self, name: str) -> BinaryIO:
        """Open the regular file *name* of /proc/PID/maps. Raises OSError on failure."""
        if self.rights is None or self.is_trusted(name):
            return open_regular(name)
        if self._side is None:
            raise PermissionError(f"the files of the process can't be reached: {name}")
        stream = _FileThere(self._side, self._side.name_there(name))
        stream.read(1)  # fails now rather than later
        stream.seek(0)
        return io.BufferedReader(stream, _PIECE)


def has_our_view(pid: int) -> bool:
    """Return whether paths mean the same to process *pid* and to this one. Raises OSError if it has ended."""
    there = memory_folder(pid)
    ours, theirs = (os.readlink(f"{folder}/ns/mnt") for folder in ("/proc/self", there))  # noqa: PTH115
    return ours == theirs and os.path.samestat(os.stat(f"{there}/root/"), os.stat("/"))  # noqa: PTH116


def _is_unchangeable(path: Path) -> bool:
    """Return whether *path*, a path without links, belongs to root or us, and no other user may write to it."""
    if not path.is_absolute() or ".." in path.parts:
        return False
    try:
        found = [one.lstat() for one in (path, *path.parents)]
    except (OSError, ValueError):
        return False
    return all(
        one.st_uid in (0, os.geteuid()) and not one.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        and not stat.S_ISLNK(one.st_mode)
        for one in found
    )  # fmt: skip


def may_be_opened(name: str) -> bool:
    """Return whether *name* is a regular file, and only root and we can change its meaning.

    All links in the path are checked. Such a name can be opened even if another user provided it.
    """
    path = Path(name)
    for _ in range(_MOST_LINKS):
        if not path.is_absolute() or ".." in path.parts:
            return False
        try:
            found = [(one, one.lstat()) for one in (*reversed(path.parents), path)]
            link = next((one for one, facts in found if stat.S_ISLNK(facts.st_mode)), None)
            target = link.readlink() if link is not None else None
        except (OSError, ValueError):
            return False
        if not all(_is_safe(facts) for _, facts in found):
            return False
        if link is None or target is None:
            return stat.S_ISREG(found[-1][1].st_mode)
        path = Path(os.path.normpath(link.parent / target)) / path.relative_to(link)
    return False


def _is_safe(facts: os.stat_result) -> bool:
    is_writable = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not stat.S_ISLNK(facts.st_mode)
    return facts.st_uid in (0, os.geteuid()) and not is_writable


class _FileThere(io.RawIOBase):
    """A regular file of the process, read piece by piece with its rights."""

    def __init__(self, side: TargetSide, name: str) -> None:
        super().__init__()
        self._side, self._name, self._at = side, name, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to *offset*; its end is not known."""
        if whence == os.SEEK_END:
            raise io.UnsupportedOperation("the size is not known")
        self._at = offset + (self._at if whence == os.SEEK_CUR else 0)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the parent's is wider
        try:
            data = self._side.read(self._name, self._at, len(buffer))
        except TargetError as error:
            raise OSError(error.message) from error
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
