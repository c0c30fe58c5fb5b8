"""The reason of gdb's last stop, noted by an event handler: a snapshot taken there records the hit."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, Callable

import gdb

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
