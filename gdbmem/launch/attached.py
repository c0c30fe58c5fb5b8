"""A process that somebody else has started: whether gdb may have it, and gdb or vgdb at it."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from gdbmem import __version__
from gdbmem.errors import GdbmemError, TargetError, ToolError
from gdbmem.launch.gdbcall import gdb_call
from gdbmem.launch.gdbpython import ensure_private_folder, loader_file
from gdbmem.launch.interactive import CONNECT, QUIET, say_run
from gdbmem.launch.process import Child
from gdbmem.launch.runtime import runtime_folder
from gdbmem.launch.supervisor import Interrupted, Supervisor, saved_terminal
from gdbmem.launch.valgrind import present_program
from gdbmem.launch.vgdb import RunningValgrind, find_running
from gdbmem.launch.wire import ATTACHED, ENVIRONMENT
from gdbmem.linux.clock import boot_id
from gdbmem.linux.process import ProcessFacts, check_analysable, process_of
from gdbmem.linux.processes import stat_of
from gdbmem.runs.process_runs import run_for_process
from gdbmem.runs.run import Run, SnapshotRecord, current_folder
from gdbmem.text import printable

_SNAPPING = ("massif", "memcheck", "helgrind")  # valgrind's tools that write the heap when they are asked
SNAP_SECONDS = 120.0  # gdb reads the symbols of a browser meanwhile
_SNAP = gdb_call("attached", "snap()")


@dataclass(frozen=True)
class Target:
    """A process that gdb may have."""

    facts: ProcessFacts
    program: Path
    arguments: Sequence[str]
    valgrind: Optional[RunningValgrind]

    @property
    def pid(self) -> int:
        return self.facts.pid

    @property
    def identity(self) -> Mapping[str, Any]:
        """What tells it from a later process of the same number."""
        stat = stat_of(self.pid)
        return {
            "pid": self.pid,
            "start_ticks": stat.start_ticks if stat is not None else None,
            "boot_id": boot_id(),
        }


def find_target(pid: int) -> Target:
    """Return the process *pid*. Raises TargetError, with the reason, where gdb can't have it."""
    pid = process_of(pid)  # that of a thread is as good
    if pid == os.getpid():
        raise TargetError(
            f"process {pid} is this gdbmem itself", slug="no-such-process", hint="'ps' lists the others"
        )
    facts = check_analysable(pid)
    _refuse_elsewhere(facts)
    valgrind = find_running(pid)
    if valgrind is not None and facts.state == "T":
        raise _stopped(valgrind)
    words = _command_line(pid)
    program = present_program(pid) if valgrind is not None else None
    return Target(facts, program or _program_of(pid), words[1:], valgrind)


def _program_of(pid: int) -> Path:
    path = Path(f"/proc/{pid}/exe").resolve()
    return path if path.exists() else path.with_name(path.name.removesuffix(" (deleted)"))


def _stopped(valgrind: RunningValgrind) -> TargetError:
    return TargetError(
        f"process {valgrind.pid} is stopped (by SIGSTOP or Ctrl-Z), and valgrind's {valgrind.tool}, which it runs"
        " under, answers only while it runs",
        slug="process-stopped",
        hint=f"let it go on first: kill -CONT {valgrind.pid}",
    )


def _refuse_elsewhere(facts: ProcessFacts) -> None:
    """Refuse a process with another root: its files are not those that stand here under the same names."""
    with contextlib.suppress(OSError):
        here, there = Path("/").stat(), Path(f"/proc/{facts.pid}/root/").stat()
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise TargetError(
                f"process {facts.pid} ({printable(facts.name)}) has another root folder (a container, or chroot):"
                " its programs and libraries are not those of the same names here",
                slug="process-elsewhere",
                hint="type this inside the container",
            )


def _command_line(pid: int) -> list[str]:
    try:
        return [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
    except OSError:
        return []


@dataclass
class Attachment:
    """A process with its run, and the folders through which its snapshots come."""

    target: Target
    run: Run
    is_new: bool
    supervisor: Supervisor
    told: list[dict[str, Any]] = field(default_factory=list)


@contextlib.contextmanager
def open_attachment(
    target: Target, *, folder: Optional[Path], command: Sequence[str], gdb: str
) -> Iterator[Attachment]:
    """Yield an Attachment; at the end gdb has gone, and a new run that holds nothing too."""
    ensure_private_folder(gdb)
    run, is_new = _open_run(target, folder, command)
    told: list[dict[str, Any]] = []
    try:
        with runtime_folder(run.folder) as runtime, _drop_folder(target.pid) as (here, there):
            answer = {
                "pid": target.pid,
                "vgdb": target.valgrind.words() if target.valgrind is not None else None,
                "tool": target.valgrind.tool if target.valgrind is not None else None,
                "own_terminal": False,
                "is_stopped": target.facts.state == "T",
                "here": here,
                "there": there,
                "prefix": _prefix(target.pid, run, there),
            }
            supervisor = Supervisor(runtime, _start_nothing, told.append, {"attached": answer})
            with supervisor:
                yield Attachment(target, run, is_new, supervisor, told)
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                run.remove_if_empty()


def _start_nothing(serial: int, arguments: Optional[list[str]]) -> Any:
    raise ToolError(
        "the process was not started by gdbmem, which can't start it again",
        slug="not-launched",
        hint="'gdbmem launch' starts programs",
    )


def _open_run(target: Target, folder: Optional[Path], command: Sequence[str]) -> tuple[Run, bool]:
    run, is_new = run_for_process(
        str(target.program), target.identity, parent=current_folder(), folder=folder
    )
    if is_new:
        run.update(
            program=str(target.program),
            arguments=list(target.arguments),
            command=list(command),
            engine=target.valgrind.tool if target.valgrind is not None else "none",
            launcher="gdbmem",
            began=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"),
            versions={"gdbmem": __version__, "python": sys.version.split()[0]},
            warnings=[],
        )
    return run, is_new


@contextlib.contextmanager
def _drop_folder(pid: int) -> Iterator[tuple[str, str]]:
    """Yield a new folder that the process may write to: its path for us, and for the process.

    The process may belong to somebody else, who can't enter our run, or have a /tmp of its own. What is held
    open can be removed also when the process has gone.
    """
    parent = os.open(f"/proc/{pid}/root/tmp", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    base = f"/proc/{os.getpid()}/fd/{parent}"
    name = ""
    try:
        name = Path(tempfile.mkdtemp(prefix="gdbmem-", dir=base)).name
        owner = Path(f"/proc/{pid}").stat()
        if owner.st_uid != os.getuid():
            # Not through a link: the process's own /tmp may let its owner put one there meanwhile.
            os.chown(name, owner.st_uid, owner.st_gid, dir_fd=parent, follow_symlinks=False)
        yield f"{base}/{name}", f"/tmp/{name}"
    except OSError as error:
        raise TargetError(
            f"no folder could be made for process {pid} to write to: {error.strerror}",
            slug="run-unwritable",
            hint="free some space in /tmp",
        ) from error
    finally:
        if name:
            shutil.rmtree(f"{base}/{name}", ignore_errors=True)
        os.close(parent)


def _prefix(pid: int, run: Run, there: str) -> str:
    """Return what a profiler that is turned on now is to begin its files with."""
    snapshots = run.folder / "snapshots"
    with contextlib.suppress(OSError):
        seen = Path(f"/proc/{pid}/root{snapshots}").stat()
        owner = Path(f"/proc/{pid}").stat().st_uid
        if seen.st_ino == snapshots.stat().st_ino and owner in (0, os.getuid()):
            return f"{snapshots}/own"
    return f"{there}/own"


def run_attached(
    target: Target, *, gdb: str, folder: Optional[Path], gdb_arguments: Sequence[str], command: Sequence[str]
) -> int:
    """Run the user's gdb at *target* until it is left; the process then goes on. Return 0."""
    with saved_terminal():
        attachment = None
        try:
            with open_attachment(target, folder=folder, command=command, gdb=gdb) as attachment:
                _foreground(attachment, gdb, gdb_arguments)
        except Interrupted as interrupted:
            print("gdbmem: interrupted", file=sys.stderr)
            return 128 + interrupted.number
        finally:
            if attachment is not None and attachment.run.folder.is_dir():
                say_run(attachment.run)
    return 0


def _foreground(attachment: Attachment, gdb: str, gdb_arguments: Sequence[str]) -> None:
    symbols = str(attachment.target.program)
    quiet = QUIET if printable(symbols) != symbols else ()
    program = ["--", symbols] if attachment.target.valgrind is not None else []
    child = Child(
        [gdb, "-q", *quiet, "-x", str(loader_file()), "-ex", CONNECT, *gdb_arguments, *program],
        environment=_environment(attachment),
        own_session=False,
        blocked=(signal.SIGINT, signal.SIGQUIT),
    )
    attachment.supervisor.watch_gdb(child)


def _environment(attachment: Attachment) -> dict[str, str]:
    return {**os.environ, ENVIRONMENT: str(attachment.supervisor.socket_path), ATTACHED: "1"}


@dataclass(frozen=True)
class Taken:
    """One snapshot, and for how long the process stood still for it."""

    record: SnapshotRecord
    run: Run
    pause_seconds: float
    before: Optional[SnapshotRecord] = None  # the one before it in the run
    notes: Sequence[str] = ()


def take_one(
    target: Target, name: Optional[str], *, gdb: str, folder: Optional[Path], command: Sequence[str]
) -> Taken:
    """Take one snapshot of *target*, which goes on at once. Raises GdbmemError where none can be taken."""
    if target.valgrind is not None:
        _refuse_tool(target.valgrind)
        run, is_new = _open_run(target, folder, command)
        before = run.snapshots[-1:]
        try:
            record, pause = _by_vgdb(target, target.valgrind, run, name)
        except GdbmemError:
            if is_new:
                run.remove_if_empty()
            raise
        return Taken(record, run, pause, before[0] if before else None)
    with open_attachment(target, folder=folder, command=command, gdb=gdb) as attachment:
        before = attachment.run.snapshots[-1:]
        message = _unattended(attachment, gdb, name)
        record = attachment.run.record(message["label"])
        return Taken(
            record,
            attachment.run,
            message["pause_seconds"],
            before[0] if before else None,
            message["notes"],
        )


def _refuse_tool(valgrind: RunningValgrind) -> None:
    if valgrind.tool not in _SNAPPING:
        raise TargetError(
            f"process {valgrind.pid} runs under valgrind's {valgrind.tool}, which takes no heap snapshots",
            slug="no-profiler",
            hint="start the program by 'gdbmem launch', or under valgrind with --tool=massif or memcheck",
        )


def _by_vgdb(
    target: Target, valgrind: RunningValgrind, run: Run, name: Optional[str]
) -> tuple[SnapshotRecord, float]:
    from gdbmem.formats.opening import open_profile

    command = "detailed_snapshot" if valgrind.tool == "massif" else "xtmemory"
    name_there = "snapshot.ms"  # with that ending an execution tree comes in massif's format, which names inlined calls
    file = run.next_file(valgrind.tool)
    with _drop_folder(target.pid) as (here, there):
        began = time.monotonic()
        said = valgrind.ask(command, f"{there}/{name_there}")
        pause = time.monotonic() - began
        try:
            shutil.move(f"{here}/{name_there}", run.folder / file)
        except OSError:
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
            hint="try again when it runs",
        )
    last = printable(said.splitlines()[-1]) if said else "it said nothing"
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


def _unattended(attachment: Attachment, gdb: str, name: Optional[str]) -> dict[str, Any]:
    """Have a gdb that nobody sits at take the snapshot; return what it told."""
    supervisor = attachment.supervisor
    with tempfile.TemporaryFile() as log:
        supervisor.gdb = child = Child(
            # Nothing that a snapshot does not need: no gdbinit, no scripts of libraries, no download.
            [gdb, "-q", "-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off",
             "-x", str(loader_file()), "-ex", _SNAP],
            environment={**_environment(attachment), "GDBMEM_NAME": name or ""},
            stdin=subprocess.DEVNULL,
            stdout=log.fileno(),
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        if not supervisor.wait(lambda: not child.alive, SNAP_SECONDS):
            # On SIGINT gdb lets go of the process first.
            child.stop(((signal.SIGINT, 10.0), (signal.SIGHUP, 10.0), (signal.SIGKILL, 5.0)))
        supervisor.wait(lambda: bool(attachment.told), 1.0)
        message = next((m for m in attachment.told if m.get("tell") in ("taken", "failed")), None)
        if message is None:
            log.seek(0)
            lines = os.fsdecode(log.read()).strip().splitlines()
            raise ToolError(
                f"gdb took no snapshot: {printable(lines[-1]) if lines else 'it said nothing'}",
                slug="call-failed",
                hint=f"try it by hand: gdbmem attach {attachment.target.pid}",
            )
    if message["tell"] == "failed":
        by_hand = f"try it by hand: gdbmem attach {attachment.target.pid}"
        raise TargetError(message["sentence"], slug=message["slug"], hint=message["hint"] or by_hand)
    return message
