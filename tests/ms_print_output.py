"""The output of ms_print for a massif file, parsed: the oracle for our own reader."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gdbmem.model.calltree import PRUNED, ROOT, CallTree, Frame, Profile

_ROW = re.compile(r" *(\d+) +([\d,.]+) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+)")
_NODE = re.compile(r"((?:\| |  )*)(->)?\d+\.\d+% \(([\d,]+)B\) ?(.*)")


class Node(NamedTuple):
    depth: int
    bytes: int
    text: str  # without the address, cut at '#' as ms_print does


class Snapshot(NamedTuple):
    totals: tuple[int, ...]  # time, total, heap, extra, stacks
    nodes: list[Node]


def read_output(output: bytes) -> list[Snapshot]:
    """Return the snapshots in what ``ms_print --threshold=0`` printed."""
    snapshots: list[Snapshot] = []
    lines = output.decode("utf-8", "surrogateescape").split("\n")
    start = next(n for n, line in enumerate(lines) if line.startswith(" Detailed snapshots:"))
    for line in lines[start:]:
        if row := _ROW.fullmatch(line):
            snapshots.append(Snapshot(tuple(_number(cell) for cell in row.groups()[1:]), []))
        elif node := _NODE.fullmatch(line):
            depth = len(node[1]) // 2 + 1 if node[2] else 0
            text = re.sub(r"^0x[0-9A-F]+: ", "", node[4])
            text = re.sub(r" \(in \?\?\?\)$", "", text)  # means the same as its absence, which occurs as well
            text = re.sub(r"^in (\d+) places?,.*", r"\1 places", text)
            snapshots[-1].nodes.append(Node(depth, _number(node[3]), text))
    return snapshots


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def from_profile(profile: Profile) -> Iterator[Snapshot]:
    """Yield what ms_print would print, from our own reading."""
    for index, totals in enumerate(profile.snapshots):
        assert totals.time == int(totals.time)
        numbers = (totals.heap_bytes, totals.extra_bytes, totals.stacks_bytes)
        tree = profile.tree(index)
        yield Snapshot((int(totals.time), totals.total_bytes, *numbers), _nodes(tree) if tree else [])


def _nodes(tree: CallTree) -> list[Node]:
    places = iter(tree.places)
    nodes = []
    for node, depth in tree.walk():
        if tree.frame[node] == PRUNED:
            text = f"{next(places)} places"
        else:
            frame = tree.frame_of(node)
            text = "" if frame is None else show_frame(frame)
            assert (frame is None) == (tree.frame[node] == ROOT)
        nodes.append(Node(depth, tree.bytes[node], text))
    return nodes


def show_frame(frame: Frame) -> str:
    """Return *frame* as massif writes it."""
    if frame.file is None:
        return ("???" if frame.is_nameless else frame.function or "") + (
            f" (in {frame.object})" if frame.object else ""
        )
    return f"{frame.function or '???'} ({frame.file}:{frame.line})"


def assert_same(profile: Profile, output: bytes) -> None:
    """Hold *profile* to what ms_print printed about the same file: every number, every name."""
    theirs = read_output(output)
    ours = list(from_profile(profile))
    assert [s.totals for s in ours] == [s.totals for s in theirs]
    for index, (our, their) in enumerate(zip(ours, theirs)):
        assert [n[:2] for n in our.nodes] == [n[:2] for n in their.nodes], f"snapshot {index}"
        for mine, other in zip(our.nodes[1:], their.nodes[1:]):
            # ms_print takes the text after a '#' for a comment.
            assert mine.text.split("#")[0] == other.text, f"snapshot {index}"
