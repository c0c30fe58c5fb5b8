"""Chunks that malloc keeps for itself although they look in use: tcaches and fastbins, complete."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Optional

from gdbmem.allocators.glibc.arenas import ArenaState
from gdbmem.allocators.glibc.layout import TCACHE_CHUNKS
from gdbmem.allocators.glibc.tally import Cached
from gdbmem.linux.maps import Mapping
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory

_TLS_REACH = 0x1000  # how far from the thread pointer libc's thread-local variables are looked for


@dataclass(frozen=True)
class ThreadPointers:
    """One thread, with the registers that the analysis needs."""

    tid: int
    thread_pointer: int
    stack_pointer: int = 0
    name: str = ""


@dataclass
class Caches:
    """What the caches hold, and what could not be read."""

    cached: Cached = field(default_factory=Cached)
    unread_threads: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # chains that ran in a circle or out of memory
    arena_of: dict[int, int] = field(default_factory=dict)  # tid → address of its arena


class Known:
    """Which addresses are in writable memory; asked for every pointer that is followed."""

    def __init__(self, mappings: Sequence[Mapping]) -> None:
        writable = [m for m in mappings if "w" in m.permissions]
        self._starts = [m.start for m in writable]
        self._ends = [m.end for m in writable]

    def __contains__(self, address: object) -> bool:
        if not isinstance(address, int):
            return False
        number = bisect_right(self._starts, address) - 1
        return number >= 0 and address < self._ends[number]


def read_caches(
    memory: Memory,
    arenas: Sequence[ArenaState],
    threads: Sequence[ThreadPointers],
    mappings: Sequence[Mapping],
) -> Caches:
    """Return every chunk in a tcache or a fastbin; threads whose cache wasn't found are named."""
    result = Caches()
    known = Known(mappings)
    windows = WindowedMemory(memory)
    blocks = {t.tid: _near(memory, t.thread_pointer) for t in threads if t.thread_pointer}
    tcaches = _tcaches(windows, known, blocks)
    result.arena_of = _arenas_of(blocks, {a.address for a in arenas})
    protected = _is_protected(windows, known, tcaches.values(), arenas)
    tcached: list[int] = []
    for tid, tcache in tcaches.items():
        for entry in tcache.entries:
            tcached += _chain(windows, entry - 16, protected, result.broken, f"tcache of thread {tid}")
    fast: list[int] = []
    for arena in arenas:
        for head in arena.fastbins:
            fast += _chain(windows, head, protected, result.broken, f"fastbin of arena {arena.number}")
    result.cached = Cached(array("Q", sorted(set(tcached))), array("Q", sorted(set(fast))))
    if any(not arena.is_unused for arena in arenas):
        seen = set(tcaches)
        result.unread_threads = [t.tid for t in threads if not blocks.get(t.tid) and t.tid not in seen]
        if blocks and not tcaches:
            result.unread_threads = [t.tid for t in threads]
    return result


@dataclass(frozen=True)
class _Near:
    """The words around a thread pointer: ``words[n]`` is at ``start + 8 n``."""

    start: int
    words: Sequence[int]
    pointer: int


def _near(memory: Memory, pointer: int) -> Optional[_Near]:
    words: list[int] = []
    start = 0
    read = getattr(memory, "read_around", memory.read)  # what is a file's, beside it, is no thread's
    for page in range((pointer - _TLS_REACH) & -4096, pointer + _TLS_REACH, 4096):
        try:
            data = read(page, 4096)
        except MemoryUnreadable:
            if page <= pointer:
                words, start = [], 0
                continue
            break
        if not words:
            start = page
        words += memoryview(data).cast("Q").tolist()
    return _Near(start, words, pointer) if words else None


def _columns(blocks: dict[int, Optional[_Near]]) -> Iterator[tuple[int, dict[int, int]]]:
    """Yield (offset from the thread pointer, tid → word there)."""
    known = {tid: block for tid, block in blocks.items() if block is not None}
    for offset in range(-_TLS_REACH, _TLS_REACH, 8):
        column = {}
        for tid, block in known.items():
            index = (block.pointer + offset - block.start) >> 3
            if 0 <= index < len(block.words):
                column[tid] = block.words[index]
        yield offset, column


@dataclass(frozen=True)
class _Tcache:
    entries: Sequence[int]  # where chains begin: addresses of user memory


def _tcaches(windows: WindowedMemory, known: Known, blocks: dict[int, Optional[_Near]]) -> dict[int, _Tcache]:
    """Return tid → tcache: the one thread-local variable that points to a tcache wherever it points."""
    best: dict[int, _Tcache] = {}
    for _, column in _columns(blocks):
        found: dict[int, _Tcache] = {}
        for tid, value in column.items():
            if value == 0 or value % 16 or value not in known:
                continue  # a thread that never allocated has none
            tcache = _read_tcache(windows, known, value)
            if tcache is not None:
                found[tid] = tcache
        if len(found) > len(best):
            best = found
    return best


def _read_tcache(windows: WindowedMemory, known: Known, address: int) -> Optional[_Tcache]:
    try:
        head = windows.word(address - 8)
        bins = TCACHE_CHUNKS.get(head & ~7)
        if bins is None or (not head & 1 and head & 2):
            return None
        raw = [windows.word(address + 8 * n) for n in range(bins * 10 // 8)]
    except MemoryUnreadable:
        return None
    counts = b"".join(word.to_bytes(8, "little") for word in raw[: bins // 4])
    entries = raw[bins // 4 :]
    slots = memoryview(counts).cast("H")
    if any(entry and (entry % 16 or entry not in known) for entry in entries):
        return None
    if bins == 64 and any(bool(slots[n]) != bool(entries[n]) for n in range(bins)):
        return None  # the counters count what the lists hold
    return _Tcache([entry for entry in entries if entry])


def _arenas_of(blocks: dict[int, Optional[_Near]], addresses: set[int]) -> dict[int, int]:
    """Return tid → arena: the thread-local variable that holds an arena's address in most threads."""
    best: dict[int, int] = {}
    for _, column in _columns(blocks):
        found = {tid: value for tid, value in column.items() if value in addresses}
        if len(found) > len(best) and all(not value or value in addresses for value in column.values()):
            best = found
    return best


def _is_protected(
    windows: WindowedMemory, known: Known, tcaches: object, arenas: Sequence[ArenaState]
) -> bool:
    """Tell whether list pointers are xored with their place (safe-linking), as the lists themselves show."""
    plain = safe = 0
    links = [entry for tcache in tcaches for entry in tcache.entries]  # type: ignore[attr-defined]
    links += [head + 16 for arena in arenas for head in arena.fastbins if head]
    for link in links[:4096]:
        try:
            value = windows.word(link)
        except MemoryUnreadable:
            continue
        decoded = value ^ (link >> 12)
        plain += value == 0 or (value % 16 == 0 and value in known)
        safe += decoded == 0 or (decoded % 16 == 0 and decoded in known)
    return safe >= plain


def _chain(windows: WindowedMemory, chunk: int, protected: bool, broken: list[str], where: str) -> list[int]:
    """Return the chunks of a list from *chunk* on; a list that can't be is noted in *broken*.

    A fastbin points to chunks, a tcache to user memory 16 bytes on, where the link is in both.
    """
    seen: dict[int, None] = {}
    to_chunk = 16 if where.startswith("tcache") else 0
    loaded = windows.windows
    while chunk:
        if chunk in seen or chunk & 15:
            broken.append(f"the {where} is broken at 0x{chunk:x}")
            break
        link = chunk + 16
        try:
            # The hot loop of a heap with millions of small free blocks: one look-up a block.
            window = loaded.get(link >> 16)
            value = window[(link & 0xFFFF) >> 3] if window else windows.word(link)
        except MemoryUnreadable:
            broken.append(f"the {where} is broken at 0x{chunk:x}")
            break
        seen[chunk] = None
        following = value ^ (link >> 12) if protected else value
        chunk = following - to_chunk if following else 0
        if chunk < 0:
            broken.append(f"the {where} is broken at 0x{following:x}")
            break
    return list(seen)
