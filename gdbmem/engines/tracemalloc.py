"""Python's tracemalloc: the program starts with it on, and a snapshot reads its tables from outside."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gdbmem.engines.engine import NATIVE, EngineTable, NativeOptions
from gdbmem.errors import UsageError

NAME = "tracemalloc"

TABLE = EngineTable(
    name=NAME,
    runs=NATIVE,
    summary="the memory of a Python program by its lines; no code runs in it",
    cost="Python code that allocates is 18 to 40 times slower (7 to 20 with --frames 1), C and C++ code is not slower",
    counts="bytes that Python and NumPy requested, exact; all other resident memory as one number",
    blind=(
        "memory that C and C++ libraries allocate by malloc or mmap (PyTorch's tensors), except in the untraced bytes",
        "C and C++ frames between Python's",
        "a Python that ignores its environment (-E, -I), or without tracemalloc: CPython 3.8 and PyPy",
    ),
    package="python3",
    options=("frames",),
    reads_memory=True,
)

_FRAMES, _MOST_FRAMES = 10, 65535
_VARIABLE = "PYTHONTRACEMALLOC"


def environment(prefix: str, options: NativeOptions) -> Mapping[str, str]:
    """Return what has Python start tracemalloc; without an option the user's own setting wins."""
    frames = options.frames
    if frames is None:
        return {_VARIABLE: os.environ.get(_VARIABLE) or str(_FRAMES)}
    if not 1 <= frames <= _MOST_FRAMES:
        raise UsageError(
            f"tracemalloc keeps 1 to {_MOST_FRAMES} frames of a traceback, not {frames}", slug="bad-option"
        )
    return {_VARIABLE: str(frames)}
