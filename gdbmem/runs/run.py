"""The run folder: the data that one launch recorded, written so that a kill loses no captured data.

``run.json`` has the facts of the launch and is replaced as a whole. ``snapshots.jsonl`` has one line per
snapshot and is only appended to: the cost grows with the number of snapshots, and a truncated last line loses
nothing, because a raw file without a line is listed too.
"""

import contextlib
import errno
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

from gdbmem.errors import InputError, Notice
from gdbmem.files import HeldFolder, JsonObject, is_there, make_private, replace_file
from gdbmem.runs import distrust
from gdbmem.runs.ranks import Rank, default_name
from gdbmem.text import plural, printable

FORMAT_VERSION = 1
DATABASE = "series.sqlite"  # of a monitor
_FACTS = "run.json"
_LOG = "snapshots.jsonl"
_FOLDER = "snapshots"
_UNNAMED = "unnamed-"  # and a number: a raw file without a line of the log
_LISTED = 8  # names in a message
_KINDS = {
    "format_version": int,
    "program": str,
    "arguments": list[str],
    "command": list[str],
    "engine": str,
    "launcher": str,
    "began": str,
    "ended": str,
    "versions": dict[str, str],
    "machine": str,
    "surroundings": dict[str, str],
    "warnings": list[dict[str, str]],
    "starts": list[dict[str, object]],
    "expectations": list[dict[str, object]],
    "recipe": dict[str, object],
    "process": dict[str, object],
    "monitor": dict[str, object],
    "rank": dict[str, object],
    "node_ranks": list[dict[str, object]],
}  # of the facts; those that gates depend on are checked, and refused if damaged, where they are judged


class SnapshotRecord(NamedTuple):
    """One snapshot as the run remembers it; what is unknown is None."""

    base_name: str
    ordinal: int  # 1 for the first of that name, then 2, 3, …
    file: str  # relative to the run folder
    engine: str
    place: Optional[str] = None  # "function at file:line"
    thread: Optional[int] = None
    hit: Optional[int] = None  # of the breakpoint that took it
    seconds: Optional[float] = None  # since the run began
    heap_bytes: Optional[int] = None
    process: Optional[int] = None  # of a native program, or of another that the engine took it in by itself
    # Of a recipe's with expectations:
    # Resident and swapped, of the process, which the engine does not count.
    outside_bytes: Optional[int] = None
    # Of them, those in no mapping: files in memory, the kernel's buffers, System V's segments, queues.
    unmapped_bytes: Optional[int] = None
    unread_bytes: int = 0  # the most that there may be of these where that can't be read
    own_bytes: Optional[int] = None  # likewise, which hold all that it allocated: also what the engine counts
    threads: Optional[int] = None
    execution: Optional[str] = None  # what names the program that the process executes
    unseen_malloc: str = ""  # the malloc that the engine can't replace, in words
    name: str = ""  # as memlist shows it: NAME, or NAME#2 if there are more

    @property
    def label(self) -> str:
        """The name of a result that was just taken; the first of a name doesn't know of the others."""
        return distrust.label_of(self)


LOADED = "loaded.maps"  # code that the program loaded, as /proc/PID/maps had it then
BINARIES = "binaries"  # of a process with files that are not here
PACKED = ".zst"  # a raw file that is packed, by Zstandard
OWN = "own"  # what snapshots are called that the engine took by itself


def timestamp() -> str:
    """Return the present time (UTC, ISO 8601, milliseconds), as the facts of runs have it."""
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03}+00:00"


def asked_for(records: Sequence[SnapshotRecord]) -> Sequence[SnapshotRecord]:
    """Return those of *records* that were requested; all if the engine took each by itself."""
    return [record for record in records if record.base_name != OWN] or records


class Run:
    """A run folder on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: Optional[HeldFolder] = None
        self._facts_cache: Optional[JsonObject] = None
        self._damaged_facts: list[str] = []
        self._last_number: Optional[int] = None  # of a raw file
        self._counts: Optional[Counter[str]] = None  # snapshots per name

    @classmethod
    def create(
        cls,
        program: str,
        *,
        parent: Path,
        pid: int,
        folder: Optional[Path] = None,
        rank: Optional[Rank] = None,
    ) -> "Run":
        """Make the folder ``gdbmem.PROGRAM.PID`` under *parent* (or *folder* itself), mode 0700.

        *rank* is that of the program among the processes of a parallel job, which names the folder instead of *pid*.

        Raises InputError if it can't be made; an existing *folder* is never written into.
        """
        stem = re.sub(r"[^A-Za-z0-9_.+-]", "_", Path(program).name)[:80] or "program"
        wanted = folder or parent / default_name(stem, pid, rank)
        attempt, number = wanted, 1
        while True:
            try:
                if rank is not None:  # the folder of all ranks: whichever is first makes it
                    attempt.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                attempt.mkdir(mode=0o700)
                run = cls(attempt.parent.resolve() / attempt.name)
                run._begin(rank)
                return run
            except FileExistsError:
                if folder is not None and attempt == wanted and rank is not None and rank.has_others:
                    # Another rank may have made it: a rank that ends here holds up all others.
                    attempt = wanted.with_name(f"{wanted.name}.r{rank.rank}")
                    continue
                if folder is not None:
                    raise InputError(
                        f"{printable(str(folder))} exists",
                        slug="run-exists",
                        hint="name a new folder with --run",
                    ) from None
                number += 1
                attempt = wanted.with_name(f"{wanted.name}.{number}")
            except OSError as error:
                raise InputError(
                    f"cannot make the run folder {printable(str(wanted))}: {error.strerror}",
                    slug="run-unwritable",
                    hint="go to a folder that you may write to, or name one with --run DIR",
                ) from error

    def _begin(self, rank: Optional[Rank]) -> None:
        """Hold the folder that was just made; raises OSError if another one stands in its place."""
        held = self._held = HeldFolder(self.folder)
        if held.path.stat().st_uid != os.geteuid() or any(held.path.iterdir()):
            raise OSError(errno.ESTALE, "another folder was put in its place")
        (held.path / _FOLDER).mkdir(mode=0o700)
        self._facts_cache = {} if rank is None else {"rank": rank._asdict()}

    @property
    def held(self) -> HeldFolder:
        """The folder as it is written into, opened once; raises InputError."""
        if self._held is None:
            try:
                self._held = HeldFolder(self.folder)
            except OSError as error:
                raise self.unwritable(error) from error
        return self._held

    @property
    def place(self) -> Path:
        """The path by which this process writes into the folder; `folder` is for messages and other processes."""
        return self.held.path

    @property
    def facts(self) -> Mapping[str, Any]:
        """The content of ``run.json``: commands, versions, launches, statuses."""
        if self._facts_cache is None:
            self._facts_cache, self._damaged_facts = _read_facts(self.folder / _FACTS)
        return self._facts_cache

    def update(self, **facts: Any) -> None:
        """Merge *facts* into ``run.json``, which is replaced whole; raises InputError if it can't be."""
        self._seal(self.place.glob("**/*"))
        merged = {"format_version": FORMAT_VERSION, "kind": "run", **self.facts, **facts}
        self._facts_cache = merged
        try:
            replace_file(self.place / _FACTS, json.dumps(merged, indent=1))
        except OSError as error:
            raise self.unwritable(error) from error

    @property
    def snapshots(self) -> list[SnapshotRecord]:
        """Every snapshot of the run, oldest first, raw files without a log line included."""
        records: list[SnapshotRecord] = distrust.read_log(self.folder / _LOG, SnapshotRecord).records
        known = {record.file for record in records}
        folder = self.folder / _FOLDER
        strays = sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
        for stray in strays:
            file = f"{_FOLDER}/{stray.name}"
            if file not in known and not stray.is_symlink() and stray.is_file() and stray.stat().st_size:
                number, _, engine = stray.name.removesuffix(PACKED).partition(".")
                records.append(SnapshotRecord(f"{_UNNAMED}{number}", 1, file, engine))
        return distrust.with_names(_in_order_of_files(_in_time(records)))

    def record(self, name: str) -> SnapshotRecord:
        """Return the snapshot called *name*; ``NAME`` is the last of that name, ``NAME#1`` the first.

        Raises InputError, with the nearest name, if there is none.
        """
        records = self.snapshots
        found = distrust.find_record(records, name)
        if found is not None:
            return found
        raise InputError(
            f"{printable(self.folder.name)} has no snapshot '{printable(name)}'",
            slug="no-such-snapshot",
            hint=_suggest(name, [record.name for record in records]),
        )

    def path(self, record: SnapshotRecord) -> Path:
        """Return the path of the raw file of *record*; raises InputError if it is outside the run."""
        return self.file(record.file)

    def file(self, name: str) -> Path:
        """Return where file *name* of the run is; raises InputError if that is outside the run."""
        return distrust.file_beneath(self.folder, name)

    @property
    def notices(self) -> list[Notice]:
        """Notices on the run: those of its launch, and damage."""
        noted = self.facts.get("warnings", [])
        found = [
            Notice(entry["slug"], entry["message"]) for entry in noted if {"slug", "message"} <= entry.keys()
        ]
        if self._damaged_facts:
            names = ", ".join(self._damaged_facts)
            text = f"values of {_FACTS} with an unexpected type are ignored: {names}"
            found.append(Notice("run-partly-damaged", text))
        damaged = distrust.read_log(self.folder / _LOG, SnapshotRecord).damaged
        if damaged:
            text = (
                f"{plural(damaged, 'line')} of {_LOG} {'is' if damaged == 1 else 'are'} damaged and left out"
            )
            found.append(Notice("run-partly-damaged", text))
        return found

    def next_file(self, engine: str, *, packed: bool = False) -> str:
        """Return the relative name for the next raw file: ``snapshots/0004.massif``.

        A *packed* file gets the suffix that the engine's own tools expect.
        Raises InputError if the run folder has been removed or replaced: another process writes the file by its name.
        """
        if not self.held.is_in_place:
            raise self.unwritable(OSError(errno.ESTALE, os.strerror(errno.ESTALE)))
        if self._last_number is None:
            try:
                names = [path.name.partition(".")[0] for path in (self.place / _FOLDER).iterdir()]
            except OSError as error:
                raise self.unwritable(error) from error
            numbers = [int(name) for name in names if name.isdigit()]
            self._last_number = max(numbers, default=0)
        # A name whose file was never written is given again; one that was written, never.
        ending = f"{engine}{PACKED}" if packed else engine
        while is_there(f"{self.place}/{(file := f'{_FOLDER}/{self._last_number + 1:04d}.{ending}')}"):
            self._last_number += 1
        return file

    def append(self, base_name: str, **fields: Any) -> SnapshotRecord:
        """Remember a snapshot (one line, one write) and return its record; *fields* are the record's.

        Raises InputError if it can't be written; its raw file is listed nevertheless.
        """
        if self._counts is None:
            self._counts = Counter(
                record.base_name for record in distrust.read_log(self.folder / _LOG, SnapshotRecord).records
            )
        self._counts[base_name] += 1
        record = SnapshotRecord(base_name, self._counts[base_name], **fields)
        self._seal([f"{self.place}/{record.file}"])
        try:
            distrust.append_record(f"{self.place}/{_LOG}", record)
        except OSError as error:
            raise self.unwritable(error) from error
        return record._replace(name=record.label)

    def _seal(self, paths: Iterable[Union[str, Path]]) -> None:
        """Make the files private to the owner, even if the folder is copied or its mode changed."""
        for path in paths:
            with contextlib.suppress(OSError):
                make_private(path)

    def unwritable(self, error: OSError) -> InputError:
        """Return the error of a run folder that can't be written to."""
        if not self.folder.exists() or (self._held is not None and not self._held.is_in_place):
            return InputError(
                f"the run folder {printable(str(self.folder))} has been removed, renamed or replaced",
                slug="run-unwritable",
                hint="a renamed one still has the recorded data",
            )
        return InputError(
            f"cannot write into the run folder {printable(str(self.folder))}: {error.strerror}",
            slug="run-unwritable",
            hint="free some space there, or launch with --run DIR on another disk",
        )

    def remove_if_empty(self) -> None:
        """Remove the folder if it contains only the facts of the run and its loaded code: no snapshot, no log."""
        names = {path.name for path in self.place.iterdir()}
        if names <= {_FACTS, _FOLDER, LOADED} and not any((self.place / _FOLDER).iterdir()):
            self.remove()

    def remove(self) -> None:
        """Remove the folder; if its name leads elsewhere by now, only what is in it. Raises OSError."""
        import shutil  # not always needed

        for path in self.place.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if self.held.is_in_place:
            self.folder.rmdir()


def open_run(path: Union[str, os.PathLike[str]]) -> Run:
    """Open the run folder at *path*; raises InputError if there is none."""
    folder = Path(path)
    if not is_run(folder):
        raise InputError(
            f"{printable(str(folder))} is not a run folder (it has no {_FACTS})",
            slug="no-run",
            hint="name a folder that 'gdbmem launch' made, gdbmem.PROGRAM.PID",
        )
    return Run(folder.resolve())


def current_folder() -> Path:
    """Return the folder that new runs are made in; raises InputError if it has been deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise InputError(
            "the current folder is gone: it was deleted",
            slug="no-current-folder",
            hint="cd to one that exists",
        ) from error


def is_run(path: Union[str, os.PathLike[str]]) -> bool:
    """Return whether *path* is a run folder."""
    facts = Path(path) / _FACTS
    return facts.is_file() and not facts.is_symlink()


def _read_facts(path: Path) -> tuple[JsonObject, list[str]]:
    """Return the facts in the file at *path*, and the names of those that are damaged and left out."""
    try:
        facts = json.loads(distrust.read_regular(path))
        if not isinstance(facts, dict):
            raise distrust.DamagedError("it holds no object")
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{printable(str(path))} can't be read: {error}",
            slug="run-damaged",
            hint="its snapshots/ folder can still be given to 'gdbmem show' and 'gdbmem diff', file by file",
        ) from error
    typed, wrong = distrust.typed_facts(facts, _KINDS)
    if typed.get("format_version", 0) > FORMAT_VERSION:
        raise InputError(
            f"{printable(str(path))} was written by a newer gdbmem", slug="run-newer", hint="upgrade gdbmem"
        )
    return typed, wrong


def _in_time(records: Sequence[SnapshotRecord]) -> Sequence[SnapshotRecord]:
    """Return *records*, those that the engine took by itself, which are noted at the end, where they belong."""
    if not any(record.base_name == OWN for record in records):
        return records
    return sorted(records, key=lambda record: (record.seconds is None, record.seconds or 0.0))


def _in_order_of_files(records: Sequence[SnapshotRecord]) -> Sequence[SnapshotRecord]:
    """Return *records*, those without a line of the log where the number of their file puts them."""
    logged = [record for record in records if not record.base_name.startswith(_UNNAMED)]
    ordered = list(logged)
    for stray in (record for record in records if record.base_name.startswith(_UNNAMED)):
        number = _number(stray)
        after = [at for at, other in enumerate(ordered) if -1 < _number(other) < number]
        ordered.insert(max(after) + 1 if after and number >= 0 else len(ordered) if number < 0 else 0, stray)
    return ordered


def _number(record: SnapshotRecord) -> int:
    stem = Path(record.file).stem
    return int(stem) if stem.isdecimal() and stem.isascii() else -1


def _suggest(name: str, names: Sequence[str]) -> str:
    import difflib  # not always needed

    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean '{printable(close[0])}'?"
    if not names:
        return "it has no snapshots"
    listed = ", ".join(printable(known) for known in names[:_LISTED])
    more = f", … and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"it has {listed}{more}"


def recipe_diffs(run: Run) -> list[tuple[str, str]]:
    """Return the pairs of snapshots that the recipe of *run* compares."""
    pairs = run.facts.get("recipe", {}).get("diffs")
    return [
        (pair[0], pair[1])
        for pair in (pairs if isinstance(pairs, list) else [])
        if isinstance(pair, list) and len(pair) > 1 and all(isinstance(name, str) for name in pair[:2])
    ]


def has_series(folder: Path) -> bool:
    """Return whether the run in *folder* holds a series."""
    database = folder / DATABASE
    return database.is_file() and not database.is_symlink()


# Runs of a process that was started elsewhere: all of its snapshots are collected in one folder.


def histories(run: Run) -> list[Path]:
    """Return the files that a tool of valgrind's wrote at an end of *run*, oldest first: massif its own history."""
    engine = str(run.facts.get("engine") or "massif")
    files = list(run.folder.iterdir()) if run.folder.is_dir() else []
    ended = [file for file in files if file.name.startswith(f"{engine}.") and file.name.count(".") > 2]
    asked = [file for file in files if file.name.startswith("history-") and "." in file.name]
    found = sorted(ended, key=lambda file: [int(word) for word in file.name.split(".") if word.isdigit()])
    found += sorted(asked, key=lambda file: (len(file.name), file.name))
    return [file for file in found if not file.is_symlink()]


HISTORY_PACKED = ".gz"
_PACKED_FROM = 8 << 20  # bytes: smaller ones can be read by massif's own tools as they are


def pack_histories(run: Run) -> None:
    """Compress the long histories of *run*, to about a sixteenth: each tree in them repeats most of the one before.

    One that can't be written stays as it is.
    """
    import gzip  # with zlib, for long ones only
    import shutil  # as above

    for file in histories(run):
        packed = file.with_name(file.name + HISTORY_PACKED)
        temporary = file.with_name(f".{packed.name}.new")
        try:
            if file.suffix == HISTORY_PACKED or file.stat().st_size < _PACKED_FROM:
                continue
            with file.open("rb") as plain, gzip.open(temporary, "wb", compresslevel=1) as stream:
                shutil.copyfileobj(plain, stream, 1 << 20)
            temporary.replace(packed)
            file.unlink()
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()


def run_for_process(
    program: str, process: Mapping[str, Any], *, parent: Path, folder: Optional[Path] = None
) -> tuple[Run, bool]:
    """Return the run in which snapshots of *process* collect, and whether it was made now.

    *process* identifies the process, also from a later one with the same pid: its ``pid`` and start time. The run is
    *folder*, or is in *parent*; a run that others may change is never reused.
    Raises InputError for a *folder* of another process or another user.
    """
    if folder is not None and folder.exists():
        if is_run(folder):
            distrust.check_own(folder)
            run = open_run(folder)
            if run.facts.get("process") == dict(process):
                return run, False
            raise InputError(
                f"{printable(str(folder))} is the run of another process",
                slug="run-exists",
                hint="name a new folder with --run",
            )
    elif folder is None:
        for candidate in sorted(parent.glob(f"gdbmem.*.{process['pid']}*")):
            with contextlib.suppress(InputError, OSError):  # of another user, or unreadable: not ours
                distrust.check_own(candidate)
                run = open_run(candidate)
                if run.facts.get("process") == dict(process):
                    return run, False
    run = Run.create(program, parent=parent, pid=process["pid"], folder=folder)
    run.update(process=dict(process))
    return run, True
