"""Bytes in use by glibc's malloc, from its own counters and free lists; no code runs in the process.

In use = what the arenas took from the kernel, minus their tops, minus every free chunk (bins, fastbins,
the threads' tcaches) and the tcaches themselves, plus individually mapped blocks. Chunks count with
their headers: malloc(40) takes 48. `heap` reads the same data chunk by chunk, in seconds; this is for each step in gdb.
Source: glibc 2.31, 2.36, 2.41 and 2.43 malloc/malloc.c, struct malloc_state and tcache_perthread_struct.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Callable, NamedTuple, Optional

from gdbmem.allocators.glibc.layout import ALIGNMENT, MIN_CHUNK, TCACHE_CHUNKS, Struct, static_blocks
from gdbmem.model.memory import Memory, MemoryUnreadable, word_at, words_at

MOST_CHUNKS = 10_000  # free chunks that can be walked within 5 ms
_PAGE = 4096
_MOST_ARENAS = 4096
_FLAGS = 7
_COUNTED_SLOTS = 64  # a tcache of this many bins, until glibc 2.41, counts its entries


class InUse(NamedTuple):
    """The result."""

    taken_bytes: int  # malloc's memory from the kernel, except the tops of its heaps and its tcaches
    free_bytes: Optional[int]  # the free part of it; None: there were too many free chunks to walk
    mapped_bytes: int = 0  # of taken_bytes: blocks that malloc mapped individually, as malloc counts them

    @property
    def bytes(self) -> Optional[int]:
        """Bytes in use; None if they were not counted."""
        return None if self.free_bytes is None else self.taken_bytes - self.free_bytes

    def since(self, before: InUse) -> tuple[int, bool]:
        """Return the bytes gained since *before*, and whether that is exact.

        If either was not counted, both are replaced by malloc's memory, so that equal quantities are compared.
        """
        gained = self.taken_bytes - before.taken_bytes
        # Since glibc 2.43 each resizing of a mapped block adds the 16 bytes of its header to the count, for good.
        drift = (self.mapped_bytes - before.mapped_bytes) % _PAGE
        gained -= drift if drift < _PAGE // 2 else 0
        if self.free_bytes is None or before.free_bytes is None:
            return gained, False
        return gained - self.free_bytes + before.free_bytes, True


class _Pages(dict):  # type: ignore[type-arg]
    """Page number → its 512 words."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory

    def __missing__(self, number: int) -> Sequence[int]:
        page = memoryview(self._memory.read(number << 12, _PAGE)).cast("Q")
        self[number] = page
        return page


class _Words:
    """The process's memory as 64-bit words, read by pages, each page once."""

    def __init__(self, memory: Memory) -> None:
        self.page: Callable[[int], Sequence[int]] = _Pages(memory).__getitem__

    def __getitem__(self, address: int) -> int:
        return self.page(address >> 12)[(address & 0xFFF) >> 3]


class _TooManyError(Exception):
    pass


class _Walk:
    """Sums free chunks, and gives up when there are too many."""

    def __init__(self, words: _Words, most: int) -> None:
        self.words = words
        self.left = most
        self._protected: Optional[bool] = None

    def bins(self, base: int, heads: Sequence[int]) -> int:
        """Return the bytes of the chunks in the bins whose heads are the pairs (fd, bk) at *base*."""
        total, left, page = 0, self.left, self.words.page
        for number in range(0, len(heads), 2):
            head = base + 8 * number - 16
            chunk = heads[number]
            while chunk != head and chunk:
                left -= 1
                if left < 0:
                    raise _TooManyError
                # The innermost loop: one call per page.
                words = page(chunk >> 12)
                at = (chunk & 0xFFF) >> 3
                if at < 510:
                    total += words[at + 1] & -8
                    chunk = words[at + 2]
                else:
                    total += self.words[chunk + 8] & -8
                    chunk = self.words[chunk + 16]
        self.left = left
        return total

    def chain(self, chunk: int, link: int) -> int:
        """Return the bytes of a singly linked list; *link* is the offset of the link in a chunk."""
        total, words = 0, self.words
        while chunk:
            self.count()
            total += words[chunk + 8] & ~_FLAGS
            at = chunk + link
            chunk = self.reveal(words[at], at)
            # tcache links point to user memory, fastbin links to the header.
        return total

    def count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _TooManyError

    def reveal(self, link: int, at: int) -> int:
        """Undo safe-linking (glibc 2.32): a link is xored with its own address, without the page offset.

        All links are protected, or none. The target of a link is aligned, and mostly near.
        """
        key = at >> 12
        if link in (0, key):
            return 0
        if self._protected is None and key & 15:
            self._protected = link & 15 != 0
        protected = (link ^ at) > (link ^ key ^ at) if self._protected is None else self._protected
        return link ^ key if protected else link


class GlibcHeap:
    """glibc's malloc in one process."""

    def __init__(self, memory: Memory, main_arena: int, state: Struct, mmapped_mem: Optional[int]) -> None:
        self._memory = memory
        self._main_arena = main_arena
        self._mmapped_mem = mmapped_mem  # the address of mp_.mmapped_mem
        # The words of a malloc_state that are read, by their index.
        self._bins, self._top, self._next, self._system_mem = (
            state[field] // 8 for field in ("bins", "top", "next", "system_mem")
        )
        self._fastbins = range(state["fastbinsY"] // 8 if "fastbinsY" in state else self._top, self._top)

    @property
    def counts_mapped_blocks(self) -> bool:
        """True if individually mapped blocks (from 128 KiB) are counted."""
        return self._mmapped_mem is not None

    def in_use(self, tcaches: Iterable[int], *, most_chunks: int = MOST_CHUNKS) -> InUse:
        """Return the bytes in use; *tcaches* are the addresses of the threads' tcache pointers.

        Up to *most_chunks* free chunks are walked, at a third of a microsecond each.

        Raises MemoryUnreadable, and ValueError if the data is invalid.
        """
        words = _Words(self._memory)
        walk = _Walk(words, most_chunks)
        caches = [cache for pointer in tcaches if (cache := word_at(self._memory, pointer))]
        # Each is also a block, but malloc's own: the line that first causes its allocation isn't charged for it.
        taken = -sum(words[cache - 8] & ~_FLAGS for cache in caches)
        states = list(self._arenas())
        for _, state in states:
            top, system = state[self._top], state[self._system_mem]
            taken += system
            taken -= words[top + 8] & ~_FLAGS if top and system else 0
        mapped = word_at(self._memory, self._mmapped_mem) if self._mmapped_mem is not None else 0
        taken += mapped
        try:
            free = sum(self._free(walk, base, state) for base, state in states)
            free += sum(self._cached(walk, cache) for cache in caches)
        except _TooManyError:
            return InUse(taken, None, mapped)
        return InUse(taken, free, mapped)

    def _arenas(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        base = self._main_arena
        for _ in range(_MOST_ARENAS):
            state = words_at(self._memory, base, self._system_mem + 1)
            yield base, state
            base = state[self._next]
            if base == self._main_arena:
                return
        raise ValueError("the list of malloc's arenas does not close")

    def _free(self, walk: _Walk, base: int, state: Sequence[int]) -> int:
        if not state[self._bins]:
            return 0  # malloc has not been called yet
        total = walk.bins(base + 8 * self._bins, state[self._bins : self._bins + 254])
        return total + sum(walk.chain(state[number], 16) for number in self._fastbins)

    def _cached(self, walk: _Walk, cache: int) -> int:
        slots = TCACHE_CHUNKS.get(walk.words[cache - 8] & ~_FLAGS)
        if slots is None:
            return 0
        if slots == _COUNTED_SLOTS:
            counts = struct.unpack(f"<{slots}H", self._memory.read(cache, 2 * slots))
            return sum(n * (MIN_CHUNK + ALIGNMENT * i) for i, n in enumerate(counts) if n)
        entries = words_at(self._memory, cache + 2 * slots, slots)
        return sum(self._slot(walk, entry) for entry in entries if entry)

    @staticmethod
    def _slot(walk: _Walk, entry: int) -> int:
        total = 0
        while entry:
            walk.count()
            total += walk.words[entry - 8] & ~_FLAGS
            entry = walk.reveal(walk.words[entry], entry)
        return total


def tcache_offset(bases: Sequence[int], memory: Memory) -> Optional[int]:
    """Return the distance below the thread pointer of the tcache pointer in all threads; None if not found.

    On aarch64 it is above: negative.
    """
    none = bytes(_COUNTED_SLOTS * 10)
    distant = [-at for start, end in static_blocks(memory, bases) for at in range(start, end, 8)]
    offsets: tuple[int, ...] = (*range(8, 0x400, 8), *range(0, -0x400, -8), *distant)
    for offset in offsets:
        found = 0
        for base in bases:
            try:
                cache = word_at(memory, base - offset)
                if not cache:
                    continue
                size = word_at(memory, cache - 8) & ~_FLAGS
                if size not in TCACHE_CHUNKS and not cache & 7 and memory.read(cache, len(none)) == none:
                    continue  # since glibc 2.43 a thread that has not freed a block yet has a shared, empty one
            except MemoryUnreadable:
                break
            if cache & 15 or size not in TCACHE_CHUNKS:
                break
            found += 1
        else:
            if found:
                return offset
    return None
