"""A store of many profiles: Parquet files in one folder, added to as a whole or not at all, and asked by DuckDB.

``facts`` has a row for each call path of each profile, ``paths`` the frames of each path, ``profiles`` when and on
which rank each was taken. ``store.json`` lists the files that count, and is replaced last: an interrupted add leaves
files that nothing lists, which the next one removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, Callable, NamedTuple, Optional

from gdbmem.api.profiles import ReadOptions, find_operand, load_from_profile, open_profile, read_record
from gdbmem.errors import GdbmemError, InputError, MissingToolError, Notice
from gdbmem.files import HeldFolder, location, open_regular
from gdbmem.json_values import from_fields
from gdbmem.model.calltree import PRUNED, CallTree, Frame, Frames, Snapshot
from gdbmem.profiles.export import parquet_text
from gdbmem.runs.distrust import check_own
from gdbmem.runs.ranks import Rank
from gdbmem.runs.run import Run, asked_for, has_series, is_run, open_run
from gdbmem.text import plural, printable

FORMAT_VERSION = 1
_LIST = "store.json"
_WRITING, _READING = "add.lock", "query.lock"
TABLES = ("facts", "paths", "profiles")
_WHOLE_ROWS = 500_000  # of facts: a file of so many is not merged with others
_ROW_GROUP = 1 << 17
_MOST_RANKS = 1 << 24  # of a job: more are an error in the file
_PROGRAM, _IN_RUN, _IN_FILE = "profile", "run", "file"  # whose clock tells when a profile was taken
# jemalloc's PREFIX.PID.NUMBER.TYPE.heap, and gperftools' PREFIX_PID.NUMBER.heap of a forked process
_NUMBERED = re.compile(
    r"(?P<jemalloc>.+\.[0-9]{1,10})\.[0-9]+\.[fimu][0-9]*(?P<end>\.heap(?:\.\w+)?)$|(?P<head>.*?)[0-9]+(?P<tail>[^0-9]*)$"
)
_NO_PROFILE = ("format-unreadable", "empty-file", "no-memory-counts")
_DIGITS = re.compile(r"([0-9]+)")
_LETTERS = {
    "r": r"(?P<r>[0-9]{1,9})",
    "p": r"(?P<p>[0-9]{1,10})",
    "h": r"(?P<h>[^/]+?)",
    "j": r"(?P<j>[^/]+?)",
}


class Added(NamedTuple):
    """The outcome of an add."""

    store: str
    added: int  # profiles
    known: int  # profiles that the store has already
    paths: int  # call paths that it did not have
    rows: int
    unreadable: Sequence[str]  # a sentence for each file that was left out
    notices: Sequence[Notice] = ()


class _Origin(NamedTuple):
    """The process that a profile is of, as far as it is known; profiles of one series are of one process."""

    series: str
    job: Optional[str] = None
    run: Optional[str] = None
    rank: Optional[int] = None
    host: Optional[str] = None
    pid: Optional[int] = None
    ranks: Optional[int] = None  # of the job


class _Source(NamedTuple):
    """A profile to add: a file, or a snapshot of a run."""

    path: Path  # the file
    origin: _Origin
    selector: Optional[str] = None  # of one of its snapshots
    run: Optional[Run] = None
    record: Any = None
    is_found: bool = False  # in a folder, where other files may be

    @property
    def order(self) -> tuple[object, ...]:
        """The key by which sources are read: series by series, numbers in names by their value."""
        parts = _DIGITS.split(str(self.path))
        natural = tuple(int(part[:400]) if at % 2 else part for at, part in enumerate(parts))
        number = -1 if self.run is None else self.run.snapshots.index(self.record)
        job, rank, series = self.origin.job or "", self.origin.rank, self.origin.series
        return (job, -1 if rank is None else rank, series, number, natural)


# The folder, and what it lists.


def no_store(folder: Path, why: str) -> InputError:
    """Return the error for a folder that is not a store."""
    return InputError(
        f"{printable(str(folder))} is not a store: {why}",
        slug="no-store",
        hint="gdbmem store add makes one: name a new or empty folder there",
    )


def read_list(folder: Path) -> dict[str, list[tuple[str, int]]]:
    """Return the files of each table in the store *folder*, with their rows. Raises InputError."""
    try:
        with open_regular(folder / _LIST) as stream:
            found = json.loads(stream.read())
    except FileNotFoundError:
        raise no_store(
            folder, f"it has no {_LIST}" if folder.is_dir() else "there is no such folder"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(folder, f"{_LIST}: {error}") from None
    version = found.get("format_version") if isinstance(found, dict) else None
    if not isinstance(version, int) or version != FORMAT_VERSION:
        newer = isinstance(version, int) and version > FORMAT_VERSION
        raise InputError(
            f"{printable(str(folder))} has layout {printable(str(version))}, and this gdbmem reads {FORMAT_VERSION}",
            slug="store-version",
            hint="upgrade gdbmem" if newer else "add the profiles to a new store",
        )
    tables = {name: _listed(found.get(name)) for name in TABLES}
    for name, listed in tables.items():
        if listed is None:
            raise damaged(folder, f"{_LIST} does not list its {name}")
    return {name: listed or [] for name, listed in tables.items()}


def _listed(value: object) -> Optional[list[tuple[str, int]]]:
    if not isinstance(value, list):
        return None
    found = []
    for one in value:
        if not (isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and type(one[1]) is int):
            return None
        if not re.fullmatch(r"[a-z]+-[0-9]{1,12}\.parquet", one[0]):
            return None
        found.append((one[0], one[1]))
    return found


def damaged(folder: Path, why: str) -> InputError:
    """Return the error for a store that can't be read."""
    return InputError(
        f"the store {printable(str(folder))} is damaged: {printable(why)}",
        slug="store-damaged",
        hint="add its profiles to a new store",
    )


@contextlib.contextmanager
def open_for_reading(folder: Path) -> Iterator[tuple[Path, dict[str, list[tuple[str, int]]]]]:
    """Yield the store *folder*, as a path without special letters, and its files, which stay until the `with` ends."""
    if not folder.is_dir():
        raise no_store(folder, "there is no such folder")
    held = HeldFolder(folder.resolve())
    with _named(folder, held), contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a store of another user, or on a file system without locks
            lock = os.open(held.path / _READING, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield held.path, read_list(held.path)


@contextlib.contextmanager
def _named(folder: Path, held: HeldFolder) -> Iterator[None]:
    """Close *held* at the end, and have errors name *folder* in its place."""
    path = str(held.path)
    try:
        yield
    except InputError as error:
        message = error.message.replace(path, printable(str(folder)))
        raise type(error)(message, slug=error.slug, hint=error.hint) from None
    finally:
        held.close()


def packages() -> None:
    """Raise MissingToolError unless the packages of a store are installed."""
    for name in ("pyarrow", "duckdb"):
        if importlib.util.find_spec(name) is None:
            raise MissingToolError(
                f"a store needs {name}, which is missing",
                slug="no-store-packages",
                hint="pip install 'gdbmem[store]'",
            )


# What is added.


def _sources(operands: Sequence[str], names: Optional[str], notices: list[Notice]) -> Iterator[_Source]:
    pattern = None if names is None else _pattern(names)
    for operand in operands:
        path = Path(operand)
        if path.is_dir() and not is_run(path):
            yield from _beneath(path, pattern, notices)
            continue
        place, selector = find_operand(operand)
        if isinstance(place, Run):
            yield from _of_run(place, selector, notices)
        else:
            yield _of_file(place, pattern, selector)


def _beneath(folder: Path, pattern: Optional[re.Pattern[str]], notices: list[Notice]) -> Iterator[_Source]:
    unlike = 0
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if is_run(here):
            folders.clear()
            yield from _of_run(open_run(here), None, notices)
            continue
        if _LIST in files:  # a store
            folders.clear()
            continue
        for name in files:
            path = Path(here, name)
            if name.startswith(".") or not path.is_file() or path.is_symlink():
                continue
            if pattern is not None and pattern.fullmatch(str(path.absolute())) is None:
                unlike += 1
                continue
            yield _of_file(path, pattern, None)._replace(is_found=True)
    if unlike:
        which = plural(unlike, "file does", "files do")
        notices.append(Notice("bad-names", f"{which} not match --names in {printable(str(folder))}"))


def _of_run(run: Run, selector: Optional[str], notices: list[Notice]) -> Iterator[_Source]:
    records = asked_for(run.snapshots) if selector is None else [run.record(selector)]
    if not records:
        what = "a series of resident memory, without call paths" if has_series(run.folder) else "no snapshot"
        text = f"{printable(str(run.folder))} holds {what}: nothing of it is added"
        notices.append(Notice("no-snapshot", text))
        return
    rank = _rank_of(run)
    for record in records:
        origin = _Origin(
            f"{run.folder}:{record.process}" if record.process is not None else str(run.folder),
            rank.job if rank is not None else None,
            run.folder.name,
            rank.rank if rank is not None else None,
            rank.host if rank is not None else None,
            record.process,
            rank.size if rank is not None else None,
        )
        yield _Source(run.path(record), origin, run=run, record=record)


def _rank_of(run: Run) -> Optional[Rank]:
    facts = run.facts.get("rank")
    if facts is None:
        return None
    try:
        rank = from_fields(Rank, facts)
    except ValueError as error:
        raise InputError(
            f"the rank in {printable(str(run.folder))}/run.json is damaged: {printable(str(error))}",
            slug="run-damaged",
            hint="leave that run out",
        ) from error
    return rank if 0 <= rank.rank < _MOST_RANKS and 0 < (rank.size or 1) < _MOST_RANKS else None


def _pattern(names: str) -> re.Pattern[str]:
    """Return *names*, in which %r, %h, %p and %j stand for rank, host, process and job, and * for anything but /."""
    parts: list[str] = []
    for found in re.finditer(r"%(.)|(\*)|([^%*]+)|(.)", names):
        letter, star, text, _ = found.groups()
        if star or (letter in _LETTERS and f"(?P<{letter}>" in "".join(parts)):
            parts.append("[^/]*" if star else f"(?P={letter})")
        elif letter in _LETTERS:
            parts.append(_LETTERS[letter])
        elif letter == "%":
            parts.append("%")
        elif text:
            parts.append(re.escape(text))
        else:
            raise InputError(
                f"'{printable(names)}' has a % that stands for nothing",
                slug="bad-names",
                hint="%r is the rank, %h the host, %p the process id, %j the job, %% a %",
            )
    return re.compile(f"(?:.*/)?{''.join(parts)}")


def _of_file(path: Path, pattern: Optional[re.Pattern[str]], selector: Optional[str]) -> _Source:
    whole = location(path).resolve() if str(path).startswith(("/dev/", "/proc/")) else path.absolute()
    if pattern is None:
        return _Source(path, _Origin(f"{whole.parent}/{_without_number(whole.name)}"), selector)
    found = pattern.fullmatch(str(whole))
    if found is None:
        raise InputError(
            f"{printable(str(path))} does not match --names",
            slug="bad-names",
            hint="the pattern is compared with the end of the path; * stands for anything but a /",
        )
    of = found.groupdict()
    rank, pid = (int(of[letter]) if of.get(letter) else None for letter in "rp")
    job, host = of.get("j"), of.get("h")
    parts = (f"{letter}={of[letter]}" for letter in "jhrp" if of.get(letter))
    return _Source(path, _Origin(" ".join(parts), job, None, rank, host, pid), selector)


def _without_number(name: str) -> str:
    """Return *name* with * for the number in which the files of one process differ."""
    found = _NUMBERED.match(name)
    if found is None:
        return name
    if found["jemalloc"]:
        return f"{found['jemalloc']}.*{found['end']}"
    return f"{found['head']}*{found['tail']}"


# A profile as rows.


class _Moment(NamedTuple):
    """The facts of one snapshot that are stored."""

    source: _Source
    snapshot: Snapshot
    t: Optional[float]
    clock: Optional[str]
    time_unit: Optional[str]


def _moments(source: _Source, options: ReadOptions) -> Iterator[_Moment]:
    """Yield the snapshots of *source* that have a call tree."""
    if source.run is not None:
        snapshot = read_record(source.run, source.record, options).snapshot
        began = _epoch(source.run.facts.get("began"))
        known = began is not None and source.record.seconds is not None
        taken = began + source.record.seconds if began is not None and known else None
        yield _Moment(source, snapshot, taken, _IN_RUN if known else None, None)
        return
    t: Optional[float]
    clock: Optional[str]
    profile = open_profile(source.path, options)
    trees = [totals.index for totals in profile.snapshots if totals.has_tree]
    selectors: Sequence[Optional[str]] = [source.selector]
    if source.selector is None and len(trees) > 1:
        selectors = [str(index) for index in trees]
    for selector in selectors:
        loaded = load_from_profile(profile, selector)
        if loaded.moment is not None and loaded.moment.clock == "epoch":
            t, clock = loaded.moment.time, _PROGRAM
        elif len(profile.snapshots) > 1:
            t, clock = None, None
        else:
            t, clock = location(source.path).stat().st_mtime, _IN_FILE
        yield _Moment(source, loaded.snapshot, t, clock, profile.time_unit)


def _epoch(began: object) -> Optional[float]:
    try:
        return datetime.fromisoformat(began).timestamp() if isinstance(began, str) else None
    except ValueError:
        return None


class _Rows(NamedTuple):
    """The rows of one snapshot, as columns of numpy."""

    paths: Any
    bytes: Any
    blocks: Any
    uncertain: Any
    errors: Any
    nodes: Any  # of the tree, at which the paths end


class _Hashes:
    """Numbers for frames and for call paths, the same in each process, on each host and of each build folder."""

    def __init__(self) -> None:
        self._of: dict[Frame, int] = {}
        self._files: dict[int, Optional[str]] = {}
        self.alike: set[str] = set()  # files of one name in several folders that count as one

    def of(self, frames: Sequence[Frame]) -> Any:
        """Return the number of each of *frames*, then those of PRUNED and ROOT, as they are numbered from the end."""
        import numpy as np

        known, found = self._of, []
        for frame in Frames.of(frames):
            number = known.get(frame)
            found.append(self._add(frame) if number is None else number)
        return np.array([*found, _number("not listed"), 0], dtype=np.uint64)

    def _add(self, frame: Frame) -> int:
        place = None if frame.file is None else _place(frame)
        thing = None if frame.file is not None else PurePosixPath(frame.object or "").name
        number = _number(repr((frame.function, place, frame.line, _VERSION.sub(r"\1", thing or ""))))
        if self._files.setdefault(number, frame.file) != frame.file:
            self.alike.add(place or "")
        self._of[frame] = number
        return number


_VERSION = re.compile(r"(\.so\.[0-9]+)(?:\.[0-9]+)+$")


def _number(text: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).digest(), "little"
    )


def _place(frame: Frame) -> str:
    """Return the name of the file of *frame*, with its folder if neither it nor the function says which file it is."""
    parts = PurePosixPath(frame.file or "").parts
    has_name = frame.function is not None and frame.function[:1] != "<" and parts[-1:] != ("__init__.py",)
    return "/".join(parts[-1:] if has_name else parts[-2:])


def _mixed(numbers: Any) -> Any:
    """Return *numbers*, unsigned and of 64 bits, each mixed so that all of its bits depend on all (splitmix64)."""
    import numpy as np

    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _rows(tree: CallTree, hashes: _Hashes) -> _Rows:
    """Return a row for each call path of *tree*, by the number of its path; two of one number are summed."""
    import numpy as np

    parent, frame = _column(tree.parent), _column(tree.frame)
    own = _own(parent, tree.bytes)
    blocks = None if tree.blocks is None else _own(parent, tree.blocks)
    ends = np.flatnonzero(own if blocks is None else (own != 0) | (blocks != 0))
    numbers = hashes.of(tree.frames)
    at, found = ends.copy(), np.full(len(ends), 0x9E3779B97F4A7C15, np.uint64)
    while True:
        inner = at > 0
        if not inner.any():
            break
        found = np.where(inner, _mixed(found * np.uint64(3) + numbers[frame[at]]), found)
        at = np.where(inner, parent[at], 0)
    paths, first, inverse = np.unique(found.view(np.int64), return_index=True, return_inverse=True)

    def summed(values: Any) -> Any:
        sums = np.zeros(len(paths), values.dtype)
        np.add.at(sums, inverse, values)
        return sums

    errors = None
    if tree.variance is not None:
        errors = np.sqrt(summed(np.asarray(tree.variance, float)[ends])).astype(np.float32)
    sites = np.bincount(inverse, minlength=len(paths))
    return _Rows(
        paths,
        summed(own[ends]),
        None if blocks is None else summed(blocks[ends]),
        _uncertain(tree, parent, frame, own, ends[first], sites),
        errors,
        ends[first],
    )


def _column(values: Sequence[int]) -> Any:
    import numpy as np

    return np.asarray(values, np.int64)


def _own(parent: Any, values: Sequence[int]) -> Any:
    import numpy as np

    whole = _column(values)
    own = whole.copy()
    np.subtract.at(own, parent[1:], whole[1:])
    return own


def _uncertain(tree: CallTree, parent: Any, frame: Any, own: Any, nodes: Any, sites: Any) -> Any:
    """Return by how much more each path may hold, because its tool has merged small ones.

    As in a difference, a path of one call site is taken to be the whole of it, unless the file is cut or a frame has no
    name.
    """
    import numpy as np

    merged = np.flatnonzero(frame == PRUNED)
    if not len(merged):
        return np.zeros(len(nodes), np.int64)
    hidden = np.zeros(len(parent), np.int64)
    np.add.at(hidden, parent[merged], own[merged])
    nameless = np.array([one.function is None and one.file is None for one in tree.frames] + [False, False])
    beside, doubtful, at = np.full(len(nodes), hidden[0]), (sites > 1) | tree.scattered, nodes
    while at.any():
        beside += np.where(at > 0, hidden[at], 0)
        doubtful = doubtful | ((at > 0) & nameless[frame[at]])
        at = np.where(at > 0, parent[at], 0)
    return np.where(doubtful, beside, 0)


# Writing.


class _Batch:
    """Rows of facts that are sorted and written together, and what is new in the other tables."""

    def __init__(self, known_paths: Any, first_profile: int) -> None:
        import numpy as np

        self.known_paths: Any = np.sort(known_paths)
        self.next_profile = first_profile
        self.profiles: list[dict[str, object]] = []
        self.new_paths: list[tuple[int, Sequence[Frame]]] = []
        self.facts: list[tuple[_Rows, int]] = []
        self.rows = 0
        self.all_rows = 0

    def add(self, moment: _Moment, digest: str, hashes: _Hashes) -> None:
        """Take the rows of one snapshot."""
        import numpy as np

        tree = moment.snapshot.tree
        rows = _rows(tree, hashes)
        new = np.flatnonzero(~np.isin(rows.paths, self.known_paths, assume_unique=True))
        for at in new.tolist():
            self.new_paths.append((int(rows.paths[at]), _frames(tree, int(rows.nodes[at]))))
        if len(new):
            self.known_paths = np.union1d(self.known_paths, rows.paths[new])
        self.profiles.append(_profile_row(moment, self.next_profile, digest))
        self.facts.append((rows._replace(nodes=None), self.next_profile))
        self.rows += len(rows.paths)
        self.all_rows += len(rows.paths)
        self.next_profile += 1

    def facts_table(self) -> Any:
        """Return the rows so far by path and then by profile, and begin anew."""
        import numpy as np
        import pyarrow as pa

        taken, self.facts, self.rows = self.facts, [], 0
        lengths = [len(rows.paths) for rows, _ in taken]
        numbers = np.repeat(np.array([number for _, number in taken], np.int32), lengths)
        paths = np.concatenate([rows.paths for rows, _ in taken])
        order = np.argsort(paths, kind="stable")

        def column(name: str, kind: Any, dtype: Any) -> Any:
            values = [getattr(rows, name) for rows, _ in taken]
            if all(value is None for value in values):
                return pa.nulls(len(order), kind)
            whole = np.concatenate([np.zeros(n, dtype) if v is None else v for v, n in zip(values, lengths)])[
                order
            ]
            unknown = np.repeat([value is None for value in values], lengths)[order]
            return pa.array(whole, kind, mask=unknown if unknown.any() else None)

        return pa.table(
            {
                "path_id": pa.array(paths[order]),
                "profile_id": pa.array(numbers[order]),
                "bytes": column("bytes", pa.int64(), np.int64),
                "blocks": column("blocks", pa.int64(), np.int64),
                "uncertain_bytes": column("uncertain", pa.int64(), np.int64),
                "standard_error_bytes": column("errors", pa.float32(), np.float32),
            }
        )

    def paths_table(self) -> Any:
        """Return the paths that the store does not have yet."""
        import pyarrow as pa

        frame = pa.struct(
            [("function", pa.string()), ("file", pa.string()), ("line", pa.int64()), ("object", pa.string())]
        )
        firsts = [frames[0] if frames else Frame() for _, frames in self.new_paths]
        return pa.table(
            {
                "path_id": pa.array([number for number, _ in self.new_paths], pa.int64()),
                "frames": pa.array(
                    [[_stored_frame(one) for one in frames] for _, frames in self.new_paths], pa.list_(frame)
                ),
                "site_function": pa.array([parquet_text(one.function) for one in firsts], pa.string()),
                "site_file": pa.array([parquet_text(one.file) for one in firsts], pa.string()),
                "site_line": pa.array([one.line for one in firsts], pa.int64()),
            }
        )

    def profiles_table(self) -> Any:
        """Return a row for each profile."""
        import pyarrow as pa

        text, whole, real = pa.string(), pa.int64(), pa.float64()
        kinds = {
            "profile_id": pa.int32(), "series": text, "source": text, "name": text, "snapshot": pa.int32(),
            "digest": text, "format": text, "unit": text, "program": text, "job": text, "run": text,
            "rank": pa.int32(), "ranks": pa.int32(), "host": text, "pid": whole, "t": real, "clock": text,
            "program_time": real, "program_time_unit": text, "total_bytes": whole, "unlisted_bytes": whole,
            "threshold_bytes": whole,
        }  # fmt: skip
        return pa.table(
            {name: pa.array([row[name] for row in self.profiles], kind) for name, kind in kinds.items()}
        )


def _frames(tree: CallTree, node: int) -> Sequence[Frame]:
    return [tree.frame_of(at) or Frame(function=NOT_LISTED) for at in tree.path(node)]


NOT_LISTED = "(not listed)"


def _stored_frame(frame: Frame) -> dict[str, object]:
    return {
        "function": parquet_text(frame.function),
        "file": parquet_text(frame.file),
        "line": frame.line,
        "object": parquet_text(frame.object),
    }


def _profile_row(moment: _Moment, number: int, digest: str) -> dict[str, object]:
    snapshot, source = moment.snapshot, moment.source
    tree, origin = snapshot.tree, source.origin
    hidden = sum(size for size, frame in zip(tree.bytes, tree.frame) if frame == PRUNED) if tree.places else 0
    is_limited = bool(tree.threshold_bytes) and not tree.scattered
    return {
        "profile_id": number,
        "series": parquet_text(origin.series),
        "source": parquet_text(str(source.path.absolute())),
        "name": parquet_text(snapshot.name),
        "snapshot": snapshot.totals.index,
        "digest": digest,
        "format": snapshot.source_format,
        "unit": snapshot.unit,
        "program": parquet_text(snapshot.command),
        "job": parquet_text(origin.job),
        "run": parquet_text(origin.run),
        "rank": origin.rank,
        "ranks": origin.ranks,
        "host": parquet_text(origin.host),
        "pid": origin.pid,
        "t": moment.t,
        "clock": moment.clock,
        "program_time": None if moment.time_unit is None else float(snapshot.totals.time),
        "program_time_unit": moment.time_unit,
        "total_bytes": tree.bytes[0],
        "unlisted_bytes": hidden,
        "threshold_bytes": tree.threshold_bytes if is_limited else None,
    }


class _Writer:
    """Writes the files of one add into a store that is locked; nothing counts before commit()."""

    def __init__(self, folder: Path, tables: Mapping[str, list[tuple[str, int]]]) -> None:
        self.folder = folder
        self.tables = {name: list(tables[name]) for name in TABLES}
        numbers = [int(re.sub(r"[^0-9]", "", file)) for listed in tables.values() for file, _ in listed]
        self._next = max(numbers, default=0) + 1
        self._written: list[Path] = []  # that do not count yet

    def write(self, name: str, table: Any) -> None:
        """Write *table* as a further file of the table *name*, which small files before it are merged into."""
        import pyarrow as pa
        from pyarrow import parquet

        listed, parts = self.tables[name], [table]
        rows = table.num_rows
        while listed and listed[-1][1] <= 2 * rows and listed[-1][1] < _WHOLE_ROWS and rows < _WHOLE_ROWS:
            file, more = listed.pop()
            try:
                parts.insert(0, parquet.read_table(self.folder / file))
            except (OSError, pa.ArrowException) as error:
                raise damaged(self.folder, str(error)) from None
            rows += more
        if len(parts) > 1:
            table = pa.concat_tables(parts)
            if name == "facts":
                table = table.sort_by([("path_id", "ascending"), ("profile_id", "ascending")])
        file = f"{name}-{self._next:06}.parquet"
        self._next += 1
        self._written.append(self.folder / file)
        descriptor = os.open(self.folder / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as stream:  # noqa: PTH123  (a descriptor)
            parquet.write_table(table, stream, **_FORMATS[name])
            stream.flush()
            os.fsync(descriptor)
        listed.append((file, rows))

    def write_all(self, batch: _Batch) -> None:
        """Write what is left of *batch*."""
        if batch.facts:
            self.write("facts", batch.facts_table())
        if batch.new_paths:
            self.write("paths", batch.paths_table())
        self.write("profiles", batch.profiles_table())

    def commit(self) -> None:
        """Make what was written count, as a whole."""
        text = json.dumps({"format_version": FORMAT_VERSION, **self.tables}, indent=1) + "\n"
        new = self.folder / f".{_LIST}.new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as stream:  # noqa: PTH123
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        new.rename(self.folder / _LIST)
        self._written.clear()
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def undo(self) -> None:
        """Remove what was written and does not count."""
        for file in self._written:
            with contextlib.suppress(OSError):
                file.unlink()


_FORMATS: dict[str, dict[str, object]] = {
    "facts": {
        "compression": "zstd",
        "compression_level": 3,
        "row_group_size": _ROW_GROUP,
        "use_dictionary": ["path_id", "profile_id", "uncertain_bytes"],
    },
    "paths": {"compression": "zstd"},
    "profiles": {"compression": "zstd"},
}


def _remove_unlisted(folder: Path, tables: Mapping[str, list[tuple[str, int]]]) -> None:
    """Remove what an interrupted add, or a merge, has left, unless somebody reads the store."""
    kept = {file for listed in tables.values() for file, _ in listed}
    with contextlib.suppress(OSError), open(folder / _READING, "r+b") as stream:  # noqa: PTH123
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for entry in folder.iterdir():
            if (
                re.fullmatch(r"(?:facts|paths|profiles)-[0-9]+\.parquet", entry.name)
                and entry.name not in kept
            ):
                entry.unlink()


@contextlib.contextmanager
def _locked(folder: Path, progress: Callable[[str], None]) -> Iterator[Path]:
    """Make *folder* a store if it is none, and yield it, for this add alone."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise _unwritable(folder, error) from None
    if not folder.is_dir():
        raise no_store(folder, "it is not a folder")
    try:
        check_own(folder.resolve())
    except InputError as error:
        raise InputError(error.message, slug=error.slug, hint="name a folder of your own") from None
    held = HeldFolder(folder.resolve())
    try:
        with _named(folder, held):
            names = os.listdir(held.path)  # noqa: PTH208
            if not {_LIST, _WRITING} & {*names} and names:
                raise no_store(folder, f"it has no {_LIST}, and is not empty")
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            os.close(os.open(held.path / _READING, flags, 0o600))
            with open(os.open(held.path / _WRITING, flags, 0o600), "rb") as stream:  # noqa: PTH123
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    progress(f"waiting for another add to {printable(str(folder))}")
                    fcntl.flock(stream, fcntl.LOCK_EX)
                yield held.path
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"nothing was added to {printable(str(folder))}: {error.strerror or printable(str(error))}",
        slug="store-unwritable",
        hint="the store is as it was before; make room, or name another folder",
    )


def add(
    store: str | os.PathLike[str],
    operands: Sequence[str | os.PathLike[str]],
    *,
    names: Optional[str] = None,
    options: Optional[ReadOptions] = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Added:
    """Add the profiles of *operands* (files, FILE:NUMBER, runs, RUN:NAME, folders of them) to *store*, as a whole.

    *names* is a pattern of the ends of the files' paths, in which %r, %h, %p and %j stand for rank, host, process and
    job. A profile that the store has already is not added again; one that can't be read is left out, and named in the
    result. Raises MissingToolError without pyarrow; InputError if *store* is no store, or can't be written: then it is
    as it was before.
    """
    packages()
    folder = Path(store)
    notices: list[Notice] = []
    sources = sorted(
        _sources([os.fspath(one) for one in operands], names, notices), key=lambda one: one.order
    )
    with _locked(folder, progress) as held:
        tables = read_list(held) if (held / _LIST).exists() else {name: [] for name in TABLES}
        _remove_unlisted(held, tables)
        writer = _Writer(held, tables)
        batch, seen = _begin(held, tables)
        before = len(batch.known_paths)
        try:
            taken = _take(sources, options or ReadOptions(), batch, seen, writer, progress)
            if batch.profiles:
                writer.write_all(batch)
            if batch.profiles or not (held / _LIST).exists():
                writer.commit()
        except BaseException:
            writer.undo()
            raise
        _remove_unlisted(held, writer.tables)
    notices += taken.notices({row["series"] for row in batch.profiles})
    return Added(
        str(folder),
        len(batch.profiles),
        taken.known,
        len(batch.known_paths) - before,
        batch.all_rows,
        taken.unreadable,
        notices,
    )


class _Taken:
    """The outcome of each source of an add, without the profiles."""

    def __init__(self) -> None:
        self.known = 0
        self.unreadable: list[str] = []
        self._others: list[
            tuple[str, str]
        ] = []  # series and sentence of files of a folder that look like none
        self.hashes = _Hashes()

    def refuse(self, source: _Source, error: Exception) -> None:
        """Note why *source* was left out."""
        if isinstance(error, OSError):
            sentence = f"cannot read {printable(str(source.path))}: {error.strerror or error}"
        else:
            sentence = error.sentence if isinstance(error, GdbmemError) else str(error)
        if source.is_found and isinstance(error, GdbmemError) and error.slug in _NO_PROFILE:
            self._others.append((source.origin.series, sentence))
        else:
            self.unreadable.append(sentence)

    def notices(self, series: Set[object]) -> Iterator[Notice]:
        """Yield what a user should know of them; in *series* are profiles, and what is called like them is damaged."""
        self.unreadable += [sentence for one, sentence in self._others if parquet_text(one) in series]
        others = [one for one, _ in self._others if parquet_text(one) not in series]
        if others:
            text = f"{plural(len(others), 'other file is', 'other files are')} in the folders: not profiles"
            yield Notice("format-unreadable", text)
        if self.hashes.alike:
            names = ", ".join(sorted(self.hashes.alike)[:3])
            text = f"files of one name in several folders count as one: {names}"
            yield Notice("compared-on-base-names", printable(text))


def _take(
    sources: Sequence[_Source],
    options: ReadOptions,
    batch: _Batch,
    seen: set[tuple[object, ...]],
    writer: _Writer,
    progress: Callable[[str], None],
) -> _Taken:
    """Read *sources* into *batch*, whose rows *writer* gets whenever they are many."""
    taken = _Taken()
    for number, source in enumerate(sources):
        progress(f"adding {number + 1:,} of {len(sources):,} profiles")
        try:
            taken.known += _add_source(source, options, batch, seen, taken.hashes)
        except (GdbmemError, OSError) as error:
            taken.refuse(source, error)
        if batch.rows >= _WHOLE_ROWS:
            writer.write("facts", batch.facts_table())
    return taken


def _begin(
    folder: Path, tables: Mapping[str, list[tuple[str, int]]]
) -> tuple[_Batch, set[tuple[object, ...]]]:
    """Return a batch that continues the store, and what identifies the profiles that it has."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    def columns(name: str, *wanted: str) -> Any:
        return [parquet.read_table(folder / file, columns=list(wanted)) for file, _ in tables[name]]

    try:
        paths = [table["path_id"].to_numpy() for table in columns("paths", "path_id")]
        seen: set[tuple[object, ...]] = set()
        last = -1
        for table in columns("profiles", "profile_id", "source", "snapshot", "digest"):
            rows = [column.to_pylist() for column in table.columns]
            seen.update(zip(*rows[1:]))
            last = max([last, *rows[0]])
    except (OSError, pa.ArrowException, KeyError) as error:
        raise damaged(folder, str(error)) from None
    known = np.concatenate(paths) if paths else np.zeros(0, np.int64)
    return _Batch(known, last + 1), seen


def _add_source(
    source: _Source, options: ReadOptions, batch: _Batch, seen: set[tuple[object, ...]], hashes: _Hashes
) -> int:
    """Add the snapshots of *source* to *batch*; return how many the store has already."""
    with open_regular(location(source.path)) as stream:
        digest = hashlib.blake2b(stream.read(), digest_size=16).hexdigest()
    path, known = parquet_text(str(source.path.absolute())), 0
    for moment in _moments(source, options):
        key = (path, moment.snapshot.totals.index, digest)
        if key in seen:
            known += 1
            continue
        batch.add(moment, digest, hashes)
        seen.add(key)
    return known
