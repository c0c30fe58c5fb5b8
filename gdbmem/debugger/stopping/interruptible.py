"""Ctrl-C in a long computation of ours: gdb aborts where it comes while Python asks gdb about symbols."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Callable

_KEY = (signal.SIGINT,)


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Keep Ctrl-C from gdb; yield a function that raises KeyboardInterrupt once it was pressed.

    Where SIGINT is blocked already, whoever blocked it takes the key, and the function never raises.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _KEY)
    is_ours = signal.SIGINT not in before

    def check() -> None:
        if is_ours and signal.sigtimedwait(_KEY, 0) is not None:
            raise KeyboardInterrupt

    try:
        yield check
        check()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
