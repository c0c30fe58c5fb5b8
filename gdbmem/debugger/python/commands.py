"""mempython: objects, arenas, traces and stacks of the Python process or core in gdb."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional, TextIO

import gdb

from gdbmem.allocators.cpython.frames import FrameReader
from gdbmem.api.python import KEEP_TRACES, ReportWords
from gdbmem.debugger.command import Command
from gdbmem.debugger.ledger.explain import core_path, local_pid, threads_here
from gdbmem.debugger.location import program_file, stack_pointer
from gdbmem.debugger.program import selection_kept, thread_pointer
from gdbmem.debugger.terminal import console_on, library_at, source_file
from gdbmem.errors import TargetError, UsageError
from gdbmem.inspection.interpreters import PYTHON, answers_of_workers, no_interpreter, stopped_request
from gdbmem.inspection.stacks import frame_reader
from gdbmem.json_values import as_json
from gdbmem.linux.elf.corefile import CoreFile
from gdbmem.linux.memory.maps import read_smaps
from gdbmem.linux.memory.process_memory import ProcMemory, careful_memory
from gdbmem.linux.process.process import check_analysable
from gdbmem.model.calltree import Frame
from gdbmem.model.memory import Memory
from gdbmem.model.python import MixedStack, PythonThread
from gdbmem.python.frames import interleave
from gdbmem.python.stacks import mixed_json, print_mixed
from gdbmem.terminal.console import Console, open_output

# Reading the Python process or core in gdb with the `gdbmem` command's own Python, which has numpy.


_NO_TRACES = "python-no-traces"


def ask_worker(
    action: str, wanted: ReportWords, *, width: int = 80, color: bool = False, swapped: bool = False
) -> str:
    """Return the report *action* on the process or core, with the options *wanted*.

    Raises TargetError if it can't be read, ToolError if there is no worker.
    """
    request: dict[str, object] = {
        "action": action, "wanted": as_json(wanted), "width": width, "color": color, "swapped": swapped, "core": None,
    }  # fmt: skip
    core = core_path()
    if core is not None:
        request.update(
            core=str(core.absolute()),
            program=gdb.current_progspace().filename and str(Path(program_file()).absolute()),
        )
        return _answer(request, None)
    pid = local_pid()
    name = check_analysable(pid, may_be_traced=True).name
    with ProcMemory(pid) as memory:
        request.update(stopped_request(pid, name, memory.descriptor, threads_here()))
        return _answer(request, memory.descriptor)


def keep_traces_here(path: Path) -> None:
    """Write the traces of tracemalloc in the stopped process to the new file *path*; errors as for ask_worker()."""
    try:
        ask_worker(KEEP_TRACES, ReportWords(profile=str(path)))
    except TargetError as error:
        if error.slug != _NO_TRACES:
            raise
        raise TargetError(
            "tracemalloc is not tracing at this point",
            slug=error.slug,
            hint="the interpreter has not started or has ended, stopped tracemalloc or ignores its environment"
            " (-E, -I), or its version is not supported (CPython 3.9 and later are)",
        ) from error


def _answer(request: dict[str, object], descriptor: Optional[int]) -> str:
    for answer in answers_of_workers(PYTHON, request, descriptor):
        return str(json.loads(answer)["text"])
    raise no_interpreter("mempython")


# The frames of the threads in gdb, with Python's in place of the interpreter's loop.


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
            stack_pointers.append(stack_pointer(frame))
            frame = frame.older()
    except gdb.error:
        pass  # the rest can't be unwound
    return frames, stack_pointers


def _mixed(
    tid: int, native: tuple[Sequence[Frame], Sequence[int]], known: Mapping[int, PythonThread], *, fold: bool
) -> MixedStack:
    thread = known.get(tid)
    if thread is None:
        return MixedStack(tid, native[0], 0)
    frames = interleave(native[0], thread.frames, native[1], fold=fold)
    return MixedStack(tid, frames, len(thread.frames), thread.is_whole)


_STACK, _OBJECTS, _TRACES = "stack", "objects", "traces"


class PythonCommand(Command):
    """Read the Python objects, arenas, traces or stacks of the process."""

    def run(self, args: argparse.Namespace) -> None:
        _check(args)
        with open_output(args.output, force=args.force) as stream:
            if args.action == _STACK:
                stacks = stacks_here(every=args.all, fold=not args.native, swapped=args.swapped)
                if args.json:
                    stream.write(mixed_json(stacks))
                else:
                    print_mixed(stacks, console_on(stream))
            else:
                _write_by_worker(args, stream, console_on(stream))


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError for an option that this action does not take."""
    belongs = {
        "all": _STACK, "native": _STACK, "holders": _OBJECTS, "since": _OBJECTS, "profile": _TRACES,
    }  # fmt: skip
    if args.holders and args.since:
        raise UsageError("--holders and --since exclude each other: type one of them")
    for name, action in belongs.items():
        if getattr(args, name) and args.action != action:
            raise UsageError(f"--{name} belongs to 'mempython {action}'")


def _write_by_worker(args: argparse.Namespace, stream: TextIO, console: Console) -> None:
    wanted = ReportWords(
        json=args.json,
        top=args.top,
        since=_absolute(args.since),
        profile=_absolute(args.profile),
        force=args.force,
        holders=args.holders,
    )
    report = ask_worker(
        args.action, wanted, width=console.width, color=console.has_colors, swapped=args.swapped
    )
    stream.write(report)


def _absolute(name: Optional[str]) -> Optional[str]:
    """Return *name* as an absolute path for a worker, which runs in another folder."""
    return None if name is None else str(Path(name).absolute())
