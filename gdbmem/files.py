"""Opening regular files only, reading with a size limit, file modes, and a folder without foreign modules."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, Callable, Union

from gdbmem.errors import InputError
from gdbmem.text import format_size

# Python puts the current folder in front of its modules, and others may write to that folder: start it here.
NEUTRAL_FOLDER = "/"

# A JSON object that may come from an untrusted file: readers check each value.
JsonObject = dict[str, Any]


def open_regular(path: Union[str, os.PathLike[str]]) -> BinaryIO:
    """Open the regular file *path* for reading. Raises OSError for anything else: no device or FIFO is opened."""
    try:
        found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except ValueError:  # a NUL in the name
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path)) from None
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return open(f"/proc/self/fd/{found}", "rb")  # noqa: PTH123  (the very file that was looked at)
    finally:
        os.close(found)


class HeldFolder:
    """A folder opened once, so that what is written is written into it, whatever its name leads to meanwhile.

    Whoever may write to the folder above can rename it and put a link, or another folder, in its place.
    """

    def __init__(self, folder: Path) -> None:
        """Open *folder*; raises OSError, also for a link."""
        self._folder = folder
        self._process = os.getpid()
        self._descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.path = Path(f"/proc/self/fd/{self._descriptor}")  # the folder itself, for this process only

    @property
    def is_in_place(self) -> bool:
        """Whether the folder's name still leads to it."""
        try:
            return os.path.samestat(self._folder.lstat(), os.fstat(self._descriptor))
        except OSError:
            return False

    def close(self) -> None:
        """Let go of the folder; a second call does nothing."""
        # A forked process may have closed everything, and opened something else under this number.
        if self._descriptor >= 0 and os.getpid() == self._process:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor, self.path = -1, Path("/proc/self/fd/-1")

    def __del__(self) -> None:
        if "_descriptor" in vars(self):
            self.close()


def is_there(path: Union[str, os.PathLike[str]]) -> bool:
    """Return whether there is anything at *path*; False also for a stranger's name that no file can have."""
    try:
        os.stat(path)  # noqa: PTH116  (Path.exists() raises for a name that is too long)
    except (OSError, ValueError):
        return False
    return True


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


def replace_file(path: Path, text: str) -> None:
    """Write *text* to *path*, whole or not at all, for this user only. Raises OSError."""
    temporary = path.with_name(f".{path.name}.new-{os.getpid()}")  # tempfile is slow to import
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        temporary.unlink(missing_ok=True)
        with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as stream:  # noqa: PTH123  (a descriptor)
            stream.write(text)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def cache_folder() -> Path:
    """Return the folder of what can be found again: ``$XDG_CACHE_HOME/gdbmem``."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(configured) if configured.startswith("/") else Path("~/.cache").expanduser()) / "gdbmem"


def read_cached(path: Path) -> JsonObject:
    """Return the JSON object in *path*; an empty one if there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_cached(path: Path, found: object) -> None:
    """Write *found* as JSON to *path*, which only saves time: it may fail."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, json.dumps(found))
