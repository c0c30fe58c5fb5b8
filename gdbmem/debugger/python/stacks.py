"""The frames of the threads in gdb, with Python's in place of the interpreter's loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

import gdb

from gdbmem.allocators.cpython.frames import FrameReader
from gdbmem.analysis.python_frames import interleave
from gdbmem.debugger.gdb_text import library_at, source_file
from gdbmem.debugger.ledger.here import core_path, local_pid
from gdbmem.debugger.location import program_file
from gdbmem.debugger.selection import selection_kept, thread_pointer
from gdbmem.errors import TargetError
from gdbmem.inspection.process_maps import read_smaps
from gdbmem.inspection.python.python_stacks import frame_reader
from gdbmem.linux.elf.corefile import CoreFile
from gdbmem.linux.memory.process_memory import ProcMemory, careful_memory
from gdbmem.model.memory import Memory
from gdbmem.model.profiles.calltree import Frame
from gdbmem.model.python import MixedStack, PythonThread

_MOST_FRAMES = 10_000


def stacks_here(*, every: bool, fold: bool, swapped: bool) -> list[MixedStack]:
    """Return the frames of the selected thread, or of *every* one. Raises TargetError without Python."""
    core = core_path()
    if core is not None:
        read = CoreFile(core)
        return _stacks(read, frame_reader(read, read.mappings()), every=every, fold=fold)
    pid = local_pid()
    with ProcMemory(pid) as memory:
        mappings = read_smaps(pid)
        careful = careful_memory(pid, memory, mappings, swapped=swapped)
        return _stacks(careful, frame_reader(careful, mappings, pid), every=every, fold=fold)


def _stacks(memory: Memory, reader: FrameReader, *, every: bool, fold: bool) -> list[MixedStack]:
    native, pthreads = {}, {}
    with selection_kept():
        for thread in _threads(every=every):
            thread.switch()
            tid = int(thread.ptid[1])
            native[tid] = _native_frames()
            pthreads[thread_pointer()] = tid
    known = {one.tid: one for one in reader.threads(memory, pthreads) if one.tid is not None}
    return [_mixed(tid, frames, known, fold=fold) for tid, frames in native.items()]


def _threads(*, every: bool) -> Sequence[gdb.InferiorThread]:
    selected = gdb.selected_thread()
    if selected is None:
        raise TargetError("no thread is selected", slug="not-running", hint="type 'info threads'")
    return sorted(gdb.selected_inferior().threads(), key=lambda one: int(one.num)) if every else [selected]


def _native_frames() -> tuple[list[Frame], list[int]]:
    """Return the selected thread's frames, innermost first, with library or program, and their stack pointers."""
    frames: list[Frame] = []
    stack_pointers: list[int] = []
    word = gdb.lookup_type("unsigned long")
    try:
        frame: Optional[gdb.Frame] = gdb.newest_frame()
        while frame is not None and len(frames) < _MOST_FRAMES:
            position = frame.find_sal()
            file = source_file(position.symtab)
            frames.append(
                Frame(
                    frame.name(),
                    file,
                    position.line if file else None,
                    library_at(frame.pc()) or program_file(),
                    frame.type() == gdb.INLINE_FRAME,
                )
            )
            stack_pointers.append(int(frame.read_register("sp").cast(word)) & (1 << 64) - 1)
            frame = frame.older()
    except gdb.error:
        pass  # the rest can't be unwound
    return frames, stack_pointers


def _mixed(
    tid: int,
    native: tuple[Sequence[Frame], Sequence[int]],
    known: Mapping[int, PythonThread],
    *,
    fold: bool,
) -> MixedStack:
    thread = known.get(tid)
    if thread is None:
        return MixedStack(tid, native[0], 0)
    frames = interleave(native[0], thread.frames, native[1], fold=fold)
    return MixedStack(tid, frames, len(thread.frames), thread.is_whole)
