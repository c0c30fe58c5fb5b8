"""Ctrl-C where gdb's own way does not stop the program.

gdb sends SIGINT to the program: a native program may block or consume it. valgrind answers gdb's interrupt with a
SIGTRAP, as the end of a single instruction, and discards one that comes while it waits for gdb. So gdb does not see it
where it goes one instruction at a time, for minutes: `next` over a loop on one line, over inlined code, or out of a
function without line numbers. There a catchpoint for SIGTRAP ends the step.

In a local process that blocks SIGINT the signal stays pending; a process that waits for it (sigwait, signalfd) consumes
it. So SIGINT is blocked in gdb's main thread from the time such a process resumes until it stops. A Ctrl-C is then
pending, and every thread of gdb can see it. While a gdbmem command drives the program, SIGINT stays blocked at stops
too: otherwise gdb would raise it in any Python code that happens to run, or abort.

A separate thread in gdb detects it. This thread interrupts native programs; gdb's main thread does all other work,
between two events of the program. The thread watches in a gdb that the launcher started, and in other gdbs while a
gdbmem command drives.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any, Optional

import gdb

from gdbmem.debugger.command import say, warn
from gdbmem.debugger.location import VGDB_PID, current_place
from gdbmem.debugger.program import NATIVE, start_thread, target_kind
from gdbmem.debugger.session import session
from gdbmem.debugger.stopping.interrupting import Interrupter, interrupt_gdb
from gdbmem.debugger.stopping.signals import handling
from gdbmem.debugger.stopping.stops import noticed
from gdbmem.errors import ToolError
from gdbmem.launch import messages
from gdbmem.linux.holding.ptrace import pending_signals, reaches

_KEY = (signal.SIGINT,)
_LOOK_SECONDS = 0.1
_LOOKS = 2
_GRACE_SECONDS = 0.4  # for gdb's own way
_PATIENCE_SECONDS = 0.4  # for ours
_VALGRINDS_PATIENCE_SECONDS = 2.0


class _Deafness:
    """True if gdb handles Ctrl-C; it does so again at each stop and each prompt."""

    def __init__(self) -> None:
        self.is_on = self._listens = False
        self._holders = 0

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep it over stops, once it has begun, until the `with` ends."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            self.end()

    def begin(self) -> None:
        """Keep Ctrl-C from gdb until the program stops."""
        if self.is_on:
            return
        if not self._listens:
            gdb.events.stop.connect(lambda event: self.end())
            gdb.events.exited.connect(lambda event: self.end())
            gdb.events.before_prompt.connect(self.end)
            self._listens = True
        self.is_on = True
        signal.pthread_sigmask(signal.SIG_BLOCK, _KEY)

    def take(self) -> bool:
        """Return once whether Ctrl-C was pressed and gdb hasn't heard it; any thread may ask."""
        return self.is_on and signal.sigtimedwait(_KEY, 0) is not None

    def end(self) -> None:
        """Make gdb receive Ctrl-C again, but discard what was pressed meanwhile."""
        if self.is_on and not self._holders:
            self.take()
            self.is_on = False
            with contextlib.suppress(KeyboardInterrupt):
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _KEY)


_deafness = _Deafness()


class _LostSignal:
    """A SIGINT of the terminal's own that waits for the program, which blocks it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        # One that waits already is an earlier one.
        self._waited = signal.SIGINT in pending_signals(pid)
        self._looks = 0

    def is_there(self) -> bool:
        """Return once whether it waited at two consecutive checks."""
        waits = signal.SIGINT in pending_signals(self._pid)
        if self._waited:
            self._waited = waits
            return False
        self._looks = self._looks + 1 if waits else 0
        return self._looks == _LOOKS


class _Running:
    """The program, from its resumption until the prompt is back."""

    def __init__(self, interrupter: Optional[Interrupter]) -> None:
        """*interrupter* is that of the command which drives, if one of ours does."""
        self.pid = int(gdb.selected_inferior().pid)
        self.under_valgrind = self.pid == VGDB_PID
        self.native = not self.under_valgrind and target_kind() == NATIVE
        # The user may want the program to have it.
        self.wanted = (
            self.under_valgrind or interrupter is not None or (self.native and handling("SIGINT").stop)
        )
        self.interrupter = interrupter
        self._lost = _LostSignal(self.pid) if self.native else None
        self.rest()

    def rest(self) -> None:
        """It has stopped: what was pressed before has had its effect."""
        self._since: Optional[float] = None
        self._grace = _GRACE_SECONDS
        self.acted = self.told = False
        self.over = False

    @property
    def is_pressed(self) -> bool:
        """True if Ctrl-C was pressed since it was resumed."""
        return self._since is not None

    def is_due(self, now: float, *, pressed: bool) -> bool:
        """Return whether Ctrl-C was pressed, and hasn't brought the prompt back; *pressed* is the launcher's word."""
        if _deafness.take():
            self.note(now, gdb_has_heard=False)
        elif pressed or (self._lost is not None and self._lost.is_there()):
            self.note(now, gdb_has_heard=True)
        return self._since is not None and not self.acted and now - self._since >= self._grace

    def note(self, now: float, *, gdb_has_heard: bool) -> None:
        """Ctrl-C was pressed; *gdb_has_heard* it, or the program itself, too."""
        if self._since is not None:
            return
        self._since = now
        if not self.native:
            self._grace = self._grace if gdb_has_heard else 0.0
            return
        works = reaches(self.pid, signal.SIGINT)
        if not gdb_has_heard and self.interrupter is None and works:
            os.kill(self.pid, signal.SIGINT)  # as gdb does
        elif not gdb_has_heard or not works:
            self._grace = 0.0

    def is_overdue(self, now: float) -> bool:
        """Return once whether our own interrupt has failed, too."""
        patience = _PATIENCE_SECONDS if self.native else _VALGRINDS_PATIENCE_SECONDS
        if self._since is None or not self.acted or now - self._since < self._grace + patience:
            return False
        self._since, self.acted = None, False
        return True


class CtrlC:
    """Watches over the keyboard's interrupt whenever the program runs."""

    def __init__(self) -> None:
        self._running: Optional[_Running] = None
        self._runs = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._wire: Optional[messages.Wire] = None
        self._presses = 0  # as the launcher has counted them
        self._was_pressed = False  # and the program stopped, since the prompt
        self._insists = False  # the next stop is to end what gdb does
        self._runs_for_call = False
        self._stack = contextlib.ExitStack()  # to undo at the prompt
        self._commands: list[Interrupter] = []  # of commands that drive
        self._interrupter: Optional[Interrupter] = None
        self._quitter: Any = None
        self._catchpoint = _Catchpoint()

    @contextlib.contextmanager
    def by(self, interrupter: Interrupter) -> Iterator[None]:
        """Make Ctrl-C stop the program by *interrupter*, which is ready, until the `with` ends at a stop.

        Raises KeyboardInterrupt if it was pressed since the last prompt, in a loop of gdb's that is to end.
        """
        if self._was_pressed and session.launched:
            raise KeyboardInterrupt
        self._commands.append(interrupter)
        self._running = None
        if not session.launched:
            gdb.events.cont.connect(self._on_cont)
        try:
            with _deafness.held():
                yield
        finally:
            self._commands.remove(interrupter)
            self._rest()
            self._running = None
            if not session.launched:
                gdb.events.cont.disconnect(self._on_cont)

    def on_continue(self, presses: Optional[int]) -> None:
        """The program resumes; Ctrl-C had been pressed *presses* times, by the launcher's count."""
        if self._running is not None and not self._commands:
            self._was_pressed = self._was_pressed or session.interrupted(at_once=True)
        if self._running is None:
            self._running = _Running(self._commands[-1] if self._commands else None)
            self._presses = max(self._presses, presses or 0)
            if self._running.native and session.launched:
                session.ask(messages.Hear(self._running.pid), messages.Done)
            if self._thread is None:
                self._start()
        if self._running.wanted:
            if self._running.native:
                _deafness.begin()
            # A loop of gdb's (`while`) would continue although Ctrl-C has stopped the program: it has to end, too.
            self._insists = self._was_pressed and not self._commands
            if self._insists:
                self._running.note(time.monotonic(), gdb_has_heard=False)
        self._running.over = False
        if not self._runs.is_set():
            self._runs.set()

    def on_call(self, presses: Optional[int]) -> None:
        """gdb makes the program do a call, at a stop or while it evaluates a breakpoint's condition."""
        self._runs_for_call = not _deafness.is_on
        self.on_continue(presses)

    def on_call_over(self) -> None:
        """The call has returned."""
        if self._runs_for_call:
            self._runs_for_call = False
            self._rest()
            _deafness.end()

    def interrupted(self) -> bool:
        """Return, at a stop that may be continued, whether Ctrl-C was pressed since the program was resumed."""
        if not session.interrupted():
            return False
        _deafness.take()  # it has its effect by what asks here
        return True

    def on_prompt(self) -> None:
        """gdb is about to read the keyboard."""
        self._rest()
        self._running, self._was_pressed, self._insists = None, False, False
        self._stack.close()
        if self._interrupter is not None and self._interrupter.stopped:
            say(
                "The program blocks or handles SIGINT, so gdbmem stopped it; the program does not receive the SIGSTOP."
            )
        self._interrupter = None
        if self._quitter is not None and self._quitter.take():
            gdb.invalidate_cached_frames()  # it ended gdb's unwinding: gdb holds frames with nothing above them
        if self._catchpoint.take():
            say(
                f"Stopped by Ctrl-C, in {current_place() or 'the program'}. Under valgrind gdb goes by single"
                " instructions over a loop on one line or an inlined one, and in a function without line numbers;"
                " 'finish', or 'tbreak LINE' and 'continue', run at full speed."
            )

    def _start(self) -> None:
        gdb.events.stop.connect(self._on_stop)
        if session.launched:
            self._wire = messages.Wire.connect(os.environ[messages.ENVIRONMENT])
        self._thread = start_thread(self._watch, "gdbmem-ctrl-c")

    @noticed
    def _on_cont(self, event: gdb.ContinueEvent) -> None:
        self.on_continue(None)

    @noticed
    def _on_stop(self, event: gdb.Event) -> None:
        running = self._running
        # It came too late to stop the program; under valgrind gdb may have lost it at the end of a step.
        if running is not None and (_deafness.take() or running.is_pressed):
            self._was_pressed = True
            if running.interrupter is not None:
                running.interrupter.by_user = True  # it ends the command
                running.interrupter.stopped |= self._catchpoint.is_set
        if self._insists:
            self._quitter = self._quitter or _make_quitter()
            self._quitter.arm()
        self._rest()

    def _rest(self) -> None:
        if not self._commands:  # between two steps of a command the thread may look on: that costs less
            self._runs.clear()
        if self._running is not None:
            self._was_pressed = self._was_pressed or self._running.is_pressed
            self._running.rest()
            self._running.over = True

    # -- on the thread that watches -----------------------------------------------------------------------

    def _watch(self) -> None:
        with contextlib.suppress(ToolError, OSError):  # the launcher has ended: the next prompt reports it
            while self._runs.wait():
                time.sleep(_LOOK_SECONDS)
                running = self._running
                if running is not None and not running.over and running.wanted:
                    self._look(running)

    def _look(self, running: _Running) -> None:
        before, now = self._presses, time.monotonic()
        if self._wire is not None:
            self._presses = self._wire.ask(messages.AskInterrupts(), messages.Interrupts).presses
        if running.is_due(now, pressed=self._presses > before):
            running.acted = True
            if running.native and running.interrupter is not None:
                running.interrupter.by_user = True
                running.interrupter.interrupt()
            else:
                gdb.post_event(functools.partial(self._act, running))
        elif running.under_valgrind and self._insists and running.acted and not running.told:
            running.told = True
            interrupt_gdb()  # again: the program may run, instead of going by single instructions
        elif running.is_overdue(now):
            gdb.post_event(functools.partial(self._say_why_not, running))

    # -- on gdb's own -------------------------------------------------------------------------------------

    def _act(self, running: _Running) -> None:
        if running is not self._running or running.over:
            return  # the program has stopped since, and may have gone on for another command
        if running.native:
            thread = gdb.selected_thread()
            # During a call gdb takes it for stopped.
            if thread is not None and (thread.is_running() or self._runs_for_call):
                if self._interrupter is None:
                    self._interrupter = self._stack.enter_context(Interrupter(running.pid).ready())
                self._interrupter.interrupt()
        elif running.under_valgrind:
            self._catchpoint.set()

    def _say_why_not(self, running: _Running) -> None:
        if running is not self._running or running.over:
            return
        if running.native:
            warn(
                f"process {running.pid} has not stopped yet: it waits in a system call that can't be interrupted;"
                " the prompt returns when that call ends",
                slug="stop-awaited",
            )
        else:
            pid = session.ask(messages.AskTarget(), messages.ValgrindTarget).pid
            warn(
                f"valgrind has not answered yet; 'kill {pid}' in another shell ends the program and keeps its profile",
                slug="stop-awaited",
            )


@contextlib.contextmanager
def interruptible(interrupter: Interrupter) -> Iterator[None]:
    """Make *interrupter* ready, and stop the program at Ctrl-C, until the `with` ends at a stop."""
    with interrupter.ready(), ctrl_c.by(interrupter):
        yield


class _Catchpoint:
    """Stops a program under valgrind at its next event, which is the end of an instruction if gdb steps.

    Any other breakpoint would have to be inserted, and valgrind accepts none while the program runs.
    """

    def __init__(self) -> None:
        self._number: Optional[int] = None
        self._was_hit = False

    @property
    def is_set(self) -> bool:
        """True from `set` to `take`, though gdb deletes it at the stop."""
        return self._number is not None

    def set(self) -> None:
        """Set it; call this between two events of the program."""
        self._delete()
        gdb.execute("tcatch signal SIGTRAP", to_string=True)
        self._number = int(gdb.parse_and_eval("$bpnum"))

    def take(self) -> bool:
        """Remove it, at the prompt; return whether the program has stopped at it."""
        self._delete()
        was_hit, self._was_hit = self._was_hit, False
        return was_hit

    def _delete(self) -> None:
        number, self._number = self._number, None
        # gdb has deleted it if the program stopped there, and says then that there is none.
        if number is not None and gdb.execute(f"delete {number}", to_string=True):
            self._was_hit = True


def _make_quitter() -> Any:
    import gdb.unwinder  # not always needed

    class Quitter(gdb.unwinder.Unwinder):  # type: ignore[misc]  # gdb's module has no types
        """Ends a loop of gdb's commands from inside: gdb asks all unwinders for the frame where the program stops.

        There it raises KeyboardInterrupt, as gdb does for a Ctrl-C that it receives itself.
        """

        def __init__(self) -> None:
            super().__init__("gdbmem-ctrl-c")
            self._fired = False
            self.enabled = False

        def arm(self) -> None:
            if not self.enabled:
                gdb.unwinder.register_unwinder(None, self, replace=True)
                self.enabled = True

        def take(self) -> bool:
            """Disarm; return whether it has ended a command."""
            if self.enabled or self._fired:
                self.enabled = False
                gdb.frame_unwinders.remove(self)
            fired, self._fired = self._fired, False
            return fired

        def __call__(self, pending_frame: Any) -> None:
            if self.enabled:
                self.enabled, self._fired = False, True
                raise KeyboardInterrupt

    return Quitter()


ctrl_c = CtrlC()
