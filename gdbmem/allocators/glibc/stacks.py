"""Threads' stacks, from libc's own lists: those in use and those of ended threads that libc caches.

Stacks can't be recognised by mappings: without guard pages, eight of them are one mapping. The stack of a joinable
thread stays in the lists of those in use until the thread is joined.
Source: glibc nptl/allocatestack.c, nptl/nptl-stack.c, nptl/descr.h.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Optional

from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable, ThreadPointers, WindowedMemory, words_at

_REACH = 0x1000  # distance of a list node from the thread pointer
_PTHREAD = (
    0x1200  # bytes of struct pthread that are searched: after the thread pointer, or (aarch64) before it
)
_MOST = 1 << 20
_MOST_OFFSETS = 16
_SAMPLE = 64  # descriptors that must agree on the offset of the stack's bounds


class ThreadStack(NamedTuple):
    """One thread's stack; tid is None if the thread has ended."""

    start: int
    end: int
    tid: Optional[int]
    is_cached: bool = False  # for the next thread; else an ended thread has not been joined
    pointer: int = 0  # to the descriptor of the thread, at the stack's end


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
    variables = _variables(memory, data)
    pointers = {t.thread_pointer: t.tid for t in threads if t.thread_pointer}
    rings = _rings(WindowedMemory(memory), variables, known)
    # Nodes of other threads may be near the only thread that still runs, too: the offset must lead to stacks.
    for offset in islice(_node_offsets(rings, pointers), _MOST_OFFSETS):
        owners = [[node - offset for node in ring] for ring in rings]
        stacks = _stacks_of(memory, variables, owners, pointers, main)
        if stacks:
            return stacks
    return []


def _variables(memory: Memory, data: Sequence[tuple[int, int]]) -> list[tuple[int, memoryview]]:
    """Return the readable ranges of *data*: start → words."""
    found = []
    for start, end in data:
        with contextlib.suppress(MemoryUnreadable):
            found.append((start, memoryview(memory.read(start, (end - start) & -8)).cast("Q")))
    return found


def _stacks_of(
    memory: Memory,
    variables: Sequence[tuple[int, memoryview]],
    rings: Sequence[Sequence[int]],
    pointers: dict[int, int],
    main: int,
) -> list[ThreadStack]:
    """Return the stacks of the threads with the thread pointers in *rings*."""
    running = {pointer for ring in rings for pointer in ring if pointers.get(pointer, main) != main}
    field, stacks = None, []
    for ring in sorted(rings, key=lambda ring: not running.intersection(ring)):
        members = [pointer for pointer in ring if pointers.get(pointer) != main]
        if members:
            field = _stack_field(memory, members) if field is None else field
            stacks += _stacks(memory, members, field, pointers, variables)
    return stacks


def _rings(
    windows: WindowedMemory, variables: Sequence[tuple[int, memoryview]], known: Ranges
) -> list[list[int]]:
    """Return the nodes of every doubly linked ring whose head is one of *variables*."""
    rings = []
    for start, words in variables:
        end = start + words.nbytes
        for index in range(len(words) - 1):
            first, last = words[index], words[index + 1]
            head = start + 8 * index
            # Most words are zero. A node in the same data is not a thread's: the fastest test to exclude a table of
            # pointers.
            if not first or first % 16 or last % 16 or start <= first < end:
                continue
            if first not in known or last not in known:
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


def _node_offsets(rings: list[list[int]], pointers: dict[int, int]) -> Iterator[int]:
    """Yield the distances of list nodes from thread pointers, the most frequent first, which all threads have."""
    nodes = [node for ring in rings for node in ring]
    offsets = (node - pointer for pointer in pointers for node in nodes)
    votes = Counter(offset for offset in offsets if abs(offset) < _REACH)
    yield from (offset for offset, _ in votes.most_common())


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
    memory: Memory,
    members: Sequence[int],
    field: Optional[int],
    pointers: dict[int, int],
    variables: Sequence[tuple[int, memoryview]],
) -> list[ThreadStack]:
    """Return the stacks of a ring's members; none if one of them is not a thread's descriptor."""
    if field is None:
        return []
    found: list[tuple[int, int, int]] = []
    for pointer in members:
        try:
            start, size = words_at(memory, pointer + field, 2)
        except MemoryUnreadable:
            return []
        if not _encloses(start, size, pointer):
            return []
        found.append((start, size, pointer))
    # Only of its cache libc keeps the total: stack_cache_actsize.
    total = sum(size for _, size, _ in found).to_bytes(8, "little")
    is_cached = any(_holds(words, total) for _, words in variables)
    return [ThreadStack(start, start + size, pointers.get(p), is_cached, p) for start, size, p in found]


def _holds(words: memoryview, word: bytes) -> bool:
    """Return whether one of *words* is *word*."""
    data, at = words.tobytes(), -1
    while (at := data.find(word, at + 1)) >= 0:
        if at % 8 == 0:
            return True
    return False


def _encloses(start: int, size: int, pointer: int) -> bool:
    whole = start % 4096 == 0 and size % 4096 == 0 and size > 0 and start > 0
    return whole and start < pointer < start + size <= pointer + (1 << 24)
