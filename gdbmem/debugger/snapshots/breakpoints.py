"""Breakpoints that take a snapshot and continue the program."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Callable, Optional, Protocol

import gdb

from gdbmem.debugger.command import Command, say, warn
from gdbmem.debugger.location import BlockKey, NoBreakpointError, check_breakpoint_at, stack_pointer
from gdbmem.debugger.memwatch.driving.function_code import code_chosen_for, has_loop_at
from gdbmem.debugger.native.inferior import program
from gdbmem.debugger.native.snapshot import ready
from gdbmem.debugger.program import refuse_neighbour
from gdbmem.debugger.session import require_snapshots, session
from gdbmem.debugger.snapshots.inlined_breakpoints import InlinedCalls, check_inlined, holds_inlined
from gdbmem.debugger.snapshots.return_breakpoints import Returns
from gdbmem.debugger.snapshots.snapshots import blind_spot, take_in_passing, take_snapshot
from gdbmem.debugger.stopping.ctrlc import ctrl_c
from gdbmem.debugger.stopping.stops import RepeatedHits, keep_postponed_steps, note_passing
from gdbmem.debugger.terminal import symbol_at
from gdbmem.errors import GdbmemError, UsageError, internal_error
from gdbmem.recipes.recipe import HitFilter
from gdbmem.runs.distrust import check_name
from gdbmem.runs.run import SnapshotRecord
from gdbmem.setup.gdb_python import gdb_call
from gdbmem.symbols.function_names import named_function
from gdbmem.text import format_duration, printable

_WARN_HITS = 100_000
_MEASURED_HITS = 1_000
_REPLACED = ("malloc", "calloc", "realloc", "free", "operator new", "operator delete")


class HitAction(Protocol):
    """The action at a wanted hit; called with the hit's number."""

    def __call__(self, hit: int) -> bool:
        """Do it; return True to stop the program there."""

    def in_passing(self, hit: int) -> bool:
        """Make a native program's thread do it without a stop; return False if the program must be stopped."""


_STAY = f"silent\n{gdb_call('snapshots.breakpoints', 'act_and_stay()')}"
_waiting: list[Callable[[], bool]] = []  # until the program has stopped


def _act(action: HitAction, hit: int) -> bool:
    """Act now, or return True to stop the program for it.

    While gdb asks a native program's breakpoint, other threads still run and gdb can call nothing.
    """
    if session.native is None:
        return action(hit)
    if not _waiting and action.in_passing(hit):  # otherwise another point stops the program here
        return False
    keep_postponed_steps()
    _waiting.append(lambda: action(hit))
    return True


def act_now() -> bool:
    """Carry out pending actions, with the program stopped; return whether there were any."""
    waiting = _waiting[:]
    _waiting.clear()
    for action in waiting:
        try:
            action()
        except GdbmemError as error:
            # Without a traceback; gdb then skips the rest of the breakpoint's commands.
            raise gdb.GdbError(printable(str(error))) from None
    return bool(waiting)


def act_and_stay() -> None:
    """Carry out pending actions and stay at gdb's prompt: no other command can follow one that ran the program."""
    if act_now():
        say("The program is stopped where the snapshot was taken; 'continue' goes on.")


class ActionBreakpoint(gdb.Breakpoint):  # type: ignore[misc]  # gdb's module has no types
    """A user-visible breakpoint that acts on selected hits and never stops the program.

    Hits are counted here. A skipped hit reads nothing of the program and costs only the round trip through valgrind's
    gdbserver. gdb accepts no condition for a breakpoint with a `stop` method, so *condition* is evaluated here.
    """

    stays = True  # during our calls, too: a signal handler or another thread may pass it, and that hit counts

    def __init__(
        self,
        location: str,
        action: HitAction,
        *,
        wanted: HitFilter,
        condition: str = "",
        after: bool = False,
        at_prompt: bool = False,
        note: Optional[Callable[[str], None]] = None,
    ):
        """*at_prompt*: there is a user, who is shown the stop that a native program's action needs.

        *note* gets a sentence about calls that can't be counted.
        """
        place = code_chosen_for(location)
        _check_places(place)
        super().__init__(place)
        refuse_neighbour(self)
        self._at_prompt = at_prompt and session.native is not None
        if self._at_prompt:
            self.commands = _STAY
        self.hits = 0  # with the condition true
        self.failure: Optional[str] = None
        self._action = action
        self._wanted = wanted
        self._condition = condition
        commands = _STAY if self._at_prompt else None
        self._returns = Returns(self.end_call, commands=commands) if after else None
        self._pace = _Pace()
        self._repeated = RepeatedHits()
        self._spent = False  # has done all requested actions, and is disabled
        self._refused = set[str]()  # why ends of calls are not seen
        self._note = note or (lambda sentence: warn(sentence, slug="inlined-unclear"))
        try:
            if place != location:
                chosen = symbol_at(int(place[1:], 16))
                self._note(
                    f"'{location}' is an indirect function (IFUNC): the program has chosen {chosen}, of which calls by"
                    " its own name are counted, too"
                )
            self.inlined = InlinedCalls(place, self, commands=commands)
            _check_condition(place, condition, self.inlined.places)
            if named_function(location) is not None and has_loop_at(place):
                self._note(
                    f"the compiler has put the beginning of a loop where calls of '{location}' begin, so each round"
                    " counts as a call; put the point on the line that calls it"
                )
        except BaseException:  # Ctrl-C, too: the inlined calls would be missing
            self.delete()
            raise
        gdb.events.breakpoint_deleted.connect(self._deleted)

    def stop(self) -> bool:
        """Called by gdb at each hit; True stops the program, for Ctrl-C and errors that the user must see."""
        try:
            note_passing()
            return self._hit() or ctrl_c.interrupted()
        except (GdbmemError, gdb.error) as error:
            return self._fail(str(error))
        except KeyboardInterrupt:
            return True
        except Exception as error:  # noqa: BLE001  (a host: gdb calls this)
            return self._fail(internal_error(error))

    def _hit(self) -> bool:
        frame = gdb.newest_frame()
        if program.has_arrived or self.inlined.covers(int(frame.pc())):
            return False
        if self._repeated.is_repeated(stack_pointer(frame)):
            return False
        if not self._count():
            return False
        try:
            if self._returns is not None:
                self.follow_call(self.hits)
                return False
            return _act(self._action, self.hits)
        finally:
            self._rest()

    def _count(self, call: Optional[BlockKey] = None) -> bool:
        """Count a call, if its condition is true; return whether it is wanted. *call*: an inlined one."""
        if self._condition:
            held = holds_inlined(self._condition, call) if call else gdb.parse_and_eval(self._condition)
            if not held:
                return False
        if self._spent:  # the user has enabled it again
            self.rearm()
        self.hits += 1
        self._pace.count(self.hits, self.location)
        if not self._wanted.wants(self.hits):
            return False
        if self._is_missed(self.hits):
            return False
        last = self._wanted.last_wanted
        if last is not None and self.hits >= last:
            self._spent = True
        return True

    def _is_missed(self, hit: int) -> bool:
        """Return whether nothing can be recorded for *hit*, and say so: the program makes a call for a snapshot."""
        if program.is_calling:
            warn(
                f"hit {hit:,} of {printable(self.location or '')} was that of a signal handler or another thread"
                " during the call for a snapshot, so nothing was recorded for it",
                slug="snapshot-missed",
            )
        return program.is_calling

    def _rest(self) -> None:
        """Disable the breakpoint if it has done all: only now, as others here must know that it acts.

        Deleting it inside its own stop method can crash gdb; a disabled one costs nothing.
        """
        if self._spent:
            self.enabled = False

    # -- as the listener of inlined calls -----------------------------------------------------------------

    def begin_call(self, call: BlockKey) -> tuple[Optional[int], bool]:
        """Count an inlined call; return its hit if its end is wanted, and whether to stop."""
        try:
            if not self.is_valid() or not self.enabled or not self._count(call):
                return None, False
            if self._returns is not None:
                return self.hits, False
            return None, _act(self._action, self.hits)
        except (GdbmemError, gdb.error) as error:
            return None, self._fail(str(error))
        finally:
            if self.is_valid():
                self._rest()

    def end_call(self, hit: int) -> bool:
        """Act at the end of a call."""
        try:
            return not self._is_missed(hit) and _act(self._action, hit)
        except (GdbmemError, gdb.error) as error:
            return self._fail(str(error))

    def follow_call(self, hit: int) -> None:
        """Act when the function that has just been entered returns, be it in place of one with an inlined call."""
        if self._returns is None:
            return
        try:
            self._returns.arm(hit)
        except NoBreakpointError as error:
            if str(error) not in self._refused:
                self._refused.add(str(error))
                self._note(f"no end of a call of '{self.location}' is seen there: {error}")

    def note(self, sentence: str) -> None:
        """Say what can't be counted."""
        self._note(sentence)

    def leave_calls(self, number: int) -> None:
        """Count calls that an exception or longjmp left."""
        if self._returns is not None:
            self._returns.count_left(number)

    @property
    def is_spent(self) -> bool:
        """True if no further call is wanted."""
        return self._spent

    @property
    def wants_ends(self) -> bool:
        """True if the action follows the end of each call."""
        return self._returns is not None

    @property
    def may_join(self) -> bool:
        """True if a hit needs no variables of its call."""
        return not self._condition

    def _deleted(self, point: gdb.Breakpoint) -> None:
        if point == self:
            gdb.events.breakpoint_deleted.disconnect(self._deleted)
            gdb.post_event(self.inlined.delete)  # gdb's `delete` may be walking its list

    def rearm(self) -> None:
        """Reset the counts, as for a new start of the program."""
        self.hits = 0
        if self._returns is not None:
            self._returns.forget()
        self.inlined.forget()
        if self._spent:
            self._spent = False
            self.enabled = True

    @property
    def left_calls(self) -> int:
        """The number of calls that did not return to their caller: an exception or longjmp left them."""
        return self._returns.left_calls if self._returns is not None else 0

    @property
    def unfinished_calls(self) -> int:
        """The number of calls that have not returned, nor been seen to be left."""
        return self.inlined.under_way + (self._returns.under_way if self._returns is not None else 0)

    def _fail(self, sentence: str) -> bool:
        self.failure = sentence
        warn(f"at {self.location}: {sentence}")
        return True


def rearm_all() -> None:
    """Reset the counts of every breakpoint of this kind."""
    for known in gdb.breakpoints():
        if isinstance(known, ActionBreakpoint):
            known.rearm()


def _check_places(location: str) -> None:
    """Raise UsageError if gdb would end when it sets a breakpoint at *location*."""
    with suppress(gdb.error):  # not loaded yet
        for place in gdb.decode_line(location)[1] or ():
            if place.pc is not None:
                check_breakpoint_at(place.pc)


def _check_condition(location: str, condition: str, inlined: Sequence[tuple[int, BlockKey]]) -> None:
    """Raise gdb.error or UsageError for a *condition* that is refused at *location*, and in its *inlined* calls.

    gdb's place for an inlined call may lie in front of it, where its variables are not known.
    """
    if not condition:
        return
    try:
        _probe(location, condition)
    except gdb.error:
        if not any(_is_valid_at(address, condition) for address, _ in inlined):
            raise
    for address, call in inlined:
        check_inlined(condition, call, address)


def _is_valid_at(address: int, condition: str) -> bool:
    try:
        _probe(f"*{address:#x}", condition)
    except gdb.error:
        return False
    return True


def _probe(location: str, condition: str) -> None:
    probe = gdb.Breakpoint(location, internal=True)
    try:
        if not getattr(probe, "pending", False):
            probe.condition = condition
    finally:
        probe.delete()


class _Pace:
    """Reports once the rate of unwanted hits, and the cost of very many of them."""

    def __init__(self) -> None:
        self._start = 0.0

    def count(self, hits: int, location: str) -> None:
        if hits == 1:
            self._start = time.monotonic()
        elif hits == _MEASURED_HITS:
            seconds = time.monotonic() - self._start
            rate = hits / max(seconds, 1e-6)
            warn(
                f"{printable(location or '')} was hit {hits:,} times, {rate:,.0f} a second; "
                f"{_WARN_HITS:,} hits would take {format_duration(_WARN_HITS / rate)}",
                slug="many-hits",
            )
        elif hits == _WARN_HITS:
            warn(
                f"{printable(location or '')} was hit {hits:,} times; a breakpoint on a rarer line, or a "
                "condition in the program itself, would save this time",
                slug="many-hits",
            )


class _Snap:
    # Takes a snapshot and prints its line.
    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, hit: int) -> bool:
        say(take_snapshot(self._name, hit=hit)[1])
        return False

    def in_passing(self, hit: int) -> bool:
        return take_in_passing(self._name, hit, self._say)

    @staticmethod
    def _say(record: Optional[SnapshotRecord], text: str) -> None:
        (warn if record is None else say)(text)
        warning = blind_spot(record.heap_bytes) if record is not None and not record.heap_bytes else None
        if warning:
            warn(warning)


def _warn_of_replaced(location: str) -> None:
    if session.native is None and location in _REPLACED:
        warn(
            f"valgrind replaces libc's {location}, so this breakpoint is reached only "
            f"while the program loads (with --pages-as-heap always); set it on a function that calls {location}",
            slug="replaced-function",
        )


# The options precede the location, which has gdb's own syntax and is kept as typed.
_CONDITION = re.compile(r"(?:^|\s)if\b\s*(.*)$", re.DOTALL)


class BreakCommand(Command):
    """Take a heap snapshot each time the program reaches a location, and continue."""

    def words(self, argument: str) -> Sequence[str]:  # type: ignore[override]
        options, rest = self.leading_options(argument)
        return [*options, "--", rest] if rest else options

    def run(self, args: argparse.Namespace) -> None:
        if args.every < 1 or (args.first is not None and args.first < 1):
            raise UsageError("--every and --first take a number from 1", hint="see 'help massif-break'")
        match = _CONDITION.search(args.location)
        condition = match[1] if match else ""
        location = args.location[: match.start()].strip() if match else args.location
        name = check_name(args.name) if args.name is not None else location
        if not location:
            raise UsageError("no location is given", hint="massif-break LOCATION [if CONDITION]")
        stray = re.search(r"\s(--?[a-z][\w-]*)", location)
        if stray:
            raise UsageError(
                f"{stray[1]} comes after the location", hint="options come first, then the location"
            )
        require_snapshots()
        _warn_of_replaced(location)
        if session.native is not None:
            ready()
        ActionBreakpoint(
            location,
            _Snap(name),
            wanted=HitFilter(every=args.every, first=args.first),
            condition=condition,
            after=args.after,
            at_prompt=True,
        )
