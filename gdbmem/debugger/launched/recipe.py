"""A recipe played inside an unattended gdb: its points are breakpoints, its results are sent to the launcher.

The launcher's record of these messages decides about the run: gdb's exit status is 0 even if its script raised.
"""

from __future__ import annotations

import re
import signal
import time
from typing import Callable, ClassVar, Optional

import gdb

from gdbmem.debugger.command import hearers, step_in_place, warn
from gdbmem.debugger.launched.launched import connect_program, follow
from gdbmem.debugger.launched.sharing import TOO_MANY, SharingProcesses
from gdbmem.debugger.location import current_thread, program_runs, real_pid, users_place
from gdbmem.debugger.memwatch.driving.function_code import NotChosenError
from gdbmem.debugger.program import addresses_of
from gdbmem.debugger.python.call_paths import place_and_python
from gdbmem.debugger.session import session
from gdbmem.debugger.snapshots.breakpoints import ActionBreakpoint, act_now
from gdbmem.debugger.snapshots.snapshots import blind_spot, little_room, take_in_passing, take_snapshot
from gdbmem.debugger.stopping.signals import watch_for_storm
from gdbmem.debugger.stopping.stops import signal_here
from gdbmem.debugger.terminal import gdb_text
from gdbmem.errors import GdbmemError, internal_error
from gdbmem.launch import messages
from gdbmem.linux.process.process import has_ended
from gdbmem.recipes.recipe import Action, Point, recipe_from_plan
from gdbmem.runs.run import SnapshotRecord
from gdbmem.runs.saved_results import CONTAINERS, HEAP, LEDGER

# Signals that end a program that does not handle them: the location is reported.
_FATAL = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGSYS")
# gdb can't carry them out while it decides whether to stop.
_NEED_A_STOP = ("gdb", "ledger", "containers", "heap")
# gdb's message on a child; one of vfork() executes another program.
_BORN = re.compile(r"Detaching after (v?)fork from child process (\d+)")
_PASSED_ON = ("snapshot-missed", "signals-too-fast")  # warnings that the user must see beside the results
_ENDING_SECONDS = 2.0
_ENTRY = re.compile(r"^9 +AT_ENTRY .*?(0x[0-9a-f]+)", re.MULTILINE)
_SETTINGS = (
    "set pagination off",
    "set confirm off",
    "set width 0",
    "set breakpoint pending on",
    "set debuginfod enabled off",
    "set print thread-events off",
    "handle all nostop noprint pass",
    "handle SIGINT nostop noprint pass",  # 'all' does not include it, and there is no user to press Ctrl-C
    f"handle {' '.join(_FATAL)} stop print pass",
)


def play() -> None:
    """Play the launcher's recipe from the program's first instruction to its end."""
    session.open_wire()
    try:
        _play()
    except (GdbmemError, gdb.error) as error:
        session.tell(messages.Failed(str(error)))
    except Exception as error:  # noqa: BLE001  (a host: gdb calls this)
        session.tell(messages.Failed(internal_error(error)))


def _play() -> None:
    recipe = recipe_from_plan(session.ask(messages.AskPlan(), messages.RecipePlan).plan)
    for setting in _SETTINGS:
        try:
            gdb.execute(setting, to_string=True)
        except gdb.error:
            continue  # an older gdb doesn't know it and doesn't need it
    step_in_place()
    connect_program()
    session.ask(messages.Ready(real_pid(), gdb.current_progspace().filename or ""), messages.Done)
    session.judged = bool(recipe.expectations)
    points = [_PlayedPoint(index, point) for index, point in enumerate(recipe.points)]
    hearers.append(_hear)
    session.tell(messages.RecipeStarted())
    if session.native is not None:
        watch_for_storm(real_pid() or 0, lambda: sum(one.hits for one in points), _tell_of_storm)
    for point in points:
        gdb.events.new_objfile.connect(point.reenable)
    sharing = SharingProcesses() if session.native is not None else None
    births: list[tuple[str, str]] = []
    while program_runs():
        try:
            births += _continue()
        except gdb.error as error:
            if program_runs() and sharing is not None and sharing.is_why(error):
                _leave_out(points)
                continue
            if program_runs():
                raise
            fate = session.fate()
            if not fate.next:
                session.tell(messages.ConnectionLost())
                break
            follow(fate.next)
        else:
            _handle_stop(points, sharing)
    for point in points:
        point.report()
    shared = {int(pid) for by_vfork, pid in births if by_vfork}
    shared.update(sharing.pids if sharing is not None else ())
    forks = sum(int(pid) not in shared for _, pid in births)
    session.tell(messages.Finished(session.fate(), forks, tuple(shared)))


def _handle_stop(points: list[_PlayedPoint], sharing: Optional[SharingProcesses]) -> None:
    if program_runs() and _regain(points):
        return
    started = program_runs() and sharing is not None and sharing.took_stop()
    if sharing is not None and sharing.is_mixed:
        _leave_out(points)
    if program_runs() and (not (act_now() or started) or any(point.waiting for point in points)):
        _report_stop(points)


def _leave_out(points: list[_PlayedPoint]) -> None:
    """Set no breakpoints from here on, as the processor has too few registers for them."""
    for point in points:
        if not point.is_left_out:
            session.tell(messages.PointFailed(point.index, TOO_MANY))
            point.leave_out()


def _hear(text: str, slug: str) -> None:
    if slug in _PASSED_ON:
        session.tell(messages.Noticed(slug, text))


def _tell_of_storm() -> None:
    warn(
        "signals come as fast as gdb passes them on to the program, which gets on slowly or not at all: slow its timer,"
        " put points where it comes less often, or use massif",
        slug="signals-too-fast",
    )


def _regain(points: list[_PlayedPoint]) -> bool:
    """Return whether the program only stopped at a breakpoint that gdb took for one of an unloaded library.

    gdb takes the thread-local data of a library, which have no addresses, for a part of its mapping: with large ones,
    breakpoints of the libraries behind it are disabled when it is unloaded, but stay in the program.
    """
    if signal_here() not in (None, "SIGTRAP") or not any(point.is_lost for point in points):
        return False
    gdb.execute("nosharedlibrary", to_string=True)
    gdb.execute("sharedlibrary", to_string=True)
    here = int(gdb.newest_frame().pc())
    passed = [point.breakpoint for point in points if point.breakpoint is not None]
    stops = [one.stop() for one in passed if here in addresses_of(one)]
    return bool(stops) and not any(stops)


def _report_stop(points: list[_PlayedPoint]) -> None:
    """Handle a stop: a point has a gdb command to run, or has failed, or a signal arrived."""
    explained = False
    for point in points:
        if point.waiting:
            point.catch_up()
            explained = True
        if point.breakpoint is not None and point.breakpoint.failure:
            session.tell(messages.PointFailed(point.index, point.breakpoint.failure))
            point.breakpoint.failure = None
            point.leave_out()
            explained = True
    if explained:
        return
    name = signal_here()
    sentence = f"{name} ({_describe(name)})" if name else "an unknown signal"
    session.tell(messages.Stopped(sentence, users_place()))


def _describe(name: str) -> str:
    number = getattr(signal, name, None)
    return (signal.strsignal(number) if number is not None else None) or "a signal"


def _text_of(action: Action) -> str:
    """Return gdb's output for *action*: backtrace, print or gdb."""
    if action.kind == "backtrace":
        return gdb_text("backtrace 30")
    if action.kind == "print":
        return f"{action.argument} = {gdb.parse_and_eval(action.argument)}"
    return str(gdb.execute(action.argument, to_string=True))


def _with_snapshot(result: messages.ActionResult, record: SnapshotRecord, text: str) -> messages.ActionResult:
    heap = record.heap_bytes
    return result._replace(
        label=record.label, heap_bytes=heap, text=text, warning=blind_spot(heap), room=little_room()
    )


def _continue() -> list[tuple[str, str]]:
    """Continue the program; return its children born until it stopped: "v" if by vfork, and the process id."""
    try:
        return _BORN.findall(gdb.execute("continue", to_string=True))
    except gdb.error:
        pid = real_pid()
        if pid is None or not program_runs():
            raise
        # Its memory is gone a moment before the kernel says that it has ended.
        deadline = time.monotonic() + _ENDING_SECONDS
        while not has_ended(pid):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        # It was killed while gdb held it: gdb notices once it needs no breakpoints there.
        for point in gdb.breakpoints():
            point.enabled = False
        gdb.execute("continue", to_string=True)
        return []


class _EntryBreakpoint(gdb.Breakpoint):  # type: ignore[misc]  # gdb's module has no types
    """Acts at the program's entry: the dynamic linker has chosen the code of indirect functions, and none has run."""

    waiting: ClassVar[list[Callable[[], None]]] = []

    @classmethod
    def watch(cls, act: Callable[[], None]) -> bool:
        """Let *act* be called there; return False if the entry is unknown."""
        match = _ENTRY.search(gdb_text("info auxv"))
        if match is None:
            return False
        if not cls.waiting:
            cls(f"*{match[1]}", internal=True)
        cls.waiting.append(act)
        return True

    def stop(self) -> bool:
        for act in self.waiting:
            act()
        self.waiting.clear()
        self.enabled = False
        return False


class _PlayedPoint:
    """One point of the recipe as a breakpoint."""

    def __init__(self, index: int, point: Point) -> None:
        self.index = index
        self._point = point
        self._recorded = 0
        self.is_left_out = False  # since it failed
        self._waiting: list[int] = []  # hits whose actions are pending until gdb has stopped
        self.breakpoint: Optional[ActionBreakpoint] = None
        try:
            self._set()
        except NotChosenError as error:
            if not _EntryBreakpoint.watch(self.set_later):
                session.tell(messages.Unresolved(index, str(error)))
        except (GdbmemError, gdb.error, RuntimeError) as error:
            session.tell(messages.Unresolved(index, str(error)))

    def _set(self) -> None:
        point = self._point
        self.breakpoint = ActionBreakpoint(
            point.at, self, wanted=point.hits, condition=point.when, after=point.after, note=self._note
        )

    def set_later(self) -> None:
        """Set the breakpoint of an indirect function, whose code is chosen now."""
        try:
            self._set()
        except (GdbmemError, gdb.error, RuntimeError) as error:
            session.tell(messages.Unresolved(self.index, str(error)))

    def _note(self, sentence: str) -> None:
        session.tell(messages.CallsUnclear(self.index, sentence))

    @property
    def hits(self) -> int:
        return self.breakpoint.hits if self.breakpoint is not None else 0

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def leave_out(self) -> None:
        """Act at no further hit."""
        if self.breakpoint is not None:
            self.is_left_out = True
            self.breakpoint.enabled = False

    def reenable(self, _: gdb.Event) -> None:
        """Enable the breakpoint again if gdb has disabled it: it does so in a program that lacks its location.

        That program may execute one that has it, as a script between two others does.
        """
        point = self.breakpoint
        if (
            point is not None
            and point.is_valid()
            and not (point.enabled or point.is_spent or self.is_left_out)
        ):
            point.enabled = True

    @property
    def is_lost(self) -> bool:
        """True if gdb has disabled the breakpoint, though the program has its location."""
        if self.breakpoint is None:
            return False
        try:
            listed = gdb_text(f"info breakpoints {self.breakpoint.number}")
            return "<PENDING>" in listed and bool(gdb.decode_line(self._point.at)[1])
        except gdb.error:
            return False

    def catch_up(self) -> None:
        """Carry out the pending actions of hits that stopped the program."""
        while self._waiting:
            self._record(self._waiting.pop(0))

    def __call__(self, hit: int) -> bool:
        if self._stops:
            self._waiting.append(hit)
            return True
        self._record(hit)
        return False

    def in_passing(self, hit: int) -> bool:
        """Carry out the actions of a native program's hit without a stop; return False if it must be stopped."""
        actions = self._point.actions
        if self._stops or sum(action.kind == "snap" for action in actions) > 1:
            return False
        place, thread = place_and_python(), current_thread()
        results = [
            messages.ActionResult(action.kind, action.argument)
            if action.kind == "snap"
            else self._carry_out(action, hit)
            for action in actions
        ]
        snap = next((at for at, result in enumerate(results) if result.action == "snap"), None)
        if snap is None:
            self._tell(hit, place, thread, results)
            return True
        at = snap

        def taken(record: Optional[SnapshotRecord], text: str) -> None:
            results[at] = (
                results[at]._replace(error=text)
                if record is None
                else _with_snapshot(results[at], record, text)
            )
            self._tell(hit, place, thread, results)

        try:
            return take_in_passing(self._point.name, hit, taken)
        except GdbmemError as error:
            taken(None, str(error))
        return True

    @property
    def _stops(self) -> bool:
        # A gdb command that fails while gdb decides whether to stop leaves gdb without its program.
        return any(action.kind in _NEED_A_STOP for action in self._point.actions)

    def _record(self, hit: int) -> None:
        results = [self._carry_out(action, hit) for action in self._point.actions]
        self._tell(hit, place_and_python(), current_thread(), results)

    def _tell(
        self, hit: int, place: Optional[str], thread: Optional[int], results: list[messages.ActionResult]
    ) -> None:
        self._recorded += 1
        session.tell(messages.Hit(self.index, hit, place, thread, tuple(results)))

    def _carry_out(self, action: Action, hit: int) -> messages.ActionResult:
        """Carry out *action*; a failure is recorded as a result, and the other actions continue."""
        result = messages.ActionResult(action.kind, action.argument)
        try:
            if action.kind == "snap":
                record, summary = take_snapshot(self._point.name, hit=hit)
                return _with_snapshot(result, record, summary)
            if action.kind in (LEDGER, CONTAINERS, HEAP):
                label, text = self._keep(action.kind, hit)
                return result._replace(label=label, text=text)
            return result._replace(text=_text_of(action))
        except (GdbmemError, gdb.error) as error:
            return result._replace(error=str(error))

    def _keep(self, kind: str, hit: int) -> tuple[str, str]:
        """Save a ledger, container scan or heap under the point's name; return its label and its summary."""
        from gdbmem.debugger.saved_results import (  # slow to import, as are the next
            keep_heap,
            keep_ledger,
            keep_survey,
        )

        if kind == LEDGER:
            from gdbmem.debugger.ledger.explain import read_ledger_here
            from gdbmem.ledger.answer import answer_ledger

            ledger = read_ledger_here()
            return keep_ledger(self._point.name, ledger, hit=hit).label, answer_ledger(ledger)
        if kind == HEAP:
            from gdbmem.debugger.heap import heap_here

            text, summary = heap_here()
            return keep_heap(self._point.name, text, hit=hit).label, summary
        from gdbmem.containers.containers import answer_survey
        from gdbmem.debugger.containers.containers import survey_here

        survey = survey_here()
        survey.check()
        return keep_survey(self._point.name, survey, hit=hit).label, answer_survey(survey)

    def report(self) -> None:
        """Report the number of hits of the point, and whether its location was ever found in the program."""
        pending = self.breakpoint is None or bool(getattr(self.breakpoint, "pending", False))
        left, unfinished = (
            (self.breakpoint.left_calls, self.breakpoint.unfinished_calls)
            if self.breakpoint is not None
            else (0, 0)
        )
        session.tell(messages.PointReport(self.index, self.hits, self._recorded, pending, left, unfinished))
