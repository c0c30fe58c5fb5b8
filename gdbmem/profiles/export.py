"""A snapshot or a diff in other tools' formats: folded stacks, speedscope, pprof, massif, CSV, Parquet, Arrow."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from operator import add, sub
from typing import Callable, NamedTuple, Optional

from gdbmem.errors import InputError, MissingToolError
from gdbmem.formats.protobuf_schema import DIFFERENCE, profile_message
from gdbmem.model.calltree import ALLOCATED_BYTES, PRUNED, Frame
from gdbmem.model.diff import Diff
from gdbmem.profiles.documents import diff_json
from gdbmem.profiles.own_code import function_name, has_place_only, short_file
from gdbmem.profiles.paths import Query, frame_text
from gdbmem.profiles.ranking import Amount, rank
from gdbmem.terminal.document import Document, trace_counter, trace_pid, trace_process, write_trace
from gdbmem.text import csv_cell, printable

TRACE = "perfetto"  # of a series only
PYROSCOPE = "pyroscope"  # to a server
COLUMNS = ("parquet", "arrow")  # tables of pyarrow
NAMES = ("folded", "speedscope", "pprof", "massif", "csv", *COLUMNS, "json")
NEGATIVE = ("pprof", "csv", *COLUMNS, "json")  # formats that support negative values
BINARY = ("pprof", *COLUMNS)
_HIDDEN = Frame(function="(not listed)")


class Path(NamedTuple):
    """One call path with its own bytes; frames run from the allocation site outward."""

    frames: Sequence[Frame]
    before_bytes: int
    after_bytes: int
    delta_blocks: Optional[int]
    node: int

    @property
    def delta_bytes(self) -> int:
        return self.after_bytes - self.before_bytes


def encode_for_server(diff: Diff, taken_at: float) -> bytes:
    """Return a snapshot of *taken_at*, seconds since 1970, as a pprof profile with what servers of profiles ask for."""
    return _pprof(diff, [path for path in _paths(diff) if path.delta_bytes], comment="", taken_at=taken_at)


def encode(diff: Diff, kind: str, *, is_change: bool) -> bytes:
    """Return *diff* (a snapshot: its growth from nothing) as *kind*, one of NAMES.

    Raises InputError if something shrank and the format has no negative values, and for an unknown *kind*;
    MissingToolError for COLUMNS without pyarrow.
    """
    if kind == "json":
        return diff_json(diff, Query(), is_change=is_change).encode()
    if kind not in NAMES:
        raise InputError(
            f"gdbmem writes no format '{printable(kind)}'",
            slug="format-unknown",
            hint=f"it writes {', '.join(NAMES)}",
        )
    paths = [path for path in _paths(diff) if path.delta_bytes or (is_change and path.before_bytes)]
    if kind not in NEGATIVE:
        shrank = sum(1 for path in paths if path.delta_bytes < 0)
        if shrank:
            raise InputError(
                f"{kind} can't hold what shrank, and {shrank} of the paths did",
                slug="export-negative",
                hint=f"export to {', '.join(NEGATIVE)}, or one snapshot alone",
            )
    if kind == "speedscope":
        names = [diff.before_side.name] if is_change else []
        return _speedscope(" to ".join([*names, diff.after_side.name]), paths)
    if kind in COLUMNS:
        return encode_columns(*_columns(diff, paths, is_change=is_change), kind)
    if kind == "pprof":
        return _pprof(diff, paths, comment=DIFFERENCE if is_change else "")
    writers: dict[str, Callable[[Diff, list[Path]], bytes]] = {
        "folded": _folded, "massif": _massif, "csv": _csv,
    }  # fmt: skip
    return writers[kind](diff, paths)


def encode_course(diff: Diff, seconds: Sequence[float], query: Query) -> bytes:
    """Return a series of snapshots as trace events: a counter for each row of *query*, one for what is left, the total.

    *seconds* are the times of the snapshots. At each of them the counters of the rows add up to the total.
    """
    ranking = rank(diff, query)
    total, sums = _course(ranking.total), {"(all other lines)": [0] * len(seconds)}
    for row in ranking.rows:
        name = printable(frame_text(row.site or row.frames[0])) if row.site or row.frames else "(not listed)"
        held = sums.setdefault(name, [0] * len(seconds))
        held[:] = map(add, held, _course(row.amount))
    listed = [sum(column) for column in zip(*sums.values())]
    sums["(all other lines)"] = list(map(sub, total, listed))
    stream = io.StringIO()
    write_trace(
        stream,
        {"target": printable(diff.after_side.command), "exporter": "gdbmem"},
        _events(sums, total, seconds),
    )
    return stream.getvalue().encode()


def _course(amount: Amount) -> Sequence[int]:
    return amount.course or (amount.before_bytes, amount.after_bytes)


def _events(
    sums: Mapping[str, Sequence[int]], total: Sequence[int], seconds: Sequence[float]
) -> Iterator[Document]:
    heap, lines = trace_pid(1), trace_pid(2)
    yield from trace_process(heap, "heap", 0)
    yield from trace_process(lines, "heap by line", 1)
    for at, second in enumerate(seconds):
        yield trace_counter(heap, "total_bytes", second, total[at])
        for name, course in sums.items():
            yield trace_counter(lines, name, second, course[at])


def _paths(diff: Diff) -> Iterator[Path]:
    before, after = diff.own(diff.before), diff.own(diff.after)
    blocks = diff.own_delta_blocks
    for node in range(len(diff)):
        if not before[node] and not after[node]:
            continue
        frames, at = [], node
        while at > 0:
            number = diff.frame[at]
            frames.append(_HIDDEN if number == PRUNED else diff.frames[number])
            at = diff.parent[at]
        frames.reverse()
        yield Path(frames, before[node], after[node], None if blocks is None else blocks[node], node)


def _name(frame: Frame) -> str:
    return frame.function or function_name(frame)


def _label(frame: Frame) -> str:
    name = _name(frame)
    if frame.file is not None:
        if frame.function is None and frame.line is None:
            return name  # a row of a table
        return f"{name} ({frame.file}:{frame.line or 0})"
    return f"{name} (in {frame.object})" if frame.object else name


def _safe(text: str) -> str:
    # One path per line, frames separated by semicolons; without control characters for a terminal.
    return printable(" ".join(text.replace(";", ":").split())) or "???"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _folded(diff: Diff, paths: list[Path]) -> bytes:
    sums: dict[str, int] = {}
    for path in paths:
        key = ";".join(_safe(_label(frame)) for frame in reversed(path.frames)) or "(no stack)"
        sums[key] = sums.get(key, 0) + path.delta_bytes
    return _bytes("".join(f"{key} {size}\n" for key, size in sums.items()))


def _speedscope(name: str, paths: list[Path]) -> bytes:
    index: dict[Frame, int] = {}
    samples = [[index.setdefault(frame, len(index)) for frame in reversed(path.frames)] for path in paths]
    frames = [
        {key: value for key, value in (("name", _name(f)), ("file", f.file), ("line", f.line)) if value}
        for f in index
    ]
    weights = [path.delta_bytes for path in paths]
    profile = {
        "type": "sampled", "name": name, "unit": "bytes", "startValue": 0, "endValue": sum(weights),
        "samples": samples, "weights": weights,
    }  # fmt: skip
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": frames},
        "profiles": [profile],
        "name": name,
        "activeProfileIndex": 0,
        "exporter": "gdbmem",
    }
    return _bytes(json.dumps(document) + "\n")


def _pprof(diff: Diff, paths: list[Path], *, comment: str, taken_at: float = 0.0) -> bytes:
    profile = profile_message()()
    strings: dict[str, int] = {"": 0}

    def text(value: Optional[str]) -> int:
        return strings.setdefault(value or "", len(strings))

    what = "alloc" if diff.unit == ALLOCATED_BYTES else "inuse"
    for kind, unit in ((f"{what}_objects", "count"), (f"{what}_space", "bytes")):
        profile.sample_type.add(type=text(kind), unit=text(unit))
    profile.default_sample_type = text(f"{what}_space")
    profile.comment.extend([text(comment)] if comment else [])
    if taken_at:
        profile.time_nanos = int(taken_at * 1e9)
        profile.period = 1
        profile.period_type.type, profile.period_type.unit = text("space"), text("bytes")
    functions: dict[tuple[Optional[str], Optional[str]], int] = {}
    locations: dict[Frame, int] = {}
    objects: dict[str, int] = {}
    for path in paths:
        for frame in path.frames:
            if frame in locations:
                continue
            if frame.object and frame.object not in objects:
                objects[frame.object] = len(objects) + 1
                profile.mapping.add(id=objects[frame.object], filename=text(frame.object), has_functions=True)
            # pprof shows the line itself.
            by_file = short_file(frame.file or "") if has_place_only(frame) else frame.object
            key = (frame.function or by_file, frame.file)
            if key not in functions:
                functions[key] = len(functions) + 1
                profile.function.add(id=functions[key], name=text(key[0] or "???"), filename=text(key[1]))
            locations[frame] = len(locations) + 1
            location = profile.location.add(
                id=locations[frame], mapping_id=objects.get(frame.object or "", 0)
            )
            location.line.add(function_id=functions[key], line=frame.line or 0)
        sample = profile.sample.add(location_id=[locations[frame] for frame in path.frames])
        sample.value.extend([path.delta_blocks or 0, path.delta_bytes])
    profile.string_table.extend(_bytes(value) for value in strings)
    return gzip.compress(profile.SerializeToString(), mtime=0)


def _csv(diff: Diff, paths: list[Path]) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        ["delta_bytes", "before_bytes", "after_bytes", "delta_blocks", "function", "file", "line", "stack"]
    )
    for path in sorted(paths, key=lambda path: -abs(path.delta_bytes)):
        first = path.frames[0] if path.frames else Frame()
        stack = "; ".join(_label(frame) for frame in path.frames)
        writer.writerow(
            [path.delta_bytes, path.before_bytes, path.after_bytes,
             "" if path.delta_blocks is None else path.delta_blocks,
             *map(_plain, (first.function or "", first.file or "")), first.line or "", _plain(stack)]
        )  # fmt: skip
    return _bytes(stream.getvalue())


def encode_columns(
    columns: Mapping[str, tuple[str, Sequence[object]]], metadata: Mapping[str, str], kind: str
) -> bytes:
    """Return a table as *kind*, one of COLUMNS; of each column the name of its type in pyarrow, and its values.

    Raises MissingToolError without pyarrow.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingToolError(
            f"{kind.capitalize()} is written by pyarrow, which is missing",
            slug="no-pyarrow",
            hint="pip install 'gdbmem[parquet]'",
        )
    import pyarrow as pa  # slow to import
    from pyarrow import feather, parquet

    types = {"list": pa.list_(pa.string()), "name": pa.dictionary(pa.int32(), pa.string())}
    arrays = [
        pa.array(values, types[name] if name in types else getattr(pa, name)())
        for name, values in columns.values()
    ]
    table = pa.table(arrays, names=list(columns))
    table = table.replace_schema_metadata({"exporter": "gdbmem", **metadata})
    stream = io.BytesIO()
    if kind == "arrow":
        feather.write_feather(table, stream, compression="zstd")  # version 2 is Arrow's file format
    else:
        parquet.write_table(table, stream, compression="zstd")
    return stream.getvalue()


def _columns(
    diff: Diff, paths: list[Path], *, is_change: bool
) -> tuple[dict[str, tuple[str, Sequence[object]]], dict[str, str]]:
    """Return the rows of a CSV with types, from the allocation site outward; null: unknown; and what is said of all.

    Of one snapshot nothing says how far sizes may be off by what the tool did not list.
    """
    paths = sorted(paths, key=lambda path: -abs(path.delta_bytes))
    firsts = [path.frames[0] if path.frames else Frame() for path in paths]
    known, variance = not diff.is_relative, diff.variance
    columns: dict[str, tuple[str, Sequence[object]]] = {
        "delta_bytes": ("int64", [path.delta_bytes for path in paths]),
        "before_bytes": ("int64", [path.before_bytes if known else None for path in paths]),
        "after_bytes": ("int64", [path.after_bytes if known else None for path in paths]),
        "delta_blocks": ("int64", [path.delta_blocks for path in paths]),
        "uncertain_bytes": ("int64", [diff.uncertain[path.node] if is_change else None for path in paths]),
        "standard_error_bytes": (
            "float64", [variance[path.node] ** 0.5 if variance is not None else None for path in paths]
        ),
        "function": ("string", [parquet_text(frame.function) for frame in firsts]),
        "file": ("string", [parquet_text(frame.file) for frame in firsts]),
        "line": ("int32", [frame.line for frame in firsts]),
        "object": ("string", [parquet_text(frame.object) for frame in firsts]),
        "stack": ("list", [[parquet_text(_label(frame)) for frame in path.frames] for path in paths]),
    }  # fmt: skip
    return columns, {"unit": diff.unit, "target": parquet_text(diff.after_side.command) or ""}


def parquet_text(text: Optional[str]) -> Optional[str]:
    """Return *text* for a column of Parquet, where bytes that are no UTF-8 would be refused; None for nothing."""
    return printable(text).encode("utf-8", "backslashreplace").decode() if text else None


def _plain(text: str) -> str:
    return printable(csv_cell(text))


def _massif(diff: Diff, paths: list[Path]) -> bytes:
    lines = [
        "desc: exported by gdbmem", f"cmd: {' '.join(diff.after_side.source.split())}", "time_unit: i",
        "#-----------", "snapshot=0", "#-----------", "time=0", f"mem_heap_B={diff.delta_bytes}",
        "mem_heap_extra_B=0", "mem_stacks_B=0", "heap_tree=detailed",
    ]  # fmt: skip
    children: dict[int, list[int]] = {}
    for node in range(1, len(diff)):
        if diff.after[node] - diff.before[node]:
            children.setdefault(diff.parent[node], []).append(node)
    stack = [(0, 0)]
    while stack:
        node, depth = stack.pop()
        below = sorted(children.get(node, ()), key=lambda n: diff.after[n] - diff.before[n])
        lines.append(
            f"{' ' * depth}n{len(below)}: {diff.after[node] - diff.before[node]} {_massif_text(diff, node)}"
        )
        stack += [(child, depth + 1) for child in below]
    return _bytes("\n".join(lines) + "\n")


def _massif_text(diff: Diff, node: int) -> str:
    if node == 0:
        return "(heap allocation functions) malloc/new/new[], --alloc-fns, etc."
    number = diff.frame[node]
    if number == PRUNED:
        return "in 1 place, below massif's threshold (0.00%)"
    frame = diff.frames[number]
    place = f"{frame.file}:{frame.line or 0}" if frame.file else f"in {frame.object or '???'}"
    return printable(" ".join(f"0x{number + 1:X}: {frame.function or '???'} ({place})".split()))
