"""A process started elsewhere: checking whether gdb may attach, and running gdb or vgdb on it."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

from gdbmem import __version__
from gdbmem.errors import GdbmemError, InputError, Interrupted, TargetError, ToolError
from gdbmem.formats.opening import open_profile
from gdbmem.launch import messages
from gdbmem.launch.child import Child, runtime_folder
from gdbmem.launch.doorkeeper import Doorkeeper
from gdbmem.launch.guard import KILLED, Guard
from gdbmem.launch.guard import LOCK_NAME as CALLS
from gdbmem.launch.guard import NAME as TRACER
from gdbmem.launch.interactive import CONNECT, DEAF, QUIET, say_run
from gdbmem.launch.supervisor import Supervisor, saved_terminal
from gdbmem.launch.valgrind import present_program
from gdbmem.launch.vgdb import RunningValgrind, Sentinel, find_running
from gdbmem.linux.files.target_files import TargetSide, has_our_view
from gdbmem.linux.holding.seccomp import harmless_threads
from gdbmem.linux.process import process
from gdbmem.linux.process.terminal_modes import TerminalModes
from gdbmem.runs.run import BINARIES, Run, SnapshotRecord, current_folder, run_for_process, timestamp
from gdbmem.setup.gdb_packages import ensure_private_folder
from gdbmem.setup.gdb_python import gdb_call, loader_file, quiet_gdb
from gdbmem.symbols.sysroot import Sysroot, names_files_of_others, open_sysroot, opened_later
from gdbmem.text import plural, printable

_SNAPPING = ("massif", "memcheck", "helgrind")  # valgrind's tools that write the heap when they are asked
SNAP_SECONDS = 120.0  # gdb reads the symbols of a browser meanwhile
_SNAP = gdb_call("native.snapshot", "snap()")


class AttachTarget(NamedTuple):
    """A process that gdb may have."""

    facts: process.ProcessFacts
    program: Path
    arguments: Sequence[str]
    valgrind: Optional[RunningValgrind]

    @property
    def pid(self) -> int:
        return self.facts.pid

    @property
    def name(self) -> str:
        """The program's own name, not that of the valgrind that runs it."""
        return self.facts.name if self.valgrind is None else self.program.name

    @property
    def identity(self) -> Mapping[str, Any]:
        """The start time, which distinguishes it from a later process of the same number."""
        stat = process.stat_of(self.pid)
        return {
            "pid": self.pid,
            "start_ticks": stat.start_ticks if stat is not None else None,
            "boot_id": process.boot_id(),
        }


def find_target(pid: int) -> AttachTarget:
    """Return the process *pid*. Raises TargetError, with the reason, where gdb can't have it."""
    pid = process.process_of(pid)  # that of a thread is as good
    if pid == os.getpid():
        raise TargetError(
            f"process {pid} is this gdbmem itself", slug="no-such-process", hint="'ps' lists the others"
        )
    facts = process.check_analysable(pid)
    valgrind = find_running(pid)
    if valgrind is None:
        _refuse_without_main_thread(facts)
    else:
        _refuse_elsewhere(facts)
    if valgrind is not None and facts.state == "T":
        raise _stopped(valgrind)
    words = process.words_of(pid)
    program = present_program(pid) if valgrind is not None else None
    return AttachTarget(
        facts, program or called(_program_of(pid), words[0] if words else ""), words[1:], valgrind
    )


def called(program: Path, word: str) -> Path:
    """Return *program* by the name *word* with which it was started, if that is a link to it in the same folder.

    Example: redis-server. Some programs append text to that word: "redis-server *:6379".
    """
    name = Path(word.split(" ")[0].rstrip(":")).name
    link = program.with_name(name) if name else program
    with contextlib.suppress(OSError):
        return link if link.samefile(program) else program
    return program


def _program_of(pid: int) -> Path:
    path = Path(f"{process.memory_folder(pid)}/exe").resolve()
    return path if path.exists() else path.with_name(path.name.removesuffix(" (deleted)"))


def _refuse_without_main_thread(facts: process.ProcessFacts) -> None:
    if process.living_thread(facts.pid) not in (None, facts.pid):
        raise TargetError(
            f"the main thread of process {facts.pid} ({printable(facts.name)}) has ended, and gdb can't attach to such"
            " a process, though other threads still run",
            slug="main-thread-ended",
            hint=f"'gdbmem explain {facts.pid}' and 'gdbmem monitor {facts.pid}' need no gdb",
        )


def _stopped(valgrind: RunningValgrind) -> TargetError:
    return TargetError(
        f"process {valgrind.pid} is stopped (by SIGSTOP or Ctrl-Z), and valgrind's {valgrind.tool}, which it runs"
        " under, answers only while it runs",
        slug="process-stopped",
        hint=f"continue it first: kill -CONT {valgrind.pid}",
    )


def _refuse_elsewhere(facts: process.ProcessFacts) -> None:
    """Refuse a valgrind with another root: vgdb would look for its FIFOs here."""
    with contextlib.suppress(OSError):
        here, there = Path("/").stat(), Path(f"{process.memory_folder(facts.pid)}/root/").stat()
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise TargetError(
                f"process {facts.pid} ({printable(facts.name)}) has another root folder (a container, or chroot):"
                " its programs and libraries are not those of the same names here",
                slug="process-elsewhere",
                hint="type this inside the container",
            )


@dataclass
class Attachment:
    """A process with its run, and the folders through which its snapshots come."""

    target: AttachTarget
    run: Run
    is_new: bool
    supervisor: Supervisor
    guard: Optional[Guard]  # over a process that gdb traces
    doorkeeper: Optional[Doorkeeper]  # of a gdb at a process whose files aren't trusted
    told: list[messages.Message] = field(default_factory=list)


@contextlib.contextmanager
def open_attachment(
    target: AttachTarget,
    *,
    folder: Optional[Path],
    command: Sequence[str],
    gdb: str,
    is_unattended: bool = False,
    engine: str = "",
) -> Iterator[Attachment]:
    """Yield an Attachment; at the end gdb is ended, and a new run that is empty is removed.

    An unattended gdb opens no file by a name that another user's process gives. *engine* is a profiler that gdb
    switches on at once.
    """
    ensure_private_folder(gdb)
    run, is_new = _open_run(target, folder, command)
    told: list[messages.Message] = []
    try:
        with (
            TargetSide(target.pid) as side,
            Sentinel() as sentinel,
            runtime_folder(run.folder, tell=sentinel.remove) as runtime,
            _sysroot(target, runtime, side, is_unattended=is_unattended) as sysroot,
        ):
            plan = _plan(target, run, runtime, side, sysroot)._replace(engine=engine)
            answer = _answers(target, run, plan, side, sysroot)
            supervisor = Supervisor(runtime, sentinel, _start_nothing, told.append, answer)
            with supervisor, contextlib.ExitStack() as opened:
                guard = None
                if target.valgrind is None:
                    guard = Guard(target.pid, side, runtime, run, is_stopped=target.facts.state == "T")
                doorkeeper = None
                if sysroot is not None:
                    keeper = Doorkeeper(sysroot.folder, functools.partial(opened_later, target.pid))
                    doorkeeper = opened.enter_context(keeper)
                attachment = Attachment(target, run, is_new, supervisor, guard, doorkeeper, told)
                try:
                    yield attachment
                finally:
                    supervisor.end()
                    _see_to(attachment)
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                run.remove_if_empty()


def _plan(
    target: AttachTarget, run: Run, runtime: Path, side: TargetSide, sysroot: Optional[Sysroot]
) -> messages.AttachedPlan:
    """Return what gdb needs to know to come to *target*."""
    there = side.make_folder()
    vgdb = target.valgrind.words() if target.valgrind is not None else None
    return messages.AttachedPlan(
        pid=target.pid,
        valgrind=messages.ValgrindTarget(target.pid, tuple(vgdb)) if vgdb is not None else None,
        is_stopped=target.facts.state == "T",
        there=there,
        sysroot=str(sysroot.folder) if sysroot else None,
        program=str(sysroot.program) if sysroot else None,
        calls=str(runtime / CALLS) if target.valgrind is None else None,
        tracer=str(runtime / TRACER) if target.valgrind is None else None,
        prefix=_prefix(side, run, there),
        harmless=_harmless(target) if target.valgrind is None else (),
    )


def _answers(
    target: AttachTarget, run: Run, plan: messages.AttachedPlan, side: TargetSide, sysroot: Optional[Sysroot]
) -> Callable[[messages.Message], messages.Message]:
    """Return the function that answers gdb's questions about *target*."""

    def answer(question: messages.Message) -> messages.Message:
        if isinstance(question, messages.AskAttached):
            return plan
        if not isinstance(question, messages.Collect):
            raise ToolError(f"unexpected question {type(question).__name__}", slug="launcher")
        _collect(side, question.path, run.place / question.file)
        if sysroot is not None and not has_our_view(target.pid):
            sysroot.keep(run.place / BINARIES)
        return messages.Done()

    return answer


@contextlib.contextmanager
def _sysroot(
    target: AttachTarget, runtime: Path, side: TargetSide, *, is_unattended: bool
) -> Iterator[Optional[Sysroot]]:
    """Yield a folder with the files of a process for which paths name other files than here, or may do so; else None.

    For another user's process whose files only root can change, gdb without such a folder finds more: libthread_db,
    pretty-printers of the libraries, libraries that are loaded later.
    """
    is_strange = target.facts.uid != os.geteuid() and (is_unattended or names_files_of_others(target.pid))
    if target.valgrind is not None or (has_our_view(target.pid) and not is_strange):
        yield None
        return
    with open_sysroot(runtime, target.pid, side) as sysroot:
        yield sysroot


def _see_to(attachment: Attachment) -> None:
    """Restore and resume a process that a killed gdb left, and report it."""
    gdb, guard = attachment.supervisor.gdb, attachment.guard
    if guard is None:
        return
    if gdb is None or not gdb.fatal_signal:
        guard.dismiss()
        return
    count = guard.let_go()
    if count:
        left = plural(count, "breakpoint")
        print(f"gdbmem: gdb left {left} in process {attachment.target.pid}, removed now", file=sys.stderr)


def _start_nothing(serial: int, arguments: Optional[list[str]]) -> Any:
    raise ToolError(
        "the process was not started by gdbmem, which can't start it again",
        slug="not-launched",
        hint="'gdbmem launch' starts programs",
    )


def _open_run(target: AttachTarget, folder: Optional[Path], command: Sequence[str]) -> tuple[Run, bool]:
    run, is_new = run_for_process(
        str(target.program), target.identity, parent=current_folder(), folder=folder
    )
    for notice in run.notices:
        if notice.slug == KILLED:
            print(f"gdbmem: {printable(notice.sentence)}", file=sys.stderr)
    if is_new:
        run.update(
            program=str(target.program),
            arguments=list(target.arguments),
            command=list(command),
            engine=target.valgrind.tool if target.valgrind is not None else "none",
            launcher="gdbmem",
            began=timestamp(),
            versions={"gdbmem": __version__, "python": sys.version.split()[0]},
            warnings=[],
        )
    return run, is_new


def _harmless(target: AttachTarget) -> tuple[str, ...]:
    # gdb, whose own opens a filter hands over, can't read other filters.
    return tuple(f"{tid}:{count}" for tid, count in harmless_threads(target.pid).items())


def _prefix(side: TargetSide, run: Run, there: str) -> str:
    """Return what a profiler that is turned on now is to begin its files with."""
    snapshots = run.folder / "snapshots"
    facts = snapshots.stat()
    is_writable = side.may_write(str(snapshots), (facts.st_dev, facts.st_ino))
    return f"{snapshots if is_writable else there}/own"


def _collect(side: TargetSide, path: str, file: Path) -> None:
    """Make *file* of what the process has written to its *path*. Raises TargetError if it wrote nothing."""
    part = file.with_name(f".{file.name}.part")
    try:
        with open(part, "xb") as stream:  # noqa: PTH123  (exclusive: nobody's link is followed)
            side.collect(path, stream)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def run_attached(
    target: AttachTarget,
    *,
    gdb: str,
    folder: Optional[Path],
    gdb_arguments: Sequence[str],
    command: Sequence[str],
    engine: str = "",
) -> int:
    """Run the user's gdb on *target* until the user quits it; the process then continues. Return 0.

    Meanwhile the profiler of *engine* is on.
    """
    if engine and target.valgrind is not None:
        raise InputError(
            f"process {target.pid} runs under valgrind, whose {target.valgrind.tool} counts already",
            slug="bad-option",
            hint="leave out --engine",
        )
    with saved_terminal() as modes:
        attachment = None
        try:
            with open_attachment(
                target, folder=folder, command=command, gdb=gdb, engine=engine
            ) as attachment:
                _foreground(attachment, gdb, gdb_arguments, modes)
        except Interrupted as interrupted:
            print("gdbmem: interrupted", file=sys.stderr)
            return 128 + interrupted.number
        finally:
            if attachment is not None and attachment.run.folder.is_dir():
                say_run(attachment.run)
    return 0


def _foreground(
    attachment: Attachment, gdb: str, gdb_arguments: Sequence[str], modes: Optional[TerminalModes]
) -> None:
    symbols = str(attachment.target.program)
    quiet = QUIET if printable(symbols) != symbols else ()
    program = ["--", symbols] if attachment.target.valgrind is not None else []
    words = [gdb, "-q", *DEAF, *quiet, "-x", str(loader_file()), "-ex", CONNECT, *gdb_arguments, *program]
    child = _start_gdb(attachment, words, own_session=False, native_signals=True)
    attachment.supervisor.watch_gdb(child, modes)


def _start_gdb(
    attachment: Attachment, words: Sequence[str], variables: Mapping[str, str] = {}, **how: Any
) -> Child:
    """Start a gdb by *words*, with *variables* in its environment and *how* as for Child."""
    session = {messages.ENVIRONMENT: str(attachment.supervisor.socket_path), messages.ATTACHED: "1"}
    child = Child(
        words,
        environment={**os.environ, **session, **variables},
        dies_with_us=None if attachment.guard is not None else signal.SIGTERM,
        before_exec=attachment.doorkeeper.before_exec if attachment.doorkeeper is not None else None,
        **how,
    )
    if attachment.guard is not None:
        attachment.guard.watch(child.pid)
    return child


class TakenSnapshot(NamedTuple):
    """One snapshot, and the time for which it stopped the process."""

    record: SnapshotRecord
    run: Run
    pause_seconds: float
    before: Optional[SnapshotRecord] = None  # the one before it in the run
    notes: Sequence[str] = ()


def take_one(
    target: AttachTarget,
    name: Optional[str],
    *,
    gdb: str,
    folder: Optional[Path],
    command: Sequence[str],
    say: Callable[[str], None],
) -> TakenSnapshot:
    """Take one snapshot of *target*, which resumes immediately; *say* announces the pause before it begins.

    Raises GdbmemError if none can be taken.
    """
    waits = (
        f"process {target.pid} ({printable(target.name)}) is stopped, usually for less than a second, while"
    )
    if target.valgrind is not None:
        _refuse_tool(target.valgrind)
        say(f"{waits} valgrind's {target.valgrind.tool} writes its snapshot")
        run, is_new = _open_run(target, folder, command)
        before = run.snapshots[-1:]
        try:
            record, pause = _by_vgdb(target, target.valgrind, run, name)
        except GdbmemError:
            if is_new:
                run.remove_if_empty()
            raise
        return TakenSnapshot(record, run, pause, before[0] if before else None)
    with open_attachment(target, folder=folder, command=command, gdb=gdb, is_unattended=True) as attachment:
        before = attachment.run.snapshots[-1:]
        say(f"{waits} gdb reads its symbols and its profiler writes the heap")
        taken = _unattended(attachment, gdb, name)
        record = attachment.run.record(taken.label)
        return TakenSnapshot(
            record, attachment.run, taken.pause_seconds, before[0] if before else None, list(taken.notes)
        )


def _refuse_tool(valgrind: RunningValgrind) -> None:
    if valgrind.tool not in _SNAPPING:
        raise TargetError(
            f"process {valgrind.pid} runs under valgrind's {valgrind.tool}, which takes no heap snapshots",
            slug="no-profiler",
            hint="start the program by 'gdbmem launch', or under valgrind with --tool=massif or memcheck",
        )


def _by_vgdb(
    target: AttachTarget, valgrind: RunningValgrind, run: Run, name: Optional[str]
) -> tuple[SnapshotRecord, float]:
    command = "detailed_snapshot" if valgrind.tool == "massif" else "xtmemory"
    name_there = "snapshot.ms"  # with that ending an execution tree comes in massif's format, which names inlined calls
    file = run.next_file(valgrind.tool)
    with TargetSide(target.pid) as side:
        there = side.make_folder()
        began = time.monotonic()
        said = valgrind.ask(command, f"{there}/{name_there}")
        pause = time.monotonic() - began
        try:
            _collect(side, f"{there}/{name_there}", run.place / file)
        except TargetError:
            raise _wrote_nothing(valgrind, said) from None
    total = None
    with contextlib.suppress(GdbmemError):
        total = open_profile(run.folder / file).snapshots[0].heap_bytes
    record = run.append(
        name or str(int(Path(file).stem)),
        file=file,
        engine=valgrind.tool,
        seconds=_seconds_since(run),
        heap_bytes=total,
    )
    return record, pause


def _wrote_nothing(valgrind: RunningValgrind, said: str) -> GdbmemError:
    if "before execution" in said:
        return TargetError(
            "massif takes no snapshot before the program's first instruction",
            slug="too-early",
            hint="try again when the program runs",
        )
    last = printable(said.splitlines()[-1]) if said else "it reported no reason"
    return TargetError(
        f"valgrind's {valgrind.tool} (process {valgrind.pid}) wrote no snapshot: {last}",
        slug="no-snapshot-file",
        hint="is the disk full, or /tmp of the process?",
    )


def _seconds_since(run: Run) -> Optional[float]:
    try:
        began = datetime.datetime.fromisoformat(run.facts["began"])
    except (KeyError, ValueError):
        return None
    return round((datetime.datetime.now(datetime.timezone.utc) - began).total_seconds(), 3)


def _unattended(attachment: Attachment, gdb: str, name: Optional[str]) -> messages.SnapTaken:
    """Take the snapshot with an unattended gdb; return the messages that it sent."""
    supervisor = attachment.supervisor
    with tempfile.TemporaryFile() as log:
        supervisor.gdb = child = _start_gdb(
            attachment,
            [*quiet_gdb(gdb), "-x", str(loader_file()), "-ex", _SNAP],
            {"GDBMEM_NAME": name or ""},
            stdin=subprocess.DEVNULL,
            stdout=log.fileno(),
            stderr=subprocess.STDOUT,
        )
        if not supervisor.wait(lambda: not child.alive, SNAP_SECONDS):
            # On SIGINT gdb lets go of the process first.
            child.stop(((signal.SIGINT, 10.0), (signal.SIGHUP, 10.0), (signal.SIGKILL, 5.0)))
        supervisor.wait(lambda: bool(attachment.told), 1.0)
        message = next(
            (told for told in attachment.told if isinstance(told, (messages.SnapTaken, messages.Failed))),
            None,
        )
        by_hand = f"try it by hand: gdbmem attach {attachment.target.pid}"
        if message is None:
            log.seek(0)
            lines = os.fsdecode(log.read()).strip().splitlines()
            raise ToolError(
                f"gdb took no snapshot: {printable(lines[-1]) if lines else 'it reported no reason'}",
                slug="call-failed",
                hint=by_hand,
            )
    if isinstance(message, messages.Failed):
        raise TargetError(message.sentence, slug=message.slug, hint=message.hint or by_hand)
    return message
