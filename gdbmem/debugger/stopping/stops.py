"""The reason of gdb's last stop, noted by an event handler: a snapshot taken there records the hit."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple, Optional

import gdb

from gdbmem.debugger.terminal import gdb_text

# Steps and stops that gdbmem makes for itself, hidden from the commands that observe the program's stops.


class _Quiet:
    is_on = False


_quiet = _Quiet()


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Suppress the handlers that are `noticed` until the `with` ends."""
    before, _quiet.is_on = _quiet.is_on, True
    try:
        yield
    finally:
        _quiet.is_on = before


def noticed(handler: Callable[..., None]) -> Callable[..., None]:
    """Return a handler of gdb's events that calls *handler*, except for quiet stops."""

    @functools.wraps(handler)
    def handle(*arguments: Any) -> None:
        if not _quiet.is_on:
            handler(*arguments)

    return handle


def is_quiet() -> bool:
    """Return whether the present stop is hidden."""
    return _quiet.is_on


_hits: list[int] = []  # of the breakpoint at the current stop; empty elsewhere
_signals: list[str] = []  # the one that stopped the program here


@noticed
def note_stop(event: gdb.Event) -> None:
    """Record the hit count of the breakpoint of this stop, or its signal."""
    breakpoints = getattr(event, "breakpoints", None)
    # Another extension may have deleted it.
    _hits[:] = [breakpoints[0].hit_count] if breakpoints and breakpoints[0].is_valid() else []
    name = getattr(event, "stop_signal", None)
    _signals[:] = [name] if name else []
    _keep_forgotten()


def hits_here() -> int | None:
    """Return the hits of the breakpoint of the current stop; None elsewhere."""
    return _hits[0] if _hits else None


def signal_here() -> str | None:
    """Return the name of the signal that stopped the program; None for other stops."""
    return _signals[0] if _signals else None


# Hits that gdb reports a second time, because a signal handler postponed the step over the breakpoint.
#
# A thread that continues at a breakpoint first executes the instruction there with the breakpoint removed. If a
# signal arrives instead, gdb sets a "high-priority step resume" breakpoint at the same address and lets the handler
# run. When it has returned, the thread reaches both breakpoints. gdb doesn't report that as a hit of a user's
# breakpoint, but calls `stop` methods again.
#
# A stop in the handler makes gdb delete its breakpoint, so the step is noted before that, with the registers that
# the thread will have when the handler returns. If it never returns (longjmp), a later call may begin at the same
# stack address, but with other registers: at least those that longjmp has used.


# gdb numbers its own temporary breakpoints 0, and their locations 0.1. Before gdb 13 both are in one row.
# Texts: gdb loads this module at its start, and compiles none of them there.
_ROW = r"(?m)^0(?= )"
_RESUME = r"(?s) +high-priority step resume .*?\b0x([0-9a-f]+)"
_THREAD = r"\bstop only in thread (\d+)"
_FRAME = r"\bstop only in stack frame at 0x([0-9a-f]+)"
_BASE = r"\bframe at 0x([0-9a-f]+)"

_MASK = "k[0-7]"  # of AVX-512: general for gdb, which does not find them in the frame of a signal

_MOST_STACKS = 8  # of handlers that interrupt each other, or of calls of one function within another
_MOST_KEPT = 8  # steps of one thread
_MOST_FRAMES = 64  # from the newest one to that which a handler has interrupted

Thread = tuple[int, int, int]


class PostponedStep(NamedTuple):
    """A step over a breakpoint that gdb resumes when a signal handler has returned."""

    address: int
    frame: Optional[int]  # its base, as `info frame` prints it; None: any
    thread: Optional[int]  # gdb's global number; None: any


def postponed_steps(text: str) -> list[PostponedStep]:
    """Parse *text*, gdb's list of its temporary breakpoints (`maint info breakpoints 0`)."""
    found = []
    for row in re.split(_ROW, text)[1:]:
        resume, frame, thread = re.match(_RESUME, row), re.search(_FRAME, row), re.search(_THREAD, row)
        if resume is not None:
            base, number = int(frame[1], 16) if frame else None, int(thread[1]) if thread else None
            found.append(PostponedStep(int(resume[1], 16), base, number))
    return found


def _listed() -> str:
    return str(gdb.execute("maint info breakpoints 0", to_string=True))


class _KeptStep:
    """A postponed step that gdb forgets."""

    def __init__(self, registers: list[int]) -> None:
        self.registers = registers
        self.told: set[int] = set()  # who has asked for it where the thread may have resumed


_kept: dict[Thread, dict[tuple[int, int], _KeptStep]] = {}  # by instruction and stack pointer
_forgotten: list[PostponedStep] = []  # at the stop that comes
_passing: dict[
    Thread, tuple[int, int]
] = {}  # where each thread was told to go on: instruction and stack pointer


def keep_postponed_steps() -> None:
    """Note the postponed steps: called where a breakpoint is about to stop the program, while other threads run."""
    _forgotten[:] = postponed_steps(_listed())


def note_passing() -> None:
    """Note that the selected thread is told to go on at a breakpoint: another may stop the program before it does."""
    frame = gdb.newest_frame()
    _passing[gdb.selected_thread().ptid] = int(frame.pc()), int(frame.read_register("sp"))


def _keep_forgotten() -> None:
    """At a stop, note the steps over breakpoints that gdb forgets."""
    if not _forgotten and not _passing:
        return
    selected = gdb.selected_thread()
    for thread in gdb.selected_inferior().threads():
        mine = [step for step in _forgotten if step.thread in (None, thread.global_num)]
        passing = _passing.pop(thread.ptid, None) if thread != selected else None
        if mine or passing is not None:
            thread.switch()
            kept = _kept.setdefault(thread.ptid, {})
            _keep(mine, kept)
            if passing is not None and _waits_for_signal(*passing):
                kept[passing] = _KeptStep(_registers(gdb.newest_frame()))
    _forgotten.clear()
    if selected is not None and selected.is_valid() and gdb.selected_thread() != selected:
        selected.switch()


def _waits_for_signal(address: int, pointer: int) -> bool:
    """Return whether the selected thread is there, and a signal is the reason.

    Otherwise gdb steps over the breakpoint when the program goes on, or the thread has come back to it.
    """
    from signal import SIGTRAP  # gdb starts sooner

    frame = gdb.newest_frame()
    with contextlib.suppress(gdb.error):
        is_there = (int(frame.pc()), int(frame.read_register("sp"))) == (address, pointer)
        return is_there and int(gdb.parse_and_eval("$_siginfo")["si_signo"]) != SIGTRAP
    return False


def _keep(steps: list[PostponedStep], kept: dict[tuple[int, int], _KeptStep]) -> None:
    """Add those of the selected thread's *steps* that a handler has interrupted, or has just returned to."""
    addresses = {step.address for step in steps}
    frame = gdb.newest_frame()
    with contextlib.suppress(gdb.error):  # of a stack that gdb can't read
        if any(map(_is_here, steps)):
            kept[int(frame.pc()), int(frame.read_register("sp"))] = _KeptStep(_registers(frame))
        for _ in range(_MOST_FRAMES):
            older = frame.older()
            if older is None:
                return
            if frame.type() == gdb.SIGTRAMP_FRAME and older.pc() in addresses:
                kept[int(older.pc()), int(older.read_register("sp"))] = _KeptStep(_registers(older))
                while len(kept) > _MOST_KEPT:
                    del kept[next(iter(kept))]
            frame = older


def _registers(frame: gdb.Frame) -> list[int]:
    """Return those of *frame* that hold an integer or an address; none if this gdb can't list them."""
    architecture = frame.architecture()
    if not hasattr(architecture, "registers"):
        return []
    names = [str(one) for one in architecture.registers("general")]
    values = [frame.read_register(name) for name in names if not re.fullmatch(_MASK, name)]
    pointer = frame.read_register("sp").type.sizeof
    kinds = (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_PTR)
    return [
        int(value)
        for value in values
        if value.type.code in kinds and value.type.sizeof == pointer and not value.is_optimized_out
    ]


def _is_kept(asker: object) -> bool:
    """Return whether the selected thread resumes a step that gdb has forgotten; each *asker* is told once."""
    kept = _kept.get(gdb.selected_thread().ptid)
    if not kept:
        return False
    frame = gdb.newest_frame()
    step = kept.get((int(frame.pc()), int(frame.read_register("sp"))))
    if step is None or id(asker) in step.told:
        return False
    step.told.add(id(asker))
    return step.registers == _registers(frame)


class RepeatedHits:
    """Recognises the repeated hits of one breakpoint, or of some that are told apart by the state given."""

    def __init__(self, handles_signals: Callable[[], bool] = lambda: True) -> None:
        """*handles_signals* returns whether the program has signal handlers; they may pass the breakpoint, too."""
        self._handles_signals = handles_signals
        self._last: dict[Thread, tuple[int, object]] = {}  # the stack pointer and the state
        # The state of the last hit at each of the last stack addresses, the newest last. Those above a hit may still be
        # pending: a signal handler's own stack can be anywhere, even in a variable of `main`.
        self._states: dict[Thread, dict[int, object]] = {}

    def is_repeated(self, stack: Optional[int] = None, state: object = None) -> bool:
        """Return whether the selected thread, which is at the breakpoint, has been there without passing it.

        *stack* is its stack pointer, if the caller knows it. A hit with another *state* is another one.
        """
        if stack is None:
            stack = int(gdb.parse_and_eval("$sp"))
        thread = gdb.selected_thread().ptid
        before, self._last[thread] = self._last.get(thread), (stack, state)
        states = self._states.setdefault(thread, {})
        is_known = stack in states and states.pop(stack) == state
        states[stack] = state
        if len(states) > _MOST_STACKS:
            del states[next(iter(states))]
        if _is_kept(self):
            return True
        if before is not None and not is_known:
            return False
        if before not in (None, (stack, state)) and not self._handles_signals():
            return False  # it has gone on since
        return _is_listed()


def is_step_postponed(asker: object) -> bool:
    """Return whether the selected thread's step over the breakpoint here was postponed by a signal handler.

    An *asker* is told once of a step that gdb has forgotten.
    """
    return _is_kept(asker) or _is_listed()


_last_listed: list[
    object
] = []  # the last postponed step: its thread, instruction and stack pointer, and gdb's list


def _is_listed() -> bool:
    listed, frame = _listed(), gdb.newest_frame()
    step = [gdb.selected_thread().ptid, int(frame.pc()), int(frame.read_register("sp")), listed]
    if _last_listed == step:  # in a storm of signals the program gets on only if this is quick
        return True
    if any(map(_is_here, postponed_steps(listed))):
        _last_listed[:] = step
        return True
    return False


def _is_here(step: PostponedStep) -> bool:
    """Return whether gdb resumes *step* now: in the newest frame, not in one that the signal handler has called."""
    if step.address != gdb.newest_frame().pc():
        return False
    base = re.search(_BASE, gdb_text("info frame"))
    return step.frame is None or base is None or int(base[1], 16) == step.frame
