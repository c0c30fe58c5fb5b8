"""Python processes, read from outside: objects, arenas, and what tracemalloc has recorded. No code runs in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Optional, Union

from gdbmem.allocators.glibc.thread_pointers import ThreadPointers
from gdbmem.analysis.profiles.diff import as_growth
from gdbmem.errors import Notice, UsageError
from gdbmem.formats.stacks import StackProfile
from gdbmem.formats.tracemalloc import encode_traces, tracemalloc_profile
from gdbmem.inspection.live_process import explain_process
from gdbmem.inspection.python.python_holders import FindHolders
from gdbmem.inspection.python.python_questions import CountObjects, DescribeArenas, check_python
from gdbmem.inspection.python.python_stacks import stacks_of_core, stacks_of_process
from gdbmem.inspection.python.python_traces import (
    TracedProcess,
    traces_of_core,
    traces_of_process,
    traces_of_stopped,
)
from gdbmem.inspection.python.python_workers import copied_by_workers
from gdbmem.inspection.read_process import explain_core, explain_stopped
from gdbmem.linux.process.process import process_facts
from gdbmem.model.ledger.ledger import Ledger
from gdbmem.model.memory import Memory
from gdbmem.model.profiles.snapshot import Snapshot
from gdbmem.model.python import ArenaUse, PythonCopies, PythonHolders, PythonObjects, PythonStacks
from gdbmem.records import dataclass
from gdbmem.report.profiles.export import encode
from gdbmem.units import format_size

__all__ = [
    "HeldProcess",
    "Target",
    "encoded_traces",
    "kept_traces",
    "python_arenas",
    "python_copies",
    "python_holders",
    "python_objects",
    "python_stacks",
    "python_traces",
    "traces_profile",
]

Operand = Union[str, "os.PathLike[str]"]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class HeldProcess:
    """A process stopped in gdb."""

    memory: Memory
    threads: Sequence[ThreadPointers]


class Target:
    """A process or a core file, and how to read it."""

    def __init__(
        self,
        pid: Optional[int] = None,
        *,
        core: Optional[Operand] = None,
        program: Optional[Operand] = None,
        copy: Optional[bool] = None,
        swapped: bool = False,
        progress: Optional[Progress] = None,
        stopped: Optional[HeldProcess] = None,
    ) -> None:
        """Name process *pid*, or *core*; *program* is the file of the program that dumped it, if it has moved.

        With *copy* a motionless copy of the process is read, with False the process itself while it is stopped; by
        default a copy if possible. Swapped pages of a stopped process are read only with *swapped*.
        *progress* is called before the process has to wait for long. With *stopped* it is stopped already.
        """
        if (pid is None) == (core is None):
            raise ValueError("a target is a process or a core")
        self.pid = pid
        self.core = None if core is None else Path(core)
        self.program = None if program is None else Path(program)
        self.copy, self.swapped, self.stopped = copy, swapped, stopped
        self.progress: Progress = progress or (lambda text: None)

    def _ledger(self, look: Union[CountObjects, DescribeArenas, FindHolders]) -> Ledger:
        if self.core is not None:
            return explain_core(self.core, program=self.program, look=look)
        assert self.pid is not None
        if self.stopped is not None:
            name, stopped = process_facts(self.pid).name, self.stopped
            return explain_stopped(
                self.pid, name, stopped.memory, stopped.threads, look=look, swapped=self.swapped
            )
        return explain_process(
            self.pid, fork=self.copy, look=look, say=self.progress, swapped=self.swapped,
            suits=lambda mappings: check_python(mappings, self.pid),
        )  # fmt: skip


def python_objects(target: Target) -> PythonObjects:
    """Return the live objects of *target* by type. Raises TargetError if it can't be read."""
    question = CountObjects()
    return question.result(target._ledger(question))


def python_holders(target: Target, kind: str) -> PythonHolders:
    """Return the referrers of the objects of type *kind* in *target*, and the paths to them.

    Raises InputError if there is no such object, TargetError if *target* can't be read.
    """
    question = FindHolders(kind)
    return question.result(target._ledger(question))


def python_arenas(target: Target) -> ArenaUse:
    """Return how full the arenas of *target* are, and the types of the blocks in the emptiest. Raises TargetError."""
    question = DescribeArenas()
    return question.result(target._ledger(question))


def python_copies(target: Target) -> PythonCopies:
    """Return how much of *target*'s memory its forked workers have copied. Raises TargetError."""
    if target.pid is None:
        raise UsageError(
            "a core doesn't show the memory copied by workers", hint="name the process that forked them"
        )
    return copied_by_workers(target.pid, fork=target.copy, swapped=target.swapped, say=target.progress)


def python_stacks(target: Target) -> PythonStacks:
    """Return the Python frames of each thread of *target*. Raises TargetError if they can't be read."""
    if target.core is not None:
        return stacks_of_core(target.core, target.program)
    assert target.pid is not None
    return stacks_of_process(target.pid, fork=target.copy, swapped=target.swapped, say=target.progress)


def python_traces(target: Target) -> TracedProcess:
    """Return the traces of tracemalloc in *target*. Raises TargetError if there are none, or they can't be read."""
    if target.core is not None:
        return traces_of_core(target.core, target.program)
    assert target.pid is not None
    if target.stopped is not None:
        return traces_of_stopped(target.pid, target.stopped.memory, swapped=target.swapped)
    return traces_of_process(target.pid, fork=target.copy, swapped=target.swapped, say=target.progress)


def traces_profile(traced: TracedProcess) -> StackProfile:
    """Return *traced* as a profile, as the readers of files make one."""
    source = f"process {traced.pid}" if traced.pid is not None else traced.program
    profile = tracemalloc_profile(_document(traced), source)
    profile.notices[:0] = _untraced(traced)
    return profile


def kept_traces(traced: TracedProcess) -> bytes:
    """Return *traced* as a file that `show`, `diff` and the others read; it includes the untraced memory."""
    return encode_traces(_document(traced))


def encoded_traces(snapshot: Snapshot) -> bytes:
    """Return the traces in *snapshot* as a pprof profile."""
    return encode(as_growth(snapshot), "pprof", is_change=False)


def _document(traced: TracedProcess) -> dict[str, object]:
    traces = traced.traces
    frames: dict[tuple[str, Optional[int]], int] = {}
    stacks = []
    for one in traces.tracebacks:
        path = [
            frames.setdefault((frame.file or "<unread>", frame.line or None), len(frames))
            for frame in one.frames
        ]
        stacks.append((one.bytes, one.blocks, path))
    return {
        "command": traced.program,
        "pid": traced.pid,
        "frames": list(frames),
        "stacks": stacks,
        "own_bytes": traces.own_bytes,
        "rss_bytes": traced.rss_bytes,
        "unread_blocks": traces.unread_blocks,
        "cut_tracebacks": sum(one.cut_frames > 0 for one in traces.tracebacks),
        "deepest": max((len(one.frames) for one in traces.tracebacks), default=0),
    }


def _untraced(traced: TracedProcess) -> list[Notice]:
    traces, untraced = traced.traces, traced.untraced_bytes
    if untraced is None:
        return []
    text = (
        f"{format_size(traced.rss_bytes or 0)} are resident: {format_size(traces.bytes)} at most are traced,"
        f" {format_size(traces.own_bytes)} are tracemalloc's own tables, {format_size(untraced)} are untraced:"
        " code, memory allocated before tracemalloc was started, and memory that libraries take from malloc or mmap"
    )
    return [Notice("python-untraced", text)]
