"""gdb's scheduler-locking: which threads run when the program is resumed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Optional

import gdb


@contextlib.contextmanager
def scheduler_locking(mode: Optional[str]) -> Iterator[None]:
    """Set gdb's scheduler-locking to *mode* (None: leave it), and restore the previous mode in any case."""
    if mode is None:
        yield
        return
    before = locking()
    _later.cancel()
    set_locking(mode)
    try:
        yield
    finally:
        try:
            set_locking(before)
        except gdb.error:
            # Without a process gdb takes no other value than off: put it back as soon as there is one.
            _later.remember(before)


def locking() -> str:
    """Return gdb's scheduler-locking, or what it will be once there is a process again."""
    return _later.value or str(gdb.parameter("scheduler-locking"))


def set_locking(mode: str) -> None:
    """Set gdb's scheduler-locking."""
    if str(gdb.parameter("scheduler-locking")) != mode:
        gdb.execute(f"set scheduler-locking {mode}", to_string=True)


class _Later:
    """Puts scheduler-locking back when the next process starts."""

    def __init__(self) -> None:
        self.value = ""

    def remember(self, value: str) -> None:
        if not self.value:
            gdb.events.new_thread.connect(self._restore)
        self.value = value

    def cancel(self) -> None:
        if self.value:
            gdb.events.new_thread.disconnect(self._restore)
            self.value = ""

    def _restore(self, event: gdb.Event) -> None:
        with contextlib.suppress(gdb.error):
            set_locking(self.value)
            self.cancel()


_later = _Later()
