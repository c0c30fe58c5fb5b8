"""Finding libc's thread-local variables: at the same distance from every thread pointer, listed in the DTV.

The program's own thread-local memory, which may be megabytes, is in between. Each thread's DTV has the start of the
block of each module. Source: glibc sysdeps/generic/dl-dtv.h, sysdeps/x86_64/nptl/tls.h, elf/dl-tls.c.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from gdbmem.model.memory import Memory, MemoryUnreadable, word_at, words_at
from gdbmem.records import dataclass, field

_MOST_MODULES = 4096
_FARTHEST = 1 << 30
_PAGE = 4096
_ZEROS = bytes(_PAGE)
_NEAR = (-_PAGE, _PAGE)  # if a thread's DTV can't be read
_UNKNOWN_BYTES = 1 << 10  # of libc's own block if its size is unknown


def static_blocks(memory: Memory, pointers: Sequence[int], size: int = 0) -> list[tuple[int, int]]:
    """Return possible starts and ends of blocks of *size* bytes, relative to each of the thread pointers *pointers*.

    These are the blocks at the same distance in every thread; the memory around the pointer if no DTV is readable.
    """
    common: set[int] = set()
    for number, pointer in enumerate(pointers[:4]):
        found = set(_distances(memory, pointer))
        common = found if not number else common & found
    size = size or _UNKNOWN_BYTES
    return [(distance, distance + size) for distance in sorted(common)] or [_NEAR]


def _distances(memory: Memory, pointer: int) -> Iterator[int]:
    try:
        first, second = words_at(memory, pointer, 2)
        table = second if first == pointer else first  # x86: the thread pointer points to itself
        count = word_at(memory, table - 16)
        entries = words_at(memory, table, 2 * min(count, _MOST_MODULES) + 2)
    except MemoryUnreadable:
        return
    for start in entries[2::2]:
        if start % 8 == 0 and abs(start - pointer) < _FARTHEST:
            yield start - pointer


@dataclass
class ThreadVariables:
    """The words of many threads that may be libc's thread-local variables."""

    blocks: dict[int, dict[int, memoryview]] = field(default_factory=dict)  # tid → distance → words

    @classmethod
    def read(cls, memory: Memory, pointers: dict[int, int], size: int) -> ThreadVariables:
        """Read them; *pointers* are the thread pointers by tid, *size* the bytes of libc's thread-local variables."""
        ranges = static_blocks(memory, list(pointers.values()), size)
        result = cls()
        for tid, pointer in pointers.items():
            blocks: dict[int, memoryview] = {}
            for start, end in ranges:
                blocks.update(_readable(memory, pointer, start, end))
            if blocks:
                result.blocks[tid] = blocks
        return result

    def columns(self) -> Iterator[dict[int, int]]:
        """Yield tid → word for each variable that is a pointer in at least one thread."""
        wanted: dict[tuple[int, int], None] = {}
        for blocks in self.blocks.values():
            for start, words in blocks.items():
                wanted.update(dict.fromkeys((start, index) for index in _pointers(words)))
        for start, index in sorted(wanted):
            yield {
                tid: blocks[start][index]
                for tid, blocks in self.blocks.items()
                if start in blocks and index < len(blocks[start])
            }


def _readable(memory: Memory, pointer: int, start: int, end: int) -> dict[int, memoryview]:
    """Return distance → words of the readable memory from *start* to *end* of *pointer*, if necessary by pages."""
    try:
        return {start: memoryview(memory.read(pointer + start, end - start & -8)).cast("Q")}
    except MemoryUnreadable:
        found: dict[int, memoryview] = {}
    at = start
    while at < end:
        further = min(end, at + _PAGE - (pointer + at) % _PAGE)
        with contextlib.suppress(MemoryUnreadable):
            found[at] = memoryview(memory.read(pointer + at, further - at & -8)).cast("Q")
        at = further
    return found


def _pointers(words: memoryview) -> Iterator[int]:
    step = _PAGE // 8
    for first in range(0, len(words), step):
        piece = words[first : first + step]
        if piece.tobytes() != _ZEROS:
            yield from (first + at for at, word in enumerate(piece) if word and not word & 7)
