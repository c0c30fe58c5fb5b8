"""A lock between processes that reports immediately when the thread that holds it has died.

The kernel frees a robust mutex, and wakes its waiters, before a dying thread releases the processes that it
traces. All other ways report its end only when all threads of its process have ended, which for a large process
takes about 20 ms. Source: Linux, Documentation/locking/robust-futexes.rst; pthread_mutexattr_setrobust(3).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import time
from pathlib import Path

_SIZE = mmap.PAGESIZE
_TAKEN = _SIZE - 1  # the byte that is 1 from when the lock is held
_MUTEX_BYTES, _ATTRIBUTES_BYTES = 64, 64  # more than any C library's take
_SHARED, _ROBUST = 1, 1
_PAUSE_SECONDS = 0.02  # between two looks whether it is held for the first time


class ThreadLock:
    """The lock in one file. A thread takes it once; another process waits for that one's death."""

    def __init__(self, path: Path, *, make: bool = False) -> None:
        """Map the file at *path*, which *make* makes. Raises OSError."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if make else 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            if make:
                os.ftruncate(descriptor, _SIZE)
            self._memory = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)
        self._libc = ctypes.CDLL(None)
        self._mutex = ctypes.byref((ctypes.c_char * _MUTEX_BYTES).from_buffer(self._memory))

    def take(self) -> None:
        """Hold it from now on by the calling thread. Raises OSError."""
        attributes = ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
        _check(self._libc.pthread_mutexattr_init(attributes))
        _check(self._libc.pthread_mutexattr_setpshared(attributes, _SHARED))
        _check(self._libc.pthread_mutexattr_setrobust(attributes, _ROBUST))
        _check(self._libc.pthread_mutex_init(self._mutex, attributes))
        _check(self._libc.pthread_mutex_lock(self._mutex))
        self._memory[_TAKEN] = 1

    @property
    def is_taken(self) -> bool:
        """True if a thread has taken it, even if that thread has released it or died since."""
        return bool(self._memory[_TAKEN])

    def leave(self) -> None:
        """Release it, from the thread that has taken it: its death is no longer reported."""
        self._libc.pthread_mutex_unlock(self._mutex)

    def wait(self) -> bool:
        """Wait until the thread that takes it has died, or left it; return whether it died."""
        while not self.is_taken:
            time.sleep(_PAUSE_SECONDS)
        return bool(self._libc.pthread_mutex_lock(self._mutex) == errno.EOWNERDEAD)


def _check(error: int) -> None:
    if error:
        raise OSError(error, os.strerror(error))
