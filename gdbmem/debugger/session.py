"""This gdb's connection to a program under valgrind, and the run folder its snapshots go to."""

from __future__ import annotations

import atexit
import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import gdb

from gdbmem.debugger.command import say
from gdbmem.debugger.location import program_file, program_runs, real_pid
from gdbmem.debugger.native.program_faults import program_faults
from gdbmem.debugger.program import execute_despite_hooks, executions, valgrind_tool
from gdbmem.debugger.terminal import piped_text
from gdbmem.engines import faults
from gdbmem.engines.engine import no_snapshots, table
from gdbmem.errors import TargetError, ToolError
from gdbmem.launch import messages
from gdbmem.launch.child import runtime_folder
from gdbmem.linux.process.process import has_ended
from gdbmem.runs.run import Run, current_folder, open_run

# Converting the program's arguments to and from gdb's `show args`.


class ShownArguments:
    """The program's arguments in the form that `run` and `show args` share."""

    def __init__(self) -> None:
        self._text = ""  # of gdb, for what follows
        self._arguments: list[str] = []

    def show(self, arguments: Sequence[str]) -> None:
        """Make `show args` print *arguments*."""
        # gdb takes text: an invalid byte is shown by its number.
        text = one_line(shlex.join(arguments)).encode("utf-8", "backslashreplace").decode()
        gdb.execute(f"set args {text}", to_string=True)
        self._text, self._arguments = str(gdb.parameter("args") or ""), list(arguments)

    def show_again(self) -> None:
        """Restore `show args`: gdb 18 takes the arguments, without quotes, from the target that it connects to."""
        if self._text:
            gdb.execute(f"set args {self._text}", to_string=True)

    def read(self, text: str) -> list[str]:
        """Parse *text*, typed after `run` or set as gdb's ``args``, into arguments.

        Raises ValueError for a quotation that isn't closed.
        """
        if text == self._text:
            return self._arguments
        return [word.replace(f"${messages.NEWLINE}", "\n") for word in shlex.split(text)]


def one_line(words: str) -> str:
    """Return a shell's quoted *words* without newlines, after which gdb would read the rest as its next command."""
    return words.replace("\n", f"'\"${messages.NEWLINE}\"'")


# A program that is not under valgrind, and the profiler in it.


class AttachedProcess:
    """The state of an attached process."""

    def __init__(self, plan: messages.AttachedPlan, function: str) -> None:
        """*function*: the profiler's function by which it was recognised, or ""."""
        self.plan = plan
        self.function = function
        self.is_on = False
        self.was_off = False  # before --engine switched it on
        self.notes: list[str] = []  # the notices for its snapshots
        self.other_way = "'memexplain'"  # to read its memory if it has no profiler


class NativeProgram(NamedTuple):
    """A native program and its profiler.

    *library*: what holds the profiler, or "". *prefix*: how the names of the profiler's own dumps begin. *began*:
    seconds since 1970, where this gdb's launcher knows it. *attached*: set where the process ran already.
    """

    engine: str
    library: str
    prefix: str
    began: Optional[float] = None
    attached: Optional[AttachedProcess] = None


_LOOK_SECONDS = 0.1  # at most, between Ctrl-C and its effect
_ASKED_UNDER_VALGRIND = ("massif", "memcheck")
_NEEDS_MASSIF = "quit gdb and type: gdbmem launch --massif PROGRAM"


class Session:
    """The launcher and the run of this gdb; one object per gdb."""

    def __init__(self) -> None:
        self.wire: Optional[messages.Wire] = None  # to the launcher; None under plain gdb
        self.started = time.monotonic()
        self.forget_snapshots()
        # Whether a recipe judges this run, so that its snapshots record what they don't see.
        self.judged = False
        self.farewell = ""  # sentence on a program that the user has killed or detached
        # The program that gdb itself has started or attached to; None: it is valgrind's.
        self.native: Optional[NativeProgram] = None
        self.arguments = ShownArguments()
        self._status: Optional[int] = None  # of a native program that has ended
        self._run: Optional[Run] = None
        self._link: Optional[str] = None  # a path without spaces to the run folder
        self._connected = False
        self._inferior: Optional[int] = None  # gdb's number of the connected inferior
        self._exited = False  # gdb was notified that the program ended
        self._keyboard: Optional[bool] = None  # whether it belongs to the program now; None: always to gdb
        # Count of Ctrl-C at the last query; None: not queried since the prompt.
        self._interrupts: Optional[int] = None
        self._next_look = 0.0

    # -- the launcher -------------------------------------------------------------------------------------

    @property
    def launched(self) -> bool:
        return self.wire is not None

    def ask(self, question: messages.Message, answer: type[messages.Answer]) -> messages.Answer:
        """Request an answer of class *answer* from the launcher; raises ToolError if it has ended or fails."""
        if self.wire is None:
            raise ToolError(
                "this gdb was not started by 'gdbmem launch'", slug="not-launched", hint=_NEEDS_MASSIF
            )
        return self.wire.ask(question, answer)

    def tell(self, message: messages.Message) -> None:
        """Send a message to the launcher, if there is one."""
        if self.wire is not None:
            self.wire.send(message)

    def open_wire(self) -> None:
        """Connect to the launcher that started this gdb and learn which run this is."""
        path = os.environ[messages.ENVIRONMENT]
        self.wire = messages.Wire.connect(path)
        self._link = str(Path(path).parent / "run")
        self._run = open_run(self._link)

    def give_keyboard(self) -> None:
        """Give the keyboard to the resumed program (sent once, not at each hit that doesn't stop)."""
        if self._interrupts is None:  # before the first hit: Ctrl-C may come in the middle of that
            self._interrupts = self.ask(messages.AskInterrupts(), messages.Interrupts).presses
        if self._keyboard is False:
            self._keyboard = True
            self.ask(messages.GiveKeyboard(running=True), messages.Done)

    @property
    def presses(self) -> Optional[int]:
        """The launcher's count of Ctrl-C when the program was resumed."""
        return self._interrupts

    def interrupted(self, *, at_once: bool = False) -> bool:
        """Return whether Ctrl-C was pressed since the program was resumed, or since the last True.

        While a breakpoint's hit is handled, gdb usually loses Ctrl-C; the launcher, on the same terminal, counts them.
        Most calls return False without a query, unless the answer is needed *at_once*.
        """
        now = time.monotonic()
        if self.wire is None or (now < self._next_look and not at_once):
            return False
        self._next_look = now + _LOOK_SECONDS
        count = self.ask(messages.AskInterrupts(), messages.Interrupts).presses
        before, self._interrupts = self._interrupts, count
        return before is not None and count > before

    def take_keyboard(self) -> None:
        """gdb is about to read the keyboard."""
        self._interrupts, self._next_look = None, 0.0
        if self._keyboard:
            self._keyboard = False
            self.ask(messages.GiveKeyboard(running=False), messages.Done)

    def note_exit(self, event: gdb.ExitedEvent) -> None:
        """Note the end of the program; a connection that merely closed comes without a status."""
        if self._inferior not in (None, event.inferior.num):
            return
        self._exited = hasattr(event, "exit_code")
        self._status = event.exit_code if self._exited else None
        if self.native is not None:
            self.forget_snapshots()

    def fate(self) -> messages.Fate:
        """Ask the launcher, or gdb, how the program ended."""
        if self.native is not None:
            return messages.Fate(self._native_status())
        return self.ask(messages.AskFate(self._exited), messages.Fate)

    def _native_status(self) -> Optional[int]:
        if self._status is not None:
            return self._status
        number = gdb.convenience_variable("_exitsignal")
        return None if number is None else 128 + int(number)

    def restart(self, arguments: Optional[list[str]]) -> None:
        """Make the launcher end this valgrind and start a new one, and connect to the new one."""
        # Only if it differs: gdb announces the switch with the program's raw name, including escape sequences.
        others = (known.num for known in gdb.inferiors() if known.num != gdb.selected_inferior().num)
        if self._inferior in others:
            gdb.execute(f"inferior {self._inferior}", to_string=True)
        if program_runs():
            execute_despite_hooks("disconnect", happened=lambda: not program_runs())
        self._connected = False
        self.forget_snapshots()
        self.join(
            self.ask(
                messages.Restart(None if arguments is None else tuple(arguments)), messages.ValgrindTarget
            )
        )

    def join(self, target: messages.ValgrindTarget) -> None:
        """Connect gdb to the valgrind that *target* describes."""
        if gdb.parameter("sysroot") == "target:":
            # Otherwise gdb requests every library's file from valgrind, which doesn't serve files.
            gdb.execute("set sysroot", to_string=True)
        log = shlex.quote(f"{self._link}/vgdb.log")
        command = f"target remote | exec {one_line(shlex.join(target.vgdb))} 2>>{log}"
        execute_despite_hooks(command, happened=program_runs)
        self.arguments.show_again()
        self._connected, self._inferior = True, gdb.selected_inferior().num
        self._exited, self.farewell = False, ""
        self._keyboard = False if target.own_terminal else None

    def start(self, plan: messages.NativePlan) -> None:
        """Start the program according to *plan*, stopped before its first instruction."""
        self.native = NativeProgram(plan.engine, plan.library, plan.prefix, plan.began)
        gdb.execute(f"set exec-wrapper {one_line(plan.wrapper)}", to_string=True)
        if plan.folder:
            gdb.execute(f"set cwd {plan.folder}", to_string=True)
        if plan.streams:
            # gdb passes its arguments to a shell: redirections are part of them.
            # (gdb's Python does not show them.)
            shown = str(gdb.execute("show args", to_string=True))
            arguments = shown[shown.index('"') + 1 : shown.rindex('"')]
            gdb.execute(f"set args {one_line(arguments)} {plan.streams}", to_string=True)
        execute_despite_hooks("starti", happened=program_runs)
        self.watch_executions()
        self._exited = False
        if plan.engine == faults.NAME:
            program_faults.follow(plan.period)

    def watch_executions(self) -> None:
        """Detect when the native program executes another one in its place."""
        executions.watch()
        executions.tell(self.forget_snapshots)

    @property
    def lives_in(self) -> Optional[int]:
        """The inferior, selected or not, of the program; None if it has ended."""
        living = (known.num for known in gdb.inferiors() if known.pid)
        return self._inferior if self._inferior in living else None

    def has_lost_program(self) -> bool:
        """Report, once, that the program to which this gdb was connected has ended."""
        if self.lives_in is not None:
            self.farewell = ""
            return False
        was_connected, self._connected = self._connected, False
        return was_connected

    def forget_snapshots(self) -> None:
        """The next snapshot has no predecessor in this process."""
        self.last_sites: dict[Any, int] = {}  # of the latest snapshot: bytes per site
        self.last_heap_bytes: Optional[int] = None
        self.last_label = ""
        self.last_beside: Optional[int] = None  # resident bytes that the engine doesn't trace
        self.last_leaked_bytes: Optional[int] = None
        self.last_leak_search = ""  # what asked memcheck for it last, in words

    # -- the run ------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        """This gdb's run; under plain gdb it is created in the current folder now, with a message.

        Raises TargetError if no engine can take a snapshot for the run.
        """
        if self._run is None:
            return self.run_of(require_snapshots())
        return self._run

    @property
    def engine(self) -> str:
        """The engine of this program's snapshots; under plain gdb the tool of valgrind that runs it, or ""."""
        if self.native is not None:
            return self.native.engine
        if self.wire is not None:
            return str(self.run.facts.get("engine", "massif"))
        return valgrind_tool() or ""

    @property
    def folder(self) -> Path:
        """The run's folder, for results other than heap snapshots: created if there is none, also without massif."""
        return self.run_of("none").folder

    def run_of(self, engine: str) -> Run:
        """This gdb's run, created if necessary; *engine* ("none" for ledgers) is recorded in a new one."""
        if self._run is None:
            program = program_file()
            self._run = Run.create(program, parent=current_folder(), pid=os.getpid())
            self._run.update(program=program, engine=engine, launcher="gdb")
            atexit.register(self._run.remove_if_empty)
            say(f"The run is kept in {self._run.folder}/.")
        return self._run

    @property
    def has_run(self) -> bool:
        return self._run is not None

    @property
    def link(self) -> str:
        """A path to the run folder without spaces, at which massif's monitor commands split."""
        if self._link is None:
            holder = runtime_folder(self.run.folder)
            self._link = str(holder.__enter__() / "run")
            atexit.register(holder.__exit__, None, None, None)
        return self._link

    @property
    def seconds(self) -> float:
        if self.native is not None and self.native.began is not None:
            return time.time() - self.native.began  # like the engine's own dumps, by the times of their files
        return time.monotonic() - self.started


session = Session()


def require_program() -> None:
    """Raise TargetError unless there is a live program to talk about."""
    if not program_runs():
        raise not_running()


def not_running() -> TargetError:
    """Return the error of a command that needs a live program when there is none."""
    if session.lives_in is not None:
        return TargetError(
            f"the program is in inferior {session.lives_in}",
            slug="other-inferior",
            hint=f"type 'inferior {session.lives_in}'",
        )
    return TargetError(
        "the program is not running",
        slug="not-running",
        hint="type 'run'" if session.launched else _NEEDS_MASSIF,
    )


def require_snapshots() -> str:
    """Return the engine of this gdb's program; raises TargetError, with a hint, if it takes no snapshots."""
    if session.launched:
        engine = session.engine
        if table(engine).whole_run:
            raise no_snapshots(engine)
        return engine
    require_program()
    engine = session.engine
    if engine not in _ASKED_UNDER_VALGRIND:
        raise not_under_massif()
    return engine


def not_under_massif() -> TargetError:
    """Return the error of a massif command in a gdb whose program is not under massif, or no longer."""
    pid = real_pid()
    if pid is not None and has_ended(pid):
        return TargetError(
            f"valgrind went away: process {pid} has ended",
            slug="connection-lost",
            hint="earlier snapshots are in the run folder",
        )
    return TargetError(
        f"the program{f' (process {pid})' if pid else ''} does not run under massif or memcheck, so no heap "
        "snapshot can be taken",
        slug="not-under-massif",
        hint=_NEEDS_MASSIF,
    )


# Monitor commands for the program's valgrind.


def monitor(command: str) -> str:
    """Run *command* in valgrind's gdbserver and return its output, "" on success.

    Raises TargetError, with what to type instead, if there is no valgrind.
    """
    return _monitored(lambda: str(gdb.execute(f"monitor {command}", to_string=True)))


def monitor_text(command: str) -> str:
    """Return the same as monitor(), also if names in it are not UTF-8."""
    return _monitored(lambda: piped_text(f"monitor {command}"))


def _monitored(ask: Callable[[], str]) -> str:
    require_program()
    try:
        return ask().strip()
    except gdb.error as error:
        if not program_runs():
            raise TargetError(
                f"the program ended during this command ({error})",
                slug="connection-lost",
                hint="earlier snapshots are in the run folder",
            ) from None
        raise not_under_massif() from None
