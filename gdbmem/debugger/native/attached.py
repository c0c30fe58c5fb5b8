"""An attached process: recognising its profiler, and snapshots by that profiler."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from pathlib import Path

import gdb

from gdbmem.debugger.command import say, warn
from gdbmem.debugger.location import loaded_files, program_runs
from gdbmem.debugger.native.inferior import get_register, machine_here, outside_allocator, program
from gdbmem.debugger.program import InternalBreakpoint, address_of, execute_despite_hooks
from gdbmem.debugger.session import AttachedProcess, NativeProgram, session
from gdbmem.debugger.terminal import library_at
from gdbmem.engines.engine import Call, nothing_written, profilers
from gdbmem.engines.gperftools import complete, is_dump
from gdbmem.errors import GdbmemError, TargetError, sentence_of
from gdbmem.launch.messages import AttachedPlan, Collect, Done
from gdbmem.linux.process.process import ended, process_facts
from gdbmem.linux.process.rights import ThreadLock
from gdbmem.text import printable

_DELETED = " (deleted)"
_ENDING_SECONDS = 1.0


def attach(plan: AttachedPlan) -> None:
    """Connect gdb to the process of *plan*."""
    if plan.valgrind is not None:
        session.join(plan.valgrind)
        return
    pid, program.lock, program.harmless = plan.pid, plan.calls, plan.harmless
    try:
        program_file = str(Path(f"/proc/{pid}/exe").readlink())
    except FileNotFoundError:
        raise ended(pid) from None
    if plan.sysroot is not None and plan.program is not None:
        _look_in(plan.sysroot, plan.program)
    elif program_file.endswith(_DELETED):  # by its name gdb would find no symbols
        gdb.execute("set exec-file-mismatch off", to_string=True)  # the file may have been replaced
        gdb.execute(f"file /proc/{pid}/exe", to_string=True)
    if plan.tracer is not None:
        _hold(plan.tracer, pid)
    execute_despite_hooks(f"attach {pid}", happened=program_runs)
    session.watch_executions()
    engine, function, library = _recognise(plan.engine)
    session.native = NativeProgram(engine, library, plan.prefix, attached=AttachedProcess(plan, function))
    if engine != "none":
        session.run.update(engine=engine)


def _hold(path: str, pid: int) -> None:
    """Hold the lock at *path* while gdb has process *pid*: it notifies the launcher's guard of this thread's death."""
    lock = ThreadLock(Path(path))
    lock.take()

    def leave() -> None:  # without it the guard takes gdb's end for a death
        lock.leave()
        atexit.unregister(leave)
        gdb.events.before_prompt.disconnect(look)

    def look() -> None:
        if all(inferior.pid != pid for inferior in gdb.inferiors()):
            leave()

    gdb.events.before_prompt.connect(look)
    atexit.register(leave)


def _look_in(sysroot: str, program: str) -> None:
    """Make gdb look for the process's files only in the launcher's folder *sysroot*."""
    # libthread_db of a different C library doesn't match, and in a PID namespace threads have other numbers.
    for words in (f"set sysroot {sysroot}", "set auto-load libthread-db off", "set exec-file-mismatch off"):
        gdb.execute(words, to_string=True)
    gdb.execute(f"file {program}", to_string=True)


def _recognise(wanted: str) -> tuple[str, str, str]:
    """Return the engine, the function by which it was found, and its library; ("none", "", "") without one.

    Only *wanted* is looked for, unless that is "".
    """
    for engine, module in profilers().items():
        for function in module.FUNCTIONS if wanted in ("", engine) else ():
            if program.has(function):
                file = library_at(address_of(function)) or ""
                return engine, function, file.rpartition("/")[2]
    return "none", "", ""


def greeting(name: str) -> str:
    """Return the message on the attached process."""
    native = session.native
    if native is None or native.attached is None:
        return (
            f"{name} runs under valgrind's {session.run.facts.get('engine')}; it continues when you quit gdb."
        )
    who = f"{name} (process {native.attached.plan.pid})"
    end = (
        "it was stopped before and stays stopped"
        if native.attached.plan.is_stopped
        else "it continues when you quit gdb"
    )
    if native.engine == "none":
        return f"{who} has no heap profiler for snapshots; {end}."
    where = native.library or "the program itself"
    return f"{who} has {native.engine} ({where}), whose heap profiler 'memsnap' uses; {end}."


def prepare() -> None:
    """Make sure that the profiler counts; raises TargetError if there is none, or it can't."""
    native = session.native
    assert native is not None and native.attached is not None
    process, pid = native.attached, native.attached.plan.pid
    if native.engine == "none":
        wanted = process.plan.engine
        raise TargetError(
            f"process {pid} has no heap profiler {f'of {wanted}' if wanted else 'for snapshots'}{_malloc_there()}",
            slug="no-profiler",
            hint=f"{process.other_way} needs none; for snapshots start the program by 'gdbmem launch'",
        )
    _refuse_ended(pid)
    if process.is_on:
        return
    with outside_allocator(native.library):
        said = profilers()[native.engine].turn_on(program, process.function, native.prefix)
    process.is_on = True
    if said:
        process.notes.append(said)
        warn(said)


def switch_on() -> bool:
    """Start the profiler that --engine names; return whether switch_off() has to stop it before gdb leaves the process.

    Raises TargetError.
    """
    process = session.native.attached if session.native is not None else None
    if process is None or not process.plan.engine:
        return False
    prepare()
    process.was_off = bool(process.notes)
    return process.was_off


def switch_off() -> None:
    """Stop the profiler that switch_on() has started."""
    native = session.native
    process = native.attached if native is not None else None
    if native is None or process is None or not process.was_off or not program_runs():
        return
    process.was_off = process.is_on = False
    try:
        with outside_allocator(native.library):
            profilers()[native.engine].turn_off(program, process.function)
    except (GdbmemError, gdb.error) as error:
        why = sentence_of(error) if isinstance(error, GdbmemError) else printable(str(error))
        warn(f"the heap profiler of process {process.plan.pid} stays on: {why}")
    else:
        say(f"the heap profiler of {native.engine} is off again")


def _refuse_ended(pid: int) -> None:
    # gdb, which is notified only when it resumes the process, would report unreadable addresses. One that was
    # killed is no longer stopped, and takes a moment to end.
    deadline = time.monotonic() + _ENDING_SECONDS
    while (state := process_facts(pid).state) not in "ZXtT" and time.monotonic() < deadline:
        time.sleep(0.01)
    if state in "ZX":
        raise TargetError(
            f"process {pid} has ended while gdb held it",
            slug="process-ended",
            hint="type 'continue' to see how",
        )


def _malloc_there() -> str:
    minimal = any("libtcmalloc_minimal" in name for name in loaded_files())
    return ": libtcmalloc_minimal is gperftools' malloc without it" if minimal else ""


def request(native: NativeProgram, process: AttachedProcess, target: Path) -> Call:
    """Return the call after which the profile is *target*, in our run: the process may not write there itself."""
    path = f"{process.plan.there}/{target.stem}.heap"
    call = profilers()[native.engine].request(program, process.function, path)
    watch = _Opens() if native.engine == "gperftools" else None

    def finish(result: int) -> None:
        call.finish(result)
        found = path
        if watch is not None:
            watch.enabled = False
            found = watch.dump()
        # The path comes from the process: the launcher opens it with the process's own rights.
        try:
            session.ask(Collect(found, str(target.relative_to(session.run.folder))), Done)
        except GdbmemError:
            raise nothing_written(
                f"{native.engine} wrote no heap profile to {printable(found)}",
                process.plan.pid,
                found,
                hint="the process must be able to write there (HEAPPROFILE names that file)",
            ) from None
        if native.engine == "gperftools":
            complete(target, process.plan.pid)

    return Call(call.function, call.arguments, finish)


class _Opens(InternalBreakpoint):
    """Records the files opened during a dump: only the program knows where gperftools writes to."""

    stays = True  # also during our own calls

    def __init__(self) -> None:
        super().__init__(address_of("open"))
        self._paths: list[bytes] = []
        self._register = machine_here().arguments[0]

    def stop(self) -> bool:
        with contextlib.suppress(gdb.error):
            text = gdb.selected_inferior().read_memory(get_register(self._register), 1)
            address, path = get_register(self._register), b""
            while text[0] != b"\0" and len(path) < 4096:
                path += bytes(text)
                text = gdb.selected_inferior().read_memory(address + len(path), 1)
            self._paths.append(path)
        return False

    def dump(self) -> str:
        """Return the path of the dump, as the program gave it."""
        found = [os.fsdecode(path) for path in self._paths if is_dump(os.fsdecode(path))]
        if not found:
            raise TargetError(
                "gperftools wrote no heap profile",
                slug="no-snapshot-file",
                hint="try again if another thread was writing a profile at that moment",
            )
        return found[-1]
