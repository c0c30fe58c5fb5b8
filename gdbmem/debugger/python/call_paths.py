"""The Python frames in the call path of a stopped thread, read repeatedly while a program is driven."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Optional

import gdb

from gdbmem.debugger.location import current_place, loaded_files, program_file, real_pid, stack_pointer
from gdbmem.debugger.program import NATIVE, VALGRIND, target_kind, thread_pointer
from gdbmem.debugger.session import session
from gdbmem.debugger.terminal import library_at
from gdbmem.errors import GdbmemError
from gdbmem.linux.memory.maps import read_smaps
from gdbmem.linux.memory.process_memory import ProcMemory, careful_memory, random_bytes
from gdbmem.model.calltree import Frame
from gdbmem.model.memory import MemoryUnreadable
from gdbmem.profiles.own_code import own_frame
from gdbmem.python.frames import as_frame, interleave, is_interpreters

if TYPE_CHECKING:
    from gdbmem.allocators.cpython.frames import FrameReader
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
        """Return the Python frames of *tid*, the selected thread, whose path has *addresses*, the innermost first.

        There are none if the path has no Python frames, or if they can't be read.
        """
        if addresses not in self._through_python:
            self._through_python[addresses] = any(
                is_interpreters(Frame(object=object_at(address))) for address in addresses
            )
        return self.calls_of_thread(tid) if self._through_python[addresses] else ()

    def calls_of_thread(self, tid: int) -> Sequence[PythonCall]:
        """Return the Python frames of *tid*, the selected thread, the innermost first; none if they can't be read."""
        reader = self._found()
        if reader is None or self._memory is None:
            return ()
        try:
            # In a container Python has another number of the thread.
            thread = reader.thread(self._memory, tid, thread_pointer())
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
        from gdbmem.inspection.stacks import frame_reader  # slow to import

        try:
            self._memory = self._memory or ProcMemory(self._pid)
            mappings = read_smaps(self._pid)
            careful = careful_memory(self._pid, self._memory, mappings, swapped=False)
            self._reader = frame_reader(careful, mappings, self._pid)
        except GdbmemError:
            return None
        return self._reader


def object_at(address: int) -> str:
    """Return the library that contains *address*, else the program."""
    return library_at(address) or program_file()


def with_python(
    frames: Sequence[gdb.Frame], native: Sequence[Frame], calls: Sequence[PythonCall]
) -> list[Frame]:
    """Return *native*, the descriptions of *frames*, with Python's *calls* in place of the interpreter's loop.

    Without *calls* they stay as they are.
    """
    if not calls:
        return list(native)
    stack_pointers = [stack_pointer(frame) for frame in frames]
    in_objects = [one._replace(object=object_at(frame.pc())) for frame, one in zip(frames, native)]
    named = [whole if is_interpreters(whole) else one for whole, one in zip(in_objects, native)]
    return interleave(named, calls, stack_pointers)


def in_python(frames: Sequence[gdb.Frame], native: Sequence[Frame]) -> bool:
    """Return whether the user's own innermost code in the path of the selected thread is Python.

    *native* are the descriptions of *frames*.
    """
    calls = _calls_here()
    mixed = with_python(frames, native, calls)
    return mixed[max(own_frame(mixed), 0)] in [as_frame(call) for call in calls]


def python_place() -> Optional[str]:
    """Return the location of the selected thread in the user's own Python; None if unknown."""
    path = [as_frame(call) for call in _calls_here()]
    own = path[max(own_frame(path), 0)] if path else Frame(None)
    return None if own.file is None else f"{own.function} at {PurePath(own.file).name}:{own.line}"


def beside(place: Optional[str], python: Optional[str]) -> Optional[str]:
    """Return a native *place* and that in *python*, which it was called from, in words."""
    return f"{place}, from {python}" if place and python else place


def place_and_python() -> Optional[str]:
    """Return the location of the selected thread, and the line of Python that it was called from, if any.

    None when nothing runs.
    """
    return beside(current_place(), python_place())


def _calls_here() -> Sequence[PythonCall]:
    """Return the Python frames of the selected thread, the innermost first."""
    if not _has_interpreter(tuple(loaded_files())):
        return ()
    thread, pid = gdb.selected_thread(), _pid_here()
    if thread is None or pid is None:
        return ()
    return _recent.paths_of(pid).calls_of_thread(thread.ptid[1])


@functools.lru_cache(maxsize=1)
def _has_interpreter(files: tuple[str, ...]) -> bool:
    return any(is_interpreters(Frame(object=name)) for name in files)


def _pid_here() -> Optional[int]:
    """Return the pid of the program if it runs on this machine, by itself or under the valgrind that was launched."""
    kind = target_kind()
    return real_pid() if kind == NATIVE or (kind == VALGRIND and session.wire is not None) else None


class _Recent:
    """The reader of the process that was read last: finding its frames takes up to 60 ms, reading them 0.2 ms."""

    def __init__(self) -> None:
        self._program: tuple[int, bytes] = 0, b""
        self._paths: Optional[PythonPaths] = None

    def paths_of(self, pid: int) -> PythonPaths:
        """Return the reader of process *pid* and the program that it executes now."""
        program = pid, random_bytes(pid)
        if self._paths is None or program != self._program:
            if self._paths is not None:
                self._paths.close()
            self._program, self._paths = program, PythonPaths(pid)
        return self._paths


_recent = _Recent()
