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


# gdb numbers its own temporary breakpoints 0, and their locations 0.1. Before gdb 13 both are in one row.
_ROW = re.compile(r"^0(?= )", re.MULTILINE)
_RESUME = re.compile(r" +high-priority step resume .*?\b0x([0-9a-f]+)", re.DOTALL)
_FRAME = re.compile(r"\bstop only in stack frame at 0x([0-9a-f]+)")
_BASE = re.compile(r"\bframe at 0x([0-9a-f]+)")


_DEEPEST_BYTES = 8 << 20  # of a stack
_MOST_HANDLERS = 8  # that interrupt each other


class PostponedStep(NamedTuple):
    """A step over a breakpoint that gdb resumes when a signal handler has returned."""

    address: int
    frame: Optional[int]  # its base, as `info frame` prints it; None: any


def postponed_steps(text: str) -> list[PostponedStep]:
    """Parse *text*, gdb's list of its temporary breakpoints (`maint info breakpoints 0`)."""
    found = []
    for row in _ROW.split(text)[1:]:
        resume, frame = _RESUME.match(row), _FRAME.search(row)
        if resume is not None:
            found.append(PostponedStep(int(resume[1], 16), int(frame[1], 16) if frame else None))
    return found


class _Pending(NamedTuple):
    # A hit that may not have been passed yet.
    stack: int  # the stack pointer
    state: object  # whatever else a repeated hit has in common with it


class RepeatedHits:
    """Recognises the repeated hits of one breakpoint, or of some that are told apart by the state given."""

    def __init__(self, handles_signals: Callable[[], bool] = lambda: True) -> None:
        """*handles_signals* returns whether the program has signal handlers; they may pass the breakpoint, too."""
        self._handles_signals = handles_signals
        self._last: dict[tuple[int, int, int], _Pending] = {}  # by thread
        self._pending: dict[tuple[int, int, int], list[_Pending]] = {}  # by thread, the newest last
        self._repeated: Optional[tuple[_Pending, str]] = None  # one, and gdb's list at it

    def is_repeated(self, stack: Optional[int] = None, state: object = None) -> bool:
        """Return whether the selected thread, which is at the breakpoint, has been there without passing it.

        *stack* is its stack pointer, if the caller knows it. A hit with another *state* is another one.
        """
        hit = _Pending(int(gdb.parse_and_eval("$sp")) if stack is None else stack, state)
        thread = gdb.selected_thread().ptid
        before, self._last[thread] = self._last.get(thread), hit
        is_first = before is None
        pending = self._pending.setdefault(thread, [])
        # Only a signal handler, on this stack or its own, can come here before an earlier hit is passed.
        while pending and pending[-1].stack < hit.stack < pending[-1].stack + _DEEPEST_BYTES:
            pending.pop()
        if hit in pending:
            del pending[pending.index(hit) + 1 :]
        else:
            pending[:] = [*[one for one in pending if one.stack != hit.stack][-_MOST_HANDLERS:], hit]
            if not is_first:
                return False
        if before not in (None, hit) and not self._handles_signals():
            return False  # it has gone on since
        listed = str(gdb.execute("maint info breakpoints 0", to_string=True))
        if self._repeated == (hit, listed):  # in a storm of signals the program gets on only if this is quick
            return True
        if any(map(_is_here, postponed_steps(listed))):
            self._repeated = hit, listed
            return True
        return False


def is_step_postponed() -> bool:
    """Return whether the selected thread's step over the breakpoint here was postponed by a signal handler."""
    listed = str(gdb.execute("maint info breakpoints 0", to_string=True))
    return any(map(_is_here, postponed_steps(listed)))


def _is_here(step: PostponedStep) -> bool:
    """Return whether gdb resumes *step* now: in the newest frame, not in one that the signal handler has called."""
    if step.address != gdb.newest_frame().pc():
        return False
    base = _BASE.search(gdb_text("info frame"))
    return step.frame is None or base is None or int(base[1], 16) == step.frame
