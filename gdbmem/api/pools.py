"""Pools of best-fit allocators: of a process, a core, or a file that one of their users wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional, Union

from gdbmem.analysis.bfc.decision import Request, decide
from gdbmem.analysis.bfc.explanation import with_advice
from gdbmem.analysis.bfc.replay import WhatIf, replay
from gdbmem.errors import UsageError
from gdbmem.inspection.pools import Pools, read_core_pools
from gdbmem.inspection.pools import read_pools as read_process_pools
from gdbmem.model.bfc import Allocator, Decision
from gdbmem.text import printable

__all__ = ["Allocator", "Decision", "Pools", "Request", "WhatIf", "answer", "read_pools", "replay"]

Operand = Union[str, int, "os.PathLike[str]"]


def read_pools(operand: Operand, program: Optional[Path] = None) -> Pools:
    """Return the BFC allocators of *operand*: a core file, else a process by its number.

    An existing file wins. The process waits some milliseconds. *program* is the file that left the core, where that
    has moved. Raises UsageError, InputError or TargetError where there is none.
    """
    text = os.fspath(operand) if not isinstance(operand, int) else str(operand)
    if not isinstance(operand, int) and Path(text).exists():
        return read_core_pools(Path(text), program)
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"{printable(text)} is neither a file nor a process id", hint="'ps' lists processes")
    if program is not None:
        raise UsageError("a program is named with a core only", hint="gdbmem bfc CORE PROGRAM")
    return read_process_pools(int(text))


def answer(allocator: Allocator, request: Request) -> Decision:
    """Return what *allocator* would do with *request*, and what would help where that fails."""
    return with_advice(allocator, decide(allocator, request), request)
