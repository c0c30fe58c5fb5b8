"""Opening regular files only, reading with a size limit, file modes, and a folder without foreign modules."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, Callable, Union

from gdbmem.errors import InputError
from gdbmem.units import format_size

# Python puts the current folder in front of its modules, and others may write to that folder: start it here.
NEUTRAL_FOLDER = "/"

# A JSON object that may come from an untrusted file: readers check each value.
JsonObject = dict[str, Any]


def open_regular(path: Union[str, os.PathLike[str]]) -> BinaryIO:
    """Open the regular file *path* for reading. Raises OSError for anything else: no device or FIFO is opened."""
    found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return open(f"/proc/self/fd/{found}", "rb")  # noqa: PTH123  (the very file that was looked at)
    finally:
        os.close(found)


def make_private(path: Path) -> None:
    """Remove the rights of group and others from the regular file *path*; a link is left alone. Raises OSError.

    It is not opened for reading or writing, because closing it would release this process's POSIX locks (SQLite's).
    """
    found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mode = os.fstat(found).st_mode
        if stat.S_ISREG(mode) and mode & 0o077:
            os.chmod(f"/proc/self/fd/{found}", 0o600)  # noqa: PTH101  (the very file that was looked at)
    finally:
        os.close(found)


def close_all_but(*kept: int) -> None:
    """Close the descriptors of this process but *kept*; with a limit of a billion, closerange() takes minutes."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  (after a fork, the less the better)
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the descriptor used for listing
                os.close(int(name))


def read_small(path: Path, *, limit_bytes: int, refuse: Callable[[str], InputError]) -> bytes:
    """Return the content of *path*; raises the error that *refuse* makes of a reason ("over 1.0 MiB") on failure."""
    try:
        with path.open("rb") as stream:
            data = stream.read(limit_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise refuse(reason) from error
    if len(data) > limit_bytes:
        raise refuse(f"it is over {format_size(limit_bytes)}")
    return data
