"""Roots of references to Python's objects other than modules: frames, variables of files, stacks, other memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from gdbmem.allocators.cpython.frames import LocatedFrame, find_frames
from gdbmem.allocators.cpython.references import Root
from gdbmem.analysis.ledger.ledger import ProcessImage
from gdbmem.linux.memory.maps import Mapping, mapping_at
from gdbmem.linux.memory.pages import Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable
from gdbmem.model.python import ROOT_FRAME, ROOT_MEMORY, ROOT_STACK, ROOT_VARIABLES
from gdbmem.records import dataclass

_MOST_BYTES = 1 << 31  # most bytes of other memory that are searched


@dataclass(frozen=True)
class KindOfRoot:
    """Roots that are followed together."""

    kind: str
    roots: Sequence[Root]


def frames_of(memory: Memory, mappings: Sequence[Mapping]) -> list[LocatedFrame]:
    """Return the frames of all threads, the innermost of each first; none if they can't be read."""
    reader = find_frames(memory, mappings)
    if reader is None or reader.is_free_threaded:
        return []
    try:
        return list(reader.located(memory))
    except MemoryUnreadable:
        return []


def frame_title(frame: LocatedFrame) -> str:
    call = frame.call
    place = f"{PurePath(call.file).name}:{call.line}" if call.line is not None else PurePath(call.file).name
    return f"{call.function}() at {place}"


def other_roots(reading: ProcessImage, frames: Sequence[LocatedFrame], taken: Ranges) -> list[KindOfRoot]:
    """Return the roots other than modules, in the order in which they are followed; *taken*: memory with blocks."""
    inner = [Root(frame_title(one), [(one.locals_at, one.end)]) for one in frames if one.locals_at]
    variables: dict[str, list[tuple[int, int]]] = {}
    mapped = Ranges((m.start, m.end) for m in reading.mappings if m.permissions.startswith("rw"))
    for image in reading.images:
        areas = [piece for area in image.writable for piece in mapped.overlaps(*area)]
        variables.setdefault(PurePath(image.name).name, []).extend(areas)
    stacks = list(_stacks(reading))
    known = [*taken.items, *(area for areas in variables.values() for area in areas)]
    known += [(one.locals_at, one.end) for one in frames if one.locals_at]
    known += [area for one in stacks for area in one.areas]
    return [
        KindOfRoot(ROOT_FRAME, inner),
        KindOfRoot(ROOT_VARIABLES, [Root(name, areas) for name, areas in variables.items()]),
        KindOfRoot(ROOT_STACK, stacks),
        KindOfRoot(ROOT_MEMORY, [Root("", _rest(reading, Ranges(known)))]),
    ]


def _stacks(reading: ProcessImage) -> Iterator[Root]:
    """Yield the used part of each thread's stack."""
    for thread in reading.threads:
        area = mapping_at(reading.mappings, thread.stack_pointer)
        if area is not None and area.permissions[1] == "w":
            yield Root(str(thread.tid), [(thread.stack_pointer & ~7, area.end)])


def _rest(reading: ProcessImage, known: Ranges) -> list[tuple[int, int]]:
    """Return resident anonymous memory that is not *known*, up to a limit."""
    areas: list[tuple[int, int]] = []
    left = _MOST_BYTES
    for mapping in reading.mappings:
        is_private = mapping.permissions.startswith("rw") and mapping.permissions[3] == "p"
        if not mapping.is_anonymous or not is_private:
            continue
        for start, end in known.gaps(mapping.start, mapping.end):
            for low, high in reading.resident.overlaps(start, end):
                if high - low <= left:
                    areas.append((low, high))
                    left -= high - low
    return areas
