"""Calls that valgrind had no names for, ``0x39161B`` in a program: named through gdb where its symbols are here."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from gdbmem.errors import Notice
from gdbmem.formats.addresses import Binary, Symbols, written
from gdbmem.model.profiles.calltree import CallTree, Frame, Frames
from gdbmem.patterns import lazy_pattern
from gdbmem.records import replace

_ADDRESS = lazy_pattern(r"0x[0-9A-Fa-f]{1,16}")


def with_names(tree: CallTree, symbols: Symbols, source: str) -> tuple[CallTree, Sequence[Notice]]:
    """Return *tree* of the file *source* with the names of *symbols*, and notices.

    A call with others inlined around it becomes as many nodes.
    """
    frames = Frames.of(tree.frames)
    places = _nameless(frames)
    wanted: dict[str, set[int]] = {}
    for path, address in places.values():
        wanted.setdefault(path, set()).add(address)
    chains, notices = _of_unloaded(frames, symbols, written(source))
    if wanted:
        found, said = symbols.frames_under_valgrind(wanted, recorded=written(source))
        chains.update({number: found[place] for number, place in places.items() if place in found})
        notices = [*notices, *said]
    return (_expanded(tree, chains) if chains else tree), notices


def _of_unloaded(
    frames: Frames, symbols: Symbols, recorded: float
) -> tuple[dict[int, Sequence[Frame]], Sequence[Notice]]:
    """Return the frames of addresses in files that had been unloaded, of which massif knows no file."""
    places: dict[int, tuple[Binary, int]] = {}
    for number, function in enumerate(frames.functions):
        if function is None or frames.objects[number] is not None or not _ADDRESS.fullmatch(function):
            continue
        place = symbols.unloaded(int(function, 16))
        if place is not None:
            places[number] = place
    if not places:
        return {}, ()
    wanted: dict[Binary, set[int]] = {}
    for binary, offset in places.values():
        wanted.setdefault(binary, set()).add(offset)
    found, notices = symbols.frames(wanted, recorded=recorded, are_calls=True)
    return {number: found[place] for number, place in places.items() if place in found}, notices


def _nameless(frames: Frames) -> dict[int, tuple[str, int]]:
    """Return the file and the address of each frame that has nothing else."""
    places = {}
    for number in [number for number, file in enumerate(frames.files) if file is None]:
        function, path = frames.functions[number], frames.objects[number]
        if (
            function is not None
            and _ADDRESS.fullmatch(function)
            and path is not None
            and path.startswith("/")
        ):
            places[number] = path, int(function, 16)
    return places


def _expanded(tree: CallTree, chains: Mapping[int, Sequence[Frame]]) -> CallTree:
    numbers: dict[Frame, int] = {}
    of_frame = [
        [numbers.setdefault(one, len(numbers)) for one in chains.get(number, (frame,))]
        for number, frame in enumerate(tree.frames)
    ]
    parent, column, last = array("q"), array("q"), array("q")  # the last node that each one has become
    origin = array("q")
    for node, (above, frame) in enumerate(zip(tree.parent, tree.frame)):
        for at, number in enumerate(of_frame[frame] if frame >= 0 else [frame]):
            parent.append(len(parent) - 1 if at else last[above] if node else -1)
            column.append(number)
            origin.append(node)
        last.append(len(parent) - 1)
    variance = None
    if tree.variance is not None:
        variance = [0.0] * len(parent)
        for node, place in enumerate(last):
            variance[place] = tree.variance[node]
    return replace(
        tree,
        frames=tuple(numbers),
        parent=parent,
        frame=column,
        bytes=array("q", map(tree.bytes.__getitem__, origin)),
        blocks=None if tree.blocks is None else array("q", map(tree.blocks.__getitem__, origin)),
        address=None if tree.address is None else array("Q", map(tree.address.__getitem__, origin)),
        variance=variance,
        ends=None,  # two siblings may have got one name
    )
