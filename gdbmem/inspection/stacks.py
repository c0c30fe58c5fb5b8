"""The stacks of the threads of a process or a core: Python's frames, read in its memory, and the native call paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.allocators.cpython.frames import FrameReader, find_frames
from gdbmem.allocators.cpython.interpreters import published_version
from gdbmem.errors import Notice, TargetError
from gdbmem.formats.addresses import Binary
from gdbmem.inspection.live_process import Held, Moment, Say, Subject, ask_process
from gdbmem.inspection.python_queries import check_python, free_threaded, refuse_newer
from gdbmem.linux.elf.corefile import CoreFile
from gdbmem.linux.holding.ptrace import Freeze, HeldThread, held_threads, threads_out_of_memory
from gdbmem.linux.memory.maps import Mapping, Ranges, parse_maps, read_maps_text
from gdbmem.linux.memory.process_memory import CarefulMemory, ProcMemory, absent_pages
from gdbmem.linux.process.process import process_facts, thread_name
from gdbmem.model.memory import Memory, MemoryUnreadable
from gdbmem.model.python import PythonStacks, PythonThread
from gdbmem.symbols.call_paths import Place
from gdbmem.symbols.unwind_tables import UnwindTable
from gdbmem.symbols.unwinder import MACHINES, Unwinder, code_in, sampled_registers
from gdbmem.text import plural

_Answer = tuple[list[PythonThread], list[HeldThread]]


def frame_reader(memory: Memory, mappings: Sequence[Mapping], pid: Optional[int] = None) -> FrameReader:
    """Return a reader of the Python frames of process *pid*, or of a core, with this *memory*. Raises TargetError."""
    check_python(mappings, pid)
    reader = find_frames(memory, mappings)
    if reader is None:
        refuse_newer(published_version(memory, mappings), "the frames")
        raise TargetError(
            "no Python interpreter with frames was recognised in this process",
            slug="python-no-frames",
            hint="has Python been initialised yet, or is it ending?",
        )
    if reader.is_free_threaded:
        raise free_threaded()
    return reader


class _Stacks(NamedTuple):
    """The query for the Python frames of the threads."""

    mappings: Sequence[Mapping]
    absent: Ranges
    reader: FrameReader

    def of_process(self, held: Held) -> _Answer:
        return self._ask(CarefulMemory(held.memory, self.mappings, self.absent), held.threads)

    def of_copy(self, moment: Moment, memory: Memory) -> _Answer:
        return self._ask(memory, moment.threads)

    def _ask(self, memory: Memory, held: Sequence[HeldThread]) -> _Answer:
        return self.reader.threads(memory, {one.thread_pointer: one.tid for one in held}), list(held)


def stacks_of_process(pid: int, *, fork: Optional[bool], swapped: bool, say: Say) -> PythonStacks:
    """Return the Python frames of live process *pid*; *fork*, *say* and errors as for `ask_process`."""
    name = process_facts(pid).name

    def prepare(subject: Subject) -> _Stacks:
        absent = absent_pages(pid, subject.mappings, swapped=swapped)
        careful = CarefulMemory(subject.memory, subject.mappings, absent)
        return _Stacks(subject.mappings, absent, frame_reader(careful, subject.mappings, pid))

    (threads, held), pause = ask_process(pid, prepare, fork=fork, brief=True, say=say)
    calls = {one.tid: one.system_call for one in held}
    named = [
        one._replace(name=thread_name(pid, one.tid), system_call=_call(calls.get(one.tid)))
        if one.tid is not None
        else one
        for one in threads
    ]
    return _stacks(name, pid, named, len(held), pause)


def stacks_of_core(path: Path, program: Optional[Path]) -> PythonStacks:
    """Return the Python frames in core file *path*. Raises InputError if it is not a core, or of another program."""
    core = CoreFile(path, program)
    reader = frame_reader(core, core.mappings())
    threads = reader.threads(core, {one.thread_pointer: one.tid for one in core.threads})
    calls = {one.tid: one.system_call for one in core.threads}
    known = [
        one._replace(system_call=_call(calls.get(one.tid))) if one.tid is not None else one for one in threads
    ]
    return _stacks(core.program, None, known, len(core.threads), None)


def _call(number: Optional[int]) -> Optional[int]:
    return None if number is None or number < 0 else number


def _stacks(
    program: str,
    pid: Optional[int],
    threads: Sequence[PythonThread],
    all_threads: int,
    pause: Optional[float],
) -> PythonStacks:
    """Return *threads* of *all_threads* that the kernel counts."""
    unknown = sum(one.tid is None for one in threads)
    others = all_threads - len(threads) if not unknown else None
    notices = []
    cut = sum(not one.is_whole for one in threads)
    if cut:
        text = (
            f"the frames of {plural(cut, 'thread')} could not be read to the end: they were changing, or are not"
            " in memory"
        )
        notices.append(Notice("python-changing", text))
    return PythonStacks(
        program, pid, threads, None if others is None or others < 0 else others, pause, notices
    )


# The call stacks of a live process's threads, copied in a stop of milliseconds and unwound afterwards.


_STACK_BYTES = 256 << 10  # from the stack pointer on, at most


class CopiedStack(NamedTuple):
    """The stack of one thread."""

    tid: int
    name: str
    registers: Sequence[int]  # in the order of a sample; those that are unknown are 0
    stack: bytes  # from the stack pointer on
    is_standing: bool  # it waits for memory: only its stack pointer and program counter are known


class NativeStack(NamedTuple):
    """The call path of one thread, innermost first."""

    tid: int
    name: str
    places: Sequence[Place]
    is_whole: bool


def copy_stacks(pid: int) -> tuple[list[CopiedStack], bytes]:
    """Copy the stacks of the threads of process *pid*; return them, and the text of its mappings.

    Raises TargetError if it can't be stopped.
    """
    with ProcMemory(pid) as memory:
        standing = threads_out_of_memory(pid)
        known = {held.tid for held in standing}
        with Freeze(pid, standing=standing) as freeze:
            maps = read_maps_text(pid)
            ends = [(m.start, m.end) for m in parse_maps(maps) if m.permissions.startswith("rw")]
            found = [
                CopiedStack(
                    held.tid,
                    thread_name(pid, held.tid),
                    sampled_registers(held),
                    _copied(memory, held.stack_pointer, ends),
                    held.tid in known,
                )
                for held in held_threads(freeze)
            ]
    return found, maps


def _copied(memory: Memory, start: int, areas: Sequence[tuple[int, int]]) -> bytes:
    end = next((end for begin, end in areas if begin <= start < end), start)
    try:
        return memory.read(start, min(end - start, _STACK_BYTES)) if end > start else b""
    except MemoryUnreadable:
        return b""


def unwind(
    stacks: Sequence[CopiedStack], maps: bytes, table: Callable[[Binary], Optional[UnwindTable]]
) -> list[NativeStack]:
    """Return the call paths of *stacks*; *table* opens the unwind table of a file."""
    if os.uname().machine not in MACHINES:
        return []
    space, unwinder = code_in(maps), Unwinder(table)
    found = []
    try:
        for one in stacks:
            path = unwinder.path(space, one.registers, one.stack, ())
            places = [
                Place(None, spot.address)
                if spot.region.binary is None
                else Place(spot.region.binary, spot.region.offset_of(spot.address))
                for spot in path.spots
            ]
            found.append(NativeStack(one.tid, one.name, places, path.is_whole and not one.is_standing))
    finally:
        unwinder.close()
    return found
