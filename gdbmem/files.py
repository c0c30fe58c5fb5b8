"""Regular files only, small ones with a size limit, rights, and a folder with nobody else's modules."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, Callable, Union

from gdbmem.errors import InputError
from gdbmem.units import format_size

# Python puts the current folder in front of its modules, and that folder may be anybody's: start it here.
NEUTRAL_FOLDER = "/"

# An object of JSON that somebody else may have written: whoever reads it checks each value.
JsonObject = dict[str, Any]


def open_regular(path: Union[str, os.PathLike[str]]) -> BinaryIO:
    """Open the regular file *path* to be read. Raises OSError for anything else: no device or FIFO is ever opened."""
    found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return open(f"/proc/self/fd/{found}", "rb")  # noqa: PTH123  (the very file that was looked at)
    finally:
        os.close(found)


def make_private(path: Path) -> None:
    """Take the rights of others from the regular file *path*; a link is left alone. Raises OSError.

    It is not opened to be read or written: closing that would give up this process's POSIX locks on it, SQLite's too.
    """
    found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mode = os.fstat(found).st_mode
        if stat.S_ISREG(mode) and mode & 0o077:
            os.chmod(f"/proc/self/fd/{found}", 0o600)  # noqa: PTH101  (the very file that was looked at)
    finally:
        os.close(found)


def close_all_but(*kept: int) -> None:
    """Close the descriptors of this process but *kept*: a limit of a billion has closerange() take minutes."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  (after a fork, the less the better)
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(int(name))


def read_small(path: Path, *, limit_bytes: int, refuse: Callable[[str], InputError]) -> bytes:
    """Return the content of *path*; raises what *refuse* makes of the reason ("over 1.0 MiB") where it can't."""
    try:
        with path.open("rb") as stream:
            data = stream.read(limit_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise refuse(reason) from error
    if len(data) > limit_bytes:
        raise refuse(f"it is over {format_size(limit_bytes)}")
    return data
