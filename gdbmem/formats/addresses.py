"""Raw addresses in a profile: the file of each, and its frames."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional, Protocol

from gdbmem.errors import Notice
from gdbmem.model.calltree import CallTree, Frame, Frames
from gdbmem.text import plural, printable

# start-end perms offset dev inode path, as /proc/PID/maps has it
_MAPS_LINE = (
    rb"\s*([0-9a-f]{1,16})-([0-9a-f]{1,16}):? +([-rwxsp]{4}) +([0-9a-f]{1,16}) +\S+ +(\d{1,20}) *(.*?)\s*$"
)
# older gperftools: start-end: path (@offset) build-id
_BRIEF_LINE = rb"\s*([0-9a-f]{1,16})-([0-9a-f]{1,16}): +(\S.*?)(?: \(@([0-9a-f]+)\))?(?: ([0-9a-f]{8,}))?\s*$"
_BUILD_LINE = rb"\s*build=(.*?)\s*$"


class Binary(NamedTuple):
    """A program or library file that code was mapped from."""

    path: str
    build_id: str = ""  # hexadecimal; "" if the profile lacks it
    inode: int = 0  # of the mapped file; 0 if the profile lacks it
    was_deleted: bool = False  # or replaced, while it was mapped
    code: tuple[int, int] = (0, 0)  # offset in the file and size of what was mapped; (0, 0): unknown


class MappedRegion(NamedTuple):
    """Executable memory that was mapped from a file."""

    start: int
    end: int
    offset: int  # of start in the file
    binary: Binary


class Symbols(Protocol):
    """The interface that turns places in binaries into frames; a class derived from it needs no more than `frames`."""

    def frames(
        self, wanted: Mapping[Binary, Iterable[int]], *, recorded: float = 0.0, are_calls: bool = False
    ) -> tuple[Mapping[tuple[Binary, int], Sequence[Frame]], Sequence[Notice]]:
        """Return the frames, innermost first, of file offsets in binaries; what is unknown is left out.

        *recorded* is when the profile was written, in seconds since 1970; 0: unknown. *are_calls*: each offset is that
        of the last byte of a call, which tells whether a file is the one that was profiled.
        """

    def frames_under_valgrind(
        self, wanted: Mapping[str, Iterable[int]], *, recorded: float = 0.0
    ) -> tuple[Mapping[tuple[str, int], Sequence[Frame]], Sequence[Notice]]:
        """Return the frames of addresses of calls in programs that ran under valgrind; what is unknown is left out.

        Programs that are missing, different or without symbols are ignored.
        """
        return {}, ()

    def prepare(self, wanted: Mapping[Binary, Iterable[int]]) -> None:
        """Look up together what several profiles will want one by one."""
        return

    def look_in(self, folder: str) -> None:
        """Search *folder*, too, for binaries that are not at the path in the profile."""
        return

    def note_loaded(self, lines: Iterable[bytes]) -> None:
        """Take note of mappings, as lines of /proc/PID/maps, which may be gone when a profile is written."""
        return

    def unloaded(self, address: int) -> Optional[tuple[Binary, int]]:
        """Return what was mapped at *address* before the memory map was written; None: nothing, or it is not sure."""
        return None


class MemoryMap:
    """The executable regions of one process."""

    def __init__(self, regions: Iterable[MappedRegion]) -> None:
        self.regions = sorted(regions)
        self._starts = [region.start for region in self.regions]

    def find(self, address: int) -> Optional[tuple[Binary, int]]:
        """Return the binary that *address* lies in, and where in that file; None if it lies in none."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address >= self.regions[at].end:
            return None
        region = self.regions[at]
        return region.binary, address - region.start + region.offset


class Unloaded:
    """Mappings that were there once: one address may have belonged to several files."""

    def __init__(self) -> None:
        self._maps: list[MemoryMap] = []

    def add(self, lines: Iterable[bytes]) -> None:
        """Take note of the mappings that *lines* list."""
        self._maps += [MemoryMap([region]) for region in dict.fromkeys(parse_maps(lines).regions)]

    def find(self, address: int) -> Optional[tuple[Binary, int]]:
        """Return the only binary that *address* lay in, and where; None if there was none, or several."""
        found = {place for one in self._maps if (place := one.find(address)) is not None}
        return found.pop() if len(found) == 1 else None


def parse_maps(lines: Iterable[bytes]) -> MemoryMap:
    """Return the executable regions that *lines* list; other lines are ignored."""
    regions, build = [], b""
    for line in lines:
        substitution = re.match(_BUILD_LINE, line)
        if substitution:
            build = substitution[1]
            continue
        region = _region(line.replace(b"$build", build))
        if region is not None:
            regions.append(region)
    return MemoryMap(regions)


def _region(line: bytes) -> Optional[MappedRegion]:
    match = re.match(_MAPS_LINE, line)
    if match:
        if b"x" not in match[3] or not match[6]:
            return None
        name = match[6].decode("utf-8", "surrogateescape")
        path = name.removesuffix(" (deleted)")
        start, end, offset = (int(match[group], 16) for group in (1, 2, 4))
        binary = Binary(path, "", int(match[5]), path != name, (offset, max(end - start, 0)))
        return MappedRegion(start, end, offset, binary)
    match = re.match(_BRIEF_LINE, line)
    if match:
        path, build_id = match[3].decode("utf-8", "surrogateescape"), (match[5] or b"").decode()
        return MappedRegion(
            int(match[1], 16), int(match[2], 16), int(match[4] or b"0", 16), Binary(path, build_id)
        )
    return None


def frames_of(
    addresses: Sequence[int], memory_map: MemoryMap, symbols: Optional[Symbols], source: str
) -> tuple[list[Sequence[Frame]], Sequence[Notice]]:
    """Return the chain of frames of each of *addresses*, and notices.

    They are return addresses: the call is one byte before. An address without a name is identified by its offset in its
    file, which is the same in each run. *source* is the profile's file.
    """
    places, wanted = _places(addresses, memory_map)
    if symbols is not None:
        for at in [at for at, place in enumerate(places) if place is None]:
            before = places[at] = symbols.unloaded(addresses[at] - 1)
            if before is not None:
                wanted.setdefault(before[0], set()).add(before[1])
    found: Mapping[tuple[Binary, int], Sequence[Frame]] = {}
    notices: Sequence[Notice] = ()
    if symbols is not None and wanted:
        found, notices = symbols.frames(wanted, recorded=written(source), are_calls=True)
    outside = sum(place is None for place in places)
    if outside:
        text = f"{plural(outside, 'address', 'addresses')} of {printable(source)} lie in no file of its memory map"
        notices = [*notices, Notice("addresses-outside", f"{text}, so they have no names")]
    chains: list[Sequence[Frame]] = []
    for address, place in zip(addresses, places):
        if place is None:
            chains.append((Frame(function=f"0x{address:x}"),))
        else:
            chains.append(found.get(place) or (Frame(function=f"0x{place[1]:x}", object=place[0].path),))
    return chains, notices


def wanted_of(addresses: Sequence[int], memory_map: MemoryMap) -> Mapping[Binary, set[int]]:
    """Return what frames_of() will ask of the Symbols."""
    return _places(addresses, memory_map)[1]


def _places(
    addresses: Sequence[int], memory_map: MemoryMap
) -> tuple[list[Optional[tuple[Binary, int]]], dict[Binary, set[int]]]:
    places = [memory_map.find(address - 1) for address in addresses]
    wanted: dict[Binary, set[int]] = {}
    for place in places:
        if place is not None:
            wanted.setdefault(place[0], set()).add(place[1])
    return places, wanted


def written(source: str) -> float:
    """Return when the file *source* was changed last, in seconds since 1970; 0: unknown."""
    try:
        return Path(source).stat().st_mtime
    except (OSError, ValueError):
        return 0.0


# Calls that valgrind had no names for, ``0x39161B`` in a program: named through gdb where its symbols are here.


_ADDRESS = re.compile(r"0x[0-9A-Fa-f]{1,16}")


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
    return tree.with_columns(
        frames=tuple(numbers),
        parent=parent,
        frame=column,
        bytes=array("q", map(tree.bytes.__getitem__, origin)),
        blocks=None if tree.blocks is None else array("q", map(tree.blocks.__getitem__, origin)),
        address=None if tree.address is None else array("Q", map(tree.address.__getitem__, origin)),
        variance=variance,
        ends=None,  # two siblings may have got one name
    )
