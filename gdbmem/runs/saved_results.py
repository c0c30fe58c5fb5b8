"""Results in a run other than heap snapshots: ledgers, container scans and heaps with their holders, by name.

Each has a JSON file, and a line in ``kept.jsonl``, which is only appended to: listing them reads only that file. A file
without a line is listed too, with the name that it contains.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from gdbmem.errors import InputError
from gdbmem.files import replace_file
from gdbmem.runs import distrust
from gdbmem.runs.run import Run
from gdbmem.text import printable

LEDGER, CONTAINERS, HEAP = "ledger", "containers", "heap"
_FOLDERS = {LEDGER: "ledgers", CONTAINERS: "containers", HEAP: "heaps"}


class _Words(NamedTuple):
    command: str  # of gdb, that saves one
    none: str  # "no … saved"
    slug: str


_WORDS = {
    LEDGER: _Words("memexplain", "no ledger was saved", slug="no-such-ledger"),
    CONTAINERS: _Words("memcontainers", "no containers were saved", slug="no-such-survey"),
    HEAP: _Words("memheap", "no heap was saved", slug="no-such-heap"),
}
# Slugs of the errors for a name that is not there.
MISSING = frozenset(words.slug for words in _WORDS.values())
_INDEX = "kept.jsonl"


class SavedResult(NamedTuple):
    """One ledger, survey or heap as the run remembers it; what is unknown is None."""

    base_name: str
    ordinal: int  # 1 for the first of that name and kind, then 2, 3, …
    file: str  # relative to the run folder
    kind: str  # LEDGER, CONTAINERS or HEAP
    place: Optional[str] = None  # "function at file:line"
    thread: Optional[int] = None
    hit: Optional[int] = None
    seconds: Optional[float] = None  # since the run began
    total_bytes: Optional[int] = None  # the resident set; what the containers hold; the live blocks
    unused_bytes: Optional[int] = None  # freed but kept by malloc; capacity that isn't used; lost for certain
    outside_bytes: Optional[int] = None  # of the process, which are not in its resident set
    unmapped_bytes: Optional[int] = None  # of them, those in no mapping
    unread_bytes: int = 0  # the most that there may be of these where that can't be read
    execution: Optional[str] = None  # what names the program that the process executes
    name: str = ""  # as it is listed: NAME, or NAME#2 if there are more

    @property
    def label(self) -> str:
        """The name of a result that was just taken; the first of a name doesn't know of the others."""
        return distrust.label_of(self)


def keep(run: Run, kind: str, name: str, text: str, **fields: Any) -> SavedResult:
    """Keep the JSON *text* of a result of *kind* in *run* under *name*; *fields* are those of `SavedResult`.

    Raises InputError if the name can't be one, or the folder can't be written to.
    """
    distrust.check_name(name)
    ordinal = 1 + sum(known.base_name == name for known in saved_records(run, kind))
    try:
        folder = run.place / _FOLDERS[kind]
        folder.mkdir(mode=0o700, exist_ok=True)
        numbers = [int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit()]
        path = folder / f"{max(numbers, default=0) + 1:04d}.json"
        replace_file(path, json.dumps({**json.loads(text), "name": name}) + "\n")
        record = SavedResult(name, ordinal, f"{_FOLDERS[kind]}/{path.name}", kind, **fields)
        distrust.append_record(run.place / _INDEX, record)
    except OSError as error:
        raise run.unwritable(error) from error
    return record


def saved_records(run: Run, kind: str = "") -> list[SavedResult]:
    """Return what *run* has kept of *kind* ("": of all), oldest first."""
    records = [
        record
        for record in distrust.read_log(run.folder / _INDEX, SavedResult).records
        if kind in ("", record.kind)
    ]
    known = {record.file for record in records}
    for name, folder in _FOLDERS.items():
        if kind in ("", name):
            for stray in sorted((run.folder / folder).glob("*.json")):
                file = f"{folder}/{stray.name}"
                if file not in known:
                    records += _stray(stray, name, file, records)
    return distrust.with_names(records, lambda record: (record.kind, record.base_name))


def _stray(path: Path, kind: str, file: str, records: Sequence[SavedResult]) -> list[SavedResult]:
    try:
        name = str(json.loads(distrust.read_regular(path))["name"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # it was cut: the others are still good
    ordinal = 1 + sum(known.kind == kind and known.base_name == name for known in records)
    return [SavedResult(name, ordinal, file, kind)]


def find_saved(run: Optional[Run], kind: str, name: str) -> SavedResult:
    """Return the result *name* of *run*; ``NAME`` is the last of that name, ``NAME#1`` the first.

    Raises InputError, with the existing names, if there is none (*run* None: no run has begun).
    """
    records = saved_records(run, kind) if run is not None else []
    found = distrust.find_record(records, name)
    if found is not None:
        return found
    known = ", ".join(printable(record.name) for record in records)
    words = _WORDS[kind]
    raise InputError(
        f"{words.none} as '{printable(name)}'",
        slug=words.slug,
        hint=f"there are {known}" if known else f"'{words.command} --save NAME' saves one",
    )


def saved_text(run: Run, record: SavedResult) -> str:
    """Return the JSON text of *record*; raises InputError if its file is gone."""
    try:
        return distrust.read_regular(run.file(record.file)).decode("utf-8", "replace")
    except (OSError, distrust.DamagedError) as error:
        raise InputError(
            f"the file of {record.kind} {printable(record.name)}, {record.file}, can't be read: {error}",
            slug="snapshot-gone",
            hint="'gdbmem show RUN' lists what is there",
        ) from error


def nothing_saved(run: Run, kind: str) -> InputError:
    """Return the error for a *run* that keeps nothing of *kind*."""
    return InputError(
        f"{printable(run.folder.name)} keeps no {kind}",
        slug=_WORDS[kind].slug,
        hint=f"a recipe's do: [{kind}] or {_WORDS[kind].command} --save keeps one",
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
