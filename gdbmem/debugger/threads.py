"""Threads of gdb's Python. They block all signals, which must reach gdb's own thread."""

from __future__ import annotations

import _thread
import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Callable


def start_thread(function: Callable[[], None], name: str) -> threading.Thread:
    """Run *function* in a thread, which has started when this returns."""
    thread = threading.Thread(target=function, name=name, daemon=True)
    with _no_signals():
        thread.start()
    return thread


def start_soon(function: Callable[[], None]) -> None:
    """Run *function* in a thread without waiting for its start, which can take as long as ten steps."""
    with _no_signals():
        _thread.start_new_thread(function, ())


@contextlib.contextmanager
def _no_signals() -> Iterator[None]:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
