"""Valgrind as a child: its command line, connecting to it, and reading its log."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.engines import massif
from gdbmem.engines.engine import valgrind_engine
from gdbmem.errors import MissingToolError, Notice
from gdbmem.launch.child import Child
from gdbmem.launch.program import Program
from gdbmem.launch.terminal import OwnTerminal
from gdbmem.linux.process.process import memory_folder, words_of
from gdbmem.runs.run import HISTORY_PACKED
from gdbmem.text import printable

# A forked child that has not executed another program by then works, or waits, for its parent.
_EXEC_SECONDS = 1.0
_FIFO = re.compile(r"-from-vgdb-to-(\d+)-by-(.*)-on-(.*)", re.DOTALL)


class Valgrind(NamedTuple):
    """An installed valgrind."""

    path: str
    vgdb: str


def find_valgrind() -> Valgrind:
    """Return the installed valgrind; raises MissingToolError with what to install."""
    path, vgdb = shutil.which("valgrind"), shutil.which("vgdb")
    if path is None or vgdb is None:
        missing = "valgrind" if path is None else "vgdb, valgrind's bridge to gdb,"
        raise MissingToolError(
            f"{missing} is not installed",
            slug="no-valgrind",
            hint="install the valgrind package of your distribution ('gdbmem doctor' names the command)",
        )
    return Valgrind(path, vgdb)


def own_settings() -> list[str]:
    """Return valgrind's options for this user: $VALGRIND_OPTS and ~/.valgrindrc, never ./.valgrindrc.

    Others may write to the current folder. Later options take precedence, as in valgrind.
    """
    try:
        written = (Path.home() / ".valgrindrc").read_text(errors="surrogateescape")
    except (OSError, RuntimeError):  # RuntimeError: this user has no home
        written = ""
    return ["--command-line-only=yes", *written.split(), *os.environ.get("VALGRIND_OPTS", "").split()]


class Order(NamedTuple):
    """The options for one program under valgrind."""

    valgrind: Valgrind
    tool_arguments: Sequence[str]  # the engine's: --tool, its options
    program: Program
    arguments: Sequence[str]
    environment: Mapping[str, str]
    run: Path  # the run folder
    runtime: Path  # the runtime folder
    engine: str = massif.NAME
    folder: Optional[Path] = None  # the program's current folder; None: ours
    serial: int = 1  # number of this start in the run; unlike valgrind's pid it does not repeat
    reads_values: bool = True  # gdb will read variables, which may be in registers

    @property
    def prefix(self) -> str:
        return str(self.runtime / f"vgdb{self.serial}")

    def argv(self) -> list[str]:
        """Return valgrind's whole command line."""
        # Files of forked and traced children carry their own pid; %p is the only % that is not doubled.
        log = f"{_percent(self.run)}/valgrind.{self.serial}.%p.log"
        return [
            self.valgrind.path,
            # Valgrind checks for Ctrl-C after this number of code blocks; vgdb can request a check immediately, but not
            # if the main thread has ended. With the default, 5000, it takes seconds in a program that mostly sleeps.
            "--vgdb-poll=500",
            *own_settings(),
            *self.tool_arguments,
            "--vgdb=yes",
            # Translating on across jumps and calls, valgrind leaves registers out of date for gdb: at a function that
            # is called by a jump, the stack pointer and so its caller.
            "--vex-guest-chase=no",
            *self._register_updates(),
            # Not --vgdb-error=0, with which valgrind ignores SIGTERM after gdb has gone.
            "--vgdb-stop-at=startup",
            f"--vgdb-prefix={self.prefix}",
            f"--log-file={log}",
            str(self.program.path),
            *self.arguments,
        ]

    def _register_updates(self) -> list[str]:
        """Return the options for registers that gdb reads: at a breakpoint, valgrind has optimised some updates away.

        Exact ones take up to 17 % more CPU.
        """
        mode = "allregs-at-each-insn" if self.reads_values else "allregs-at-mem-access"
        return [f"--px-default={mode}", f"--px-file-backed={mode}"]


def _percent(path: Path) -> str:
    return str(path).replace("%", "%%")


def history_pattern(run: Path, serial: int, engine: str = massif.NAME) -> Path:
    """Return the tool's option for its output file: one per process, for any name of the folder."""
    return Path(_percent(run)) / f"{engine}.{serial}.%p{valgrind_engine(engine).SUFFIX}"


class Process:
    """A started valgrind."""

    def __init__(self, order: Order, child: Child) -> None:
        self.order = order
        self.child = child
        # Number of times that it created its FIFOs: at its start, and after each followed exec.
        self.beginnings = 0
        self._forked: dict[int, float] = {}  # by pid: when it was forked (time.monotonic)
        self._stayed: set[int] = set()  # forked children that run the program's own code

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def log(self) -> Path:
        return self.order.run / f"valgrind.{self.order.serial}.{self.pid}.log"

    @property
    def history(self) -> Path:
        engine = self.order.engine
        plain = self.order.run / f"{engine}.{self.order.serial}.{self.pid}{valgrind_engine(engine).SUFFIX}"
        packed = plain.with_name(plain.name + HISTORY_PACKED)
        return packed if not plain.exists() and packed.exists() else plain

    def histories_of_children(self) -> list[Path]:
        """Return the files that forked processes wrote at their ends; one that executes another program writes none."""
        engine = self.order.engine
        stem, suffix = f"{engine}.{self.order.serial}.", valgrind_engine(engine).SUFFIX
        found = [
            path for end in (suffix, suffix + HISTORY_PACKED) for path in self.order.run.glob(f"{stem}*{end}")
        ]
        return [path for path in sorted(found) if path != self.history]

    def note_log(self, name: str) -> bool:
        """Note a forked child, if *name*, a new file in the run, is its log; return whether it is."""
        match = re.fullmatch(rf"valgrind\.{self.order.serial}\.(\d+)\.log", name)
        if match is None or int(match[1]) == self.pid:
            return False
        self._forked[int(match[1])] = time.monotonic()
        return True

    def note_children(self, *, to_the_last: bool = False) -> None:
        """Note which forked children stay in the program's code: another is executed soon, or not at all.

        *to_the_last*: wait until that can be said of each.
        """
        undecided = self._forked.keys() - self._stayed
        while undecided := {pid for pid in undecided if self.has_started(pid)}:
            latest = time.monotonic() - _EXEC_SECONDS
            decided = {pid for pid in undecided if self._forked[pid] <= latest}
            self._stayed |= decided
            undecided -= decided
            if not (to_the_last and undecided):
                return
            time.sleep(0.02)

    def children_without_history(self) -> int:
        """Return how many forked children ran the program's own code and wrote no file: killed, or not ended."""
        files = {path.name.split(".")[2] for path in self.histories_of_children()}
        return sum(str(pid) not in files for pid in self._stayed)

    @property
    def is_writing(self) -> bool:
        """Return whether the tool has begun to write its file at the program's end."""
        ending = valgrind_engine(self.order.engine).ENDING
        return self.history.exists() or (bool(ending) and ending in self.log_text())

    def log_text(self) -> bytes:
        try:
            return self.log.read_bytes()
        except FileNotFoundError:
            return b""

    @property
    def ready(self) -> bool:
        """Return whether valgrind is reachable by vgdb and waits before the program's first instruction.

        The log reports it a moment earlier, and a vgdb started in between gives up.
        """
        return self._fifo(self.pid) is not None

    def vgdb(self, *words: str, pid: Optional[int] = None) -> list[str]:
        """Return the command line that connects gdb to this process, or runs the monitor command *words*."""
        fifo = self._fifo(pid or self.pid)
        names = (fifo[2], fifo[3]) if fifo else None
        return vgdb_command(self.order.valgrind.vgdb, self.order.prefix, pid or self.pid, names, words)

    def monitor(self, *words: str, pid: Optional[int] = None) -> Child:
        """Start a monitor command while no gdb is connected; status 0: it was carried out."""
        null = subprocess.DEVNULL
        return Child(self.vgdb(*words, pid=pid), stdin=null, stdout=null, stderr=null)

    def reachable_pid(self, name: str) -> Optional[int]:
        """Return the process of this start that *name*, a FIFO in the runtime folder, belongs to."""
        match = self._match(name)
        return int(match[1]) if match else None

    def reachable_pids(self) -> set[int]:
        """Return the processes of this start that vgdb can reach.

        One that was killed has left its FIFO, and another program may have its number by now.
        """
        pids = (self.reachable_pid(path.name) for path in self.order.runtime.iterdir())
        return {pid for pid in pids if pid is not None and self.has_started(pid)}

    def has_started(self, pid: int) -> bool:
        """Return whether *pid* is a living valgrind of this start."""
        return f"--vgdb-prefix={self.order.prefix}" in words_of(pid)

    def _match(self, name: str) -> Optional[re.Match[str]]:
        prefix = Path(self.order.prefix).name
        return _FIFO.fullmatch(name, len(prefix)) if name.startswith(prefix) else None

    def _fifo(self, pid: int) -> Optional[re.Match[str]]:
        # It is created last of the two FIFOs and the shared memory that vgdb needs.
        matches = (self._match(path.name) for path in self.order.runtime.iterdir())
        return next((match for match in matches if match and int(match[1]) == pid), None)

    @contextlib.contextmanager
    def reader_of_answers(self) -> Iterator[None]:
        """Open, and do not read, the FIFO in which valgrind answers vgdb.

        Valgrind opens it for each vgdb, and would wait forever for one that was killed meanwhile.
        """
        fifo, descriptor = self._fifo(self.pid), None
        if fifo is not None:
            name = fifo.string.replace("-from-vgdb-to-", "-to-vgdb-from-", 1)
            with contextlib.suppress(OSError):
                descriptor = os.open(self.order.runtime / name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def present_program(self) -> Optional[Path]:
        """Return the program that it runs now, after an exec; None if unknown."""
        return present_program(self.pid)


def vgdb_command(
    vgdb: str, prefix: str, pid: int, names: Optional[tuple[str, str]], words: Sequence[str]
) -> list[str]:
    """Return the command line that connects gdb to the valgrind *pid*, or runs the monitor command *words*.

    The name of the FIFO for vgdb contains *names*, user and host, as the program sees them.
    """
    known = [f"LOGNAME={names[0]}", f"USER={names[0]}", f"HOST={names[1]}"] if names is not None else []
    return ["env", *known, vgdb, f"--vgdb-prefix={prefix}", f"--pid={pid}", *words]


def present_program(pid: int) -> Optional[Path]:
    """Return the program that the valgrind *pid* runs now; None if unknown."""
    name = next((word for word in words_of(pid)[1:] if not word.startswith("-")), None)
    with contextlib.suppress(OSError):
        return Path(f"{memory_folder(pid)}/cwd").resolve() / name if name is not None else None
    return None


def executable(pid: int) -> str:
    """Return the path of the program that process *pid* runs; "" if it has ended, or is ending."""
    try:
        return str(Path(f"{memory_folder(pid)}/exe").readlink())
    except OSError:
        return ""


EXECUTED = "(exec)"  # in the sentences on a program that valgrind did not follow
_FOLLOW = "launch with --trace-children to follow it"


def replacement(pid: int) -> str:
    """Return the program that has replaced valgrind in process *pid*, by an exec that it did not follow.

    "" while it still runs valgrind, and when it is ending: its program disappears before the process does.
    """
    program = executable(pid)
    return "" if "valgrind" in program else program


def fate(process: Process, *, exited: bool) -> str:
    """Describe the end of *process*, whose connection to gdb has closed; "" if its status is sufficient.

    *exited*: gdb was notified of an end.
    """
    notice = explain(process.log_text())
    if notice is not None:
        return notice.message
    status, engine = process.child.status, process.order.engine
    end = valgrind_engine(engine).END
    if status is None:
        now = replacement(process.pid)
        if now:
            return (
                f"the program has replaced itself by {printable(now)} (exec), which continues outside {engine}; "
                f"{_FOLLOW}"
            )
        if exited:
            return f"{engine} still writes its last snapshot, {printable(str(process.history))}"
        return (
            f"gdb's connection to the program has closed; process {process.pid} continues, and 'run' starts the"
            " program again"
        )
    if exited or process.history.exists():
        return ""
    if b"request to kill this process" in process.log_text():
        return "gdb has killed the program; 'run' starts it again"
    if status == 128 + signal.SIGKILL:
        return f"valgrind was killed (SIGKILL): {end} is lost, the snapshots are kept"
    return _gone_elsewhere(process.order, status) if status < 128 else ""


def _gone_elsewhere(order: Order, status: int) -> str:
    """Return the sentence on a program that executed another one, which ended with *status* without gdb."""
    # For the program /proc/self/exe is itself; for the kernel, which executes it, it is valgrind.
    itself = "valgrind can't start itself, which is what a program under it executes by /proc/self/exe"
    if "--trace-children=yes" in order.tool_arguments:
        return (
            f"the program executed another one (exec), which valgrind could not start (status {status}): "
            f"{itself}; make it execute its own path"
        )
    sentence = (
        f"the program executed another one (exec), which ended with status {status} outside {order.engine}; "
        f"{_FOLLOW}"
    )
    if status != 1:
        return sentence
    return f"{sentence} (if it executed /proc/self/exe, make it execute its own path: {itself})"


def start(
    order: Order,
    *,
    stdin: Optional[int] = None,
    stdout: Optional[int] = None,
    terminal: Optional[OwnTerminal] = None,
) -> Process:
    """Start valgrind in its own session; it will wait for gdb before the program's first instruction.

    The program has *terminal*, or *stdin* and *stdout* (None: ours).
    """
    slave = terminal.slave if terminal is not None else None
    child = Child(
        order.argv(),
        environment=order.environment,
        folder=order.folder,
        stdin=slave if slave is not None else stdin,
        stdout=slave if slave is not None else stdout,
        stderr=slave,
        native_signals=True,
        before_exec=terminal.become_controlling if terminal is not None else None,
    )
    return Process(order, child)


# Messages in valgrind's log about failures → a sentence with the remedy.
_FAILURES: Sequence[tuple[bytes, str, str]] = (
    (
        rb"unhandled instruction bytes: 0x62|unrecognised.*0x62 0x",
        "unhandled-instruction",
        "the program uses AVX-512 instructions, which this valgrind doesn't know; build it without -march=native, or "
        "make the library choose another path (for glibc: GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F, for OpenBLAS: "
        "OPENBLAS_CORETYPE=Haswell)",
    ),
    (
        rb"unhandled instruction",
        "unhandled-instruction",
        "the program uses an instruction that this valgrind doesn't know; build it without -march=native, or use a "
        "newer valgrind",
    ),
    (
        rb"Unrecognised instruction",  # alone: ud2 and its like, of which valgrind prints no bytes
        "invalid-instruction",
        "the program executed an invalid instruction (ud2, as for __builtin_trap() and panics, or data)",
    ),
    (
        rb"Unsupported clone\(\) flags|does not support general clone\(\)",
        "valgrind-unsupported",
        "the program called clone() with flags that valgrind does not support (CLONE_VM, for one, without those of a"
        " thread), and valgrind ended it; call posix_spawn, vfork or fork there, or use an engine without valgrind:"
        " gperftools, jemalloc or faults",
    ),
    (
        rb"Program aborting because of call to \w",
        "valgrind-unsupported",
        "the program called a function that this valgrind does not implement (pvalloc, for one), and valgrind ended"
        " it; call posix_memalign there, or use an engine without valgrind: gperftools, jemalloc or faults",
    ),
    (
        rb"A must-be-redirected function",
        "stripped-loader",
        "the dynamic loader is stripped, and valgrind needs its symbols; install libc6-dbg (Debian, Ubuntu) or "
        "glibc-debuginfo",
    ),
    (
        rb"debuginfo reader: .*(?:failed|corrupted)|I can't recover\.  Giving up",
        "debuginfo-reader",
        "valgrind's reader of debug information fails on this program or one of its libraries; build without"
        " -gsplit-dwarf and compressed debug sections (-gz=none), or use an engine that does not read them:"
        " gperftools, jemalloc or faults",
    ),
    (
        rb"failed to start tool|no such tool|can't find.*(?:massif|memcheck|dhat)",
        "tool-missing",
        "this valgrind lacks the tool for this machine; reinstall valgrind",
    ),
    (
        rb"(?i)bad option|Unknown option",
        "valgrind-option",
        "valgrind rejects an option; see --valgrind-opt and --massif-opt",
    ),
    (
        rb"valgrind: mmap\(.*failed|Valgrind's memory management: out of memory|failed in UME",
        "valgrind-memory",
        "valgrind ran out of memory; raise the limit (ulimit -v, the cgroup's) or reduce the program's load",
    ),
    (
        rb"(?i)can't create (log|output) file|No space left on device|error: can't open output file",
        "run-unwritable",
        "valgrind could not write into the run folder; free some space there",
    ),
)


def explain(text: bytes) -> Optional[Notice]:
    """Return a sentence on the failure in valgrind's log or stderr *text*; None if none is recognised."""
    for pattern, slug, sentence in _FAILURES:
        if re.search(pattern, text):
            return Notice(slug, f"{_cause(text)}{sentence}" if slug == "debuginfo-reader" else sentence)
    return None


def _cause(text: bytes) -> str:
    """Return valgrind's own words on why it could not read which file's debug information; "" if there are none."""
    lines = [
        re.sub(rb"^(?:==|--)\d+(?:==|--) ?(?:Valgrind: )?", b"", line).strip() for line in text.splitlines()
    ]
    at = next((at for at, line in enumerate(lines) if line.startswith(b"debuginfo reader: ")), None)
    if at is None:
        return ""
    reader = lines[at].removeprefix(b"debuginfo reader: ").rstrip(b":")
    file = next((line for line in lines[at : at + 8] if line.startswith(b'"/')), b"")
    return printable(f"{_decoded(reader)} in {_decoded(file)}: " if file else f"{_decoded(reader)}: ")


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def last_line(text: bytes) -> str:
    """Return the last line of valgrind's own output, without its ``==PID==``."""
    lines = [re.sub(rb"^(==|--)\d+(==|--) ?", b"", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    return printable(lines[-1].decode("utf-8", "surrogateescape")) if lines else ""
