"""Standard input, FIFOs and `<(…)` as operands: copied once to a private temporary file, then read like any file."""

from __future__ import annotations

import mmap
import os
import re
import stat
from pathlib import Path
from typing import IO, Union

from gdbmem.errors import InputError
from gdbmem.text import format_size, printable

Data = Union[bytes, mmap.mmap]  # the bytes of a file, held or mapped

STANDARD_INPUT = "standard input"  # the name of `-` in messages
_LIMIT_BYTES = 1 << 30
_STEP_BYTES = 1 << 20

_PIPE = re.compile(r"/(?:dev|proc/self)/fd/[0-9]+")
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
    if _PIPE.fullmatch(path):  # of `<(…)`: its number is meaningless
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
            if total > _LIMIT_BYTES:
                raise InputError(
                    f"{printable(name)} holds more than {format_size(_LIMIT_BYTES)}",
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
