"""Pools of best-fit allocators in a process, a core, or a file that a program with such a pool wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Optional, Union

from gdbmem.errors import UsageError
from gdbmem.formats.spooling import location
from gdbmem.inspection.pool_files import is_pool_file, read_pool_file
from gdbmem.inspection.pools import Pools, follow_pools, read_core_pools
from gdbmem.inspection.pools import read_pools as read_process_pools
from gdbmem.model.bfc import Allocator, Decision
from gdbmem.pools.changes import compare_pools
from gdbmem.pools.decision import Request
from gdbmem.pools.output import answer, answer_failed
from gdbmem.pools.replay import WhatIf, replay
from gdbmem.text import printable

__all__ = [
    "Allocator",
    "Decision",
    "Pools",
    "Request",
    "WhatIf",
    "answer",
    "answer_failed",
    "compare_pools",
    "follow_pools",
    "read_pools",
    "replay",
]

Operand = Union[str, int, "os.PathLike[str]"]


def read_pools(
    operand: Operand, program: Optional[Path] = None, progress: Callable[[str], None] = lambda _: None
) -> Pools:
    """Return the pools of *operand*: a log, a memory dump, a snapshot, a run, a core, or a process id.

    An existing file takes precedence. The process stops for milliseconds, longer only after *progress*; *program* is
    the program's file, if it has moved. Raises UsageError, InputError or TargetError if there are no pools.
    """
    text = os.fspath(operand) if not isinstance(operand, int) else str(operand)
    if not isinstance(operand, int) and location(text).exists():
        if program is None and is_pool_file(text):
            return read_pool_file(text)
        return read_core_pools(Path(text), program)
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"{printable(text)} is neither a file nor a process id", hint="'ps' lists processes")
    if program is not None:
        raise UsageError("a program can be given with a core only", hint="gdbmem bfc CORE PROGRAM")
    return read_process_pools(int(text), progress)
