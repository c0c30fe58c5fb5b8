"""The Python frames of each thread, read from the interpreter's own structures: CPython 3.8 to 3.15.

`find_frames` locates them once; the `FrameReader` that it returns reads them any number of times, in a stopped
process, a copy, a core, or gdb. It is plain Python, and needs neither symbols nor numpy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

from gdbmem.allocators.cpython.code_objects import CodeReader, PythonCode, frame_places, local_names, words
from gdbmem.allocators.cpython.collector import CallDepth, call_depth
from gdbmem.allocators.cpython.interpreters import DebugOffsets, Interpreters, ThreadState, find_interpreters
from gdbmem.allocators.cpython.objects import Types
from gdbmem.linux.memory.maps import Mapping as MemoryMapping
from gdbmem.model.memory import Memory, MemoryUnreadable, word_at
from gdbmem.model.python import PythonCall, PythonThread

_THREAD_WORDS = 64  # bytes of a thread's state that are searched
_FIRST = 3  # skipped first bytes: prev, next and interp
_GLIBC_TID_AT = 720  # in glibc's struct pthread on x86-64
_MOST_FRAMES = 100_000
_TRIES = 50  # attempts to deduce the layout
_ENOUGH = 3  # of them that found one: the frame's word at the lowest offset is taken
_LARGEST_TID = 1 << 22
_TAGS = 7  # low bits of a reference since 3.14
_NO_OBJECT = frozenset({"<shim>", "<interpreter trampoline>"})  # code of frames that represent C


class _FrameLayout(NamedTuple):
    """Offsets of a frame's parts; *unit* is the unit of its instruction offset, 0 if that is an address."""

    previous: int
    code: int
    instruction: int
    unit: int
    owner: Optional[int] = None  # a byte
    from_c: int = 1 << 8  # owners from here on are frames that represent C
    is_entry: Optional[int] = None  # a byte, in 3.11


_IN_3_11 = _FrameLayout(previous=48, code=32, instruction=56, unit=0, is_entry=68)
_IN_3_12 = _FrameLayout(previous=8, code=0, instruction=56, unit=0, owner=70, from_c=3)


class _ThreadLayout(NamedTuple):
    """The offsets that lead from a thread's state to its frames and its name."""

    frame: int
    record: Optional[int]  # its frame is at this offset in the record that the word at *frame* points to
    frames: _FrameLayout
    native_id: Optional[int] = None  # of the kernel's number; since 3.11
    pthread: Optional[int] = None


class LocatedFrame(NamedTuple):
    """A Python frame and the address of its local variables: from *locals_at* on, *names* first, then its stack."""

    tid: Optional[int]
    call: PythonCall
    address: int
    locals_at: int = 0  # 0: in the object at *address*, up to 3.10
    names: Sequence[str] = ()
    end: int = 0


class FrameReader:
    """Reads the Python frames of one process repeatedly. Nothing is written, and no code runs there."""

    def __init__(self, interpreters: Interpreters, layout: _ThreadLayout) -> None:
        self._interpreters, self._layout = interpreters, layout
        self._code: Optional[tuple[Memory, CodeReader]] = None

    @property
    def is_free_threaded(self) -> bool:
        """True if the interpreter is a free-threaded build: its frames refer to code differently."""
        return self._interpreters.offsets is not None and self._interpreters.offsets.free_threaded

    @property
    def debug_offsets(self) -> Optional[DebugOffsets]:
        """The offsets that the interpreter publishes, since 3.13."""
        return self._interpreters.offsets

    def main_interpreter(self, memory: Memory) -> int:
        """Return the address of the main interpreter's state. Raises MemoryUnreadable."""
        return self._interpreters.addresses(memory)[0]

    def call_depth(self, memory: Memory) -> Optional[CallDepth]:
        """Return the offsets of the call depth in a thread's state; None if they were not recognised."""
        layout = self._layout
        return call_depth(
            memory,
            [state.address for state in self._interpreters.threads(memory)],
            layout.frame,
            is_record=layout.record is not None or layout.frames.owner is not None,
            is_3_11=layout.frames.is_entry is not None,
        )

    def threads(self, memory: Memory, pthreads: Optional[Mapping[int, int]] = None) -> list[PythonThread]:
        """Return all threads with a Python thread state, with their frames, the innermost first.

        *pthreads* are the kernel's numbers of threads by their thread pointers (x86-64's fs_base); if one is missing,
        Python's own record of the number is read, or before 3.11 glibc's.

        Raises MemoryUnreadable if the list of threads can't be read.
        """
        found: list[PythonThread] = []
        for state in self._interpreters.threads(memory):
            one = self._thread(memory, state, pthreads or {})
            if any(one.tid == earlier.tid for earlier in found):
                # Up to 3.12 a subinterpreter's state has the thread that created it, not the one that runs it.
                one = one._replace(tid=None)
            found.append(one)
        return found

    def thread(self, memory: Memory, tid: int, pointer: int = 0) -> Optional[PythonThread]:
        """Return the frames of the thread with the kernel's number *tid*; None if Python has no such thread.

        *pointer* is its thread pointer, 0 if unknown. Raises MemoryUnreadable.
        """
        pthreads = {pointer: tid} if pointer else {}
        for state in self._interpreters.threads(memory):
            if self._tid(memory, state.address, pthreads) == tid:
                return self._thread(memory, state, pthreads)
        return None

    def located(self, memory: Memory) -> Iterator[LocatedFrame]:
        """Yield the frames of all threads, with the addresses of their local variables. Raises MemoryUnreadable."""
        for state in self._interpreters.threads(memory):
            tid = self._tid(memory, state.address, {})
            with contextlib.suppress(MemoryUnreadable):
                for address in self._frames(memory, state.address):
                    call = _call(memory, address, self._layout.frames, self._reader(memory))
                    if call.function or call.file:
                        yield self._located(memory, tid, address, call)

    def _located(self, memory: Memory, tid: Optional[int], address: int, call: PythonCall) -> LocatedFrame:
        layout = self._layout.frames
        if layout.unit:
            return LocatedFrame(tid, call, address)
        names, depth = local_names(memory, word_at(memory, address + layout.code) & ~_TAGS)
        last = layout.owner if layout.owner is not None else layout.is_entry
        assert last is not None
        first = address + (last + 8) // 8 * 8
        return LocatedFrame(tid, call, address, first, names, first + 8 * (len(names) + depth))

    def _thread(self, memory: Memory, state: ThreadState, pthreads: Mapping[int, int]) -> PythonThread:
        tid = self._tid(memory, state.address, pthreads)
        calls: list[PythonCall] = []
        whole = True
        try:
            for frame in self._frames(memory, state.address):
                calls.append(_call(memory, frame, self._layout.frames, self._reader(memory)))
        except MemoryUnreadable:
            whole = False
        return PythonThread(tid, state.interpreter, _with_entries(calls, self._layout.frames), whole)

    def _tid(self, memory: Memory, thread: int, pthreads: Mapping[int, int]) -> Optional[int]:
        layout = self._layout
        pthread = word_at(memory, thread + layout.pthread) if layout.pthread is not None else 0
        if pthread in pthreads:
            return pthreads[pthread]
        if layout.native_id is not None:
            tid = word_at(memory, thread + layout.native_id)
        elif pthread:
            tid = words(memory, pthread + _GLIBC_TID_AT, 1)[0] & 0xFFFFFFFF
        else:
            tid = 0
        return tid if 0 < tid <= _LARGEST_TID else None

    def _frames(self, memory: Memory, thread: int) -> Iterator[int]:
        layout = self._layout
        frame = word_at(memory, thread + layout.frame)
        if layout.record is not None and frame:
            frame = word_at(memory, frame + layout.record)
        seen: set[int] = set()
        while frame and frame not in seen and len(seen) < _MOST_FRAMES:
            seen.add(frame)
            yield frame
            frame = word_at(memory, frame + layout.frames.previous)

    def _reader(self, memory: Memory) -> CodeReader:
        if self._code is None or self._code[0] is not memory:
            self._code = memory, CodeReader(memory)
        return self._code[1]


def _call(memory: Memory, frame: int, layout: _FrameLayout, reader: CodeReader) -> PythonCall:
    """Return the frame at *frame*; one that represents C has no file and no function."""
    code = None
    is_c = layout.owner is not None and memory.read(frame + layout.owner, 1)[0] >= layout.from_c
    if not is_c:
        code = reader.at(word_at(memory, frame + layout.code) & ~_TAGS)
    if code is None or code.name in _NO_OBJECT:
        return PythonCall("", "", None, is_entry=True, entered_at=frame if is_c else None)
    entry = True if layout.is_entry is None else bool(memory.read(frame + layout.is_entry, 1)[0])
    return PythonCall(code.name, code.file, code.line(_offset(memory, frame, layout, code)), is_entry=entry)


def _offset(memory: Memory, frame: int, layout: _FrameLayout, code: PythonCode) -> int:
    if layout.unit:
        at = int.from_bytes(memory.read(frame + layout.instruction, 4), "little", signed=True)
        return at * layout.unit
    return word_at(memory, frame + layout.instruction) - code.start


def _with_entries(calls: Sequence[PythonCall], layout: _FrameLayout) -> list[PythonCall]:
    """Return the calls without the frames that represent C, which since 3.12 mark entries into the interpreter."""
    if layout.owner is None:
        return [one for one in calls if one.function or one.file]
    found: list[PythonCall] = []
    for number, one in enumerate(calls):
        if not one.function and not one.file:
            continue
        following = calls[number + 1] if number + 1 < len(calls) else None
        entered = following is None or not (following.function or following.file)
        entered_at = following.entered_at if following is not None else None
        found.append(one._replace(is_entry=entered, entered_at=entered_at))
    return found


def find_frames(memory: Memory, mappings: Sequence[MemoryMapping]) -> Optional[FrameReader]:
    """Return a reader of the Python frames of the process with *memory*; None if they were not recognised."""
    try:
        interpreters = find_interpreters(memory, mappings)
        if interpreters is None:
            return None
    except MemoryUnreadable:
        return None
    layout = _layout_by_offsets(interpreters) or _layout_by_shapes(memory, interpreters)
    return None if layout is None else FrameReader(interpreters, layout)


def _layout_by_shapes(memory: Memory, interpreters: Interpreters) -> Optional[_ThreadLayout]:
    """Return the layout that several attempts deduce, or None: the process may run, and call and return meanwhile.

    If the right word of a thread leads to no frames during an attempt, the attempt may take a word behind it.
    """
    found: list[_ThreadLayout] = []
    for _ in range(_TRIES):
        with contextlib.suppress(MemoryUnreadable):
            layout = _layout_by_shape(memory, interpreters)
            if layout is not None:
                found.append(layout)
        if len(found) == _ENOUGH:
            break
    return min(found, key=lambda layout: layout.frame, default=None)


def _layout_by_offsets(interpreters: Interpreters) -> Optional[_ThreadLayout]:
    offsets = interpreters.offsets
    if offsets is None:
        return None
    frames = _FrameLayout(
        offsets.frame_previous, offsets.frame_executable, offsets.frame_instruction, 0,
        offsets.frame_owner, 3,
    )  # fmt: skip
    return _ThreadLayout(offsets.current_frame, None, frames, offsets.native_thread_id, offsets.thread_id)


def _layout_by_shape(memory: Memory, interpreters: Interpreters) -> Optional[_ThreadLayout]:
    """Return the thread layout, by the first word of the thread's state that leads to frames."""
    reader = CodeReader(memory)
    types = Types(memory)
    for state in interpreters.threads(memory):
        content = words(memory, state.address, _THREAD_WORDS)
        pthread = _pthread_at(memory, content)
        for number in range(_FIRST, _THREAD_WORDS):
            found = _leads_to_frames(memory, content[number], reader, types)
            if found is not None:
                record, frames = found
                has_number = frames.unit == 0 and pthread is not None
                native = pthread + 8 if has_number and pthread is not None else None
                return _ThreadLayout(number * 8, record, frames, native, pthread)
    return None


def _leads_to_frames(
    memory: Memory, word: int, reader: CodeReader, types: Types
) -> Optional[tuple[Optional[int], _FrameLayout]]:
    """Return how *word* leads to a frame: it points to a frame object, or to a record with its address."""
    if word & 7 or word < 4096:
        return None
    kind = words(memory, word + 8, 1)[0]
    found = types.at(kind) if kind else None
    if found is not None and found.name == "frame":
        places = frame_places(memory, kind)
        if places is not None and reader.at(words(memory, word + places[1], 1)[0]) is not None:
            return None, _FrameLayout(*places)
        return None
    for record in (0, 8):
        frame = words(memory, word + record, 1)[0]
        for layout in (_IN_3_11, _IN_3_12):
            if frame > 4096 and not frame & 7 and _is_frame(memory, frame, layout, reader):
                return record, layout
    return None


def _is_frame(memory: Memory, frame: int, layout: _FrameLayout, reader: CodeReader) -> bool:
    code = reader.at(words(memory, frame + layout.code, 1)[0])
    if code is None or not code.start:
        return False
    instruction = words(memory, frame + layout.instruction, 1)[0]
    return code.start - 2 <= instruction < code.start + max(code.bytes, 2)


def _pthread_at(memory: Memory, content: Sequence[int]) -> Optional[int]:
    """Return the offset of the pthread's address in a thread's state: a record that begins with its own address."""
    for number in range(_FIRST, len(content)):
        word = content[number]
        if word > 4096 and not word & 7:
            first, _, third = words(memory, word, 3)
            if first == word == third:
                return number * 8
    return None
