"""What gdb's last stop was, noted in passing: a snapshot taken there records the hit."""

from __future__ import annotations

import gdb

_hits: list[int] = []  # of the breakpoint at which gdb stands; empty elsewhere


def note_stop(event: gdb.Event) -> None:
    """Remember how often the breakpoint of this stop was hit."""
    breakpoints = getattr(event, "breakpoints", None)
    _hits[:] = [breakpoints[0].hit_count] if breakpoints else []


def hits_here() -> int | None:
    """Return the hits of the breakpoint at which gdb stands; None elsewhere."""
    return _hits[0] if _hits else None
