"""Call trees written by hand: nested tuples (frame, bytes, children…) become columns."""

from __future__ import annotations

from typing import Any, Optional

from gdbmem.model.calltree import PRUNED, ROOT, CallTree, Frame, Snapshot, Totals

PRUNED_NODE = "below threshold"


def at(function: Optional[str], place: Optional[str] = None, *, inlined: bool = False) -> Frame:
    """``at("f", "a.cpp:10")`` or ``at("f", "libx.so")``."""
    if place is None:
        return Frame(function, inlined=inlined)
    file, colon, line = place.rpartition(":")
    if not colon:
        return Frame(function, object=place, inlined=inlined)
    return Frame(function, file, int(line), inlined=inlined)


def tree(
    total_bytes: int, *children: Any, threshold_bytes: int = 0, blocks: Optional[list[int]] = None
) -> CallTree:
    """Return the tree whose root holds *children*, each (frame or PRUNED_NODE, bytes, *children)."""
    frames: list[Frame] = []
    columns: tuple[list[int], list[int], list[int]] = ([-1], [ROOT], [total_bytes])
    places = []

    def add(parent: int, node: Any) -> None:
        frame, size_bytes, *below = node
        number = len(columns[0])
        columns[0].append(parent)
        if frame == PRUNED_NODE:
            columns[1].append(PRUNED)
            places.append(1)
        else:
            frames.append(frame)
            columns[1].append(len(frames) - 1)
        columns[2].append(size_bytes)
        for child in below:
            add(number, child)

    for child in children:
        add(0, child)
    result = CallTree(frames, *columns, blocks=blocks, places=places, threshold_bytes=threshold_bytes)
    result.check()
    return result


def snapshot(call_tree: CallTree, name: str = "here", source: str = "") -> Snapshot:
    totals = Totals(0, 0, call_tree.bytes[0], 0, 0, True, name)
    return Snapshot(source or f"{name}.ms", name, totals, call_tree)
