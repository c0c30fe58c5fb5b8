"""Python processes, read from outside: objects, arenas, and what tracemalloc has recorded. No code runs in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional, TextIO, TypeVar, Union

from gdbmem.api.profiles import load_from_profile
from gdbmem.errors import Notice, UsageError
from gdbmem.formats.documents import read_objects
from gdbmem.formats.json_profiles import encode_own, tracemalloc_profile
from gdbmem.formats.stacks import StackProfile
from gdbmem.inspection.live_process import explain_process
from gdbmem.inspection.python_holders import FindHolders
from gdbmem.inspection.python_queries import (
    CountObjects,
    DescribeArenas,
    TracedProcess,
    check_python,
    traces_of_core,
    traces_of_process,
    traces_of_stopped,
)
from gdbmem.inspection.python_workers import copied_by_workers
from gdbmem.inspection.read_process import explain_core, explain_stopped
from gdbmem.inspection.stacks import stacks_of_core, stacks_of_process
from gdbmem.launch.python_code import CodeResult, run_in_python
from gdbmem.linux.process.process import process_facts
from gdbmem.model.calltree import Snapshot
from gdbmem.model.ledger import Ledger
from gdbmem.model.memory import Memory, ThreadPointers
from gdbmem.model.python import (
    ArenaUse,
    PythonCopies,
    PythonHolders,
    PythonObjects,
    PythonStacks,
    TracingChange,
)
from gdbmem.profiles.diff import as_growth
from gdbmem.profiles.documents import profile_json
from gdbmem.profiles.export import encode
from gdbmem.profiles.paths import Query
from gdbmem.profiles.text import print_sites
from gdbmem.python.holders import holders_json, print_holders
from gdbmem.python.objects import (
    arenas_json,
    copies_json,
    growth_json,
    objects_json,
    print_arenas,
    print_copies,
    print_growth,
    print_objects,
)
from gdbmem.python.stacks import print_stacks, stacks_json
from gdbmem.terminal.console import Console, open_named, open_output, print_notices
from gdbmem.text import format_size

__all__ = [
    "LONGEST_TRACEBACK",
    "HeldProcess",
    "Target",
    "TracingChange",
    "encoded_traces",
    "kept_traces",
    "python_arenas",
    "python_copies",
    "python_holders",
    "python_objects",
    "python_stacks",
    "python_traces",
    "start_tracing",
    "stop_tracing",
    "traces_profile",
]

Operand = Union[str, "os.PathLike[str]"]
Progress = Callable[[str], None]


class HeldProcess(NamedTuple):
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
    return encode_own("tracemalloc", _document(traced))


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


# The reports on a Python process, as the command and gdb write them.


Found = TypeVar("Found")
KEEP_TRACES = "keep-traces"


class ReportWords(NamedTuple):
    """Options of a report."""

    json: bool = False
    top: int = 20
    since: Optional[str] = None  # a file with earlier objects
    profile: Optional[str] = None  # a file for the traces
    force: bool = False  # overwrite it
    holders: Optional[str] = None  # of a type


Writer = Callable[[Target, ReportWords, TextIO, Console], None]


def write_objects(target: Target, wanted: ReportWords, stream: TextIO, console: Console) -> None:
    """Write the objects of *target* by type, the change since *wanted.since*, or the holders of those of a type."""
    if wanted.holders is not None:
        _write_holders(python_holders(target, wanted.holders), wanted, stream, console)
        return
    if wanted.since is None:
        _OBJECTS(target, wanted, stream, console)
        return
    before = read_objects(Path(wanted.since))
    objects = python_objects(target)
    if wanted.json:
        stream.write(growth_json(before, objects, wanted.since))
    else:
        print_growth(before, objects, console, top=wanted.top, name=wanted.since)


def _write_holders(holders: PythonHolders, wanted: ReportWords, stream: TextIO, console: Console) -> None:
    if wanted.json:
        stream.write(holders_json(holders))
    else:
        print_holders(holders, console, top=wanted.top)


def write_traces(target: Target, wanted: ReportWords, stream: TextIO, console: Console) -> None:
    """Write the traces of tracemalloc in *target*, also to the file *wanted.profile*."""
    with open_named(wanted.profile, force=wanted.force) as file:
        profile = traces_profile(python_traces(target))
        snapshot = load_from_profile(profile, None).snapshot
        if file is not None:
            file.flush()
            file.buffer.write(encoded_traces(snapshot))
    query = Query(top=wanted.top)
    if wanted.json:
        stream.write(profile_json(profile, query, snapshot=snapshot))
        return
    print_sites(snapshot, query, console, moment=profile.source)
    print_notices(profile.notices, console)


def keep_traces(target: Target, wanted: ReportWords, stream: TextIO, console: Console) -> None:
    """Write the traces of tracemalloc in *target* to the file *wanted.profile*, which `diff` and `show` read."""
    with open_output(wanted.profile, force=wanted.force) as file:
        file.flush()
        file.buffer.write(kept_traces(python_traces(target)))


def _writer(
    read: Callable[[Target], Found],
    to_json: Callable[[Found], str],
    show: Callable[[Found, Console, ReportWords], None],
) -> Writer:
    def write(target: Target, wanted: ReportWords, stream: TextIO, console: Console) -> None:
        found = read(target)
        if wanted.json:
            stream.write(to_json(found))
        else:
            show(found, console, wanted)

    return write


_OBJECTS = _writer(
    python_objects,
    objects_json,
    lambda objects, console, wanted: print_objects(objects, console, top=wanted.top),
)
WRITERS: dict[str, Writer] = {
    "objects": write_objects,
    "arenas": _writer(
        python_arenas, arenas_json, lambda use, console, wanted: print_arenas(use, console, top=wanted.top)
    ),
    "traces": write_traces,
    KEEP_TRACES: keep_traces,
    "stack": _writer(
        python_stacks, stacks_json, lambda stacks, console, wanted: print_stacks(stacks, console)
    ),
    "cow": _writer(
        python_copies,
        copies_json,
        lambda copies, console, wanted: print_copies(copies, console, top=wanted.top),
    ),
}


# Switching tracemalloc on and off in a running Python process: the only functions that run code in it.


LONGEST_TRACEBACK = 65535  # frames, by tracemalloc's own limit
_WAIT_SECONDS = 10.0
_LOOK = """\
import _tracemalloc
was = _tracemalloc.is_tracing()
traced, overhead = _tracemalloc.get_traced_memory()[0], _tracemalloc.get_tracemalloc_memory()
"""
_ANSWER = """\
answer = (
    ("was_tracing", was), ("tracing", _tracemalloc.is_tracing()), ("frames", _tracemalloc.get_traceback_limit()),
    ("traced", traced), ("overhead", overhead),
)
"""


def start_tracing(pid: int, *, frames: int = 1, wait_seconds: float = _WAIT_SECONDS) -> TracingChange:
    """Start tracemalloc in process *pid* with *frames* of each traceback; if it is on already, nothing changes.

    Raises TargetError if no code can be run there, or if it has not run within *wait_seconds*.
    """
    start = f"if not was:\n    _tracemalloc.start({frames:d})\n"
    return _change(pid, run_in_python(pid, _LOOK + start + _ANSWER, wait_seconds=wait_seconds))


def stop_tracing(pid: int, *, wait_seconds: float = _WAIT_SECONDS) -> TracingChange:
    """Stop tracemalloc in process *pid* and discard its traces. Raises TargetError as `start_tracing` does."""
    return _change(
        pid, run_in_python(pid, _LOOK + "_tracemalloc.stop()\n" + _ANSWER, wait_seconds=wait_seconds)
    )


def _change(pid: int, result: CodeResult) -> TracingChange:
    said = result.numbers
    return TracingChange(
        pid, bool(said.get("was_tracing")), bool(said.get("tracing")), said.get("frames", 0),
        said.get("traced", 0), said.get("overhead", 0), result.way, result.waited_seconds, result.pause_seconds,
    )  # fmt: skip
