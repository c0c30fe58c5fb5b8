"""V8's heap snapshots (.heapsnapshot), by constructor, and its sampled allocations (.heapprofile).

Source of the formats: the meta data of each snapshot, and the DevTools protocol, HeapProfiler.SamplingHeapProfile.
Objects are grouped as the summary of the DevTools groups them.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from gdbmem.arrays import import_numpy
from gdbmem.errors import InputError, Notice
from gdbmem.files import Data, JsonObject
from gdbmem.formats.json_profiles import read_json_profile
from gdbmem.formats.stacks import (
    IN_USE,
    Content,
    Singles,
    Stack,
    StackProfile,
    check_count,
    choose_metric,
    make_profile,
)
from gdbmem.json_values import MISFITS
from gdbmem.model.calltree import Frame
from gdbmem.text import printable

_META_BYTES = 1 << 16
_STEP_BYTES = 4 << 20  # of the list of nodes that is read at once
_NODES = re.compile(rb'"nodes"\s*:\s*\[')
_STRINGS = re.compile(rb'"strings"\s*:\s*\[')
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_LARGEST_NUMBER = 1 << 53  # of JavaScript's whole numbers
_GROUPS = {
    "hidden": "(system)",
    "code": "(compiled code)",
    "closure": "Function",
    "regexp": "RegExp",
}
_NAME_BITS = 40
_BY_NAME = ("object", "native")


class _Layout(NamedTuple):
    """Which number of a node is what."""

    width: int
    type: int
    name: int
    size: int
    types: Sequence[str]
    nodes: int

    @property
    def has_names(self) -> list[bool]:
        """Whether the objects of each type are told apart by name; a string's name is its text."""
        return [name in _BY_NAME for name in self.types]


def read_heapsnapshot(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*; its edges are not looked at. Raises InputError if it was cut, or is damaged."""
    chosen = choose_metric(metric, (IN_USE,), source)
    start = _NODES.search(data, 0, _META_BYTES)
    try:
        layout = _layout(bytes(data[: start.start()])) if start is not None else None
    except MISFITS:
        layout = None
    if start is None or layout is None:
        raise _damaged(source, "the description of its nodes")
    end = data.find(b"]", start.end())
    sums, count = _sums(data, start.end(), end, layout, source)
    if end < 0 or count != layout.nodes:
        raise _damaged(source, f"all of its {layout.nodes:,} nodes")
    names = _strings(data, end, {name for kind, name in sums if layout.has_names[kind]}, source)
    numbers: dict[str, int] = {}
    totals: dict[int, list[int]] = {}
    for (kind, name), (size, blocks) in sums.items():
        type_name = layout.types[kind]
        group = (
            names[name].replace(" / ", ": ")
            if type_name in _BY_NAME
            else _GROUPS.get(type_name, f"({type_name})")
        )
        total = totals.setdefault(numbers.setdefault(group, len(numbers)), [0, 0])
        total[0] += size
        total[1] += blocks
    stacks = [
        Stack((number,), check_count(size, source), blocks) for number, (size, blocks) in totals.items()
    ]
    content = Content(stacks, Singles([Frame(file=name) for name in numbers]))
    return make_profile(content, source, "heapsnapshot", chosen, (IN_USE,))


def _layout(head: bytes) -> _Layout:
    snapshot: Any = json.loads(head.rstrip().rstrip(b",") + b"}")["snapshot"]
    fields, types = snapshot["meta"]["node_fields"], snapshot["meta"]["node_types"][0]
    kind, name, size = (fields.index(key) for key in ("type", "name", "self_size"))
    return _Layout(len(fields), kind, name, size, [str(one) for one in types], int(snapshot["node_count"]))


def _sums(
    data: Data, start: int, end: int, layout: _Layout, source: str
) -> tuple[Mapping[tuple[int, int], tuple[int, int]], int]:
    """Return bytes and number of the nodes of each type and name, and how many nodes there are."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    count = 0
    np = import_numpy()
    rest: Any = np.zeros(0, np.int64)
    for part in _parts(data, start, end):
        if part.translate(None, b"0123456789, \r\n\t"):
            raise _damaged(source, "a list of numbers")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # numpy before 2.3 warns, and leaves out what follows
                numbers = np.concatenate((rest, np.fromstring(part, np.int64, sep=",")))
        except OverflowError:
            raise _damaged(source, "sizes that are possible") from None
        except (ValueError, DeprecationWarning):
            raise _damaged(source, "a list of numbers") from None
        if len(numbers) and not 0 <= numbers.max() < _LARGEST_NUMBER:
            raise _damaged(source, "sizes that are possible")
        whole = len(numbers) // layout.width * layout.width
        rest = numbers[whole:]
        count += whole // layout.width
        for key, (size, blocks) in _grouped(numbers[:whole], layout):
            if not 0 <= key[0] < len(layout.types) or size < 0:
                raise _damaged(source, "nodes of known types")
            before = found.get(key, (0, 0))
            found[key] = before[0] + size, before[1] + blocks
    if len(rest):
        raise _damaged(source, "whole nodes")
    return found, count


def _parts(data: Data, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        stop = min(start + _STEP_BYTES, end)
        if stop < end:
            stop = data.find(b",", stop, end)
            stop = end if stop < 0 else stop
        yield bytes(data[start:stop])
        start = stop + 1


def _grouped(numbers: Any, layout: _Layout) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield type and name (0: that of all of the type) of nodes with bytes and number, each once."""
    np = import_numpy()
    if not len(numbers):
        return
    types, names, sizes = (numbers[at :: layout.width] for at in (layout.type, layout.name, layout.size))
    keys = types << _NAME_BITS | np.where(np.take(layout.has_names, types, mode="clip"), names, 0)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    totals = np.add.reduceat(sizes[order], starts)
    counts = np.diff(np.append(starts, len(keys)))
    for key, size, count in zip(keys[starts].tolist(), totals.tolist(), counts.tolist()):
        yield (key >> _NAME_BITS, key & (1 << _NAME_BITS) - 1), (size, count)


def _strings(data: Data, start: int, wanted: set[int], source: str) -> Mapping[int, str]:
    """Return those of the file's strings whose numbers are *wanted*."""
    begin = _STRINGS.search(data, start)
    found: dict[int, str] = {}
    last = max(wanted, default=-1)
    at = begin.end() if begin is not None else len(data)
    for number, text in enumerate(_STRING.finditer(data, at)):
        if number in wanted:
            try:
                found[number] = json.loads(text[0].decode("utf-8", "surrogateescape"), strict=False)
            except ValueError:
                raise _damaged(source, f"string {number:,}") from None
        if number >= last:
            break
    if len(found) != len(wanted) or not bytes(data[-64:]).rstrip().endswith(b"}"):
        raise _damaged(source, "all of its strings")
    return found


def _damaged(source: str, what: str) -> InputError:
    return InputError(
        f"{printable(source)} is not a whole heap snapshot of V8: it lacks {what}",
        slug="profile-truncated",
        hint="V8 writes the names of objects at the end: was the file cut, or is it still being written?",
    )


def read_heapprofile(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*: estimates of what is in use, by call path. Raises InputError if it was cut."""
    return read_json_profile(
        data,
        source,
        lambda found: _sampled(found, source, metric),
        wanted="a heap profile of V8",
        if_cut="was it cut when it was written, or copied?",
    )


def _sampled(document: JsonObject, source: str, metric: Optional[str]) -> StackProfile:
    frames: dict[Frame, int] = {}
    stacks: list[Stack] = []
    left: list[tuple[Any, tuple[int, ...]]] = [(document["head"], ())]
    while left:
        node, path = left.pop()
        frame = _call(node["callFrame"])
        if frame is not None:
            path = (frames.setdefault(frame, len(frames)), *path)
        size = node["selfSize"]
        if not isinstance(size, (int, float)):
            raise TypeError
        if size:
            stacks.append(Stack(path, check_count(round(size), source)))
        left += [(child, path) for child in node["children"]]
    text = f"{printable(source)} is sampled: its sizes are estimates by V8, and it does not say how good they are"
    content = Content(stacks, Singles(list(frames)), has_blocks=False)
    notices = [Notice("sampled-by-v8", text)]
    return make_profile(content, source, "heapprofile", metric, (IN_USE,), notices=notices)


def _call(call: Any) -> Optional[Frame]:
    name, url, line = str(call["functionName"]), str(call["url"]), call["lineNumber"]
    if name == "(root)":
        return None
    file = url[len("file://") :] if url.startswith("file:///") else url
    return Frame(
        name or "(anonymous)",
        file or None,
        line + 1 if isinstance(line, int) and line >= 0 and file else None,
    )
