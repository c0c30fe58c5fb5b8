"""Files: regular ones opened and read with a limit, modes, copies of standard input and FIFOs; gdbmem's own folders."""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, Callable, Union

from gdbmem.errors import InputError
from gdbmem.text import format_size, printable

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
            return os.path.samestat(os.lstat(self._folder), os.fstat(self._descriptor))
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


def make_private(path: Union[str, os.PathLike[str]]) -> None:
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


# Standard input, FIFOs and `<(…)` as operands: copied once to a private temporary file, then read like any file.


Data = Union[bytes, mmap.mmap]  # the bytes of a file, held or mapped

STANDARD_INPUT = "standard input"  # the name of `-` in messages
_LARGEST_COPY_BYTES = 1 << 30
_STEP_BYTES = 1 << 20

_PIPE = r"/(?:dev|proc/self)/fd/[0-9]+"
_ORDINALS = ("first", "second", "third", "fourth")

_copies: dict[str, IO[bytes]] = {}  # name → its copy; the files have no name, so that nothing is left behind


def location(name: Union[str, os.PathLike[str]]) -> Path:
    """Return the path to open for *name*: its copy if it was spooled, else *name* itself."""
    copy = _copies.get(os.fspath(name))
    # Opened by this name, the copy has a separate file position each time.
    return Path(name) if copy is None else Path(f"/proc/self/fd/{copy.fileno()}")


def is_fifo(path: str) -> bool:
    """Return whether *path* is a FIFO or a pipe."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116  (of a Path, ValueErrors differ by version)
    except (OSError, ValueError):  # a name that is too long, or holds a NUL
        return False


def spool_operands(texts: Sequence[str]) -> list[str]:
    """Copy what can be read only once, standard input (`-`) and FIFOs, and return the operands to use instead."""
    names: dict[str, str] = {}
    operands = []
    for text in texts:
        head = text if is_fifo(text) else text.partition(":")[0]
        if text == "-" and head not in names:
            spool_standard_input()
            names[head] = STANDARD_INPUT
        elif is_fifo(head) and head not in names:
            names[head] = spool_fifo(head)
        operands.append(f"{names.get(head, head)}{text[len(head) :]}")
    return operands


def spool_standard_input() -> None:
    """Copy the standard input. Raises InputError when it is a terminal, empty or too large."""
    if os.isatty(0):
        raise InputError(
            "the standard input is a terminal, not a profile",
            slug="not-a-file",
            hint="pipe one into gdbmem, or name a file",
        )
    _spool(0, STANDARD_INPUT)


def spool_fifo(path: str) -> str:
    """Copy the data written to the FIFO *path*, waiting for a writer, and return its name from now on.

    Raises InputError as spool_standard_input().
    """
    name = path
    if re.fullmatch(_PIPE, path):  # of `<(…)`: its number is meaningless
        count = len(_copies.keys() - {STANDARD_INPUT})
        name = f"{_ORDINALS[count]} input" if count < len(_ORDINALS) else f"input {count + 1}"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"cannot read {printable(path)}: {error.strerror}", slug="file-unreadable") from None
    try:
        _spool(descriptor, name)
    finally:
        os.close(descriptor)
    return name


def _spool(descriptor: int, name: str) -> None:
    import tempfile  # not always needed

    copy = tempfile.TemporaryFile(prefix="gdbmem-")  # noqa: SIM115  (kept until the process ends)
    total = 0
    try:
        while block := os.read(descriptor, _STEP_BYTES):
            total += len(block)
            if total > _LARGEST_COPY_BYTES:
                raise InputError(
                    f"{printable(name)} holds more than {format_size(_LARGEST_COPY_BYTES)}",
                    slug="file-too-big",
                    hint="write it to a file and give that",
                )
            copy.write(block)
        copy.flush()
    except OSError as error:
        raise InputError(
            f"cannot copy {printable(name)}: {error.strerror}",
            slug="file-unreadable",
            hint="the copy needs room in $TMPDIR or /tmp",
        ) from None
    _copies[name] = copy
