"""The heap of an allocator that replaces glibc's malloc, as each reader returns it: spans of pages, and block sizes.

A span is a run of pages that the allocator treats as one: a slab of blocks of one size, one large block, free pages, or
its own metadata. Readers are given an `Image` whose data may have the allocator's roots, and a `SearchedMemory`; they
return None unless the allocator's own invariants prove the layout that they assume.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Callable, NamedTuple, Optional

from gdbmem.allocators.live_blocks import Blocks
from gdbmem.arrays import distinct, import_numpy
from gdbmem.errors import Notice
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import Memory
from gdbmem.text import plural

# Kinds of spans, as in `Spans.kinds`.
SLAB = 0  # blocks of one size, live or not
LARGE = 1  # one live block
FREE = 2  # pages without a live block, resident until the allocator returns them
LAZY = 3  # the same, which the allocator has offered to the kernel (MADV_FREE)
RETURNED = 4  # address space whose pages the allocator has returned: normally not resident
METADATA = 5
CHANGING = 6  # between two kinds at this moment
CACHED = 7  # pages without a live block that a cache of the allocator keeps
IN_HUGE = 8  # pages without a live block in a huge page that the allocator divides


class SearchedMemory(NamedTuple):
    """The memory of one process, copy or core, for a reader."""

    memory: Memory
    anonymous: Ranges  # writable private memory that is not a file's: where an allocator's spans may be
    touched: Ranges  # of all writable memory, what may have something other than zeros
    layouts: Optional[dict[str, Sequence[Any]]] = None  # those that a reader has found, whatever the object
    threads: Sequence[int] = ()  # thread pointers


class _Columns(NamedTuple):
    """All of numpy, of one length."""

    starts: Any  # int64 addresses
    ends: Any  # int64
    kinds: Any  # uint8
    block_bytes: Any  # int64: of a slab the size of its blocks, of a large block its usable size; else 0
    live_blocks: (
        Any  # int64: blocks in use of a slab, including those that caches keep; 1 for a large block; else 0
    )


class Spans(_Columns):
    """Spans in order of address; none overlap."""

    @classmethod
    def of(cls, columns: Sequence[Any], beside: Sequence[tuple[int, int, int]] = ()) -> Spans:
        """Return *columns* in order of address, with those *beside* that have no blocks: start, end and kind."""
        np = import_numpy()
        starts = np.asarray(columns[0], np.int64)
        if (np.diff(starts) < 0).any():
            order = np.argsort(starts, kind="stable")
            columns = [np.asarray(column)[order] for column in columns]
            starts = columns[0]
        rows = np.array(sorted(beside), np.int64).reshape(-1, 3)
        at = np.searchsorted(starts, rows[:, 0])
        types = (np.int64, np.int64, np.uint8, np.int64, np.int64)
        more = (*rows.T, 0, 0)
        return cls(*(np.insert(np.asarray(column, t), at, m) for column, t, m in zip(columns, types, more)))

    def runs(self) -> Sequence[tuple[int, int]]:
        """Return where spans that follow each other begin and end."""
        np = import_numpy()
        if not len(self.starts):
            return []
        apart = np.flatnonzero(self.starts[1:] != self.ends[:-1])
        starts, ends = self.starts[np.append(0, apart + 1)], self.ends[np.append(apart, -1)]
        return list(zip(starts.tolist(), ends.tolist()))

    @cached_property
    def sizes(self) -> tuple[Any, Any]:
        """Return the sizes of blocks, in order, and which of them each span has: column of sizes, column of indexes."""
        found = distinct(self.block_bytes)
        return found, import_numpy().searchsorted(found, self.block_bytes)


class MallocHeap(NamedTuple):
    """One allocator in one process. Sizes are bytes."""

    allocator: str  # "jemalloc"
    layout: str  # what was proved: "5.3, 48 address bits"
    file: str  # the program or library that it is linked into
    spans: Spans
    # Freed blocks that caches keep for the next request, by size of block: they are among the live blocks of spans.
    cached: Mapping[int, int] = {}
    caches: int = 0  # number of caches read
    is_complete: bool = True  # False: some caches could not be read, so that live blocks are too many
    unread_caches: str = "they were not found"  # the reason
    # Descriptors that contradict the others: what they describe is CHANGING, or is left out.
    odd_descriptors: int = 0
    read_blocks: Optional[Callable[[], Blocks]] = None  # see live_blocks()
    in_files: tuple[int, int] = (
        0,
        0,
    )  # live blocks in parts of files' data, which are in no span, and their bytes

    def live_blocks(self) -> Optional[Blocks]:
        """Return the blocks in use one by one, as columns of address and usable bytes; None if this reader can't.

        This reads bit maps or lists of free blocks: call it while the memory of the process can be read.
        Raises MemoryUnreadable.
        """
        if self.read_blocks is None:
            return None
        blocks = self.read_blocks()
        counted = int(self.spans.live_blocks.sum()) - sum(self.cached.values()) - blocks.unlisted
        return blocks._replace(doubtful=max(len(blocks.starts) - counted, 0))

    def notices_on(self, blocks: Blocks) -> Iterator[Notice]:
        """Yield a notice if the list of *blocks*, live_blocks(), differs from the heap's own counts."""
        parts = []
        if blocks.unlisted:
            parts.append(
                f"{plural(blocks.unlisted, 'live block')} of {self.allocator} are left out: which blocks of their slabs"
                " are free could not be read"
            )
        if blocks.doubtful:
            parts.append(
                f"{plural(blocks.doubtful, 'block')} of {self.allocator} count as live, though a cache keeps as many"
                " that could not be told from them"
            )
        if not self.is_complete:
            parts.append(
                f"freed blocks that caches of {self.allocator} keep count as live: {self.unread_caches}"
            )
        if parts:
            yield Notice("blocks-unlisted", "; ".join(parts))
