"""numpy, if it is installed: gdb's own Python usually lacks it."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

_THREADS = "OPENBLAS_NUM_THREADS"
_FIRST, _FIRST_BYTES, _PAGE = 2, 31 << 20, 4096  # blocks of memory, their bytes
_SMALL_BYTES = 256 << 20
_SPARSE = 16  # times as many numbers as values from which on sorting is faster than a table


def import_numpy() -> Any:
    """Return numpy without starting the threads of its linear algebra library, which is unused; raises ImportError."""
    if "numpy" in sys.modules:
        import numpy as loaded  # slow to import

        return loaded
    given = os.environ.get(_THREADS)
    os.environ[_THREADS] = given or "1"
    try:
        import numpy  # slow to import
    finally:
        if given is None:
            del os.environ[_THREADS]
    _keep_freed_memory()
    return numpy


def has_numpy() -> bool:
    """Return whether numpy can be imported, which it is."""
    try:
        import_numpy()
    except ImportError:
        return False
    return True


def _keep_freed_memory() -> None:
    """Have glibc's malloc keep the memory of columns for the next ones, and have the first of it in huge pages.

    The kernel clears each page that is new: it takes ten times as long for 512 pages as for a huge one.
    Source: mallopt(3), M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, which is at most 32 MiB; madvise(2), MADV_HUGEPAGE.
    """
    import ctypes  # only where numpy is used

    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(-1, 256 << 20)
        libc.mallopt(-3, 32 << 20)
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc.free.argtypes = [ctypes.c_void_p]
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        blocks = [libc.malloc(_FIRST_BYTES) for _ in range(_FIRST)]
        for block in filter(None, blocks):
            start = -(-block // _PAGE) * _PAGE
            libc.madvise(start, block + _FIRST_BYTES - start & -_PAGE, 14)
            libc.free(block)


def release_freed_memory() -> None:
    """Have glibc's malloc return what it keeps, where columns follow that are too large for it.

    A small process keeps it: to have the kernel clear these pages again would take longer than to fill them.
    """
    import ctypes  # only where numpy is used

    with contextlib.suppress(OSError, AttributeError):
        resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
        if (int(resident) - int(shared)) * _PAGE > _SMALL_BYTES:
            ctypes.CDLL(None).malloc_trim(0)


def index_type(count: int) -> Any:
    """Return the type of numbers up to *count*: int32, or int64 where that is too small."""
    np = import_numpy()
    return np.int32 if count < 1 << 31 else np.int64


def joined(pieces: list[Any]) -> Any:
    """Return *pieces*, of which there is one at least, as one column; each is dropped as soon as it has been copied."""
    np = import_numpy()
    column = np.empty(sum(map(len, pieces)), pieces[0].dtype)
    end = len(column)
    while pieces:
        piece = pieces.pop()
        column[end - len(piece) : end] = piece
        end -= len(piece)
    return column


def runs_of(begins: Any, counts: Any) -> Any:
    """Return numbers in a row from each of *begins* on, as many as the one of *counts* beside it says."""
    np = import_numpy()
    counts = np.asarray(counts, np.int64)
    found = np.arange(int(counts.sum()))
    found += np.repeat(begins - (np.cumsum(counts) - counts), counts)
    return found


def counts_between(bounds: Any, ordered: Any) -> Any:
    """Return how many values of the column *ordered* are before, between and from the last of *bounds* on, in order.

    With few bounds this is quicker than a search for each value: repeat() spreads what belongs to each of them.
    """
    np = import_numpy()
    return np.diff(np.searchsorted(ordered, bounds, "left"), prepend=0, append=len(ordered))


def distinct(values: Any) -> Any:
    """Return the values of a column of numpy in order, each once.

    numpy's unique() takes 20 times as long for a column that is almost in order, and imports numpy.ma.
    """
    np = import_numpy()
    ordered = np.sort(values, kind="stable")
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def places_of(values: Any) -> tuple[Any, Any]:
    """Return distinct() of a column of integers, none of which is negative, and the place of each there."""
    np = import_numpy()
    most = int(values.max()) if len(values) else 0
    if most < _SPARSE * len(values):
        is_there = np.zeros(most + 1, bool)
        is_there[values] = True
        place = np.cumsum(is_there, dtype=index_type(most))
        place -= 1
        return np.flatnonzero(is_there).astype(values.dtype), place[values]
    by = np.argsort(values, kind="stable")
    ordered = values[by]
    new = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    place = np.empty(len(values), np.int64)
    place[by] = np.cumsum(new) - 1
    return ordered[new], place
