"""The reason of gdb's last stop, noted by an event handler: a snapshot taken there records the hit."""

from __future__ import annotations

import gdb

from gdbmem.debugger.stopping.quiet_stops import noticed

_hits: list[int] = []  # of the breakpoint at which gdb stands; empty elsewhere
_signals: list[str] = []  # the one that stopped the program here


@noticed
def note_stop(event: gdb.Event) -> None:
    """Remember how often the breakpoint of this stop was hit, or which signal it was."""
    breakpoints = getattr(event, "breakpoints", None)
    # Another extension may have deleted it.
    _hits[:] = [breakpoints[0].hit_count] if breakpoints and breakpoints[0].is_valid() else []
    name = getattr(event, "stop_signal", None)
    _signals[:] = [name] if name else []


def hits_here() -> int | None:
    """Return the hits of the breakpoint at which gdb stands; None elsewhere."""
    return _hits[0] if _hits else None


def signal_here() -> str | None:
    """Return the name of the signal that stopped the program; None where something else did."""
    return _signals[0] if _signals else None
