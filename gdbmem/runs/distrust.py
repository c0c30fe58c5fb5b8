"""Reading a run folder that another user may have written or may be changing.

Nothing outside the folder is opened through it, no link in it is followed, and only values of the expected types
come out of it. A folder that others may change is never written into.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Callable, NamedTuple, Optional, Protocol, TypeVar, Union

from gdbmem.errors import InputError
from gdbmem.files import JsonObject
from gdbmem.json_values import as_json, fits, from_json
from gdbmem.text import format_size, printable

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
    """Return a *record* (a class with a field `file`) of each line of JSON in the log at *path*.

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


# The record of one result in a run: its name, NAME or NAME#2 if several have the same one, and its file.


_ORDINAL = r"(?s)(.+)#([1-9]\d{0,8})"


class NamedRecord(Protocol):
    """One result: a named tuple that also has `file`, relative to the run, and `name`, under which it is listed."""

    @property
    def base_name(self) -> str:
        """NAME."""

    @property
    def ordinal(self) -> int:
        """1 for the first of that name (and kind), then 2, 3, …"""


Record = TypeVar("Record", bound=NamedRecord)


def split_name(name: str) -> tuple[str, Optional[int]]:
    """Return the base and the number of ``NAME#2``; of ``NAME`` alone None."""
    match = re.fullmatch(_ORDINAL, name)
    return (match[1], int(match[2])) if match else (name, None)


def check_name(name: str) -> str:
    """Return *name* if a result may be called that; raises InputError.

    ``NAME#2`` means the second result called NAME, so users may not choose such a name.
    """
    if not name.strip() or split_name(name)[1] is not None:
        raise InputError(
            f"'{printable(name)}' can't name a snapshot",
            slug="bad-snapshot-name",
            hint="use a word without '#1'",
        )
    return name


def with_names(
    records: Sequence[Record], group: Callable[[Record], object] = lambda record: record.base_name
) -> list[Record]:
    """Return *records* with the names by which they are listed; those of a *group* are counted together."""
    counts = Counter(map(group, records))

    def named(record: Record) -> Record:
        whole: Any = record
        is_only = counts[group(record)] == 1
        listed: Record = whole._replace(name=record.base_name if is_only else _numbered(record))
        return listed

    return [named(record) for record in records]


def label_of(record: NamedRecord) -> str:
    """Return the name of a result that was just taken; the first of a name doesn't know of the others."""
    return record.base_name if record.ordinal == 1 else _numbered(record)


def _numbered(record: NamedRecord) -> str:
    return f"{record.base_name}#{record.ordinal}"


def find_record(records: Sequence[Record], name: str) -> Optional[Record]:
    """Return the record of *name*: ``NAME`` is the last of that name, ``NAME#1`` the first; None without one."""
    base, ordinal = split_name(name)
    found = [one for one in records if one.base_name == base and ordinal in (None, one.ordinal)]
    return found[-1] if found else None


def append_record(log: Union[str, Path], record: NamedRecord) -> None:
    """Append *record* to *log* as one line, in one write. Raises OSError."""
    values = as_json(record)
    del values["name"]
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, json.dumps(values).encode() + b"\n")
    finally:
        os.close(descriptor)
