"""The record of one result in a run: its name, NAME or NAME#2 if several have the same one, and its file."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar

from gdbmem.errors import InputError
from gdbmem.patterns import lazy_pattern
from gdbmem.records import asdict, dataclass, replace
from gdbmem.text import printable

_ORDINAL = lazy_pattern(r"(.+)#([1-9]\d{0,8})", re.DOTALL)


@dataclass(frozen=True)
class NamedRecord:
    """One result; subclasses have a field *name*, under which it is listed."""

    base_name: str
    ordinal: int  # 1 for the first of that name (and kind), then 2, 3, …
    file: str  # relative to the run folder

    @property
    def label(self) -> str:
        """The name of a result that was just taken; the first of a name doesn't know of the others."""
        return self.base_name if self.ordinal == 1 else _numbered(self)


Record = TypeVar("Record", bound=NamedRecord)


def split_name(name: str) -> tuple[str, Optional[int]]:
    """Return the base and the number of ``NAME#2``; of ``NAME`` alone None."""
    match = _ORDINAL.fullmatch(name)
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
        listed: Any = {"name": record.base_name if counts[group(record)] == 1 else _numbered(record)}
        return replace(record, **listed)

    return [named(record) for record in records]


def _numbered(record: NamedRecord) -> str:
    return f"{record.base_name}#{record.ordinal}"


def find_record(records: Sequence[Record], name: str) -> Optional[Record]:
    """Return the record of *name*: ``NAME`` is the last of that name, ``NAME#1`` the first; None without one."""
    base, ordinal = split_name(name)
    found = [one for one in records if one.base_name == base and ordinal in (None, one.ordinal)]
    return found[-1] if found else None


def append_record(log: Path, record: NamedRecord) -> None:
    """Append *record* to *log* as one line, in one write. Raises OSError."""
    values = asdict(record)
    del values["name"]
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, json.dumps(values).encode() + b"\n")
    finally:
        os.close(descriptor)
