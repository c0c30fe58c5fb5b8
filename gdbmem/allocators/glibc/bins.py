"""Following malloc's lists of free chunks: their contents, and inconsistencies.

Source: glibc malloc/malloc.c, struct malloc_state, bin_index.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from gdbmem.allocators.glibc.layout import ALIGNMENT, MIN_CHUNK, PREV_INUSE, Found
from gdbmem.allocators.glibc.tallies import LARGE as LARGE_BYTES
from gdbmem.linux.elf.objects import Image, exported
from gdbmem.model.heap_blocks import (
    FASTBIN,
    LARGE,
    SMALL,
    TCACHE,
    UNSORTED,
    ArenaLists,
    FreeList,
    FreeLists,
    ThreadLists,
)
from gdbmem.model.memory import Memory, MemoryUnreadable, ThreadPointers, WindowedMemory, words_at

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.heap import ArenaReading, HeapReading


BINS = 127
_FIRST_LARGE = 64
_MOST_HOPS = 1_000_000


def bins_at(found: Found, arena: int) -> int:
    """Return the address of the first bin head of the arena at *arena*."""
    return arena + found.layout.state["bins"]


def follow_bins(
    windows: WindowedMemory, arena: ArenaReading, first: int, heads: Sequence[int]
) -> Iterator[tuple[FreeList, int]]:
    """Yield each bin of *arena*, whose *heads* begin at *first*, up to an inconsistency, and at which chunk that is."""
    left = sum(tally.chunks[1] for tally in arena.tallies) + BINS
    for at in range(BINS):
        head = first + 16 * at - 16
        before, chunk = head, heads[2 * at]
        low = high = count = total = 0
        fault, fault_at = "", 0
        while chunk != head:
            fault, fault_at = _link_fault(windows, arena, chunk, before)
            if count >= left:
                fault, fault_at = "leads in a circle", chunk
            if fault:
                break
            size = windows.word(chunk + 8) & ~7
            low, high = min(low or size, size), max(high, size)
            count, total = count + 1, total + size
            before, chunk = chunk, windows.word(chunk + 16)
        left -= count
        if not fault and heads[2 * at + 1] != before:
            fault, fault_at = f"ends at 0x{before:x}, and malloc has 0x{heads[2 * at + 1]:x}", before
        text = f"the list of {_bin_name(at)} {fault}" if fault else ""
        kind = UNSORTED if at == 0 else SMALL if at + 1 < _FIRST_LARGE else LARGE
        yield FreeList(kind, at + 1, low, high, count, total, text), fault_at


def _link_fault(windows: WindowedMemory, arena: ArenaReading, chunk: int, before: int) -> tuple[str, int]:
    """Return the inconsistency of the link from *before* to *chunk*, and at which of them; "" if there is none."""
    tallies = arena.tallies
    if chunk % 16 or not any(tally.start <= chunk < tally.end for tally in tallies):
        return f"leads from 0x{before:x} to 0x{chunk:x}, where this arena has no block", before
    try:
        head, backward = windows.word(chunk + 8), windows.word(chunk + 24)
        size = head & ~7
        in_use = windows.word(chunk + size + 8) & PREV_INUSE
        following = windows.word(chunk + 32) if size >= LARGE_BYTES else 0
        returns = chunk
        if following:
            returns = windows.word(following + 40) if following % 8 == 0 else 0
    except MemoryUnreadable:
        return f"leads from 0x{before:x} to 0x{chunk:x}, whose links are invalid", chunk
    if backward != before:
        return f"leads from 0x{before:x} to 0x{chunk:x}, which points back to 0x{backward:x}", chunk
    if in_use:
        return f"holds the block at 0x{chunk:x}, which is in use by its neighbour's flag", chunk
    if returns != chunk:
        return f"holds the block at 0x{chunk:x}, whose link to the next size isn't returned", chunk
    return "", 0


def _bin_name(at: int) -> str:
    if at == 0:
        return "free blocks not sorted yet"
    if at < 63:
        return f"free blocks of {16 * (at + 1) - 8:,} bytes"
    return f"free blocks in large bin {at + 1}"


def bin_of(windows: WindowedMemory, first: int, chunk: int) -> Optional[int]:
    """Return the number of the bin of the free *chunk*; None if its links lead to no head.

    The heads of its arena begin at *first*. The cost is the shorter way around the ring.
    """
    ways = {16: chunk, 24: chunk}  # by the offset of the link
    for _ in range(_MOST_HOPS):
        for link in list(ways):
            at, rest = divmod(_followed(windows, ways[link] + link) - (first - 16), 16)
            if 0 <= at < BINS and not rest:
                return at + 1
            ways[link] = first - 16 + 16 * at
            if rest or ways[link] in (0, chunk):
                del ways[link]  # overwritten: the other way may lead there
        if not ways:
            break
    return None


def _followed(windows: WindowedMemory, address: int) -> int:
    try:
        return windows.word(address)
    except MemoryUnreadable:
        return 0


def bin_text(number: int) -> str:
    """Return bin *number* as text."""
    if number == 1:
        return "the unsorted bin"
    if number < _FIRST_LARGE:
        return f"the small bin of {16 * number - 8:,} bytes"
    return f"large bin {number}"


def read_free_lists(memory: Memory, heap: HeapReading) -> FreeLists:
    """Return all non-empty lists of *heap*, each with its number of chunks."""
    return FreeLists(
        [ThreadLists(tid, lists) for tid, lists in _tcaches(memory, heap)],
        [_arena_lists(memory, heap, arena) for arena in heap.arenas if not arena.state.is_unused],
    )


def _tcaches(memory: Memory, heap: HeapReading) -> Iterator[tuple[int, list[FreeList]]]:
    by_thread: dict[int, list[FreeList]] = {}
    windows = WindowedMemory(memory)
    caches = heap.caches
    for tid, number in sorted(set(caches.tcache_lists) | set(caches.tcache_faults)):
        sizes = [windows.word(chunk + 8) & ~7 for chunk in caches.tcache_lists.get((tid, number), ())]
        fault = caches.tcache_faults.get((tid, number), "")
        one = FreeList(
            TCACHE, number, min(sizes, default=0), max(sizes, default=0), len(sizes), sum(sizes), fault
        )
        by_thread.setdefault(tid, []).append(one)
    yield from by_thread.items()


def _arena_lists(memory: Memory, heap: HeapReading, arena: ArenaReading) -> ArenaLists:
    state = arena.state
    lists = list(_fastbins(heap, arena))
    first = bins_at(heap.found, state.address)
    shown = {*heap.caches.tcache_faults.values(), *heap.caches.fastbin_faults.values()}
    try:
        heads = words_at(memory, first, 2 * BINS)
        followed = follow_bins(WindowedMemory(memory), arena, first, heads)
        lists += [one for one, _ in followed if one.chunks or one.fault]
    except MemoryUnreadable:
        pass  # it is among the damages
    shown.update(one.fault for one in lists)
    others = [d.what for d in heap.damages if d.arena == state.number and d.what not in shown]
    faults = list(dict.fromkeys(others))
    return ArenaLists(state.number, state.address, state.top, state.top_bytes, faults, lists)


def _fastbins(heap: HeapReading, arena: ArenaReading) -> Iterator[FreeList]:
    for number, head in enumerate(arena.state.fastbins):
        size = MIN_CHUNK + ALIGNMENT * number
        count = heap.caches.fastbin_counts.get((arena.state.number, number), 0)
        fault = heap.caches.fastbin_faults.get((arena.state.number, number), "")
        if head or fault:
            bound = size if count else 0
            yield FreeList(FASTBIN, number, bound, bound, count, count * size, fault)


# Threads in the middle of malloc, whose data may be temporarily inconsistent.


_FUNCTIONS = ("malloc", "free", "calloc", "realloc", "memalign", "malloc_trim", "malloc_info", "mallopt")
_BEFORE, _AFTER = 0x5000, 0x1000  # the non-exported functions of malloc.c are mostly before these
_STACK = 0x1000  # bytes of a thread's stack that are searched for return addresses
_ABORT_BYTES = 0x400
# On aarch64 the upper bits of an address on the stack may be its signature (pointer authentication).
_ADDRESS = (1 << 48) - 1 if os.uname().machine == "aarch64" else (1 << 64) - 1
_NONE = 1 << 16  # no system call has a number so high: the kernel writes -1 for none
_SYSCALL, _SVC = b"\x0f\x05", b"\x01\x00\x00\xd4"
# mov, then the call
_SIGRETURN = (b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", b"\x68\x11\x80\xd2\x01\x00\x00\xd4")
# mmap mprotect munmap brk mremap madvise prctl: in these malloc changes its heap. It waits for an arena in futex, where
# the thread that has it is the one that changes something, and that arena is locked.
_CALLS = {_SYSCALL: {9, 10, 11, 12, 25, 28, 157}, _SVC: {222, 226, 215, 214, 216, 233, 167}}


def threads_inside(memory: Memory, image: Image, threads: Sequence[ThreadPointers]) -> int:
    """Return how many *threads* run in malloc's code, or return to it, except those aborting the process there.

    In a static program without symbols a thread counts as inside if it is not in a system call.
    """
    known = exported(memory, image.start, image.bias, (*_FUNCTIONS, "abort"))
    abort = known.pop("abort", -_ABORT_BYTES)
    if not known:
        return sum(not _in_system_call(memory, thread.program_counter) for thread in threads)
    low, high = min(known.values()) - _BEFORE, max(known.values()) + _AFTER
    count = 0
    for thread in threads:
        places = [thread.program_counter, *_returns(memory, thread.stack_pointer)]
        if any(abort <= place < abort + _ABORT_BYTES for place in places):
            continue
        first = next((index for index, place in enumerate(places) if low <= place < high), None)
        if first is not None and _may_change(memory, thread, places[:first]):
            count += 1
    return count


def _may_change(memory: Memory, thread: ThreadPointers, below: Sequence[int]) -> bool:
    """Return whether *thread* can be in malloc, with a return address into malloc above the words *below* of its stack.

    That word may be left over from an earlier call, in a frame of a function that waits for something else.
    """
    for instruction, numbers in _CALLS.items():
        known = 0 <= thread.system_call < _NONE and thread.system_call not in numbers
        if known and _ends_with(memory, thread.program_counter, instruction):
            return any(_returns_from_signal(memory, place) for place in below)
    return True


def _returns_from_signal(memory: Memory, place: int) -> bool:
    try:
        return memory.read(place, len(_SIGRETURN[0])).startswith(_SIGRETURN)
    except (MemoryUnreadable, OverflowError):
        return False


def _returns(memory: Memory, stack_pointer: int) -> list[int]:
    start = stack_pointer & -8
    for size in (_STACK, 4096 - start % 4096):
        try:
            return [word & _ADDRESS for word in memoryview(memory.read(start, size)).cast("Q")]
        except MemoryUnreadable:
            continue
    return []


def _in_system_call(memory: Memory, program_counter: int) -> bool:
    return any(_ends_with(memory, program_counter, instruction) for instruction in _CALLS)


def _ends_with(memory: Memory, program_counter: int, instruction: bytes) -> bool:
    try:
        return bytes(memory.read(program_counter - len(instruction), len(instruction))) == instruction
    except (MemoryUnreadable, OverflowError):
        return False
