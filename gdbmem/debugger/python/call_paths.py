"""The Python frames in the call path of a stopped thread, read repeatedly while a program is driven."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import PurePath
from typing import Optional

import gdb

from gdbmem.allocators.cpython.frames import FrameReader
from gdbmem.analysis.profiles.own_code import own_frame
from gdbmem.analysis.python_frames import as_frame, interleave, is_interpreters
from gdbmem.debugger.location import program_file
from gdbmem.errors import GdbmemError
from gdbmem.inspection.process_maps import read_smaps
from gdbmem.inspection.python.python_stacks import frame_reader
from gdbmem.linux.memory.process_memory import CarefulMemory, ProcMemory, absent_pages
from gdbmem.model.memory import MemoryUnreadable
from gdbmem.model.profiles.calltree import Frame
from gdbmem.model.python import PythonCall

_DEEPEST = 48  # Python frames of a path


class PythonPaths:
    """Reads the Python frames of one process; without Python it only checks the libraries of each new path."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._memory: Optional[ProcMemory] = None
        self.forget()

    def forget(self) -> None:
        """Clear all state: the process executes another program."""
        self.close()
        self._reader: Optional[FrameReader] = None
        self._tried, self._wanted = 0, 1
        self._through_python: dict[tuple[int, ...], bool] = {}

    def close(self) -> None:
        """Close the memory of the process."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def calls(self, addresses: tuple[int, ...], tid: int) -> Sequence[PythonCall]:
        """Return the Python frames of the stopped thread *tid*, whose path has *addresses*, the innermost first.

        There are none if the path has no Python frames, or if they can't be read.
        """
        if addresses not in self._through_python:
            self._through_python[addresses] = any(
                is_interpreters(Frame(object=object_at(address))) for address in addresses
            )
        reader = self._found() if self._through_python[addresses] else None
        try:
            thread = None if reader is None or self._memory is None else reader.thread(self._memory, tid)
        except MemoryUnreadable:
            return ()
        return () if thread is None else thread.frames[:_DEEPEST]

    def _found(self) -> Optional[FrameReader]:
        # A Python that is still starting is tried less and less often.
        if self._reader is not None:
            return self._reader
        self._tried += 1
        if self._tried < self._wanted:
            return None
        self._wanted *= 2
        try:
            self._memory = self._memory or ProcMemory(self._pid)
            mappings = read_smaps(self._pid)
            careful = CarefulMemory(self._memory, mappings, absent_pages(self._pid, mappings, swapped=False))
            self._reader = frame_reader(careful, mappings, self._pid)
        except GdbmemError:
            return None
        return self._reader


def object_at(address: int) -> str:
    """Return the library that contains *address*, else the program."""
    return gdb.solib_name(address) or program_file()


def with_python(
    frames: Sequence[gdb.Frame], native: Sequence[Frame], calls: Sequence[PythonCall]
) -> list[Frame]:
    """Return *native*, the descriptions of *frames*, with Python's *calls* in place of the interpreter's loop.

    Without *calls* they stay as they are.
    """
    if not calls:
        return list(native)
    word = gdb.lookup_type("unsigned long")
    stack_pointers = [int(frame.read_register("sp").cast(word)) & (1 << 64) - 1 for frame in frames]
    in_objects = [one._replace(object=object_at(frame.pc())) for frame, one in zip(frames, native)]
    named = [whole if is_interpreters(whole) else one for whole, one in zip(in_objects, native)]
    return interleave(named, calls, stack_pointers)


def python_place(frames: Sequence[gdb.Frame], native: Sequence[Frame]) -> Optional[str]:
    """Return the location of the selected thread in the user's own Python: ``function at file:line``.

    None if its path, *frames* described by *native*, has none, or it can't be read.
    """
    pid, tid, _ = gdb.selected_thread().ptid
    try:
        with contextlib.closing(PythonPaths(pid)) as paths:
            calls = paths.calls(tuple(frame.pc() for frame in frames), tid)
    except GdbmemError:
        return None
    mixed = with_python(frames, native, calls)
    own = mixed[max(own_frame(mixed), 0)]
    if own not in [as_frame(call) for call in calls] or own.file is None:
        return None
    return f"{own.function} at {PurePath(own.file).name}:{own.line}"
