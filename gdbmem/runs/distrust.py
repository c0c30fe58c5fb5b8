"""Reading a run folder that another user may have written or may be changing.

Nothing outside the folder is opened through it, no link in it is followed, and only values of the expected types
come out of it. A folder that others may change is never written into.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from gdbmem.errors import InputError
from gdbmem.files import JsonObject
from gdbmem.json_values import fits, from_json
from gdbmem.text import printable
from gdbmem.units import format_size

LARGEST_BYTES = 1 << 28  # of a file of facts or records: a million snapshots take less


class DamagedError(ValueError):
    """A value is not of the type that it should have."""


def check_own(folder: Path) -> None:
    """Raise InputError unless only this user (and root) can change *folder* and its content."""
    for path in (folder, *(entry for entry in folder.iterdir() if entry.is_symlink() or entry.is_dir())):
        facts = path.lstat()
        if facts.st_uid != os.geteuid():
            why = "belongs to another user"
        elif stat.S_ISLNK(facts.st_mode):
            why = "is a link"
        elif facts.st_mode & 0o022:
            why = "is writable by others"
        else:
            continue
        raise InputError(
            f"nothing is written into {printable(str(folder))}: {printable(path.name)} {why}",
            slug="run-not-yours",
            hint="name a new folder with --run",
        )


def is_beneath(name: str) -> bool:
    """Return whether *name*, relative to a run folder, stays in it."""
    parts = name.split("/")
    return "\0" not in name and all(part not in ("", ".", "..") for part in parts)


def file_beneath(folder: Path, name: str) -> Path:
    """Return the path of file *name* of the run in *folder*.

    Raises InputError if it leads out of the folder, through a link or by its name, or is not a file.
    """
    path, why = folder, ""
    if not is_beneath(name):
        why = "its name leads out of the run folder"
    else:
        for part in PurePosixPath(name).parts:
            path /= part
            why = _why_not(path)
            if why:
                break
        if not why and path.exists() and not path.is_file():
            why = "it is not a regular file"
    if why:
        raise InputError(
            f"{printable(name)} of {printable(folder.name)} is not read: {why}",
            slug="run-file-outside",
            hint="gdbmem never writes this; don't trust this run",
        )
    return path


def _why_not(path: Path) -> str:
    """Return why *path*, in a run folder, is not followed; "" if it is."""
    try:
        mode = path.lstat().st_mode  # not is_symlink(): since Python 3.14 False if that fails
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"{error.strerror}"
    return "a link leads out of the run folder" if stat.S_ISLNK(mode) else ""


def read_regular(path: Path) -> bytes:
    """Return what the regular file at *path* holds.

    Raises OSError, also for a link, and DamagedError for anything else or over LARGEST_BYTES.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:  # noqa: PTH123  (a descriptor)
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise DamagedError("it is not a regular file")
        # Room is made for all that is asked for: a process with little memory can't have the largest.
        data = stream.read(min(facts.st_size, LARGEST_BYTES) + 1)
    if len(data) > LARGEST_BYTES:
        raise DamagedError(f"it is over {format_size(LARGEST_BYTES)}")
    return data


class BadLines(NamedTuple):
    """Records of a log, and how many of its lines are damaged."""

    records: list[Any]
    damaged: int


def read_log(path: Path, record: type) -> BadLines:
    """Return a *record* (a dataclass with a field `file`) of each line of JSON in the log at *path*.

    Lines that are cut or damaged are left out and counted: the files that they were about are listed as strays.
    """
    try:
        lines = read_regular(path).split(b"\n")
    except (OSError, DamagedError):
        return BadLines([], 0)
    records, damaged = [], 0
    for line in lines[:-1]:  # what follows the last newline is empty, or a line that was cut
        try:
            found: Any = from_json(record, json.loads(line))
            if not is_beneath(found.file):
                raise DamagedError("it names no file of the run")
            records.append(found)
        except (ValueError, RecursionError):
            damaged += 1
    return BadLines(records, damaged)


def typed_facts(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> tuple[JsonObject, list[str]]:
    """Return those of *values* that are of the type that *kinds* names, and the names of the others."""
    wrong = [name for name, value in values.items() if name in kinds and not fits(kinds[name], value)]
    return {name: value for name, value in values.items() if name not in wrong}, wrong
