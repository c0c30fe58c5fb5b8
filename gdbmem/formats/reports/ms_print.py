"""The text that ms_print makes of a massif file, turned into such a file again.

ms_print cuts a function's name at '#'. Source of the format: valgrind, massif/ms_print.in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.valgrind.massif import MassifProfile, read_massif
from gdbmem.model.calltree import BYTES_MISSING
from gdbmem.text import printable

_HEAD = re.compile(rb"(Command|Massif arguments): *([^\n]*?)\r?\n")
_COUNT = re.compile(rb"Number of snapshots: ([0-9]+)")
_PEAK = re.compile(rb" Detailed snapshots: \[[^]\n]*?([0-9]+) \(peak\)")
_UNIT = re.compile(rb" +n +time\((\w+)\) +total\(B\) ")
_ROW = re.compile(rb" *([0-9]+)" + rb" +([0-9,]{1,26})" * 5 + rb"\r?")
_NODE = re.compile(rb"((?:\| |  )*)(->)?[0-9.]+% \(([0-9,]{1,26})B\) ([^\r\n]+)\r?")
_BELOW = re.compile(rb"in ([0-9]+)\+? places?, all below ms_print's threshold \(([0-9.]+)%\)")


class _Node(NamedTuple):
    depth: int
    size: int
    text: bytes


class _Snapshot(NamedTuple):
    number: int
    time: int
    sizes: Sequence[int]  # useful heap, extra heap, stacks
    nodes: list[_Node]


def read_ms_print(data: Data, source: str, notices: Sequence[Notice]) -> MassifProfile:
    """Read *data*; a call tree that was cut is left out. Raises InputError if it has no snapshot."""
    content = bytes(data)
    head = dict(_HEAD.findall(content[: 1 << 16]))
    unit, count, peak = _UNIT.search(content), _COUNT.search(content), _PEAK.search(content)
    snapshots, is_cut = _snapshots(content, source)
    if not snapshots or unit is None:
        raise InputError(
            f"{printable(source)} has no table of snapshots that is whole",
            slug="massif-truncated",
            hint="the file that ms_print read has all of them",
        )
    notes = [*notices]
    if is_cut or count is None or len(snapshots) < int(count[1]):
        last = snapshots[-1]
        tree = ", whose call tree is left out" if is_cut else ""
        notes.append(
            Notice(BYTES_MISSING, f"{printable(source)} was truncated after snapshot {last.number}{tree}")
        )
    text = b"desc: %s\ncmd: %s\ntime_unit: %s\n" % (
        head.get(b"Massif arguments", b"(none)"),
        head.get(b"Command", b""),
        unit[1],
    )
    marked = int(peak[1]) if peak is not None else -1
    profile = read_massif(text + b"".join(_massif_lines(snapshots, marked)), source, notes)
    profile.source_format = "ms_print"
    return profile


def _snapshots(data: bytes, source: str) -> tuple[list[_Snapshot], bool]:
    """Return the snapshots in *data*, and whether the last one's call tree was cut, and so left out."""
    found: list[_Snapshot] = []
    lines = data.split(b"\n")
    tail = lines.pop()  # not whole, unless it is a row that adds up
    last = b""
    for number, line in enumerate([*lines, tail] if _ROW.fullmatch(tail) else lines, 1):
        row = _ROW.fullmatch(line)
        node = None if row or not found else _NODE.fullmatch(line)
        if row is not None:
            index, time, total, *sizes = (int(cell.replace(b",", b"")) for cell in row.groups())
            if total == sum(sizes) and index == len(found):
                found.append(_Snapshot(index, time, sizes, []))
            elif number <= len(lines):
                raise InputError(
                    f"{printable(source)}:{number}: snapshot {index} doesn't add up, or isn't the next one",
                    slug="totals-differ",
                    hint="was the text edited?",
                )
        elif node is not None:
            found[-1].nodes.append(
                _Node(len(node[1]) // 2 + 1 if node[2] else 0, int(node[3].replace(b",", b"")), node[4])
            )
        last = line
    if (
        found
        and found[-1].nodes
        and (_NODE.fullmatch(last) or _NODE.match(tail) or not _adds_up(found[-1].nodes))
    ):
        found[-1].nodes.clear()
        return found, True
    return found, False


def _adds_up(nodes: Sequence[_Node]) -> bool:
    return all(below in (0, node.size) for node, (_, below) in zip(nodes, _below(nodes)))


def _below(nodes: Sequence[_Node]) -> Sequence[tuple[int, int]]:
    """Return the number of the children of each node, and their bytes."""
    counts, sums = [0] * len(nodes), [0] * len(nodes)
    path: list[int] = []
    for at, node in enumerate(nodes):
        del path[node.depth :]
        if path:
            counts[path[-1]] += 1
            sums[path[-1]] += node.size
        path.append(at)
    return list(zip(counts, sums))


def _massif_lines(snapshots: Sequence[_Snapshot], peak: int) -> Iterator[bytes]:
    for one in snapshots:
        kind = b"empty" if not one.nodes else b"peak" if one.number == peak else b"detailed"
        yield b"#-----------\nsnapshot=%d\n#-----------\ntime=%d\n" % (one.number, one.time)
        heap, extra, stacks = one.sizes
        yield b"mem_heap_B=%d\nmem_heap_extra_B=%d\nmem_stacks_B=%d\n" % (heap, extra, stacks)
        yield b"heap_tree=%s\n" % kind
        for node, (count, _) in zip(one.nodes, _below(one.nodes)):
            below = _BELOW.fullmatch(node.text)
            text = (
                b"in %s places, all below massif's threshold (%s%%)" % below.groups() if below else node.text
            )
            if text.count(b"{") > text.count(b"}"):  # the place stood behind the '#'
                text += b" (in ???)"
            yield b"%sn%d: %d %s\n" % (b" " * node.depth, count, node.size, text)
