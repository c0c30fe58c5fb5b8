"""Reading a run folder that somebody else may have written or may be changing.

Nothing outside the folder is opened through it, no link in it is followed, and only values of the expected types
come out of it. A folder that anybody else may change is never written into.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Callable, NamedTuple, Union, get_args, get_origin, get_type_hints

from gdbmem.errors import InputError
from gdbmem.files import JsonObject
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
            why = "may be written to by others"
        else:
            continue
        raise InputError(
            f"nothing is written into {printable(str(folder))}: {printable(path.name)} {why}",
            slug="run-not-yours",
            hint="name a new folder with --run",
        )


def is_beneath(name: str) -> bool:
    """Tell whether *name*, relative to a run folder, stays in it."""
    parts = name.split("/")
    return "\0" not in name and all(part not in ("", ".", "..") for part in parts)


def file_beneath(folder: Path, name: str) -> Path:
    """Return the path of file *name* of the run in *folder*.

    Raises InputError where it leads out of the folder, through a link or by its name, or is not a file.
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
            hint="gdbmem writes no such thing; don't trust this run",
        )
    return path


def _why_not(path: Path) -> str:
    """Return why *path*, in a run folder, is not followed; "" where it is."""
    try:
        mode = path.lstat().st_mode  # is_symlink() says False of what can't be looked at, from Python 3.14 on
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"{error.strerror}"
    return "a link leads out of the run folder" if stat.S_ISLNK(mode) else ""


def read_regular(path: Path, *, limit_bytes: int = LARGEST_BYTES) -> bytes:
    """Return what the regular file at *path* holds.

    Raises OSError, also for a link, and DamagedError for anything else or over *limit_bytes*.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:  # noqa: PTH123  (a descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DamagedError("it is not a regular file")
        data = stream.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise DamagedError(f"it is over {format_size(limit_bytes)}")
    return data


class BadLines(NamedTuple):
    """Records of a log, and how many of its lines are damaged."""

    records: list[Any]
    damaged: int


def read_log(path: Path, record: Callable[..., Any]) -> BadLines:
    """Return a *record* (a dataclass with a field `file`) of each line of JSON in the log at *path*.

    Lines that are cut or damaged are left out and counted: the files that they were about are listed as strays.
    """
    try:
        lines = read_regular(path).split(b"\n")
    except (OSError, DamagedError):
        return BadLines([], 0)
    records, damaged, kinds = [], 0, get_type_hints(record)
    for line in lines[:-1]:  # what follows the last newline is empty, or a line that was cut
        try:
            records.append(record(**_checked(json.loads(line), kinds)))
        except (ValueError, TypeError, RecursionError):
            damaged += 1
    return BadLines(records, damaged)


def _checked(values: Any, kinds: Mapping[str, Any]) -> JsonObject:
    if not isinstance(values, dict) or not is_beneath(str(values.get("file"))):
        raise DamagedError("it names no file of the run")
    _, wrong = typed_facts(values, kinds)
    if wrong:
        raise DamagedError(f"{wrong[0]} is of another type")
    return values


def _fits(value: Any, kind: Any) -> bool:
    """Tell whether *value*, out of JSON, is of type *kind*; JSON has no difference between 1 and 1.0."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Union:
        return any(_fits(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(_fits(item, parts[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(item, parts[1]) for item in value.values())
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return kind is Any or (isinstance(kind, type) and isinstance(value, kind))


def typed_facts(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> tuple[JsonObject, list[str]]:
    """Return those of *values* that are of the type that *kinds* names, and the names of the others."""
    wrong = [name for name, value in values.items() if name in kinds and not _fits(value, kinds[name])]
    return {name: value for name, value in values.items() if name not in wrong}, wrong
