"""The reason of gdb's last stop, noted by an event handler: a snapshot taken there records the hit."""

from __future__ import annotations

import gdb

from gdbmem.debugger.stopping.quiet_stops import noticed

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
