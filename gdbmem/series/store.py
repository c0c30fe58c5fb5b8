"""A recording of memory over time in a run folder: SQLite, one row per reading, safe if the writer is killed.

Each complete sample is one transaction in WAL mode; the quick samples in between are in a journal: a writer
that is killed loses at most the sample in progress.
Old rows are thinned, but the smallest and the largest value of each interval are kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Optional, get_type_hints
from urllib.parse import quote

from gdbmem.errors import InputError
from gdbmem.files import HeldFolder, JsonObject
from gdbmem.json_values import fits
from gdbmem.linux.memory.maps import PAGE
from gdbmem.linux.monitoring.sampling import FRAME, Glance, sizes_of, unpack_glances
from gdbmem.model.series import (
    READING_FIELDS,
    TREE,
    FiredTrigger,
    Mark,
    ProcessSample,
    Sample,
    SeriesFacts,
    SeriesLine,
)
from gdbmem.runs.distrust import DamagedError, typed_facts
from gdbmem.runs.run import DATABASE, has_series, is_run, open_run
from gdbmem.text import printable

_LOCK = "series.lock"
_VERSION = 4  # 2: GPUs, cgroups; 3: copied pages by process, torn rounds; 4: earlier names; older ones don't have them
_LINE_FIELDS = SeriesLine._fields
# dataclasses.astuple() copies deeply and takes longer than all the rest.
_line_values = attrgetter(*_LINE_FIELDS)
_SAMPLE_FIELDS = ("line", "t", *READING_FIELDS)
_INSERT = f"INSERT OR REPLACE INTO sample ({', '.join(_SAMPLE_FIELDS)}) VALUES ({', '.join('?' * len(_SAMPLE_FIELDS))})"
_GLANCED = (
    "(line, t, rss_bytes, shared_bytes, minor_faults, family_bytes)"
    f" VALUES (?, ?, ? * {PAGE}, ? * {PAGE}, ?, ?)"
)
# A reader is ended after so long; checked once per so many SQLite instructions.
_MOST_SECONDS, _STEPS = 300.0, 10_000_000
# That opening waits for a lock: the last process to open it may recover or checkpoint the database.
_OPENING_SECONDS = 10.0
_WRITING_SECONDS = 0.25  # that a write waits: it is tried again with the next sample
_MOST_WAITING = 20_000  # samples kept in memory while the disk is full or the database is locked


class Damaged(InputError):  # noqa: N818
    """The database can't be read as one."""


class SeriesWriter:
    """Writes a recording. One writer at a time: a second one is refused."""

    def __init__(self, folder: Path, facts: Optional[SeriesFacts] = None) -> None:
        """Open the recording in *folder*; *facts* begin a new one, None continues the existing one.

        Raises InputError if another monitor writes to it, or a new one cannot be written; Damaged.
        """
        self._held = HeldFolder(folder)
        self._waiting: list[tuple[str, Sequence[Sequence[Any]]]] = []
        self._glances: list[Glance] = []
        self.lost_writes = 0
        with contextlib.ExitStack() as refused:
            refused.callback(self._held.close)
            self._lock = _take_lock(self._held.path, folder)
            refused.callback(os.close, self._lock)
            try:
                if facts is not None:
                    _begin(self._held.path, facts)
                connection = _connect(self._held.path / DATABASE)
                self._connection = refused.enter_context(contextlib.closing(connection))
                _check_version(self._connection, folder)
                _prepare(self._connection)
                self.facts = read_facts(self._connection)
                self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * _WRITING_SECONDS)}")
            except sqlite3.DatabaseError as error:
                raise _damaged(folder, error) if facts is None else _unwritable(folder, error) from None
            if not self._held.is_in_place:  # SQLite opens by the folder's name
                raise _unwritable(folder, OSError("another folder was put in its place"))
            refused.pop_all()
        self._journal = Journal(self._held.path)
        self._glances += read_journal(self._held.path)  # of a writer that was killed

    def append(
        self, t: float, readings: Sequence[tuple[int, ProcessSample]], lines: Sequence[SeriesLine] = ()
    ) -> str:
        """Save one sample, and the quick samples before it; return "" or, when it could not be written now, why.

        Samples that could not be written are kept in memory and tried again with the next one.
        """
        self._take_glances()
        places = ", ".join("?" * len(_LINE_FIELDS))
        if lines:
            values = [[_storable(value) for value in _line_values(line)] for line in lines]
            self._waiting.append((f"INSERT OR REPLACE INTO line VALUES ({places})", values))
        self._waiting.append((_INSERT, [(line, t, *reading) for line, reading in readings]))
        return self._flush()

    def extend(self, sizes: Sequence[tuple[float, int]], line: SeriesLine) -> str:
        """Keep many times and resident sizes (bytes) of *line* at once, the only one; returns as append() does."""
        for number in (TREE, line.number):
            statement = f"INSERT OR REPLACE INTO sample (line, t, rss_bytes) VALUES ({number:d}, ?, ?)"
            self._waiting.append((statement, sizes))
        return self.append(0.0, [], [line])

    def glance(self, glance: Glance) -> None:
        """Keep *glance* in the journal until the next append()."""
        self._glances.append(glance)
        self._journal.append(glance)

    def _take_glances(self) -> None:
        if self._glances:
            self._waiting.append((f"INSERT OR IGNORE INTO sample {_GLANCED}", list(_rows_of(self._glances))))
            self._glances.clear()

    def mark(self, mark: Mark) -> str:
        """Keep *mark*; returns as append() does."""
        self._waiting.append(("INSERT INTO mark VALUES (?, ?)", [(mark.t, _storable(mark.text))]))
        return self._flush()

    def _flush(self) -> str:
        try:
            with self._connection:
                for statement, rows in self._waiting:
                    self._connection.executemany(statement, rows)
        except sqlite3.Error as error:
            surplus = len(self._waiting) - _MOST_WAITING
            if surplus > 0:
                del self._waiting[:surplus]
                self.lost_writes += surplus
            return str(error)
        self._waiting.clear()
        if not self._glances:
            self._journal.clear()
        return ""

    def doubt_threads(self) -> None:
        """Say of this recording that its count of threads is a lower bound."""
        self._correct(exact_threads=False)

    def limit(self, size_bytes: int, whose: str) -> None:
        """Correct the limit that applies to the target, which has entered another cgroup."""
        self._correct(limit_bytes=size_bytes, limit_of=whose)

    def _correct(self, **values: Any) -> None:
        for name, value in values.items():
            if getattr(self.facts, name) != value:
                self.facts = self.facts._replace(**{name: value})
                self._waiting.append((f"UPDATE fact SET value = ? WHERE name = '{name}'", [(value,)]))

    def marks_since(self, count: int) -> list[Mark]:
        """Return the marks after the first *count*: others may have set some."""
        with contextlib.suppress(sqlite3.Error):
            rows = self._connection.execute(
                "SELECT t, text FROM mark ORDER BY rowid LIMIT -1 OFFSET ?", (count,)
            )
            return [Mark(*row) for row in rows]
        return []

    def thin(self, now: float) -> int:
        """Delete old redundant rows, a bounded range at a time; return how many."""
        with contextlib.suppress(sqlite3.Error), self._connection:
            return thin(self._connection, now)
        return 0

    @property
    def has_gone(self) -> bool:
        """True if the recording is no longer at its path: its folder has been removed, renamed or replaced."""
        return not (self._held.is_in_place and has_series(self._held.path))

    def close(self) -> None:
        """Fold the journal into the database and let others write; a second call does nothing.

        Samples that still can't be written are lost, and counted.
        """
        if self._lock < 0:
            return
        self._take_glances()
        if self._flush():
            self.lost_writes += len(self._waiting)
        with contextlib.suppress(sqlite3.Error):  # the next one to open it does the same
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if self._held.is_in_place:  # SQLite removes its journal by the folder's name
                # Else each reader makes a -wal and a -shm, and may not remove them; one that has it open prevents this.
                self._connection.execute("PRAGMA busy_timeout = 0")
                self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()
        self._journal.close()
        os.close(self._lock)
        self._held.close()
        self._lock = -1


class Recording:
    """Reads a recording, also one that is still being written."""

    def __init__(self, folder: Path) -> None:
        """Open the recording in *folder*; raises InputError if there is none, Damaged."""
        self.folder = folder
        path = folder / DATABASE
        if not path.is_file():
            raise InputError(
                f"{printable(str(folder))} holds no series",
                slug="no-series",
                hint="name a run folder that 'gdbmem monitor' made",
            )
        # Read before the database: what the writer takes over meanwhile is then in both, not in neither.
        glances = read_journal(folder)
        try:
            with contextlib.ExitStack() as refused:
                self._connection = refused.enter_context(contextlib.closing(_connect_reader(path)))
                _check_version(self._connection, folder)
                self.facts = read_facts(self._connection)
                self._columns = _columns(self._connection)
                self._take_in(glances)
                self.lines = [SeriesLine(**values) for values in self._typed(SeriesLine, "line", "number")]
                self.marks = [Mark(**values) for values in self._typed(Mark, "mark", "t")]
                refused.pop_all()
        except (sqlite3.DatabaseError, TypeError, ValueError, KeyError) as error:
            raise _damaged(folder, error) from None

    def _take_in(self, glances: Sequence[Glance]) -> None:
        """Make the *glances* that the database doesn't have yet look as if it had them."""
        if not glances:
            return
        run = self._connection.execute
        run("CREATE TEMP TABLE glanced AS SELECT * FROM main.sample LIMIT 0")
        self._connection.executemany(f"INSERT INTO glanced {_GLANCED}", _rows_of(glances))
        run(
            "DELETE FROM glanced WHERE EXISTS"
            " (SELECT 1 FROM main.sample AS s WHERE s.line = glanced.line AND s.t = glanced.t)"
        )
        # A temporary view comes before the table of the same name.
        run("CREATE TEMP VIEW sample AS SELECT * FROM main.sample UNION ALL SELECT * FROM temp.glanced")

    def close(self) -> None:
        """Close the database; a second call does nothing."""
        self._connection.close()

    def __del__(self) -> None:
        # A connection and its cache of statements refer to each other: without this it stays open until Python looks
        # for garbage, which is seldom.
        if "_connection" in vars(self):
            self._connection.close()

    @property
    def total_metric(self) -> str:
        """Return the metric of the tree's total: PSS, or RSS if there was only one process at any time."""
        if len(self.lines) <= 1:
            return "rss_bytes"
        return "pss_bytes" if next(self.points(0, "pss_bytes"), None) else "rss_bytes"

    def looks(self) -> list[float]:
        """Return the times of the samples of the tree."""
        return [
            t
            for (t,) in self._rows(
                f"SELECT t FROM sample WHERE line = ? AND {_is_number('t')} ORDER BY t", TREE
            )
            if t is not None  # as a damaged index has it
        ]

    def points(self, line: int, metric: str) -> Iterator[tuple[float, float]]:
        """Yield the time and value of *metric* on *line*, for samples that have it, in order of time."""
        assert metric in READING_FIELDS
        if metric not in self._columns:
            return
        numbers = f"{_is_number('t')} AND {_is_number(metric)}"
        query = f"SELECT t, {metric} FROM sample WHERE line = ? AND {numbers} ORDER BY t"
        yield from (row for row in self._rows(query, line) if None not in row)

    def values(self, line: int, metric: str, end: float = math.inf) -> list[float]:
        """Return the values of *metric* on *line* up to time *end*, as points() yields them."""
        return [value for t, value in self.points(line, metric) if t <= end]

    def sizes_by_time(self) -> Iterator[tuple[float, int, float, Optional[float]]]:
        """Yield time, line, RSS and minor faults of each process at each look, in order of time."""
        faults = f"CASE WHEN {_is_number('minor_faults')} THEN minor_faults END"
        yield from self._rows(
            f"SELECT t, line, rss_bytes, {faults} FROM sample"
            f" WHERE line > 0 AND {_is_number('t')} AND {_is_number('rss_bytes')} ORDER BY t, line"
        )

    def samples(self) -> Iterator[Sample]:
        """Yield everything, in order of time."""
        for line, t, *values in self._rows(f"SELECT {self._selected} FROM sample ORDER BY t, line"):
            yield self._sample(line, t, values)

    def last(self, line: int) -> Optional[Sample]:
        """Return the last sample of *line*."""
        query = f"SELECT {self._selected} FROM sample WHERE line = ? ORDER BY t DESC LIMIT 1"
        for number, t, *values in self._rows(query, line):
            return self._sample(number, t, values)
        return None

    def _sample(self, line: Any, t: Any, values: Sequence[Any]) -> Sample:
        if any(isinstance(value, (str, bytes)) for value in (line, t, *values)):
            raise _damaged(self.folder, DamagedError("a sample holds text"))
        return Sample(t, line, ProcessSample(*values))

    def _typed(self, kind: Any, table: str, order: str) -> Iterator[JsonObject]:
        """Yield the rows of *table* as values of *kind*; an older one lacks some columns."""
        has = _columns(self._connection, table)
        names, kinds = [name for name in kind._fields if name in has], get_type_hints(kind)
        for row in self._rows(f"SELECT {', '.join(names)} FROM {table} ORDER BY {order}"):
            values, wrong = typed_facts(dict(zip(names, row)), {name: kinds[name] for name in names})
            if wrong:
                raise DamagedError(f"{wrong[0]} is of another type")
            yield values

    @property
    def _selected(self) -> str:
        return ", ".join(name if name in self._columns else "NULL" for name in _SAMPLE_FIELDS)

    def _rows(self, query: str, *values: Any) -> Iterator[Any]:
        try:
            yield from self._connection.execute(query, values)
        except sqlite3.DatabaseError as error:
            raise _damaged(self.folder, error) from None


def _rows_of(glances: Iterable[Glance]) -> Iterator[tuple[Any, ...]]:
    """Yield line, time, resident and shared pages, faults, the family's bytes.

    Line by line, which is much the fastest to insert.

    The tree's own row records that a sample was taken, and its size if it had only one process.
    """
    for _, group in groupby(glances, _kind_of):
        alike = list(group)
        if alike[0].lines.isdigit():
            families = [glance.family_bytes for glance in alike]
            yield from ((TREE, *rest, family) for (_, *rest), family in zip(sizes_of(alike), families))
        else:
            yield from ((TREE, glance.t, None, None, None, glance.family_bytes) for glance in alike)
        yield from ((*row, None) for row in sizes_of(alike))


def _kind_of(glance: Glance) -> tuple[bytes, int]:
    return glance.lines, len(glance.statm.partition(b"\n")[0].split())


def _begin(folder: Path, facts: SeriesFacts) -> None:
    """Make a new database, under another name first, so that an incomplete one is never found."""
    new = folder / f"{DATABASE}.new"
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    with contextlib.closing(_connect(new)) as connection, connection:
        _prepare(connection)
        values = {name: _storable(value) for name, value in facts._asdict().items()}
        connection.executemany("INSERT INTO fact VALUES (?, ?)", values.items())
        connection.execute("INSERT INTO fact VALUES ('version', ?)", (_VERSION,))
    new.rename(folder / DATABASE)


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables, or in an older database what it lacks; raises sqlite3.DatabaseError for a damaged one."""
    run = connection.execute
    run("PRAGMA journal_mode = WAL")
    run("PRAGMA synchronous = NORMAL")
    numbers = ", ".join(f"{name} NUMERIC" for name in READING_FIELDS)
    columns = ", ".join(_LINE_FIELDS[1:])
    run(
        f"CREATE TABLE IF NOT EXISTS sample (line INTEGER, t REAL, {numbers}, PRIMARY KEY (line, t)) WITHOUT ROWID"
    )
    for name in sorted(set(READING_FIELDS) - _columns(connection)):
        run(f"ALTER TABLE sample ADD COLUMN {name} NUMERIC")
    run(f"CREATE TABLE IF NOT EXISTS line (number INTEGER PRIMARY KEY, {columns})")
    for name in sorted(set(_LINE_FIELDS) - _columns(connection, "line")):
        run(f"ALTER TABLE line ADD COLUMN {name} DEFAULT ''")
    run("CREATE TABLE IF NOT EXISTS mark (t REAL, text TEXT)")
    run("CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value)")
    run("UPDATE fact SET value = ? WHERE name = 'version' AND value < ?", (_VERSION, _VERSION))
    connection.commit()
    if run("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise sqlite3.DatabaseError("its pages don't fit together")


def is_being_written(folder: Path) -> bool:
    """Return whether a monitor writes into *folder* now."""
    try:
        os.close(_take_lock(folder, folder, create=False))
    except InputError:
        return True
    except OSError:
        return False
    return False


def add_mark(folder: Path, text: str, t: float) -> None:
    """Add a mark to the recording in *folder*, which another process writes; raises InputError."""
    try:
        connection = _connect(folder / DATABASE)
        with contextlib.closing(connection), connection:
            connection.execute("INSERT INTO mark VALUES (?, ?)", (t, _storable(text)))
    except sqlite3.Error as error:
        raise _damaged(folder, error) from None


def set_aside(folder: Path) -> Path:
    """Rename a damaged database so that a new one can be begun; return its new name."""
    number = 1
    while (aside := folder / f"series.damaged-{number}.sqlite").exists():
        number += 1
    (folder / DATABASE).rename(aside)
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            (folder / (DATABASE + suffix)).rename(f"{aside}{suffix}")
    forget_journal(folder)
    return aside


def _check_version(connection: sqlite3.Connection, folder: Path) -> None:
    row = connection.execute("SELECT value FROM fact WHERE name = 'version'").fetchone()
    if row is not None and not isinstance(row[0], int):
        raise sqlite3.DatabaseError("its version is of another type")
    if row is not None and row[0] > _VERSION:
        raise InputError(
            f"a newer gdbmem wrote the series in {printable(str(folder))}",
            slug="series-newer",
            hint="read it with that version",
        )


def read_facts(connection: sqlite3.Connection) -> SeriesFacts:
    """Return the facts of the recording behind *connection*; raises sqlite3.DatabaseError."""
    # Older ones lack these two.
    values = {
        "reads_pss": True,
        "unknown_samples": 0,
        **dict(connection.execute("SELECT name, value FROM fact")),
    }
    names = SeriesFacts._fields
    if not set(names) <= values.keys():
        raise sqlite3.DatabaseError("its facts are missing")
    chosen = {name: values[name] for name in names}
    chosen.update((name, bool(chosen[name])) for name in ("reads_pss", "exact_threads"))
    typed, wrong = typed_facts(chosen, get_type_hints(SeriesFacts))
    if wrong:
        raise sqlite3.DatabaseError(f"{wrong[0]} is of another type")
    return SeriesFacts(**typed)


def _is_number(column: str) -> str:
    """Return the condition that *column* holds a finite number; in SQLite any column may hold anything."""
    return f"{column} BETWEEN -1.7e308 AND 1.7e308"


def _connect_reader(path: Path) -> sqlite3.Connection:
    """Open the database at *path* read-only: it may be untrusted, and designed to run forever.

    Raises sqlite3.DatabaseError if it holds anything but the tables of a recording.
    """
    for suffix in ("-wal", "-shm", "-journal"):
        if path.with_name(path.name + suffix).is_symlink():
            raise sqlite3.DatabaseError(f"{path.name}{suffix} is a link")
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    connection = sqlite3.connect(address, timeout=_OPENING_SECONDS, check_same_thread=False, uri=True)
    try:
        _distrust(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _distrust(connection: sqlite3.Connection) -> None:
    began = time.monotonic()
    # Called again and again while a statement runs; true ends it.
    connection.set_progress_handler(lambda: time.monotonic() - began > _MOST_SECONDS, _STEPS)
    connection.execute("PRAGMA trusted_schema = OFF")
    wanted = "type = 'table' AND name IN ('sample', 'line', 'mark', 'fact') AND sql LIKE 'CREATE TABLE %'"
    own = "name LIKE 'sqlite\\_%' ESCAPE '\\'"  # the index of a primary key
    if connection.execute(
        f"SELECT 1 FROM main.sqlite_master WHERE NOT ({wanted}) AND NOT ({own})"
    ).fetchone():
        raise sqlite3.DatabaseError("it holds more than a recording's tables")
    for table in ("sample", "line", "mark", "fact"):
        if any(row[6] for row in connection.execute(f"PRAGMA main.table_xinfo({table})")):
            raise sqlite3.DatabaseError(f"table {table} has computed columns")


def _columns(connection: sqlite3.Connection, table: str = "sample") -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")}


def _connect(path: Path) -> sqlite3.Connection:
    # SQLite gives what it puts beside a database the rights of that. Never where this process has it open already: with
    # any descriptor of a file that a process closes it loses its locks on it, and others may remove what it writes to.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    return sqlite3.connect(path, timeout=_OPENING_SECONDS, check_same_thread=False)


def _take_lock(folder: Path, named: Path, *, create: bool = True) -> int:
    """Return the descriptor of the lock in *folder*; raises InputError, about *named*, if another one has it."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    descriptor = os.open(folder / _LOCK, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(
            f"another monitor is writing to {printable(str(named))}",
            slug="series-in-use",
            hint="wait until it ends, or name another folder with --run",
        ) from None
    return descriptor


def _damaged(folder: Path, error: Exception) -> InputError:
    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
        return InputError(
            f"another program keeps the series in {printable(str(folder))} locked",
            slug="series-in-use",
            hint="see who has it open (fuser), and try again",
        )
    return Damaged(
        f"the series in {printable(str(folder))} can't be read: {printable(str(error))}",
        slug="series-damaged",
        hint="'gdbmem monitor --resume' sets it aside and begins a new one; 'sqlite3 FILE .recover' may save rows",
    )


def _unwritable(folder: Path, error: Exception) -> InputError:
    return InputError(
        f"cannot write into the run folder {printable(str(folder))}: {printable(str(error))}",
        slug="run-unwritable",
        hint="free some space there, or name a folder on another disk with --run",
    )


def _storable(value: Any) -> Any:
    # SQLite's text is UTF-8; names of processes may hold other bytes.
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def triggers_of(folder: Path) -> list[FiredTrigger]:
    """Return the actions of triggers in the run in *folder*, by its run.json; malformed entries are omitted."""
    found = open_run(folder).facts.get("triggers") if is_run(folder) else None
    return [each for each in found if fits(FiredTrigger, each)] if isinstance(found, list) else []


_JOURNAL = "series.glances"
_JOURNAL_ROOM = 1 << 16  # bytes; doubled when they are used up


class Journal:
    """The quick samples since the last complete one, in a mapped file that survives the end of a killed monitor.

    Writing each into the database would cost several times as much as reading it. The database takes over all of them
    with the next complete sample, and the file is emptied. The last one is followed by zeros.
    """

    def __init__(self, folder: Path) -> None:
        """Open the journal in *folder*; its content is kept until clear()."""
        self._descriptor = os.open(
            folder / _JOURNAL, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        self._map: Optional[mmap.mmap] = None
        self._size = 0
        self._used = len(_journal_bytes(folder))

    def append(self, glance: Glance) -> None:
        """Write *glance*, or nothing if the disk is full: the database then reports that."""
        data = FRAME % glance
        begin, self._used = self._used, self._used + len(data)
        if self._used > self._size and not self._grow():
            self._used = begin
            return
        self._map[begin : self._used] = data  # type: ignore[index]  # _grow() has made it

    def _grow(self) -> bool:
        size = max(2 * self._size, -(-self._used // _JOURNAL_ROOM) * _JOURNAL_ROOM)
        try:
            os.posix_fallocate(self._descriptor, 0, size)  # or a full disk would end this process later
            self._map = mmap.mmap(self._descriptor, size)
        except OSError:
            return False
        self._size = size
        return True

    def clear(self) -> None:
        """Forget what was written."""
        if self._used and (self._size or self._grow()):
            self._map[: self._used] = bytes(self._used)  # type: ignore[index]
            self._used = 0

    def close(self) -> None:
        """Close the file."""
        if self._map is not None:
            self._map.close()
        with contextlib.suppress(OSError):  # zeros at the end do no harm
            os.ftruncate(self._descriptor, self._used)
        os.close(self._descriptor)


def read_journal(folder: Path) -> list[Glance]:
    """Return what the journal in *folder* holds; nothing if there is none."""
    try:
        return unpack_glances(_journal_bytes(folder))
    except OSError:
        return []


def _journal_bytes(folder: Path) -> bytes:
    return (folder / _JOURNAL).read_bytes().partition(b"\0")[0]


def forget_journal(folder: Path) -> None:
    """Remove the journal in *folder*: its glances belong to a database that no longer exists."""
    (folder / _JOURNAL).unlink(missing_ok=True)


# Fewer rows with age: the smallest and the largest value of each stretch of time stay.


# (age from which, length of a stretch), seconds
_THINNING = ((3600.0, 10.0), (86400.0, 60.0))
_CHUNK_SECONDS = 600.0
_KEPT_BY = ("rss_bytes", "pss_bytes", "family_bytes")


def thin(connection: sqlite3.Connection, now: float) -> int:
    """Drop old rows without new information, those of _CHUNK_SECONDS at most; return how many.

    Its progress is in the table of facts. Raises sqlite3.Error.
    """
    dropped = 0
    for age, stretch in _THINNING:
        name = f"thinned_{age:.0f}"
        row = connection.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        done = row[0] if row else 0.0
        until = min(now - age, done + _CHUNK_SECONDS) // stretch * stretch
        if until > done:
            dropped += _thin_between(connection, done, until, stretch)
            connection.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, until))
    return dropped


def _thin_between(connection: sqlite3.Connection, begin: float, end: float, stretch: float) -> int:
    numbers = [row[0] for row in connection.execute("SELECT number FROM line")]
    dropped = 0
    for line in (0, *numbers):
        rows = connection.execute(
            f"SELECT t, {', '.join(_KEPT_BY)} FROM sample WHERE line = ? AND t >= ? AND t < ? ORDER BY t",
            (line, begin, end),
        ).fetchall()
        kept = _times_to_keep(rows, stretch)
        surplus = [(line, row[0]) for row in rows if row[0] not in kept]
        connection.executemany("DELETE FROM sample WHERE line = ? AND t = ?", surplus)
        dropped += len(surplus)
    return dropped


def _times_to_keep(rows: Sequence[tuple[Any, ...]], stretch: float) -> set[float]:
    """Return the times of *rows* to keep: of each stretch the first, and the extremes of each metric."""
    kept = set()
    stretches: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        stretches.setdefault(int(row[0] // stretch), []).append(row)
    for members in stretches.values():
        kept.add(members[0][0])
        for column in range(1, len(_KEPT_BY) + 1):
            known = [row for row in members if row[column] is not None]
            if known:
                kept.add(min(known, key=lambda row: row[column])[0])
                kept.add(max(known, key=lambda row: row[column])[0])
    return kept
