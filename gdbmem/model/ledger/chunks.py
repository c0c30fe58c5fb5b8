"""Single chunks of a heap, and malloc's lists of free ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gdbmem.records import dataclass

# States of a chunk.
IN_USE, FREE, IN_TCACHE, IN_FASTBIN = "in use", "free", "tcache", "fastbin"
TOP, MMAPPED, BROKEN = "top", "mmapped", "broken"
HEADER = 16  # from a chunk's address to the memory that the program has of it

# Kinds of lists, as malloc's own source calls them.
TCACHE, FASTBIN, UNSORTED, SMALL, LARGE = "tcache", "fastbin", "unsorted", "small", "large"


@dataclass(frozen=True)
class Chunk:
    """One chunk; *size* is in bytes, header included, and 0 if the size word can't be."""

    address: int  # of its header
    size: int
    head: int  # the size word as it stands, flags included
    state: str
    where: str = ""  # of a free one: the list that it is in; "" if no list leads to it
    class_name: str = ""  # mangled, of an object with virtual functions

    @property
    def memory(self) -> int:
        """The address that the program has of it."""
        return self.address + HEADER


@dataclass(frozen=True)
class Pointer:
    """A word that points into a chunk."""

    address: int
    value: int
    place: str  # a variable, a stack, another chunk
    class_name: str = ""  # mangled, of the object that the word stands in


@dataclass(frozen=True)
class ChunkView:
    """The chunk that contains an address, and its neighbours."""

    asked: int
    home: str  # the arena, as people call it
    chunk: Chunk
    before: Sequence[Chunk]  # none or one
    after: Sequence[Chunk]
    faults: Sequence[str]  # what of it and its neighbours contradicts the rest of the heap
    data: str  # the first bytes of the program's memory, hexadecimal
    pointers: Sequence[Pointer] = ()  # the first ones
    pointer_count: int = 0

    def class_names(self) -> Iterable[str]:
        """Yield the mangled names of all classes in it."""
        for chunk in (*self.before, self.chunk, *self.after):
            if chunk.class_name:
                yield chunk.class_name
        yield from (pointer.class_name for pointer in self.pointers if pointer.class_name)


@dataclass(frozen=True)
class FreeList:
    """One list of free chunks; sizes are in bytes, header included, and 0 for an empty one."""

    kind: str
    number: int  # counted as malloc does: from 0 in tcaches and fastbins, from 1 in bins
    low: int  # the smallest chunk in it
    high: int
    count: int
    bytes: int
    fault: str = ""  # where it contradicts itself; what was counted stands before that


@dataclass(frozen=True)
class ThreadLists:
    """The tcache of one thread."""

    tid: int
    lists: Sequence[FreeList]


@dataclass(frozen=True)
class ArenaLists:
    """The lists of one arena that aren't empty, and its top."""

    number: int
    address: int
    top: int
    top_bytes: int
    lists: Sequence[FreeList]
    faults: Sequence[str] = ()  # contradictions in this arena, of whatever kind


@dataclass(frozen=True)
class FreeLists:
    """All of malloc's lists."""

    tcaches: Sequence[ThreadLists]
    arenas: Sequence[ArenaLists]
