"""Checking each chunk against its neighbours, and free chunks' links by a sum, while a heap is walked.

A free chunk c is in a ring: c.fd.bk is c. For all chunks and heads of bins the pairs (c, c.fd) are then the pairs
(c.bk, c) in another order, so that the sums of a hash of each pair are equal: one pass, however many there are. Only
if the sums differ are the rings followed one by one (`bins`).
Source: glibc malloc/malloc.c, struct malloc_chunk, unlink_chunk, _int_malloc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gdbmem.allocators.glibc.places.layout import IS_MMAPPED, NON_MAIN_ARENA
from gdbmem.model.memory import Memory, word_at, words_at

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.walking.heap_tally import HeapTally
    from gdbmem.allocators.glibc.walking.trails import HeapChunks

_MASK = (1 << 64) - 1
_FIRST, _SECOND, _THIRD = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
LARGE = 1024  # from here on chunks of one size in a bin have a separate ring
_NAMED = 8  # inconsistent chunks recorded per region


def mix(first: int, second: int) -> int:
    """Return a hash of a pair of words."""
    mixed = (first * _FIRST & _MASK) ^ (second * _SECOND & _MASK)
    return (mixed ^ mixed >> 29) * _THIRD & _MASK


def link_difference(address: int, forward: int, backward: int) -> int:
    """Return the contribution of a member of a ring to the sum, which is 0 (mod 2^64) over whole rings."""
    return (mix(address, forward) - mix(backward, address)) & _MASK


def check_chunk(tally: HeapTally, address: int, head: int, *, in_use: bool, is_last: bool) -> None:
    """Record the chunk at *address* if its flags are impossible."""
    if head & IS_MMAPPED:
        tally.note_odd(address, _MMAPPED)
    elif bool(head & NON_MAIN_ARENA) != (tally.in_further_arena and in_use) and not is_last:
        tally.note_odd(address, _ARENA)


def check_free(memory: Memory, tally: HeapTally, address: int, size: int) -> None:
    """Check the free chunk at *address*, in plain Python."""
    forward, backward, next_size, previous_size = words_at(memory, address + 16, 4)
    foot = word_at(memory, address + size)
    if foot != size:
        tally.note_odd(address, _foot(foot))
    difference = link_difference(address, forward, backward)
    if size >= LARGE and (next_size or previous_size):
        difference += link_difference(address + 1, next_size + 1, previous_size + 1)
    tally.link_sum = (tally.link_sum + difference) & _MASK


_MMAPPED = "is flagged as individually mapped"
_ARENA = "is flagged as part of another arena"


def _foot(foot: int) -> str:
    return (
        f"is free by its neighbour's flag, and its size isn't repeated at its end (0x{foot:x} stands there)"
    )


class LinkSums:
    """Does the same with numpy, block by block."""

    def __init__(self, np: Any, tally: HeapTally, memory: Memory) -> None:
        self.np, self.tally, self.memory = np, tally, memory
        self._factors = [np.uint64(factor) for factor in (_FIRST, _SECOND, _THIRD)]

    def add(self, chunks: HeapChunks, free: Any) -> None:
        """Check *chunks*, of which those with the numbers *free* are free by the next one's flag."""
        self._check_flags(chunks)
        if not len(free):
            return
        np, base = self.np, chunks.base
        at, sizes = chunks.at[free], chunks.sizes[free]
        inner = len(free) if int(at[-1]) + 2 < chunks.count else len(free) - 1
        if inner and int(at[inner - 1] + sizes[inner - 1]) >= chunks.count:
            inner -= 1
        for number in range(inner, len(free)):  # the last chunk extends beyond the data read
            check_free(self.memory, self.tally, base + 16 * int(at[number]), 16 * int(sizes[number]))
        at, sizes = at[:inner], sizes[:inner]
        words = chunks.words
        feet = words[2 * (at + sizes)]
        odd = feet != (sizes << 4).view(np.uint64)
        if odd.any():
            for number in np.flatnonzero(odd)[:_NAMED].tolist():
                self.tally.note_odd(base + 16 * int(at[number]), _foot(int(feet[number])))
        self._add_links(words, at, base)
        self._add_next_sizes(words, at[sizes >= LARGE // 16], base)

    def _check_flags(self, chunks: HeapChunks) -> None:
        np, flags, tally = self.np, chunks.flags, self.tally
        if tally.in_further_arena:
            in_use = np.append(flags[1:], np.uint8(chunks.next_head & 1)) & 1
            odd = (flags & IS_MMAPPED) | ((flags & NON_MAIN_ARENA) ^ (in_use << 2))
            if chunks.next_head & ~7 in (0, 16):
                odd[-1] &= IS_MMAPPED
        elif not np.bitwise_or.reduce(flags) & (IS_MMAPPED | NON_MAIN_ARENA):
            return
        else:
            odd = flags & (IS_MMAPPED | NON_MAIN_ARENA)
        for number in np.flatnonzero(odd)[:_NAMED].tolist():
            why = _MMAPPED if int(odd[number]) & IS_MMAPPED else _ARENA
            tally.note_odd(chunks.base + 16 * int(chunks.at[number]), why)

    def _add_links(self, words: Any, at: Any, base: int) -> None:
        addresses = ((at << 4) + base).view(self.np.uint64)
        self._add(addresses, words[2 * at + 2], words[2 * at + 3])

    def _add_next_sizes(self, words: Any, at: Any, base: int) -> None:
        if not len(at):
            return
        np = self.np
        following, before = words[2 * at + 4], words[2 * at + 5]
        ringed = np.flatnonzero(following | before)
        one = np.uint64(1)
        addresses = ((at[ringed] << 4) + base).view(np.uint64)
        self._add(addresses + one, following[ringed] + one, before[ringed] + one)

    def _add(self, addresses: Any, forward: Any, backward: Any) -> None:
        difference = int(self._mixed(addresses, forward).sum()) - int(self._mixed(backward, addresses).sum())
        self.tally.link_sum = (self.tally.link_sum + difference) & _MASK

    def _mixed(self, first: Any, second: Any) -> Any:
        np = self.np
        mixed = first * self._factors[0]
        mixed ^= second * self._factors[1]
        mixed ^= mixed >> np.uint64(29)
        mixed *= self._factors[2]
        return mixed
