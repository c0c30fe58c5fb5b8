"""Addresses of functions that the program or one of its libraries has loaded."""

from __future__ import annotations

import gdb

from gdbmem.debugger.execution import executions
from gdbmem.debugger.language import speaking
from gdbmem.debugger.location import program_file
from gdbmem.errors import TargetError
from gdbmem.text import printable


def address_of(function: str) -> int:
    """Return the address of *function*; raises TargetError if the program has none of that name."""
    try:
        with speaking("c"):
            return int(gdb.parse_and_eval(f"(unsigned long) &{function}"))
    except gdb.error:
        raise _not_loaded(function) from None


def _not_loaded(function: str) -> TargetError:
    hint = "set a breakpoint (break main) and type 'continue' first; a static or setuid program loads none"
    reason = f"the program has no {function}: the profiling allocator is not loaded (yet)"
    if executions.replaced:
        name = printable(program_file())
        reason = f"the program has executed another one, {name}, into which the profiling allocator is not loaded (yet)"
    return TargetError(reason, slug="profiler-not-loaded", hint=hint)
