"""The lock that gdb holds while a thread makes a call, and that others take before they end gdb.

A gdb that gets a signal during such a call detaches immediately, and the thread resumes inside the call, with wrong
registers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Optional

from gdbmem.errors import TargetError

NAME = "calls"  # of the file, in the runtime folder
_PAUSE_SECONDS = 0.01


@contextlib.contextmanager
def calling(path: Optional[str]) -> Iterator[None]:
    """Keep others from ending this gdb while the block runs; *path* is the lock's file, None if nothing is attached.

    Raises TargetError if that is about to happen.
    """
    if path is None:
        yield
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _about_to_end() from None
    try:
        if not _lock(descriptor):
            raise _about_to_end()
        yield
    finally:
        os.close(descriptor)


def _about_to_end() -> TargetError:
    return TargetError(
        "gdb is about to end, so no more functions are called in the process",
        slug="launcher-gone",
        hint="attach again",
    )


def hold_calls(descriptor: int, seconds: float) -> None:
    """Wait until gdb is in no call, for *seconds* at most; from then on it begins none while *descriptor* is open."""
    deadline = time.monotonic() + seconds
    while not _lock(descriptor) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
