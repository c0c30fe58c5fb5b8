"""Offsets that CPython publishes since 3.13 (_Py_DebugOffsets), as far as they are consistent.

They are at the start of _PyRuntime, after a cookie. Groups are found by their possible contents, because versions
insert members; each offset comes from the process, and is checked against the size of its structure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

from gdbmem.linux.memory.maps import Mapping
from gdbmem.model.memory import Memory, MemoryUnreadable, read_pieces, word_at, words_at
from gdbmem.records import dataclass

COOKIE = b"xdebugpy"
NEWEST_KNOWN = (3, 15)  # release with which all readers of this folder were tested
_MAJOR = 3
_MOST_WORDS = 120
_LARGEST = 1 << 22  # bytes of an interpreter's state
_PATH_BYTES = 512  # of debugger_script_path (PEP 768)
# A member may be in between; the collector's state, which 3.13 has there, is farther away.
_MAIN_AFTER_HEAD = (8, 16)
_PIECE = 1 << 22
_LARGEST_FRAME = 512  # bytes, without local variables
_NUMBERS_WITHIN = (
    12  # words after a thread's *interp*; 3.13 and 3.14 have the numbers in the second, 3.15 in the fifth
)
_LARGEST_TID = 1 << 22


@dataclass(frozen=True)
class RemoteDebugging:
    """Offsets of PEP 768's words in a thread's state, of *enabled* in an interpreter's."""

    eval_breaker: int
    support: int
    enabled: int
    pending_call: int  # from support on
    script_path: int  # from support on
    path_bytes: int


@dataclass(frozen=True)
class DebugOffsets:
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
        for start, data in read_pieces(memory, mapping.start, mapping.end, _PIECE, _MOST_WORDS * 8):
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
