"""Steps and stops that gdbmem makes for itself, hidden from the commands that observe the program's stops."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, Callable


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
