"""CPython's interpreters and their threads, found without symbols: by _Py_DebugOffsets, before 3.13 by structure.

Structure (Include/cpython/pystate.h, 3.8 to 3.12): a thread's state begins with prev, next and its interpreter; an
interpreter's begins with the next one and has the first thread's state among its first words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from gdbmem.allocators.cpython.debug_offsets import DebugOffsets, find_debug_offsets
from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.memory.pages import Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable, read_pieces, word_at, words_at
from gdbmem.records import dataclass

_FIRST_THREAD_AT = range(8, 136, 8)  # in an interpreter's state
_MOST_THREADS, _MOST_INTERPRETERS = 100_000, 10_000
_PIECE = 1 << 20


@dataclass(frozen=True)
class ThreadState:
    """The address of one thread's state, and the number of its interpreter, the oldest being 0."""

    address: int
    interpreter: int


@dataclass(frozen=True)
class Interpreters:
    """The heads and links of the lists of interpreters and of their threads."""

    head: int  # address of the word that leads to the first interpreter
    interpreter_next: int
    first_thread: int  # in an interpreter's state
    thread_next: int
    offsets: Optional[DebugOffsets] = None  # since 3.13

    def addresses(self, memory: Memory) -> list[int]:
        """Return the interpreters, the oldest first. Raises MemoryUnreadable."""
        return _linked(memory, word_at(memory, self.head), self.interpreter_next, _MOST_INTERPRETERS)[::-1]

    def threads(self, memory: Memory) -> Iterator[ThreadState]:
        """Yield the threads of all interpreters, the oldest first. Raises MemoryUnreadable."""
        for number, interpreter in enumerate(self.addresses(memory)):
            first = word_at(memory, interpreter + self.first_thread)
            for address in _linked(memory, first, self.thread_next, _MOST_THREADS)[::-1]:
                yield ThreadState(address, number)


def _linked(memory: Memory, first: int, next_at: int, most: int) -> list[int]:
    """Return the addresses of a list, each once."""
    found: dict[int, None] = {}
    while first and first not in found and len(found) < most:
        found[first] = None
        first = word_at(memory, first + next_at)
    return list(found)


def find_interpreters(memory: Memory, mappings: Sequence[Mapping]) -> Optional[Interpreters]:
    """Return the interpreters of a process; None if none was recognised."""
    offsets = find_debug_offsets(memory, mappings)
    if offsets is not None:
        return Interpreters(
            offsets.runtime + offsets.interpreters_head,
            offsets.interpreter_next,
            offsets.threads_head,
            offsets.thread_next,
            offsets,
        )
    shape = _Shape(memory, mappings)
    areas = list(_data_areas(mappings))
    # Nearly always there is one interpreter: the first one is the main one.
    return shape.search(areas, alike=True) or shape.search(areas, alike=False)


class _Shape:
    """Recognises interpreters up to 3.12 by their structure."""

    def __init__(self, memory: Memory, mappings: Sequence[Mapping]) -> None:
        self._writable = Ranges((m.start, m.end) for m in mappings if m.permissions.startswith("rw"))
        self._memory = memory
        self._known: dict[int, list[int]] = {}

    def search(self, areas: Sequence[tuple[int, int]], *, alike: bool) -> Optional[Interpreters]:
        """Return the interpreters that two consecutive words point to: the first and the main one, *alike* or not."""
        for start, end in areas:
            for piece, data in read_pieces(self._memory, start, end, _PIECE, 8):
                words = memoryview(data).cast("Q").tolist()
                for number, head, main in self._pairs(words, alike):
                    first = self._first_thread_at(head, main)
                    if first is not None:
                        return Interpreters(piece + number * 8, 0, first, 8)
        return None

    def _pairs(self, words: Sequence[int], alike: bool) -> Iterator[tuple[int, int, int]]:
        areas = self._writable.items or [(0, 0)]
        low, high = areas[0][0], areas[-1][1]
        for number, (head, main) in enumerate(zip(words, words[1:])):
            if low <= head < high and low <= main < high and (head == main) is alike:
                yield number, head, main

    def _first_thread_at(self, head: int, main: int) -> Optional[int]:
        """Return the offset of an interpreter's first thread, if *head* leads to *main*, the last one; else None."""
        for offset in self._thread_offsets(main):
            if offset in self._thread_offsets(head):
                try:
                    interpreters = _linked(self._memory, head, 0, _MOST_INTERPRETERS)
                except MemoryUnreadable:
                    continue
                if interpreters[-1] == main and all(
                    offset in self._thread_offsets(one) for one in interpreters
                ):
                    return offset
        return None

    def _thread_offsets(self, interpreter: int) -> list[int]:
        """Return the possible offsets of the first thread in an interpreter's state; none if it is not such a state."""
        if interpreter not in self._known:
            self._known[interpreter] = list(self._read_offsets(interpreter))
        return self._known[interpreter]

    def _read_offsets(self, interpreter: int) -> Iterator[int]:
        if not self._holds(interpreter):
            return
        try:
            content = words_at(self._memory, interpreter, _FIRST_THREAD_AT.stop // 8)
        except MemoryUnreadable:
            return
        for offset in _FIRST_THREAD_AT:
            if self._is_first_thread(content[offset // 8], interpreter):
                yield offset

    def _is_first_thread(self, address: int, interpreter: int) -> bool:
        if address == interpreter or not self._holds(address):
            return False
        try:
            before, following, owner = words_at(self._memory, address, 3)
        except MemoryUnreadable:
            return False
        return owner == interpreter and before == 0 and (not following or self._holds(following))

    def _holds(self, address: int) -> bool:
        """Return whether *address* is in memory that the process may write."""
        return not address & 7 and address in self._writable


def _data_areas(mappings: Sequence[Mapping]) -> Iterator[tuple[int, int]]:
    """Yield the writable data of files, those with "python" in their names first, each followed by its .bss."""
    areas: list[tuple[bool, int, int]] = []
    for number, mapping in enumerate(mappings):
        if not mapping.is_file or not mapping.permissions.startswith("rw"):
            continue
        end = mapping.end
        for following in mappings[number + 1 :]:
            if following.start != end or not following.is_anonymous or following.name.startswith("[heap"):
                break
            if "w" in following.permissions:
                end = following.end
        areas.append(("python" not in mapping.name, mapping.start, end))
    for _, start, end in sorted(areas):
        yield start, end
