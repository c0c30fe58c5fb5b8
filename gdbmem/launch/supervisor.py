"""The parent of valgrind and gdb: starts them, answers gdb, detects their ends, and ends them in the right order.

gdb ends first: when gdb's pipe closes, valgrind resumes, and a SIGTERM then makes its tool write its file. In the
opposite order gdb would hang on a dead connection.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional, Union

from gdbmem.engines.engine import valgrind_engine
from gdbmem.errors import GdbmemError, Interrupted, ToolError
from gdbmem.launch import guard, messages, valgrind
from gdbmem.launch.child import Child
from gdbmem.launch.program import examine
from gdbmem.launch.terminal import Ear, OwnTerminal
from gdbmem.launch.vgdb import Sentinel
from gdbmem.linux.faults.event import Births
from gdbmem.linux.process.terminal_modes import TerminalModes
from gdbmem.text import printable

READY_SECONDS = 300.0  # reading the debug information of a very large program takes minutes
TERM_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.5, 2.0)  # between one SIGTERM and the next, in seconds
WRITE_SECONDS = 120.0  # for a tool to write its file
ANSWER_SECONDS = 30.0  # valgrind is slower on a busy machine
CALL_SECONDS = 5.0  # for the end of a call that gdb has injected
FATE_SECONDS = 3.0  # for the end of a process whose connection to gdb has closed
_BIRTHS_SECONDS = 0.2  # between readings of the processes born of the program
_LAST_MESSAGES_SECONDS = 1.0
# A gdb that is loading waits for this process's answers and reacts only to SIGKILL; it has captured nothing yet.
_GDB_SIGNALS = ((signal.SIGHUP, 3.0), (signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0))
_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)
_ENDING = (*_KEYBOARD, signal.SIGTERM, signal.SIGHUP)
_NOTED = (signal.SIGCHLD, signal.SIGWINCH)

Answers = Callable[[messages.Message], messages.Message]
"""Answers gdb's questions that the supervisor itself can't answer; raises GdbmemError if it can't either."""
StartValgrind = Callable[[int, Optional[list[str]]], valgrind.Process]
"""Starts valgrind for the given serial number, with other arguments for the program if they are given."""


class Supervisor:
    """One launch. Use as a context manager: no process is left running in any case."""

    def __init__(
        self,
        runtime: Path,
        sentinel: Sentinel,
        start_valgrind: StartValgrind,
        hear: Callable[[messages.Message], None],
        answers: Answers,
    ) -> None:
        """*hear* gets gdb's notifications; *answers* handles questions that the supervisor can't answer itself."""
        self.process: Optional[valgrind.Process] = None
        self.past: list[valgrind.Process] = []  # that have ended, oldest first
        self.gdb: Optional[Child] = None
        self.socket_path = runtime / "session"
        self.calls = runtime / guard.LOCK_NAME
        self._runtime, self._sentinel = runtime, sentinel
        self._start_valgrind = start_valgrind
        self._hear = hear
        self._answers = answers
        self._serial = 0
        self._links = 0
        self._attached = False  # gdb has been connected to the present process
        self._releases: dict[int, Child] = {}  # vgdb, letting a traced child run; by the child's pid
        self._wires: list[messages.Wire] = []
        self._foreground = self._keyboard_is_gdbs = False
        self._gdb_loads = True  # until it reports that it is ready
        self._interrupts = 0  # that were gdb's, not ours
        self._ear = Ear()
        self.terminal: Optional[OwnTerminal] = None  # of the program, if it has its own
        self.births: Optional[Births] = None  # of the program that a recipe is played on; None: unknown

    def __enter__(self) -> Supervisor:
        self._new_files = _watch_for_files(self._runtime)
        self.calls.touch(0o600)
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.fspath(self.socket_path))
        self._listener.listen(4)
        self._old_handlers: dict[signal.Signals, Any] = {}
        # Signals ignored at the start (by nohup, or a script in the background) stay ignored.
        self._note(*(s for s in (*_ENDING, *_NOTED) if signal.getsignal(s) != signal.SIG_IGN))
        self._old_wakeup = signal.set_wakeup_fd(self._wake_out.fileno(), warn_on_full_buffer=False)
        return self

    def _note(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            before = signal.signal(number, lambda *_: None)
            self._old_handlers.setdefault(number, before)

    def __exit__(self, *_: object) -> None:
        try:
            self.end()
        finally:
            signal.set_wakeup_fd(self._old_wakeup)
            for number, handler in self._old_handlers.items():
                signal.signal(number, handler)
            for closable in (self._new_files, *self._sockets(), self._wake_out):
                closable.close()
            if self.births is not None:
                self.births.close()

    def _sockets(self) -> list[Union[socket.socket, messages.Wire]]:
        return [self._wake_in, self._listener, *self._wires]

    # -- waiting ------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], bool], seconds: Optional[float] = None) -> bool:
        """Serve until *condition* holds; return whether it did within *seconds*.

        Raises Interrupted when a signal requests the end of this process.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not condition():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._serve_once(left)
        return True

    def wait_for_gdb(self, child: Child, seconds: Optional[float] = None) -> bool:
        """Serve until gdb, which is *child*, has ended and all that it sent is served.

        Return whether it ended within *seconds*. Raises Interrupted as `wait` does.
        """
        ended = self.wait(lambda: not child.alive, seconds)
        if ended:  # how the program ended is in its last message
            self.wait(lambda: not self._wires, _LAST_MESSAGES_SECONDS)
        return ended

    def _serve_once(self, seconds: Optional[float]) -> None:
        import selectors  # not always needed

        extra = self.terminal.sources() if self.terminal is not None else {}
        with selectors.DefaultSelector() as selector:
            for source in (self._new_files, *self._sockets(), *extra):
                selector.register(source, selectors.EVENT_READ)
            if self.births is not None:
                seconds = _BIRTHS_SECONDS if seconds is None else min(seconds, _BIRTHS_SECONDS)
                self.births.take()
            ready = [key.fileobj for key, _ in selector.select(seconds)]
        for descriptor, act in extra.items():
            if descriptor in ready:
                act()
        if self._wake_in in ready:
            self._take_signals()
        if self._new_files in ready:
            for name in self._new_files.names():
                self._note_file(name)
        if self._listener in ready:
            self._wires.append(messages.Wire(self._listener.accept()[0]))
        for wire in [wire for wire in self._wires if wire in ready]:
            # An answer may wait for the program and serve meanwhile: another wire may be read or closed by then.
            if wire in self._wires:
                self._serve_wire(wire)

    def _take_signals(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in self._wake_in.recv(4096):
                if number == signal.SIGWINCH and self.terminal is not None:
                    self.terminal.copy_size()
                if self._keyboard_is_gdbs and number in _KEYBOARD:
                    self._interrupts += number == signal.SIGINT
                elif number in _ENDING:
                    raise Interrupted(signal.Signals(number))

    def _serve_wire(self, wire: messages.Wire) -> None:
        received = wire.receive(wait=False)
        if received is None:
            self._wires.remove(wire)
            wire.close()
            return
        if self.process is not None:
            self.process.note_children()
        for message, number in received:
            if number is None:
                self._hear(message)
            else:
                with contextlib.suppress(ToolError):  # gdb has ended meanwhile: this is handled elsewhere
                    wire.send(self._reply(message), number)

    def _reply(self, question: messages.Message) -> messages.Message:
        try:
            return self._answer(question)
        except GdbmemError as error:
            return messages.Refused.of(error)

    # -- gdb's questions ----------------------------------------------------------------------------------

    def _answer(self, question: messages.Message) -> messages.Message:
        if isinstance(question, messages.AskTarget):
            return self._target()
        if isinstance(question, messages.Restart):
            self.end_valgrind()
            self.start_valgrind(None if question.arguments is None else list(question.arguments))
            return self._target()
        if isinstance(question, messages.AskFate):
            return self._fate(exited=question.exited)
        if isinstance(question, messages.AskInterrupts):
            return messages.Interrupts(self._interrupts)
        if isinstance(question, messages.Ready):
            self._gdb_loads = False
            self._keyboard_is_gdbs = self._foreground
            if question.pid is not None:
                with contextlib.suppress(OSError):
                    self.births = Births(question.pid, Path(question.program))
        elif isinstance(question, messages.Hear):
            self._ear.move_to(question.pid)
        elif isinstance(question, messages.GiveKeyboard):
            # Answered, so that gdb shows no prompt while the keyboard is still read here.
            if self.terminal is not None:
                self.terminal.hear(question.running)
        else:
            return self._answers(question)
        return messages.Done()

    def _target(self) -> messages.ValgrindTarget:
        process = self.process
        if process is None or not process.child.alive:
            raise ToolError(
                "the program has ended", slug="program-ended", hint="type 'run' to start it again"
            )
        self._attached = True
        self._sentinel.guard(process.pid, reached=True)
        return messages.ValgrindTarget(
            process.pid, tuple(process.vgdb()), own_terminal=self.terminal is not None
        )

    def _fate(self, *, exited: bool) -> messages.Fate:
        """Return how the program ended: often gdb only sees that its connection closed.

        *exited*: gdb saw it end.
        """
        process = self.process
        if process is None:
            return messages.Fate()
        # The connection closes a moment before the process ends or executes another program. If its FIFO has also
        # disappeared, this is under way: massif writes its file, or a valgrind starts for the program of an exec.
        for seconds in (FATE_SECONDS, READY_SECONDS):
            decided = self.wait(
                lambda: (
                    not process.child.alive
                    or process.beginnings > 1
                    or bool(valgrind.replacement(process.pid))
                ),
                seconds,
            )
            if decided or (process.ready and not exited):
                break
        if process.child.alive and process.beginnings > 1:
            process.beginnings = 1
            return messages.Fate(next=self._link_to_next(process))
        sentence = valgrind.fate(process, exited=exited)
        return messages.Fate(process.child.status, sentence, replaced=valgrind.EXECUTED in sentence)

    def _link_to_next(self, process: valgrind.Process) -> str:
        """Return a plain path to the program that *process* runs now: its own may contain any characters."""
        self._links += 1
        link = self._runtime / f"program{self._links}"
        program = process.present_program()
        link.symlink_to(examine(program).symbols if program is not None else process.order.program.symbols)
        return str(link)

    # -- start --------------------------------------------------------------------------------------------

    def start_valgrind(self, arguments: Optional[list[str]] = None) -> valgrind.Process:
        """Start valgrind and wait until it waits for gdb; raises ToolError with its own message on failure."""
        self._serial += 1
        self._attached = False
        self.process = process = self._start_valgrind(self._serial, arguments)
        self._sentinel.guard(process.pid, reached=False)
        in_time = self.wait(lambda: process.ready or not process.child.alive, READY_SECONDS)
        if process.child.alive and in_time:
            return process
        text = process.log_text()
        notice = valgrind.explain(text)
        said = notice.message if notice else valgrind.last_line(text)
        if process.child.alive:
            happened = f"valgrind was not ready within {READY_SECONDS:.0f} s"
        else:
            happened = f"valgrind ended with status {process.child.status} before the program began"
        raise ToolError(
            f"{happened}{': ' + said if said else ''}",
            slug=notice.slug if notice else "valgrind-failed",
            hint=f"its log is {printable(str(process.log))}" if text else "its message is above",
        )

    def watch_gdb(self, child: Child, modes: Optional[TerminalModes]) -> None:
        """Run *child*, which may change the terminal's *modes*, as this launch's gdb and wait for its end.

        gdb handles Ctrl-C after it reports that it is ready; before, Ctrl-C ends the launch. Raises ToolError if a
        signal ended gdb.
        """
        self.gdb = child
        self._foreground = True
        if modes is not None:
            modes.await_gdb(child.pid)
        self._note(*_KEYBOARD)  # interactive
        try:
            self.wait_for_gdb(child)
        finally:
            self._ear.close()
            self._foreground = self._keyboard_is_gdbs = False
        if child.fatal_signal:
            raise ToolError(
                f"gdb was ended by {child.fatal_signal}",
                slug="gdb-died",
                hint="earlier snapshots are in the run folder",
            )

    def _note_file(self, name: str) -> None:
        """Note forked children by *name*, their new log; resume traced ones, by a new FIFO.

        Each of these waits at its start for a gdb that will not connect.
        """
        process = self.process
        if process is not None and process.note_log(name):
            return
        pid = process.reachable_pid(name) if process is not None else None
        if process is None or pid is None:
            return
        if pid == process.pid:
            process.beginnings += 1
            if process.beginnings == 1 or (self.gdb is not None and self.gdb.alive):
                return  # gdb connects to it
        # An exec makes its process wait again, and leaves its vgdb without a peer.
        self._end_release(pid)
        self._releases[pid] = process.monitor(pid=pid)

    def _end_release(self, pid: int) -> None:
        release = self._releases.pop(pid, None)
        if release is not None:
            release.stop(((signal.SIGTERM, 1.0), (signal.SIGKILL, 1.0)))

    # -- end ----------------------------------------------------------------------------------------------

    def end(self) -> None:
        """End gdb, then valgrind, then processes that the program left running."""
        for wire in self._wires:
            wire.hang_up()  # a gdb that waits for an answer does not react to signals
        if self.gdb is not None and self.gdb.alive:
            with self.calls.open("rb") as lock:
                guard.hold_calls(lock.fileno(), CALL_SECONDS)
                self.gdb.stop(_GDB_SIGNALS[-1:] if self._gdb_loads else _GDB_SIGNALS)
        self.end_valgrind()

    def end_valgrind(self) -> None:
        """End valgrind so that its tool writes its file, which is requested explicitly before a SIGKILL."""
        process, self.process = self.process, None
        if process is None:
            return
        self.past.append(process)
        others = process.reachable_pids() - {process.pid}
        if not process.ready or not self._attached:
            process.child.stop(((signal.SIGKILL, 10.0),))  # SIGTERM is blocked until gdb has connected
        if not _terminate(process):
            # The program ignores or handles SIGTERM.
            self._rescue(process)
            process.child.stop(((signal.SIGKILL, 10.0),))
        for pid in list(self._releases):
            self._end_release(pid)
        _end_others(process, others)
        process.note_children(to_the_last=True)
        process.child.stop_stragglers()

    def _rescue(self, process: valgrind.Process) -> None:
        engine = valgrind_engine(process.order.engine)
        command = engine.rescue_command(f"{self._runtime}/run/{process.history.name}")
        if command is not None:
            # A stop that valgrind reported to a gdb that was gone passes for the first answer; a second question is
            # answered when the first command is done.
            asked = process.monitor("-c", *command.split(), "-c", "v.info", "n_errs_found")
            # A valgrind whose gdb was killed during a command may never answer again.
            was_killed = self.gdb is not None and self.gdb.fatal_signal
            asked.wait(ANSWER_SECONDS if was_killed else WRITE_SECONDS)
            asked.stop()


# <sys/inotify.h>; the two flags of inotify_init1 are those of open(2).
_CREATE, _MODIFY = 0x100, 0x2
_EVENT = struct.Struct("=iIII")  # watch, mask, cookie, length of the name that follows
_MOST_EVENT_BYTES = 1 << 16


class NewFiles:
    """Reports the names of files made in *created*, and made or written in *written*, without waiting (inotify(7)).

    Raises OSError if the kernel refuses.
    """

    def __init__(self, created: Path, written: Path) -> None:
        import ctypes  # slow to import

        self._libc, self._error = ctypes.CDLL(None, use_errno=True), ctypes.get_errno
        self._descriptor = self._checked(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        try:
            for folder, mask in ((created, _CREATE), (written, _CREATE | _MODIFY)):
                path = os.fsencode(folder)
                self._checked(self._libc.inotify_add_watch(self._descriptor, path, ctypes.c_uint32(mask)))
        except OSError:
            self.close()
            raise

    def _checked(self, result: int) -> int:
        if result < 0:
            number = self._error()
            raise OSError(number, os.strerror(number))
        return result

    def fileno(self) -> int:
        """Return the descriptor, for select()."""
        return self._descriptor

    def names(self) -> Iterator[str]:
        """Yield the names reported since the last call."""
        try:
            events = os.read(self._descriptor, _MOST_EVENT_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at < len(events):
            length = _EVENT.unpack_from(events, at)[3]
            at += _EVENT.size
            yield os.fsdecode(events[at : at + length].rstrip(b"\0"))
            at += length

    def close(self) -> None:
        """End the reports."""
        os.close(self._descriptor)


def _watch_for_files(runtime: Path) -> NewFiles:
    """Watch for new files in *runtime* and in its run; raises ToolError if the kernel refuses."""
    try:
        return NewFiles(runtime, runtime / "run")
    except OSError as error:
        limit = "max_user_watches=524288" if error.errno == errno.ENOSPC else "max_user_instances=1024"
        raise ToolError(
            f"the kernel refuses inotify, which a launch needs to follow valgrind's files: {error.strerror}",
            slug="no-inotify",
            hint=f"end programs that watch many files, or type: sudo sysctl fs.inotify.{limit}",
        ) from error


def _terminate(process: valgrind.Process) -> bool:
    """End *process* with SIGTERM, on which its tool writes its file; return whether it ended.

    Valgrind passes a signal on to its gdb, and loses it if it has not noticed yet that gdb has ended.
    """
    for seconds in TERM_PAUSES:
        process.child.signal(signal.SIGTERM)
        if process.child.wait(seconds):
            return True
        with process.reader_of_answers():
            if process.is_writing:
                return process.child.wait(WRITE_SECONDS)
    return False


def _end_others(process: valgrind.Process, pids: set[int]) -> None:
    """End processes that *process* left behind: SIGTERM, so that their files are written, then SIGKILL."""
    for number, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 2.0)):
        for pid in filter(process.has_started, pids):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while pids and time.monotonic() < deadline:
            pids = set(filter(process.has_started, pids))
            if pids:
                time.sleep(0.01)  # grandchildren: no handle to wait on


@contextlib.contextmanager
def saved_terminal() -> Iterator[Optional[TerminalModes]]:
    """Yield the terminal's modes, and restore them at the end: a killed gdb leaves the terminal without echo."""
    import termios  # not always needed

    modes = None
    with contextlib.suppress(termios.error, OSError):
        modes = TerminalModes(0)
    try:
        yield modes
    finally:
        if modes is not None:
            # From the background tcsetattr would stop us.
            old = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            with contextlib.suppress(termios.error):
                modes.restore()
            signal.signal(signal.SIGTTOU, old)
            modes.close()
