"""Questions to a store of profiles: which path grew most, on which rank and since when; which rank is odd; any SQL.

Names and patterns reach SQL as parameters only, and SQL of a user reads the store's files and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from statistics import median
from typing import Any, Callable, NamedTuple, Optional

from gdbmem.api.ranks import LEAST_BYTES, differs
from gdbmem.api.store import damaged, open_for_reading, packages
from gdbmem.errors import InputError, Notice, UsageError
from gdbmem.model.calltree import Frame
from gdbmem.model.ranks import HEAP
from gdbmem.profiles.paths import matches
from gdbmem.text import plural, printable

_MEMORY = "160MB"  # of DuckDB, which writes to a temporary folder what needs more
_MOST_THREADS = 4
_AT_ONCE = 10_000  # rows
_LOOK_SECONDS = 0.1
_FEWEST = 5  # series that are compared with each other
_MOST_RANKS = 1 << 16  # of a job: more are not looked for
_EXACT = 1e-13  # of the square of the largest value: what calculation adds
_SURE = 4.0  # residual variances: a later beginning that fits about as well is taken

# Tables and views for SQL. Profiles are in order by the clock of the program or of its run: a file may be a copy.
_VIEWS = """
create temp table profiles as
  select cast(dense_rank() over (order by series, program, unit, format) - 1 as integer) as series_id,
    cast(row_number() over (
      partition by series, program, unit, format
      order by case when clock in ('profile', 'run') then t end nulls last, profile_id) as integer) as nr,
    cast(least(unlisted_bytes, coalesce(threshold_bytes, unlisted_bytes)) as bigint) as hidden_bytes,
    *
  from stored_profiles;
create temp table series as
  select series_id, any_value(series) as series, any_value(program) as program, any_value(unit) as unit,
    any_value(format) as format, any_value(job) as job, any_value(run) as run, any_value(rank) as rank,
    max(ranks) as ranks, any_value(host) as host, any_value(pid) as pid, count(*) as profiles,
    arg_min(profile_id, nr) as first_id, arg_max(profile_id, nr) as last_id, min(t) as first_t, max(t) as last_t,
    arg_min(total_bytes, nr) as first_bytes, arg_max(total_bytes, nr) as last_bytes
  from profiles group by series_id;
create view growth as
  with ends as (
    select series_id, first_id as profile_id, -1 as sign from series where profiles > 1
    union all select series_id, last_id, 1 from series where profiles > 1),
  changes as (
    select series_id, path_id, sum(f.bytes * sign) as grew_bytes, sum(f.blocks * sign) as grew_blocks,
      sum(f.uncertain_bytes) as doubt,
      sqrt(sum(f.standard_error_bytes * f.standard_error_bytes)) as standard_error_bytes,
      bool_or(sign < 0) as in_first, bool_or(sign > 0) as in_last
    from facts f join ends using (profile_id) group by series_id, path_id)
  select c.series_id, c.path_id, cast(grew_bytes as bigint) as grew_bytes, cast(grew_blocks as bigint) as grew_blocks,
    cast(doubt
      + case when in_first then 0 when doubt > 0 then a.unlisted_bytes else a.hidden_bytes end
      + case when in_last then 0 when doubt > 0 then b.unlisted_bytes else b.hidden_bytes end as bigint)
      as uncertain_bytes,
    standard_error_bytes
  from changes c join series s using (series_id)
    join profiles a on a.profile_id = s.first_id join profiles b on b.profile_id = s.last_id
"""
# Of several series in which a path grew as much, the first.
_GREW = """
with chosen as (select unnest(?) as path_id),
rows as (
  select g.*, s.program, cast(g.grew_bytes as hugeint) * 4294967296 - g.series_id as most
  from growth g join series s using (series_id)
  where s.unit = ? and (? or s.rank in (select unnest(?))) and (? or g.path_id in (select path_id from chosen)))
select program, path_id, max(grew_bytes), arg_max(series_id, most), cast(sum(grew_bytes) as bigint),
  count(*) filter (where grew_bytes > 0), arg_max(uncertain_bytes, most), arg_max(standard_error_bytes, most),
  arg_max(grew_blocks, most)
from rows group by program, path_id having max(grew_bytes) > 0
order by max(grew_bytes) desc, path_id limit ?
"""
_COMPARED = """
with chosen as (select unnest(?) as path_id)
select s.job, s.program, g.path_id, g.series_id, g.grew_bytes, g.uncertain_bytes
from growth g join series s using (series_id)
where s.unit = ? and (? or g.path_id in (select path_id from chosen))
order by 1, 2, 3
"""
_HISTORIES = """
with wanted as (select unnest(?) as series_id, unnest(?) as path_id)
select w.series_id, w.path_id, p.nr, f.bytes
from wanted w join facts f using (path_id) join profiles p on p.profile_id = f.profile_id and p.series_id = w.series_id
"""
_MATCHING = """
with matching as (select unnest(?) as function, unnest(?) as file, unnest(?) as line, unnest(?) as object)
select distinct path_id from (select path_id, unnest(frames) as frame from paths)
where exists (select 1 from matching m
  where m.function is not distinct from frame.function and m.file is not distinct from frame.file
    and m.line is not distinct from frame.line and m.object is not distinct from frame.object)
"""


class Since(NamedTuple):
    """The first profile of a series in which a path has grown."""

    profile: int  # of the series, counted from 1
    name: str
    t: Optional[float]  # seconds since 1970; None: unknown
    clock: Optional[str]  # profile, run, or file: when that was written
    before_bytes: float  # the level before


class Series(NamedTuple):
    """The profiles of one process, oldest first."""

    series_id: int
    series: str
    program: Optional[str]
    unit: str
    format: str
    job: Optional[str]
    run: Optional[str]
    rank: Optional[int]
    ranks: Optional[int]  # of the job
    host: Optional[str]
    pid: Optional[int]
    profiles: int
    first_id: int
    last_id: int
    first_t: Optional[float]
    last_t: Optional[float]
    first_bytes: int
    last_bytes: int


class GrownPath(NamedTuple):
    """A call path that grew from the first profile of a series to the last: in the series in which it grew most."""

    frames: Sequence[Frame]  # from the allocation site outward
    program: Optional[str]
    grew_bytes: int
    grew_blocks: Optional[int]
    uncertain_bytes: int  # by which it may be off, because tools merge small paths
    standard_error_bytes: Optional[float]  # of sampled profiles
    series: str
    rank: Optional[int]
    host: Optional[str]
    pid: Optional[int]
    since: Optional[Since]  # None: it comes and goes
    all_bytes: int  # the change in all series together
    series_grown: int  # in how many it grew


class OddSeries(NamedTuple):
    """A series in which a path grew by another amount than in the others of its program and job."""

    frames: Sequence[Frame]
    program: Optional[str]
    grew_bytes: int
    others_bytes: float  # the median of the others
    uncertain_bytes: int
    series: str
    rank: Optional[int]
    host: Optional[str]
    pid: Optional[int]
    since: Optional[Since]


class StoreAnswer(NamedTuple):
    """The answer to one question; only the rows of that are there."""

    question: str  # grew, odd, series or sql
    profiles: int
    series: int
    unit: Optional[str]  # what the profiles count
    grown: Sequence[GrownPath] = ()
    odd: Sequence[OddSeries] = ()
    can_differ: bool = True  # False: no program has enough series to call one odd
    all_series: Sequence[Series] = ()
    missing: Sequence[int] = ()  # ranks of the jobs without a profile here
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    notices: Sequence[Notice] = ()


class Store:
    """A store that is open for questions."""

    def __init__(self, connection: Any, worker: ThreadPoolExecutor, folder: Path) -> None:
        self._connection = connection
        self._folder = folder
        self._worker = worker
        fields = ", ".join(Series._fields)
        self.series = [Series(*row) for row in self._fetch(f"select {fields} from series order by series_id")]
        self._histories: dict[tuple[int, int], dict[int, int]] = {}

    def grew(
        self,
        *,
        top: int,
        unit: Optional[str] = None,
        ranks: Optional[Sequence[int]] = None,
        focus: Optional[re.Pattern[str]] = None,
    ) -> StoreAnswer:
        """Return the *top* call paths that grew most, each in the series in which it grew most."""
        unit, notices = self._unit(unit)
        chosen = self._matching_paths(focus)
        found = self._fetch(
            _GREW, [chosen or [], unit, ranks is None, list(ranks or ()), chosen is None, top]
        )  # fmt: skip
        frames = self._frames([row[1] for row in found])
        self._read_histories([(row[3], row[1]) for row in found])
        rows = []
        for program, path, most, number, whole, grown, uncertain, error, blocks in found:
            one = self.series[number]
            since = self._since(number, path)
            rows.append(
                GrownPath(
                    frames[path], program, most, blocks, uncertain, error,
                    one.series, one.rank, one.host, one.pid, since, whole, grown,
                )
            )  # fmt: skip
        return self._answer("grew", unit, notices)._replace(grown=rows)

    def odd(
        self, *, top: int, unit: Optional[str] = None, focus: Optional[re.Pattern[str]] = None
    ) -> StoreAnswer:
        """Return the *top* series in which a path grew by another amount than in the others, by the difference."""
        unit, notices = self._unit(unit)
        chosen = self._matching_paths(focus)
        groups: dict[tuple[object, object], list[Series]] = defaultdict(list)
        for one in self.series:
            if one.unit == unit and one.profiles > 1:
                groups[one.job, one.program].append(one)
        can_differ = any(len(group) >= _FEWEST for group in groups.values())
        found: list[tuple[float, int, int, int, float, int]] = []
        if can_differ:
            rows = self._each(_COMPARED, [chosen or [], unit, chosen is None])
            for key, path, values in _by_path(rows):
                found += _odd_of(path, values, groups[key])
        found.sort(key=lambda row: (-row[0], row[1], row[2]))
        shown = found[:top]
        frames = self._frames([row[1] for row in shown])
        self._read_histories([(row[2], row[1]) for row in shown])
        odd = []
        for _, path, number, grew, others, uncertain in shown:
            one = self.series[number]
            since = self._since(number, path)
            odd.append(
                OddSeries(
                    frames[path], one.program, grew, others, uncertain,
                    one.series, one.rank, one.host, one.pid, since,
                )
            )  # fmt: skip
        return self._answer("odd", unit, notices)._replace(odd=odd, can_differ=can_differ)

    def list_series(self) -> StoreAnswer:
        """Return the series of the store."""
        return self._answer("series", None, [])._replace(all_series=self.series)

    def sql(self, text: str) -> StoreAnswer:
        """Return what the query *text* finds in facts, paths, profiles, series and growth.

        Raises UsageError if it is not one query, InputError if DuckDB refuses it.
        """
        import duckdb

        try:
            statements = self._connection.extract_statements(text)
            kinds = {statement.type for statement in statements}
            allowed = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
            if len(statements) != 1 or not kinds <= allowed:
                raise UsageError("--sql takes one query", hint="--sql 'select * from growth limit 5'")
            result = self._wait(lambda: self._connection.execute(statements[0]))
            columns = [column[0] for column in result.description]
            rows = self._wait(result.fetchall)
        except duckdb.Error as error:
            text = " ".join(str(error).split())
            raise InputError(f"DuckDB refuses the query: {printable(text[:400])}", slug="store-sql") from None
        return self._answer("sql", None, [])._replace(columns=columns, rows=rows)

    def _answer(self, question: str, unit: Optional[str], notices: Sequence[Notice]) -> StoreAnswer:
        said = [*notices, *(self._about_series(unit) if question != "sql" else ())]
        count = sum(one.profiles for one in self.series)
        return StoreAnswer(question, count, len(self.series), unit, missing=self._missing(), notices=said)

    def _about_series(self, unit: Optional[str]) -> Iterator[Notice]:
        single = [one for one in self.series if one.profiles < 2 and unit in (None, one.unit)]
        if single:
            text = f"{plural(len(single), 'series has', 'series have')} one profile only, which tells no growth, as"
            yield Notice("series-of-one", f"{text} {printable(single[0].series)}")
        missing = self._missing()
        if missing:
            named = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
            which = f"rank {named}" if len(missing) == 1 else f"{len(missing):,} ranks ({named})"
            yield Notice("no-rank", f"no profile of {which} is here")

    def _missing(self) -> list[int]:
        found: set[int] = set()
        jobs: dict[tuple[object, object], list[Series]] = defaultdict(list)
        for one in self.series:
            if one.rank is not None:
                jobs[one.job, one.program].append(one)
        for group in jobs.values():
            known = {one.rank for one in group if one.rank is not None}
            size = max([max(known) + 1, *(one.ranks for one in group if one.ranks is not None)])
            found.update(set(range(min(size, _MOST_RANKS))) - known)
        return sorted(found)

    def _unit(self, unit: Optional[str]) -> tuple[str, list[Notice]]:
        """Return the unit to compare, and a notice if the store has others."""
        counts: dict[str, int] = defaultdict(int)
        for one in self.series:
            counts[one.unit] += one.profiles
        if unit is not None and unit not in counts:
            raise UsageError(
                f"no profile here counts '{printable(unit)}'",
                hint=f"--unit '{printable(', '.join(sorted(counts)))}'" if counts else "the store is empty",
            )
        chosen = unit or max(sorted(counts), key=lambda name: counts[name], default="")
        others = sorted(counts.keys() - {chosen})
        if unit is None and others:
            text = f"only profiles that count {printable(chosen)} are compared; others: --unit '{printable(others[0])}'"
            return chosen, [Notice("units-differ", text)]
        return chosen, []

    def _matching_paths(self, focus: Optional[re.Pattern[str]]) -> Optional[list[int]]:
        """Return the paths with a frame that *focus* matches; None: all."""
        if focus is None:
            return None
        fields = ", ".join(f"frame.{name}" for name in ("function", "file", "line", "object"))
        rows = self._fetch(f"select distinct {fields} from (select unnest(frames) as frame from paths)")
        found = [row for row in rows if matches(focus, Frame(*row))]
        columns = [list(column) for column in zip(*found)] or [[], [], [], []]
        return [row[0] for row in self._fetch(_MATCHING, columns)]

    def _frames(self, paths: Sequence[int]) -> Mapping[int, Sequence[Frame]]:
        names = ("function", "file", "line", "object")
        rows = self._fetch(
            "select path_id, frames from paths where path_id in (select unnest(?))", [list(paths)]
        )
        return {path: [Frame(*(one[name] for name in names)) for one in frames] for path, frames in rows}

    def _read_histories(self, wanted: Sequence[tuple[int, int]]) -> None:
        self._histories = {one: {} for one in wanted}
        columns = [list(column) for column in zip(*wanted)] or [[], []]
        for number, path, nr, size in self._fetch(_HISTORIES, columns):
            self._histories[number, path][nr] = size

    def _since(self, number: int, path: int) -> Optional[Since]:
        one = self.series[number]
        held = self._histories[number, path]
        rows = self._fetch(
            "select nr, name, t, clock from profiles where series_id = ? order by nr", [number]
        )
        found = since(
            [held.get(row[0], 0) for row in rows], grows=held.get(one.profiles, 0) >= held.get(1, 0)
        )
        if found is None:
            return None
        at, level = found
        return Since(rows[at][0], rows[at][1] or "", rows[at][2], rows[at][3], level)

    def _wait(self, work: Callable[[], Any]) -> Any:
        return _waited(self._connection, self._worker, work)

    def _fetch(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(self._each(query, parameters))

    def _each(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        import duckdb

        try:
            cursor = self._wait(lambda: self._connection.execute(query, list(parameters)))
            while rows := self._wait(lambda: cursor.fetchmany(_AT_ONCE)):
                yield from rows
        except duckdb.Error as error:
            raise damaged(self._folder, " ".join(str(error).split())[:400]) from None


@contextlib.contextmanager
def opened(store: str | os.PathLike[str]) -> Iterator[Store]:
    """Open *store* for questions until the `with` ends.

    Raises MissingToolError without its packages; InputError if it is no store, damaged, or of another layout.
    """
    packages()
    import duckdb

    folder = Path(store)
    with open_for_reading(folder) as (held, tables):
        scratch = tempfile.mkdtemp(prefix="gdbmem-")
        connection = duckdb.connect(
            ":memory:",
            config={
                "threads": min(os.cpu_count() or 1, _MOST_THREADS),
                "memory_limit": _MEMORY,
                "temp_directory": scratch,
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        worker = ThreadPoolExecutor(1)
        try:
            if not all(tables.values()):
                raise InputError(
                    f"the store {printable(str(folder))} is empty",
                    slug="store-empty",
                    hint="gdbmem store add",
                )
            _waited(connection, worker, lambda: _prepare(connection, held, tables))
            yield Store(connection, worker, folder)
        except duckdb.Error as error:
            raise damaged(folder, " ".join(str(error).replace(str(held), "").split())[:400]) from None
        finally:
            worker.shutdown()
            connection.close()
            shutil.rmtree(scratch, ignore_errors=True)


def _prepare(connection: Any, held: Path, tables: Mapping[str, Sequence[tuple[str, int]]]) -> None:
    """Make the tables and views for SQL, which can then read nothing else."""
    files: list[str] = []
    for name, listed in tables.items():
        here = [str(held / file) for file, _ in listed]
        connection.read_parquet(here).create_view("stored_profiles" if name == "profiles" else name)
        files += here
    connection.execute("set allowed_paths = ?", [files])
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    for statement in _VIEWS.split(";"):
        connection.execute(statement)


def _waited(connection: Any, worker: ThreadPoolExecutor, work: Callable[[], Any]) -> Any:
    """Return what *work* returns; a signal ends it, which DuckDB does not notice, or takes for an error of its own."""
    future = worker.submit(work)
    try:
        return future.result()
    except BaseException:
        while not future.done():
            connection.interrupt()
            wait([future], _LOOK_SECONDS)
        raise


def since(values: Sequence[float], *, grows: bool = True) -> Optional[tuple[int, float]]:
    """Return from which of *values* on they have left their first level, and that level; None if they come back to it.

    The values before are taken for a level and those from there on for a line, as fits best; of beginnings that fit
    about as well the latest. *grows* is False for values that fall.
    """
    count = len(values)
    if count < 2:
        return None
    series = [value if grows else -value for value in values]
    before, after = _level_errors(series), _line_errors(series)
    errors = [before[at] + after[at] for at in range(1, count)]
    best = min(errors)
    allowed = best * (1 + _SURE / max(count - 3, 1)) + _EXACT * max(map(abs, series)) ** 2
    at = max(number for number, error in enumerate(errors, start=1) if error <= allowed)
    level = sum(series[:at]) / at
    if min(series[(at + count) // 2 :]) <= max(series[:at]):
        return None
    return at, level if grows else -level


def _level_errors(values: Sequence[float]) -> list[float]:
    """Return for each n the squared distances of the first n values from their mean."""
    found, mean, error = [0.0], 0.0, 0.0
    for number, value in enumerate(values, start=1):
        step = value - mean
        mean += step / number
        error += step * (value - mean)
        found.append(error)
    return found


def _line_errors(values: Sequence[float]) -> list[float]:
    """Return for each n the squared distances of the values from n on from the line that fits them best."""
    found = [0.0] * (len(values) + 1)
    n = mean_x = mean_y = xx = xy = yy = 0.0
    for x in range(len(values) - 1, -1, -1):
        n += 1
        dx, dy = x - mean_x, values[x] - mean_y
        mean_x += dx / n
        mean_y += dy / n
        xx += dx * (x - mean_x)
        xy += dx * (values[x] - mean_y)
        yy += dy * (values[x] - mean_y)
        found[x] = max(yy - (xy * xy / xx if xx else 0.0), 0.0)
    return found


_Values = dict[int, tuple[int, int]]  # series → growth, and by how much it may be off


def _by_path(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[tuple[object, object], int, _Values]]:
    key: Optional[tuple[object, object, int]] = None
    values: _Values = {}
    for job, program, path, number, grew, uncertain in rows:
        if key != (job, program, path):
            if key is not None:
                yield key[:2], key[2], values
            key, values = (job, program, path), {}
        values[number] = (grew, uncertain)
    if key is not None:
        yield key[:2], key[2], values


def _odd_of(
    path: int, values: _Values, group: Sequence[Series]
) -> Iterator[tuple[float, int, int, int, float, int]]:
    """Yield the difference, the path, the series, its growth, the median of the others, and the doubt."""
    if len(group) < _FEWEST:
        return
    numbers = [one.series_id for one in group]
    grew = [float(values.get(number, (0, 0))[0]) for number in numbers]
    least = LEAST_BYTES[HEAP]
    if max(grew) - min(grew) <= least:
        return
    middle = sorted(grew)
    around = middle[(len(middle) - 1) // 2 - 1 : len(middle) // 2 + 2]
    for at, (number, value) in enumerate(zip(numbers, grew)):
        if max(abs(value - one) for one in around) <= least:
            continue
        others = grew[:at] + grew[at + 1 :]
        doubt = values.get(number, (0, 0))[1]
        if differs(value, others, least + doubt):
            usual = median(others)
            yield abs(value - usual), path, number, int(value), usual, doubt
