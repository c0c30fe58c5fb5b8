"""Memory over time as other tools record it: mprof, psrecord, CSV, and what Prometheus answers to a range query."""

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Optional

from gdbmem.errors import InputError
from gdbmem.files import location
from gdbmem.json_values import MISFITS
from gdbmem.text import printable

_HEAD_BYTES = 4096
_MOST_BYTES = 1 << 30
_MIB = float(1 << 20)
_TIME = (
    r"(?:t|time|timestamp|seconds|elapsed|date|datetime)"
    r"(?:[ _([]*(ns|us|µs|ms|s|sec|seconds|min|minutes|h|hours))?[])]?"
)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "m": 60.0, "h": 3600.0}
# A time since 1970 is from 1973 to 5138: these are the least ones in nanoseconds, microseconds, milliseconds.
_EPOCHS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))
# Columns that tell one process from another, the first of them that there is; and one machine from another.
_PROCESSES = ("pid", "process", "name", "command", "cmd", "comm")
_PLACES = ("host", "hostname", "node", "instance", "job", "container", "pod", "service", "rank", "worker")
_FEWEST_ROWS, _KIB_PAGE, _PAGE = 12, 4, 4096
_MEMORY = r"(pss|rss|uss|mem(?:ory)?|real|bytes|value)(?:[ _(]*(?:usage|used))?[ _(]*(bytes|b|[kmg]i?b)?\)?"
_FACTORS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_PSRECORD_CSV = "elapsed_time,nproc,cpu,mem_real"
_BEFORE = 5e8  # a smaller time is none since 1970


class RecordedSeries(NamedTuple):
    """Another tool's recording of one process, or of one sum of several."""

    tool: str
    target: str
    points: list[tuple[float, float]]  # seconds since the first one, bytes
    began: float  # seconds since 1970 at the first one; 0 if unknown
    # Samples that are not numbers, infinite, or Prometheus's marker of a stale series; left out.
    unknown: int = 0


def series_tool(path: Path) -> Optional[str]:
    """Return the tool whose series the file at *path* is, "" for a CSV; None for anything else."""
    try:
        with location(path).open("rb") as stream:
            head = stream.read(_HEAD_BYTES).decode("utf-8-sig", errors="replace")
    except OSError:
        return None
    first = head.partition("\n")[0].strip()
    if re.match(r"CMDLINE |MEM [\d.]+ [\d.]+$", first):
        return "mprof"
    if (first.startswith("# Elapsed time") and "Real" in first) or first.startswith(_PSRECORD_CSV):
        return "psrecord"
    if re.match(r"\s*\{", head) and re.search(r'"resultType"\s*:\s*"matrix"', head):
        return "Prometheus"
    return "CSV" if _csv_columns(first) is not None else None


def is_series_file(path: Path) -> bool:
    """Return whether the file at *path* is a series that another tool recorded."""
    return location(path).is_file() and series_tool(path) is not None


def read_series(path: Path) -> RecordedSeries:
    """Read the file at *path*, of which series_tool() knows the tool; raises InputError."""
    tool = series_tool(path)
    if tool is None:
        raise _wrong(path, 0, "its format is unknown")
    if location(path).stat().st_size > _MOST_BYTES:
        raise _wrong(path, 0, "it is over 1 GiB")
    try:
        text = location(path).read_text("utf-8-sig", errors="backslashreplace")  # Excel begins it with a mark
        if tool == "Prometheus":
            target, points = _prometheus(path, text)
        else:
            target = _command_of(text) if tool == "mprof" else path.name
            points = list({"mprof": _mprof, "psrecord": _psrecord}.get(tool, _csv)(path, text))
    except OSError as error:
        raise _wrong(path, 0, str(error.strerror)) from None
    return _ordered(path, tool or "CSV", target, points)


def _ordered(path: Path, tool: str, target: str, points: list[tuple[float, float]]) -> RecordedSeries:
    for number, (t, size) in enumerate(points):
        if not math.isfinite(t) or (math.isfinite(size) and not 0 <= size < 2**63):
            raise _wrong(path, 0, f"sample {number + 1} is not a size of memory at a time")
    known = _spread(sorted((point for point in points if math.isfinite(point[1])), key=itemgetter(0)))
    unknown = sum(not math.isfinite(size) for _, size in points)
    if not known:
        raise _wrong(
            path, 0, "it has no samples" + (f" but {unknown:,} that are not numbers" if unknown else "")
        )
    begin = known[0][0]
    return RecordedSeries(
        tool, target, [(t - begin, size) for t, size in known], begin if begin > _BEFORE else 0.0, unknown
    )


def _spread(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return *points*, in order of time, with those of the same time spread until the next: a clock may be coarse."""
    groups = [list(group) for _, group in groupby(points, key=itemgetter(0))]
    found: list[tuple[float, float]] = []
    for group, after in zip(groups, [*groups[1:], []]):
        begin = group[0][0]
        step = ((after[0][0] if after else begin + 1.0) - begin) / len(group)
        found += [(begin + number * step, size) for number, (_, size) in enumerate(group)]
    return found


def _mprof(path: Path, text: str) -> Iterator[tuple[float, float]]:
    """Source: memory_profiler, mprof.py: MEM MIB SECONDS_SINCE_1970; with -M then CHLD NUMBER MIB SECONDS.

    Then MEM is of the process alone, and the children that follow are added. FUNC is not a sample.
    """
    now: Optional[tuple[float, float]] = None
    for number, line in _whole_lines(text):
        words = line.split()
        if line.startswith("MEM "):
            if now is not None:
                yield now
            now = _numbers(path, number, words[2:3] + words[1:2])
        elif line.startswith("CHLD ") and now is not None:
            now = now[0], now[1] + _numbers(path, number, words[3:4] + words[2:3])[1]
    if now is not None:
        yield now


def _command_of(text: str) -> str:
    first = text.partition("\n")[0]
    command = first[len("CMDLINE ") :].strip() if first.startswith("CMDLINE ") else "mprof"
    return f"{command} and its children" if "\nCHLD " in text else command


def _psrecord(path: Path, text: str) -> Iterator[tuple[float, float]]:
    """Source: psrecord, main.py: elapsed seconds, CPU, real and virtual memory, in 2^20 bytes.

    With --log-format csv the number of processes stands before the CPU.
    """
    is_csv = text.startswith(_PSRECORD_CSV)
    for number, line in _whole_lines(text):
        if line.strip() and not line.startswith(("#", _PSRECORD_CSV)):
            words = line.split(",") if is_csv else line.split()
            yield _numbers(path, number, [*words[0:1], *(words[3:4] if is_csv else words[2:3])])


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers; without the last one if it was truncated, or is being written."""
    whole = text.rpartition("\n")[0]
    return enumerate(whole.splitlines(), 1)


def _numbers(path: Path, number: int, words: list[str]) -> tuple[float, float]:
    """Return the seconds and the MiB in *words* as seconds and bytes."""
    try:
        t, size = (float(word) for word in words)
    except ValueError:
        raise _wrong(path, number, "a time and a size are expected") from None
    return t, size * _MIB


class _Columns(NamedTuple):
    """The columns of a CSV that are read, by their places."""

    time: int
    seconds: Optional[float]  # in one unit of time; None: not named
    size: int
    size_name: str
    factor: Optional[float]  # bytes in one unit of size; None: not named
    line: Optional[int]  # of a line's number, 0 for the total
    labels: Sequence[int]


def _csv(path: Path, text: str) -> Iterator[tuple[float, float]]:
    columns = _csv_columns(text.partition("\n")[0])
    assert columns is not None
    import csv  # for series only

    found: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    rows = csv.reader(io.StringIO(text))
    for number, row in _rows(path, rows):
        if not row or (columns.line is not None and row[columns.line : columns.line + 1] != ["0"]):
            continue
        if len(row) <= max(columns.time, columns.size):
            raise _wrong(path, number, "columns are missing")
        if row[columns.size] == "":
            continue
        label = tuple(row[at] for at in columns.labels if at < len(row))
        try:
            point = _time_of(row[columns.time], columns.seconds), float(row[columns.size])
        except (ValueError, OverflowError):
            raise _wrong(path, number, "a time and a size are expected") from None
        found.setdefault(label, []).append(point)
    points = [point for series in found.values() for point in series]
    _check_one(path, found)
    _check_unit(path, columns, points)
    return ((t, size * (columns.factor or 1.0)) for t, size in points)


def _check_one(path: Path, found: Mapping[tuple[str, ...], Sequence[tuple[float, float]]]) -> None:
    """Refuse several series at the same time; one may follow another, as where a process was started again."""
    spans = sorted((min(series)[0], max(series)[0], label) for label, series in found.items())
    for (_, end, before), (begin, _, label) in zip(spans, spans[1:]):
        if begin < end:
            names = " and ".join(printable(" ".join(one)) for one in (before, label))
            raise _wrong(
                path,
                0,
                f"it holds several series at the same time ({names}): give each its own file, or add them up",
            )


def _check_unit(path: Path, columns: _Columns, points: Sequence[tuple[float, float]]) -> None:
    """Refuse a resident set in KiB whose column names no unit: in bytes it is whole pages."""
    if columns.factor is not None or columns.size_name != "rss" or len(points) < _FEWEST_ROWS:
        return
    if any(size % _PAGE for _, size in points) and not any(size % _KIB_PAGE for _, size in points):
        raise _wrong(
            path, 0, "its sizes look like KiB, as ps prints them: call the column rss_kib (or rss_b)"
        )


def _rows(path: Path, rows: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows but the first, with the numbers of their lines."""
    import csv  # as above

    try:
        next(rows)
        yield from enumerate(rows, 2)
    except csv.Error as error:
        raise _wrong(path, 0, printable(str(error))) from None


def _time_of(word: str, unit: Optional[float]) -> float:
    """Return the seconds of *word*: in *unit* if that is named, else in the one in which it is a time since 1970."""
    try:
        time = float(word)
    except ValueError:
        import datetime  # with json a thirtieth of the start of `show` of a heap profile, which asks what is none

        return datetime.datetime.fromisoformat(word.replace("Z", "+00:00")).timestamp()
    if unit is None:
        unit = next((factor for least, factor in _EPOCHS if time >= least), 1.0)
    return time * unit


def _csv_columns(first: str) -> Optional[_Columns]:
    """Return the columns of a CSV by its *first* line; None if it has no time or no size of memory."""
    if "," not in first:
        return None
    names = [name.strip().strip('"').lower() for name in first.split(",")]
    times = [(at, found) for at, name in enumerate(names) if (found := re.fullmatch(_TIME, name))]
    sizes = [(at, found) for at, name in enumerate(names) if (found := re.fullmatch(_MEMORY, name))]
    if not times or not sizes:
        return None
    # If there are several, the one that counts shared pages once.
    at, found = min(sizes, key=lambda entry: not entry[1][1].startswith("pss"))
    at_time, time = times[0]
    line = names.index("line") if "line" in names else None
    return _Columns(
        at_time,
        None if time[1] is None else _SECONDS.get(time[1], _SECONDS.get(time[1][0], 1.0)),
        at,
        found[1],
        None if found[2] is None else float(_FACTORS.get(found[2][0], 1)),
        line,
        [] if line is not None else _label_columns(names),
    )


def _label_columns(names: Sequence[str]) -> list[int]:
    process = next((name for name in _PROCESSES if name in names), None)
    return [at for at, name in enumerate(names) if name == process or name in _PLACES]


def _prometheus(path: Path, text: str) -> tuple[str, list[tuple[float, float]]]:
    """Source: Prometheus, HTTP API, range queries: data.result[].values[] is [seconds, "value"]."""
    import json  # as above

    try:
        document: Any = json.loads(text)
        series = document["data"]["result"]
        if len(series) != 1:
            raise _wrong(
                path, 0, f"it has {len(series):,} series: query one, as in sum(…) or with its labels"
            )
        name = ", ".join(f"{key}={value}" for key, value in series[0].get("metric", {}).items())
        return name or "Prometheus", [(float(t), float(value)) for t, value in series[0]["values"]]
    except MISFITS:
        raise _wrong(path, 0, "it is not an answer to a range query") from None


def _wrong(path: Path, number: int, reason: str) -> InputError:
    place = f"{path}:{number}" if number else str(path)
    return InputError(
        f"{printable(place)} can't be read as a series: {reason}", slug="bad-series", hint="see formats.md"
    )
