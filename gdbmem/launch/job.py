"""One launch from its job to its run folder, shared by interactive and unattended launches."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from gdbmem import __version__
from gdbmem.engines import massif
from gdbmem.engines.engine import NATIVE_NAMES, EngineOptions, table, valgrind_engine
from gdbmem.errors import InputError, Notice, ToolError
from gdbmem.json_values import as_json
from gdbmem.launch import native, valgrind
from gdbmem.launch.child import runtime_folder
from gdbmem.launch.messages import ENVIRONMENT, NATIVE, NEWLINE, AskNative, AskPlan, Message, RecipePlan
from gdbmem.launch.program import Program
from gdbmem.launch.supervisor import Supervisor
from gdbmem.launch.terminal import OwnTerminal
from gdbmem.launch.vgdb import Sentinel
from gdbmem.runs.ranks import own_rank
from gdbmem.runs.run import Run, current_folder, pack_histories, timestamp
from gdbmem.setup.gdb_python import refuse_little_room
from gdbmem.text import plural, printable


class Job(NamedTuple):
    """The options of a launch."""

    program: Program
    arguments: Sequence[str]
    options: EngineOptions
    environment: Mapping[str, str] = {}  # added to ours
    folder: Optional[Path] = None  # the program's current folder; None: ours
    stdin: Optional[str] = None  # a file; None: ours
    stdout: Optional[str] = None  # a file; None: ours
    own_terminal: bool = False
    run_folder: Optional[Path] = None
    gdb: str = "gdb"
    engine: str = massif.NAME
    reads_values: bool = True  # gdb will read the program's variables

    @property
    def is_native(self) -> bool:
        """True if gdb starts the program itself, without valgrind."""
        return self.engine in NATIVE_NAMES

    def notices(self) -> list[Notice]:
        """Return notices on the parts of this program that valgrind can't see."""
        if self.is_native:
            return []
        pages = isinstance(self.options, massif.MassifOptions) and self.options.pages_as_heap
        return self.program.notices({**os.environ, **self.environment}, engine=self.engine, pages=pages)


class Launch:
    """A run folder, a runtime folder and a supervisor, ready to start processes."""

    def __init__(
        self,
        job: Job,
        found: Optional[valgrind.Valgrind],
        run: Run,
        runtime: Path,
        sentinel: Sentinel,
        hear: Callable[[Message], None],
        *,
        plan: Optional[RecipePlan],
        began: float,
        output: Optional[native.Output],
    ):
        """*hear* gets gdb's notifications; *plan* is the recipe for an unattended gdb; *began*: seconds since 1970.

        *output*: where the output of a program goes that such a gdb starts.
        """
        self.job = job
        self.run = run
        self.runtime = runtime
        self.notices: list[Notice] = []  # of its end
        self._valgrind = found
        self._streams = _open_streams(job, run)
        self._plan = plan
        self._native = (
            native.native_plan(job, run, runtime, began=began, output=output) if job.is_native else None
        )
        self.supervisor = Supervisor(runtime, sentinel, self._start_valgrind, hear, self._answer)
        self._terminal = self.supervisor.terminal = OwnTerminal() if job.own_terminal else None

    def _answer(self, question: Message) -> Message:
        found: Optional[Message] = None
        if isinstance(question, AskPlan):
            found = self._plan
        elif isinstance(question, AskNative):
            found = self._native
        if found is None:
            raise ToolError(f"unexpected question {type(question).__name__}", slug="launcher")
        return found

    def _start_valgrind(self, serial: int, arguments: Optional[list[str]]) -> valgrind.Process:
        assert self._valgrind is not None  # a native launch never requests it
        if arguments is not None:
            self.job = self.job._replace(arguments=arguments)
        order = valgrind.Order(
            valgrind=self._valgrind,
            engine=self.job.engine,
            tool_arguments=valgrind_engine(self.job.engine).valgrind_arguments(
                self.job.options, valgrind.history_pattern(self.run.folder, serial, self.job.engine)
            ),
            program=self.job.program,
            arguments=self.job.arguments,
            environment={**os.environ, **self.job.environment},
            run=self.run.folder,
            runtime=self.runtime,
            folder=self.job.folder,
            serial=serial,
            reads_values=self.job.reads_values,
        )
        stdin, stdout = self._streams
        if stdin is not None:
            with contextlib.suppress(OSError):  # a pipe can't be rewound
                os.lseek(stdin, 0, os.SEEK_SET)
        process = valgrind.start(order, stdin=stdin, stdout=stdout, terminal=self._terminal)
        starts = [
            *self.run.facts.get("starts", []),
            {"pid": process.pid, "argv": order.argv(), "began": timestamp()},
        ]
        try:
            self.run.update(starts=starts)
        except InputError:
            process.child.stop(((signal.SIGKILL, 10.0),))  # unknown to other processes so far
            raise
        return process

    def note_ends(self) -> None:
        """Record in the run the end of each valgrind, and the files that it wrote then."""
        starts = [dict(start) for start in self.run.facts.get("starts", [])]
        for start, process in zip(starts, self.supervisor.past):
            start["status"] = process.child.status
            start["history"] = process.history.name if process.history.exists() else None
            notice = valgrind.explain(process.log_text())
            if notice is not None:
                start["explanation"] = notice.message
        self.run.update(starts=starts, ended=timestamp())

    def close(self) -> None:
        if self._terminal is not None:
            self._terminal.close()
        for stream in self._streams:
            if stream is not None:
                os.close(stream)


@contextlib.contextmanager
def open_launch(
    job: Job,
    *,
    hear: Callable[[Message], None],
    plan: Optional[RecipePlan],
    command: Sequence[str],
    output: Optional[native.Output] = None,
) -> Iterator[Launch]:
    """Yield a Launch with its run folder created; at the end all processes are ended and recorded.

    *hear* gets gdb's notifications; *plan* is the recipe for an unattended gdb, and *output* is where the output of a
    program goes that such a gdb starts.
    """
    found = None
    refuse_little_room()
    if job.is_native:
        native.refuse_unsuitable(job, table(job.engine))
        native.find_library(table(job.engine))
    else:
        found = valgrind.find_valgrind()
    began = time.time()
    run = Run.create(
        str(job.program.path),
        parent=current_folder(),
        pid=os.getpid(),
        folder=job.run_folder,
        rank=own_rank(),
    )
    launch = None
    try:
        _write_order(run, job, command)
        with Sentinel() as sentinel, runtime_folder(run.folder, tell=sentinel.remove) as runtime:
            launch = Launch(job, found, run, runtime, sentinel, hear, plan=plan, began=began, output=output)
            with launch.supervisor:
                yield launch
    finally:
        # Slow work follows the removal of the folder in /tmp, which would be left behind after a kill.
        if launch is not None:
            _finish(launch, began)
        with contextlib.suppress(OSError):
            run.remove_if_empty()


def _finish(launch: Launch, began: float) -> None:
    """Record the outcome of the launch; a full disk must not hide its own errors."""
    launch.close()
    if launch.job.engine == massif.NAME:
        pack_histories(launch.run)
    with contextlib.suppress(InputError):
        launch.note_ends()
    if launch.job.is_native:
        with contextlib.suppress(InputError, OSError):
            launch.notices += native.collect_own_dumps(launch.run, launch.job.engine, began)
    with contextlib.suppress(InputError):
        if table(launch.job.engine).whole_run:
            from gdbmem.launch.whole_run import record_whole_runs  # slow to import

            launch.notices += record_whole_runs(launch.run, launch.job.engine, launch.supervisor)


def _write_order(run: Run, job: Job, command: Sequence[str]) -> None:
    run.update(
        program=str(job.program.path),
        arguments=list(job.arguments),
        command=list(command),
        engine=job.engine,
        launcher="gdbmem",
        began=timestamp(),
        versions=_versions(job),
        machine=_machine(),
        surroundings=surroundings(),
        warnings=[as_json(notice) for notice in job.notices()],
    )


def _versions(job: Job) -> dict[str, str]:
    """Return the versions of gdbmem, its Python and, if *job* uses it and its version is known, valgrind."""
    found = {"gdbmem": __version__, "python": sys.version.split()[0]}
    if not job.is_native:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            words = ["valgrind", "--version"]
            said = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=5, check=True)
            found["valgrind"] = printable(said.stdout.decode(errors="replace").strip().partition("-")[2])
    return found


def _machine() -> str:
    """Return the kernel, the architecture and the number of processors of this machine."""
    found = os.uname()
    return f"{found.sysname} {found.release} {found.machine}, {plural(os.cpu_count() or 1, 'processor')}"


def surroundings() -> dict[str, str]:
    """Return what the size of a process depends on beside its program, by which runs are compared."""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        libc = "not glibc"
    return {
        "libc": libc,
        "page_bytes": str(os.sysconf("SC_PAGE_SIZE")),
        "processors": str(len(os.sched_getaffinity(0))),
        "machine": os.uname().machine,
    }


def gdb_environment(launch: Launch) -> dict[str, str]:
    """Return gdb's environment: ours, with the launcher's socket."""
    found = {**os.environ, ENVIRONMENT: str(launch.supervisor.socket_path), NEWLINE: "\n"}
    return {**found, NATIVE: "1"} if launch.job.is_native else found


def gdb_program(job: Job) -> Sequence[str]:
    """Return the end of gdb's command line, which names the program."""
    if not job.is_native:
        return ["--", str(job.program.symbols)]  # where a name that starts with a dash is no option
    # A script is run by its interpreter under that name, by which a virtual environment's Python finds its packages.
    return ["--args", *(job.program.script or [str(job.program.symbols)]), *job.arguments]


def problems(launch: Launch) -> list[Notice]:
    """Return the failures of this launch according to valgrind's logs, and problems at its end."""
    found = (valgrind.explain(process.log_text()) for process in launch.supervisor.past)
    return [*(notice for notice in found if notice is not None), *launch.notices]


def _open_streams(job: Job, run: Run) -> tuple[Optional[int], Optional[int]]:
    stdin = stdout = None
    if job.stdin is not None:
        stdin = _open(job.stdin, os.O_RDONLY, "--stdin")
    elif not os.isatty(0):
        # A pipe contains gdb's commands, not the program's input.
        stdin = os.open(os.devnull, os.O_RDONLY)
    if job.stdout is not None:
        path = run.place / "stdout" if job.stdout == "" else Path(job.stdout)
        stdout = _open(str(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "--stdout")
    return stdin, stdout


def _open(path: str, how: int, option: str) -> int:
    try:
        return os.open(path, how | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise InputError(
            f"{option} {printable(path)}: {error.strerror}",
            slug="bad-stream",
            hint="name a file that can be opened",
        ) from error
