"""Pools of best-fit allocators in a process, a core, or a file that a program with such a pool wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Optional, Union

from gdbmem.analysis.bfc.decision import Request, decide
from gdbmem.analysis.bfc.explanation import with_advice
from gdbmem.analysis.bfc.pool_diff import compare_pools
from gdbmem.analysis.bfc.replay import WhatIf, replay
from gdbmem.analysis.bfc.torch_pool import decide_torch
from gdbmem.errors import UsageError
from gdbmem.formats.spooling import location
from gdbmem.inspection.bfc.pool_files import is_pool_file, read_pool_file
from gdbmem.inspection.bfc.pool_series import follow_pools
from gdbmem.inspection.bfc.pools import Pools, read_core_pools
from gdbmem.inspection.bfc.pools import read_pools as read_process_pools
from gdbmem.model.bfc.pools import PYTORCH, Allocator, Decision
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


def answer(allocator: Allocator, request: Request) -> Decision:
    """Return the outcome of *request* in *allocator*, and remedies if it fails."""
    if allocator.kind == PYTORCH:
        return decide_torch(allocator, request)
    return with_advice(allocator, decide(allocator, request), request)


def answer_failed(allocator: Allocator, device_bytes: Optional[int] = None) -> Optional[Decision]:
    """Return the reason of the failed request in a log or a snapshot; None if it has none.

    *device_bytes* is all memory of the device, if known.
    """
    if allocator.asked_bytes is None:
        return None
    return answer(allocator, Request(allocator.asked_bytes, has_failed=True, device_bytes=device_bytes))
