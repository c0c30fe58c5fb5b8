"""Single chunks of a heap, and malloc's lists of free ones."""

from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

from gdbmem.errors import Notice
from gdbmem.json_values import Key

# States of a chunk.
IN_USE, FREE, IN_TCACHE, IN_FASTBIN = "in use", "free", "tcache", "fastbin"
TOP, MMAPPED, BROKEN = "top", "mmapped", "broken"
HEADER = 16  # from a chunk's address to the memory that the program has of it

# Kinds of lists, as malloc's own source calls them.
TCACHE, FASTBIN, UNSORTED, SMALL, LARGE = "tcache", "fastbin", "unsorted", "small", "large"


class Chunk(NamedTuple):
    """One chunk; *size* is in bytes, header included, and 0 if the size word can't be."""

    address: int  # of its header
    size: Annotated[int, Key("size_bytes", or_null=True)]
    head: Annotated[int, Key("size_word")]  # as it stands, flags included
    state: str
    # Of a free one: the list that it is in; "" if no list leads to it.
    where: Annotated[str, Key("list", or_null=True)] = ""
    class_name: str = ""  # mangled, of an object with virtual functions
    header: int = HEADER  # bytes; 0 in allocators whose blocks have none, nor a size word

    @property
    def memory(self) -> int:
        """The address that the program has of it."""
        return self.address + self.header


class Pointer(NamedTuple):
    """A word that points into a chunk."""

    address: int
    value: int
    place: str  # a variable, a stack, another chunk
    class_name: str = ""  # mangled, of the object that the word stands in


class ChunkView(NamedTuple):
    """The chunk that contains an address, and its neighbours."""

    asked: int
    home: Annotated[str, Key("arena")]  # as people call it
    chunk: Chunk
    before: Sequence[Chunk]  # none or one
    after: Sequence[Chunk]
    faults: Sequence[str]  # what of it and its neighbours contradicts the rest of the heap
    data: Annotated[str, Key(or_null=True)]  # the first bytes of the program's memory, hexadecimal
    pointers: Sequence[Pointer] = ()  # the first ones
    pointer_count: int = 0

    def class_names(self) -> Iterable[str]:
        """Yield the mangled names of all classes in it."""
        for chunk in (*self.before, self.chunk, *self.after):
            if chunk.class_name:
                yield chunk.class_name
        yield from (pointer.class_name for pointer in self.pointers if pointer.class_name)


class FreeList(NamedTuple):
    """One list of free chunks; sizes are in bytes, header included, and 0 for an empty one."""

    kind: str
    number: int  # counted as malloc does: from 0 in tcaches and fastbins, from 1 in bins
    low: Annotated[int, Key("low_bytes", or_null=True)]  # the smallest chunk in it
    high: Annotated[int, Key("high_bytes", or_null=True)]
    chunks: Annotated[int, Key("count")]
    bytes: int
    # Where it contradicts itself; what was counted stands before that.
    fault: Annotated[str, Key(or_null=True)] = ""


class ThreadLists(NamedTuple):
    """The tcache of one thread."""

    tid: int
    lists: Sequence[FreeList]


class ArenaLists(NamedTuple):
    """The lists of one arena that aren't empty, and its top."""

    number: int
    address: int
    top: int
    top_bytes: int
    faults: Sequence[str]  # contradictions in this arena, of whatever kind
    lists: Sequence[FreeList]


class FreeLists(NamedTuple):
    """All of malloc's lists."""

    tcaches: Sequence[ThreadLists]
    arenas: Sequence[ArenaLists]


# Live blocks of a heap by their content, as far as the blocks themselves show it.


LARGEST_NODE = 1 << 16  # bytes; a larger block that nodes lead to is a pool, which holds many of them
# The feature by which a block was recognised.
CLASS, VECTOR, TREE, LIST, UNKNOWN = "class", "vector", "tree", "list", "unknown"


class BlockType(NamedTuple):
    """Live blocks of one kind; sizes are bytes, without malloc's headers."""

    kind: str
    name: str  # of a class, mangled as the compiler wrote it; "" for the other kinds
    blocks: int
    bytes: int
    pinned_bytes: float  # free bytes on the pages that these blocks share, in equal shares


class BlockTypes(NamedTuple):
    """All live blocks, the types that hold most first; together they are the live heap."""

    types: Sequence[BlockType]
    notices: Sequence[Notice] = ()


# A heap as a picture: its address space in cells of equal size, each with what lies in it.


# States of a cell's bytes, in this order. The last are not in memory: returned, or never touched.
PARTS = ("live", "cached", "pinned", "releasable", "absent")


class MapRegion(NamedTuple):
    """One piece of the heap; of each cell the bytes of each of PARTS."""

    name: str
    start: int
    end: int
    cells: Sequence[Sequence[int]]


class HeapMap(NamedTuple):
    """The regions of a heap, in order of address."""

    cell_bytes: int  # the last cell of a region may be smaller
    regions: Sequence[MapRegion]

    def totals(self) -> list[int]:
        """Return the bytes of each of PARTS."""
        return [
            sum(cell[part] for region in self.regions for cell in region.cells) for part in range(len(PARTS))
        ]


# Vectors that were found by their three pointers, without any type.


# Location of the three pointers.
HEAP, DATA, STACK = "heap", "data", "stack"


class FoundVector(NamedTuple):
    """One vector; addresses of its memory, which is one live block of the heap."""

    begin: Annotated[int, Key("address")]
    end: int
    limit: int
    owner: Annotated[int, Key("owner_address")]  # of the three pointers
    place: str  # HEAP, DATA or STACK

    @property
    def used_bytes(self) -> int:
        return self.end - self.begin

    @property
    def capacity_bytes(self) -> int:
        return self.limit - self.begin

    @property
    def slack_bytes(self) -> int:
        return self.limit - self.end


class FoundVectors(NamedTuple):
    """All vectors of a heap, summed up, and the largest."""

    vectors: Annotated[int, Key("count")]
    capacity_bytes: int
    slack_bytes: int
    empty: int  # with capacity, but without an element
    empty_bytes: int
    largest: Sequence[FoundVector]  # by unused capacity
    notices: Sequence[Notice] = ()
