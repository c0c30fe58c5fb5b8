"""Results that a run keeps beside heap snapshots: ledgers and container scans, by name, as snapshots are.

One JSON file each, and one line each in ``kept.jsonl``, which is only appended to: listing a thousand of them
reads a thousand lines. A file without its line is listed too, with the name that stands inside.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from gdbmem.errors import InputError
from gdbmem.records import asdict, dataclass, field, replace
from gdbmem.runs.distrust import DamagedError, read_log, read_regular
from gdbmem.runs.run import ORDINAL, Run, check_name
from gdbmem.text import printable

LEDGER, CONTAINERS = "ledger", "containers"
_FOLDERS = {LEDGER: "ledgers", CONTAINERS: "containers"}
_INDEX = "kept.jsonl"


@dataclass(frozen=True)
class Kept:
    """One ledger or survey as the run remembers it; what is unknown is None."""

    kind: str  # LEDGER or CONTAINERS
    base_name: str
    ordinal: int  # 1 for the first of its kind and name
    file: str  # relative to the run folder
    place: Optional[str] = None  # "function at file:line"
    thread: Optional[int] = None
    hit: Optional[int] = None
    seconds: Optional[float] = None  # since the run began
    total_bytes: Optional[int] = None  # the resident set; what the containers hold
    unused_bytes: Optional[int] = None  # freed but kept by malloc; capacity that isn't used
    name: str = field(default="", compare=False)  # as it is listed: NAME, or NAME#2 where there are more

    @property
    def label(self) -> str:
        """The name of a result that was just kept; the first of a name doesn't know of the others."""
        return self.base_name if self.ordinal == 1 else f"{self.base_name}#{self.ordinal}"


def keep(run: Run, kind: str, name: str, text: str, **fields: Any) -> Kept:
    """Keep the JSON *text* of a ledger or survey in *run* under *name*; *fields* are those of `Kept`.

    Raises InputError where the name can't be one, or the folder can't be written to.
    """
    check_name(name)
    ordinal = 1 + sum(known.base_name == name for known in kept_records(run, kind))
    try:
        folder = run.folder / _FOLDERS[kind]
        folder.mkdir(mode=0o700, exist_ok=True)
        numbers = [int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit()]
        path = folder / f"{max(numbers, default=0) + 1:04d}.json"
        temporary = path.with_suffix(".part")
        temporary.touch(0o600)
        temporary.write_text(json.dumps({**json.loads(text), "name": name}) + "\n", encoding="utf-8")
        temporary.replace(path)
        record = Kept(kind, name, ordinal, f"{_FOLDERS[kind]}/{path.name}", **fields)
        _append(run.folder / _INDEX, record)
    except OSError as error:
        raise run.unwritable(error) from error
    return record


def _append(path: Path, record: Kept) -> None:
    values = asdict(record)
    del values["name"]
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, json.dumps(values).encode() + b"\n")
    finally:
        os.close(descriptor)


def kept_records(run: Run, kind: str = "") -> list[Kept]:
    """Return what *run* has kept of *kind* ("": of all), oldest first."""
    records = [record for record in read_log(run.folder / _INDEX, Kept).records if kind in ("", record.kind)]
    known = {record.file for record in records}
    for name, folder in _FOLDERS.items():
        if kind in ("", name):
            for stray in sorted((run.folder / folder).glob("*.json")):
                file = f"{folder}/{stray.name}"
                if file not in known:
                    records += _stray(stray, name, file, records)
    counts = Counter((record.kind, record.base_name) for record in records)
    return [
        replace(r, name=f"{r.base_name}#{r.ordinal}" if counts[r.kind, r.base_name] > 1 else r.base_name)
        for r in records
    ]


def _stray(path: Path, kind: str, file: str, records: Sequence[Kept]) -> list[Kept]:
    try:
        name = str(json.loads(read_regular(path))["name"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # it was cut: the others are still good
    ordinal = 1 + sum(known.kind == kind and known.base_name == name for known in records)
    return [Kept(kind, name, ordinal, file)]


def find_kept(run: Optional[Run], kind: str, name: str) -> Kept:
    """Return what *run* keeps as *name*; ``NAME`` is the last of that name, ``NAME#1`` the first.

    Raises InputError, with the names there are, where there is none (*run* None: no run has begun).
    """
    records = kept_records(run, kind) if run is not None else []
    match = ORDINAL.fullmatch(name)
    base, ordinal = (match[1], int(match[2])) if match else (name, None)
    found = [r for r in records if r.base_name == base and ordinal in (None, r.ordinal)]
    if found:
        return found[-1]
    known = ", ".join(printable(record.name) for record in records)
    command = "memexplain" if kind == LEDGER else "memcontainers"
    what = "no ledger was saved" if kind == LEDGER else "no containers were saved"
    raise InputError(
        f"{what} as '{printable(name)}'",
        slug="no-such-ledger" if kind == LEDGER else "no-such-survey",
        hint=f"there are {known}" if known else f"'{command} --save NAME' saves one",
    )


def kept_text(run: Run, record: Kept) -> str:
    """Return the JSON text of *record*; raises InputError where its file is gone."""
    try:
        return read_regular(run.file(record.file)).decode("utf-8", "replace")
    except (OSError, DamagedError) as error:
        raise InputError(
            f"the file of {record.kind} {printable(record.name)}, {record.file}, can't be read: {error}",
            slug="snapshot-gone",
            hint="'gdbmem show RUN' lists what is there",
        ) from error


def nothing_kept(run: Run, kind: str) -> InputError:
    """Return the error for a *run* that keeps nothing of *kind*."""
    return InputError(
        f"{printable(run.folder.name)} keeps no {kind}",
        slug="no-such-ledger" if kind == LEDGER else "no-such-survey",
        hint=f"a recipe's do: [{kind}] or mem{'explain' if kind == LEDGER else 'containers'} --save keeps one",
    )


def file_text(path: Path) -> str:
    """Return what the file at *path* holds; raises InputError."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(
            f"{printable(str(path))} can't be read: {error.strerror}",
            slug="unreadable",
            hint="name another file",
        ) from error
