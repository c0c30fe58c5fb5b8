"""A program that runs natively under gdb, with a profiling allocator preloaded."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

from gdbmem.engines import faults, heaptrack
from gdbmem.engines.engine import EngineTable, NativeOptions, native_engine
from gdbmem.errors import GdbmemError, InputError, MissingToolError, Notice
from gdbmem.launch.messages import ENVIRONMENT, NATIVE, NEWLINE, NativePlan
from gdbmem.runs.run import OWN, Run
from gdbmem.setup.requirements import how_to_install
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.launch.job import Job


PREFIX = "own"  # the engine's own dumps: snapshots/own.0001.heap


def find_library(table: EngineTable) -> str:
    """Return the name under which the loader finds the library that *table* preloads; "" if there is none.

    Raises MissingToolError with what to install.
    """
    if table.name == heaptrack.NAME:
        return str(heaptrack.find_heaptrack().library)
    if not table.library:
        return ""
    from ctypes.util import find_library  # slow to import

    found = find_library(table.library)
    if found is None:
        raise MissingToolError(
            f"lib{table.library}, which --engine {table.name} preloads, is not installed",
            slug="preload-missing",
            hint=how_to_install(table.package),
        )
    return found


def refuse_unsuitable(job: Job, table: EngineTable) -> None:
    """Raise InputError if the program would ignore the preload, TargetError if the kernel does not sample faults."""
    if table.name == faults.NAME:
        from gdbmem.linux.faults.watch import FaultWatch  # not always needed

        with FaultWatch():
            pass
    if (table.library or table.command) and job.program.is_static:
        raise InputError(
            f"{printable(job.program.path.name)} is statically linked: it loads no library, so --engine {table.name}"
            " would count nothing",
            slug="static-binary",
            hint="link it dynamically, or use --engine none",
        )
    if job.own_terminal:
        raise InputError(
            f"with --engine {table.name} the program has gdb's own terminal already",
            slug="bad-option",
            hint="leave out --own-terminal",
        )


def prefix(run: str) -> str:
    """Return the path prefix of the engine's own dumps in the run folder *run*."""
    return f"{run}/snapshots/{PREFIX}"


def native_plan(job: Job, run: Run, runtime: Path, *, began: float, output: Optional[Output]) -> NativePlan:
    """Return the plan for gdb to start the program of *job* itself.

    Its snapshots and the engine's own count time from *began*, seconds since 1970.
    Paths that gdb puts into a shell's words are links in *runtime* with plain names. *output*: where the program's
    output goes if gdb is unattended, whose own output is a log.
    """
    library = find_library(native_engine(job.engine).TABLE)
    link = str(runtime / "run")
    assert isinstance(job.options, NativeOptions)
    variables = {**native_engine(job.engine).environment(prefix(link), job.options), **job.environment}
    if library:
        before = job.environment.get("LD_PRELOAD", os.environ.get("LD_PRELOAD", ""))
        variables["LD_PRELOAD"] = f"{library}:{before}" if before else library
    kept = {name: value for name, value in variables.items() if name in job.environment or name not in os.environ
            or name in ("LD_PRELOAD", "MALLOC_CONF", "HEAPPROFILE", "PYTHONTRACEMALLOC")}  # fmt: skip
    ours = [word for name in (ENVIRONMENT, NATIVE, NEWLINE) for word in ("-u", name)]
    words = ["env", *ours, *(f"{name}={value}" for name, value in kept.items())]
    if job.folder is not None:
        (runtime / "cwd").symlink_to(job.folder)
    return NativePlan(
        engine=job.engine,
        began=began,
        wrapper=shlex.join(words),
        prefix=prefix(link),
        library=library,
        folder=str(runtime / "cwd") if job.folder is not None else None,
        streams=_streams(job, run, runtime, output),
        period=job.options.period or 0,
    )


class Output(NamedTuple):
    """A shell's words for the program's output, for its errors, and for what is to be closed then."""

    output: str
    errors: str
    closed: str = ""


def _streams(job: Job, run: Run, runtime: Path, output: Optional[Output]) -> str:
    """Return the redirections of the program's streams, in a shell's words."""
    found = []
    if job.stdin is not None:
        (runtime / "stdin").symlink_to(Path(job.stdin).absolute())
        found.append(f"<{runtime}/stdin")
    if job.stdout is not None:
        target = str(run.folder / "stdout" if job.stdout == "" else Path(job.stdout).absolute())
        (runtime / "stdout").symlink_to(target)
        found.append(f">>{runtime}/stdout")
    elif output is not None:
        found.append(output.output)
    if output is not None:
        found += [output.errors, output.closed]
    return " ".join(found)


_DIGITS = range(3, 10)  # the descriptors that every shell can redirect to


@contextlib.contextmanager
def lent_output() -> Iterator[Output]:
    """Lend our output streams to a program that gdb starts meanwhile; yield how its shell takes them.

    It inherits them by way of gdb: a socket or another user's file could not be opened anew. If the descriptors that
    a shell can name are all open, it opens our streams anew nevertheless.
    """
    free = [number for number in _DIGITS if not _is_open(number)]
    if len(free) < 2:
        with _append_to_streams():
            yield Output(f">>/proc/{os.getpid()}/fd/1", f"2>>/proc/{os.getpid()}/fd/2")
        return
    output, errors = os.dup2(1, free[0]), os.dup2(2, free[1])
    try:
        yield Output(f">&{output}", f"2>&{errors}", f"{output}>&- {errors}>&-")
    finally:
        os.close(output)
        os.close(errors)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _append_to_streams() -> Iterator[None]:
    """Append to the standard streams that are files, as the program does that opens them anew.

    Else each would write at its own position, over what the other has written.
    """
    flags = {}
    for stream in (1, 2):
        with contextlib.suppress(OSError):  # closed
            if stat.S_ISREG(os.fstat(stream).st_mode):
                flags[stream] = fcntl.fcntl(stream, fcntl.F_GETFL)
    for stream, how in flags.items():
        fcntl.fcntl(stream, fcntl.F_SETFL, how | os.O_APPEND)
    try:
        yield
    finally:
        for stream, how in flags.items():
            os.lseek(stream, 0, os.SEEK_END)
            fcntl.fcntl(stream, fcntl.F_SETFL, how)


# Dumps that a profiler took by itself during a run: recorded at its end, each with its process.


# own.PROCESS.NUMBER.i0.heap is jemalloc's; own_PROCESS.0001.heap gperftools' of a program that was executed.
_OF_PROCESS = re.compile(rf"{PREFIX}(?:\.(\d+)\.\d+\.\w+|_(\d+)\.\d+)\.heap")


def collect_own_dumps(run: Run, engine: str, began: float) -> Sequence[Notice]:
    """Record the dumps that the engine took by itself in *run*; return notices on them.

    *began* is seconds since 1970.
    """
    known = {record.file for record in run.snapshots if not record.base_name.startswith("unnamed-")}
    unsigned: list[int] = []  # bytes allocated until each dump without a process id
    for path in sorted((run.folder / "snapshots").glob(f"{PREFIX}*.heap"), key=_order):
        file = f"snapshots/{path.name}"
        if file in known or not path.stat().st_size:
            continue
        process = _process(path)
        seconds = round(max(0.0, path.stat().st_mtime - began), 3)
        total = _total(path, None)
        run.append(OWN, file=file, engine=engine, seconds=seconds, heap_bytes=total, process=process)
        allocated = _total(path, "allocated") if process is None else None
        unsigned += [] if allocated is None else [allocated]
    if all(earlier <= later for earlier, later in zip(unsigned, unsigned[1:])):
        return []
    # The total of allocated bytes of a process never shrinks.
    text = f"a forked child has dumped too, under its parent's file names: the origin of those called {OWN} is unknown"
    return [Notice("mixed-dumps", text)]


def _process(path: Path) -> Optional[int]:
    found = _OF_PROCESS.fullmatch(path.name)
    return int(found[1] or found[2]) if found is not None else None


def _total(path: Path, metric: Optional[str]) -> Optional[int]:
    from gdbmem.formats.opening import OpenOptions, open_profile  # slow to import

    with contextlib.suppress(GdbmemError):
        return open_profile(path, OpenOptions(metric=metric)).snapshots[0].total_bytes
    return None


def _order(path: Path) -> tuple[int, list[int]]:
    # Files that are written in the same few milliseconds get the same time.
    return path.stat().st_mtime_ns, [int(number) for number in re.findall(r"\d+", path.name)]
