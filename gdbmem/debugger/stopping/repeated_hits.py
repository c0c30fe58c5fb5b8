"""Hits that gdb reports a second time, because a signal handler postponed the step over the breakpoint.

A thread that continues at a breakpoint first executes the instruction there with the breakpoint removed. If a signal
arrives instead, gdb sets a "high-priority step resume" breakpoint at the same address and lets the handler run. When it
has returned, the thread reaches both breakpoints. gdb doesn't report that as a hit of a user's breakpoint, but
calls `stop` methods again.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

import gdb

from gdbmem.debugger.gdb_text import gdb_text
from gdbmem.patterns import lazy_pattern

# gdb numbers its own temporary breakpoints 0, and their locations 0.1. Before gdb 13 both are in one row.
_ROW = lazy_pattern(r"^0(?= )", re.MULTILINE)
_RESUME = lazy_pattern(r" +high-priority step resume .*?\b0x([0-9a-f]+)", re.DOTALL)
_FRAME = lazy_pattern(r"\bstop only in stack frame at 0x([0-9a-f]+)")
_BASE = lazy_pattern(r"\bframe at 0x([0-9a-f]+)")


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


class RepeatedHits:
    """Recognises the repeated hits of one breakpoint."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int, int], int] = {}  # thread → stack pointer at its last hit
        self._repeated = (0, "")  # stack pointer and gdb's list at a repeated hit

    def is_repeated(self) -> bool:
        """Return whether the selected thread, which is at the breakpoint, has been there without passing it."""
        thread, stack = gdb.selected_thread().ptid, int(gdb.parse_and_eval("$sp"))
        before, self._last[thread] = self._last.get(thread, stack), stack
        if before != stack:
            return False
        listed = str(gdb.execute("maint info breakpoints 0", to_string=True))
        if (
            stack,
            listed,
        ) == self._repeated:  # under a storm of signals the program gets on only if this is quick
            return True
        if any(map(_is_here, postponed_steps(listed))):
            self._repeated = stack, listed
            return True
        return False


def _is_here(step: PostponedStep) -> bool:
    """Return whether gdb resumes *step* now: in the newest frame, not in one that the signal handler has called."""
    if step.address != gdb.newest_frame().pc():
        return False
    base = _BASE.search(gdb_text("info frame"))
    return step.frame is None or base is None or int(base[1], 16) == step.frame
