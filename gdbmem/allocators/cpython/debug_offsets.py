"""Offsets that CPython publishes since 3.13 (_Py_DebugOffsets), as far as they are consistent.

They are at the start of _PyRuntime, after a cookie. Groups are found by their possible contents, because versions
insert members; each offset comes from the process, and is checked against the size of its structure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Optional

from gdbmem.linux.memory.maps import Mapping
from gdbmem.model.memory import Memory, read_pieces
from gdbmem.records import dataclass

COOKIE = b"xdebugpy"
_MOST_WORDS = 120
_LARGEST = 1 << 22  # bytes of an interpreter's state
_PATH_BYTES = 512  # of debugger_script_path (PEP 768)
# A member may be in between; the collector's state, which 3.13 has there, is farther away.
_MAIN_AFTER_HEAD = (8, 16)
_PIECE = 1 << 22


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
    for mapping in mappings:
        if not mapping.is_file or "w" not in mapping.permissions:
            continue
        for start, data in read_pieces(memory, mapping.start, mapping.end, _PIECE, _MOST_WORDS * 8):
            at = data.find(COOKIE)
            while at >= 0:
                words = struct.unpack_from(f"<{min(_MOST_WORDS, (len(data) - at) // 8)}Q", data, at)
                found = _decoded(start + at, words)
                if found is not None:
                    return found
                at = data.find(COOKIE, at + 1)
    return None


def _decoded(runtime: int, words: Sequence[int]) -> Optional[DebugOffsets]:
    """Return the offsets among *words*; None unless they agree with each other."""
    if len(words) < _MOST_WORDS:
        return None
    version = words[1]
    _, _, interpreters_head = words[3:6]
    interpreter_bytes, _, interpreter_next, threads_head, fifth = words[6:11]
    thread = _thread_group(words)
    if thread is None or version >> 24 != 3 or words[2] > 1:
        return None
    thread_bytes, _, thread_next, _, frame, pthread, native = words[thread : thread + 7]
    frame_bytes, previous, executable, instruction, _, owner = words[thread + 9 : thread + 15]
    sizes = (
        (words[3], (interpreters_head,)),
        (interpreter_bytes, (interpreter_next, threads_head)),
        (thread_bytes, (thread_next, frame, pthread, native)),
        (frame_bytes, (previous, executable, instruction, owner)),
    )
    if not all(size <= _LARGEST and all(one < size for one in offsets) for size, offsets in sizes):
        return None
    return DebugOffsets(
        runtime, (version >> 24 & 255, version >> 16 & 255, version >> 8 & 255), bool(words[2]),
        interpreters_head, interpreter_next, threads_head,
        fifth if fifth - threads_head in _MAIN_AFTER_HEAD else None,
        thread_next, frame, pthread, native, previous, executable, instruction, owner,
        _remote(words, interpreter_bytes, thread_bytes),
    )  # fmt: skip


def _thread_group(words: Sequence[int]) -> Optional[int]:
    """Return the beginning of the group of a thread's state: size, prev 0, next 8, interp 16."""
    for at in range(9, _MOST_WORDS - 16):
        if (
            tuple(words[at + 1 : at + 4]) == (0, 8, 16)
            and words[at] > 128
            and words[at + 6] == words[at + 5] + 8
        ):
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
