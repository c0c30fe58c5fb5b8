"""Threads' stacks, from libc's own lists: those in use and those of ended threads that libc caches.

Stacks can't be recognised by mappings: without guard pages, eight of them are one mapping.
Source: glibc nptl/allocatestack.c, nptl/descr.h.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Optional

from gdbmem.allocators.glibc.thread_pointers import ThreadPointers
from gdbmem.linux.memory.pages import Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory, words_at
from gdbmem.records import dataclass

_REACH = 0x1000  # distance of a list node from the thread pointer
_PTHREAD = (
    0x1200  # bytes of struct pthread that are searched: after the thread pointer, or (aarch64) before it
)
_MOST = 1 << 20
_SAMPLE = 64  # descriptors that must agree on the offset of the stack's bounds


@dataclass(frozen=True)
class ThreadStack:
    """One thread's stack; tid is None for a cached stack of an ended thread."""

    start: int
    end: int
    tid: Optional[int]


def find_stacks(
    memory: Memory,
    data: Sequence[tuple[int, int]],
    threads: Sequence[ThreadPointers],
    known: Ranges,
    main: int,
) -> list[ThreadStack]:
    """Return the stacks in libc's lists, whose heads are in *data*; *main* is the first thread's id.

    *known* is the writable memory. Empty if the lists can't be recognised: another libc, or a program without threads.
    """
    windows = WindowedMemory(memory)
    pointers = {t.thread_pointer: t.tid for t in threads if t.thread_pointer}
    rings = _rings(memory, windows, data, known)
    offset = _node_offset(rings, pointers)
    if offset is None:
        return []
    owners = [[node - offset for node in ring] for ring in rings]
    running = {pointer for ring in owners for pointer in ring if pointers.get(pointer, main) != main}
    field, stacks = None, []
    for ring in sorted(owners, key=lambda ring: not running.intersection(ring)):
        first = next((pointer for pointer in ring if pointers.get(pointer) == main), None)
        if first is None or len(ring) > 1:
            members = [pointer for pointer in ring if pointer != first]
            field = _stack_field(memory, members) if field is None else field
            stacks += _stacks(memory, members, field, pointers)
    return stacks


def _rings(
    memory: Memory, windows: WindowedMemory, data: Sequence[tuple[int, int]], known: Ranges
) -> list[list[int]]:
    """Return the nodes of every doubly linked ring whose head is in *data*."""
    rings = []
    for start, end in data:
        try:
            words = memoryview(memory.read(start, (end - start) & -8)).cast("Q")
        except MemoryUnreadable:
            continue
        for index in range(len(words) - 1):
            first, last = words[index], words[index + 1]
            head = start + 8 * index
            # A node in the same data is not a thread's: the fastest test to exclude a table of pointers.
            if first % 16 or last % 16 or start <= first < end or first not in known or last not in known:
                continue
            nodes = _ring(windows, head, first, last, known)
            if nodes and not any(start <= node < end for node in nodes):
                rings.append(nodes)
    return rings


def _ring(windows: WindowedMemory, head: int, first: int, last: int, known: Ranges) -> list[int]:
    nodes: list[int] = []
    node, before = first, head
    try:
        if windows.word(first + 8) != head or windows.word(last) != head:
            return []
        while node != head:
            if node not in known or node % 8 or len(nodes) > _MOST or windows.word(node + 8) != before:
                return []
            nodes.append(node)
            node, before = windows.word(node), node
    except MemoryUnreadable:
        return []
    return nodes if before == last else []


def _node_offset(rings: list[list[int]], pointers: dict[int, int]) -> Optional[int]:
    """Return the distance of a descriptor's list node from its thread pointer, which is the same for all threads."""
    nodes = [node for ring in rings for node in ring]
    offsets = (node - pointer for pointer in pointers for node in nodes)
    votes = Counter(offset for offset in offsets if abs(offset) < _REACH)
    return max(votes, key=votes.__getitem__, default=None)


def _table(memory: Memory, start: int, end: int, *, pointer: int) -> tuple[int, ...]:
    """Return the words in ``[start, end)``; if not all can be read, those on the page of *pointer*."""
    page = pointer & -4096
    for low, high in ((start, end), (max(start, page), min(end, page + 4096))):
        try:
            return words_at(memory, low, (high - low) // 8)
        except MemoryUnreadable:
            continue
    return ()


def _stack_field(memory: Memory, pointers: Sequence[int]) -> Optional[int]:
    """Return the distance of stackblock, followed by its size, from the thread pointer, valid for all *pointers*."""
    after = [(p, _table(memory, p, p + _PTHREAD, pointer=p)) for p in pointers[:_SAMPLE]]
    before = [(p, _table(memory, p - _PTHREAD, p, pointer=p)) for p in pointers[:_SAMPLE]]
    for index in range(min(len(table) for _, table in after) - 1):
        if all(_encloses(table[index], table[index + 1], pointer) for pointer, table in after):
            return 8 * index
    for back in range(2, min(len(table) for _, table in before) + 1):
        if all(_encloses(table[-back], table[1 - back], pointer) for pointer, table in before):
            return -8 * back
    return None


def _stacks(
    memory: Memory, members: Sequence[int], field: Optional[int], pointers: dict[int, int]
) -> list[ThreadStack]:
    """Return the stacks of a ring's members; none if one of them is not a thread's descriptor."""
    if field is None:
        return []
    stacks = []
    for pointer in members:
        try:
            start, size = words_at(memory, pointer + field, 2)
        except MemoryUnreadable:
            return []
        if not _encloses(start, size, pointer):
            return []
        stacks.append(ThreadStack(start, start + size, pointers.get(pointer)))
    return stacks


def _encloses(start: int, size: int, pointer: int) -> bool:
    whole = start % 4096 == 0 and size % 4096 == 0 and size > 0
    return whole and start < pointer < start + size <= pointer + (1 << 24)
