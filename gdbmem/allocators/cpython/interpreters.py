"""CPython's interpreters and their threads, found without symbols: by _Py_DebugOffsets, before 3.13 by structure.

Structure (Include/cpython/pystate.h, 3.8 to 3.12): a thread's state begins with prev, next and its interpreter; an
interpreter's begins with the next one and has the first thread's state among its first words.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Optional

from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable, read_pieces, word_at, words_at

# Offsets that CPython publishes since 3.13 (_Py_DebugOffsets), as far as they are consistent.
#
# They are at the start of _PyRuntime, after a cookie. Groups are found by their possible contents, because versions
# insert members; each offset comes from the process, and is checked against the size of its structure.


COOKIE = b"xdebugpy"
NEWEST_KNOWN = (3, 15)  # release with which all readers of this folder were tested
_MAJOR = 3
_MOST_WORDS = 120
_LARGEST = 1 << 22  # bytes of an interpreter's state
_PATH_BYTES = 512  # of debugger_script_path (PEP 768)
# A member may be in between; the collector's state, which 3.13 has there, is farther away.
_MAIN_AFTER_HEAD = (8, 16)
_TABLE_PIECE = 1 << 22
_LARGEST_FRAME = 512  # bytes, without local variables
_NUMBERS_WITHIN = (
    12  # words after a thread's *interp*; 3.13 and 3.14 have the numbers in the second, 3.15 in the fifth
)
_LARGEST_TID = 1 << 22


class RemoteDebugging(NamedTuple):
    """Offsets of PEP 768's words in a thread's state, of *enabled* in an interpreter's."""

    eval_breaker: int
    support: int
    enabled: int
    pending_call: int  # from support on
    script_path: int  # from support on
    path_bytes: int


class DebugOffsets(NamedTuple):
    """Offsets of the words that lead from the runtime to the frames."""

    runtime: int  # address
    version: tuple[int, int, int]
    free_threaded: bool
    interpreters_head: int  # in the runtime
    interpreter_next: int
    threads_head: int  # in an interpreter
    threads_main: Optional[int]  # in an interpreter, since 3.14
    thread_next: int
    current_frame: int
    thread_id: int
    native_thread_id: int
    frame_previous: int
    frame_executable: int
    frame_instruction: int
    frame_owner: int
    remote: Optional[RemoteDebugging] = None


def find_debug_offsets(memory: Memory, mappings: Iterable[Mapping]) -> Optional[DebugOffsets]:
    """Return the offsets in the writable data of the process's files; None if there are none, or invalid ones."""
    found = (_decoded(memory, at, words) for at, words in _published(memory, mappings))
    return next((one for one in found if one is not None), None)


def published_version(memory: Memory, mappings: Iterable[Mapping]) -> Optional[tuple[int, int, int]]:
    """Return the version that stands before the offsets, valid or not; None if there are none (before 3.13)."""
    found = (_version(words[1]) for _, words in _published(memory, mappings))
    return next((one for one in found if one[0] == _MAJOR), None)


def _version(word: int) -> tuple[int, int, int]:
    return word >> 24, word >> 16 & 255, word >> 8 & 255


def _published(memory: Memory, mappings: Iterable[Mapping]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the address of each cookie, and the words from there on."""
    for mapping in mappings:
        if not mapping.is_file or "w" not in mapping.permissions:
            continue
        for start, data in read_pieces(memory, mapping.start, mapping.end, _TABLE_PIECE, _MOST_WORDS * 8):
            at = data.find(COOKIE)
            while at >= 0:
                count = min(_MOST_WORDS, (len(data) - at) // 8)
                if count > 1:
                    yield start + at, struct.unpack_from(f"<{count}Q", data, at)
                at = data.find(COOKIE, at + 1)


def _decoded(memory: Memory, runtime: int, words: Sequence[int]) -> Optional[DebugOffsets]:
    """Return the offsets among *words*; None unless they agree with each other."""
    if len(words) < _MOST_WORDS:
        return None
    _, _, interpreters_head = words[3:6]
    interpreter_bytes, _, interpreter_next, threads_head, fifth = words[6:11]
    thread = _thread_group(words)
    if thread is None or _version(words[1])[0] != _MAJOR or words[2] > 1:
        return None
    thread_bytes, _, thread_next, _, frame = words[thread : thread + 5]
    numbers = _numbers_at(memory, runtime, words, thread)
    frames = _frame_group(words, thread + 5)
    if numbers is None or frames is None:
        return None
    pthread, native = words[numbers : numbers + 2]
    frame_bytes, previous, executable, instruction, _, owner = words[frames : frames + 6]
    sizes = (
        (words[3], (interpreters_head,)),
        (interpreter_bytes, (interpreter_next, threads_head)),
        (thread_bytes, (thread_next, frame, pthread, native)),
        (frame_bytes, (previous, executable, instruction, owner)),
    )
    if not all(size <= _LARGEST and all(one < size for one in offsets) for size, offsets in sizes):
        return None
    return DebugOffsets(
        runtime, _version(words[1]), bool(words[2]),
        interpreters_head, interpreter_next, threads_head,
        fifth if fifth - threads_head in _MAIN_AFTER_HEAD else None,
        thread_next, frame, pthread, native, previous, executable, instruction, owner,
        _remote(words, interpreter_bytes, thread_bytes),
    )  # fmt: skip


def _thread_group(words: Sequence[int]) -> Optional[int]:
    """Return the beginning of the group of a thread's state: size, prev 0, next 8, interp 16, current_frame."""
    for at in range(9, _MOST_WORDS - 2 * _NUMBERS_WITHIN):
        if tuple(words[at + 1 : at + 4]) == (0, 8, 16) and 128 < words[at] <= _LARGEST:
            return at
    return None


def _numbers_at(memory: Memory, runtime: int, words: Sequence[int], thread: int) -> Optional[int]:
    """Return the place of thread_id, which native_thread_id follows, by what the first thread's state has there.

    Since 3.15 other pairs of adjacent members precede them.
    """
    pairs = [
        at
        for at in range(thread + 5, thread + 4 + _NUMBERS_WITHIN)
        if 16 < words[at] == words[at + 1] - 8 < words[thread] - 8
    ]
    for at in pairs:
        try:
            interpreter = word_at(memory, runtime + words[5])
            state = word_at(memory, interpreter + words[9])
            pthread, native = words_at(memory, state + words[at], 2)
            # The C library's record of a thread begins with its own address.
            if 0 < native <= _LARGEST_TID and word_at(memory, pthread) == pthread:
                return at
        except MemoryUnreadable:
            continue
    return pairs[0] if len(pairs) == 1 else None


def _frame_group(words: Sequence[int], first: int) -> Optional[int]:
    """Return the beginning of the group of a frame from word *first* on: size, previous, executable, instr_ptr,
    localsplus, which is the last member, owner.
    """
    for at in range(first, len(words) - 6):
        size, previous, executable, instruction, variables, owner = words[at : at + 6]
        places = {previous, executable, instruction, variables}
        is_frame = variables < size == variables + 8 <= _LARGEST_FRAME and variables - 16 < owner < variables
        if is_frame and len(places) == 4 and all(one % 8 == 0 and one <= variables for one in places):
            return at
    return None


def _remote(words: Sequence[int], interpreter_bytes: int, thread_bytes: int) -> Optional[RemoteDebugging]:
    """Return the group of PEP 768: it ends with the room for a path, before which that path begins at 4."""
    for at in range(30, _MOST_WORDS - 6):
        breaker, support, enabled, pending, path, room = words[at : at + 6]
        is_inside = max(breaker + 8, support + path + room) <= thread_bytes and enabled < interpreter_bytes
        if (pending, path, room) == (0, 4, _PATH_BYTES) and is_inside:
            return RemoteDebugging(breaker, support, enabled, pending, path, room)
    return None


_FIRST_THREAD_AT = range(8, 136, 8)  # in an interpreter's state
_MOST_THREADS, _MOST_INTERPRETERS = 100_000, 10_000
_PIECE = 1 << 20


class ThreadState(NamedTuple):
    """The address of one thread's state, and the number of its interpreter, the oldest being 0."""

    address: int
    interpreter: int


class Interpreters(NamedTuple):
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
