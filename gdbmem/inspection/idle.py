"""Memory that a process does not access for some time, by clearing and reading the accessed bits of its pages."""

from __future__ import annotations

import time
from typing import Callable

from gdbmem.analysis.ledger.idle import idle_memory, idle_sizes, idle_types
from gdbmem.inspection.idle_blocks import BlocksLook
from gdbmem.inspection.live_process import explain_process
from gdbmem.linux.memory.accessed import clear_accessed, read_accessed
from gdbmem.linux.process.process import check_analysable, ended, has_ended
from gdbmem.model.ledger.idle import IdleMemory
from gdbmem.records import replace
from gdbmem.text import printable
from gdbmem.units import format_duration

_LOOK_SECONDS = 0.5  # whether the process is still there


def read_idle(pid: int, seconds: float, *, say: Callable[[str], None]) -> IdleMemory:
    """Clear the accessed bits of process *pid*, wait *seconds* or until Ctrl-C, and return the pages not accessed.

    The ledger is made afterwards, because reading memory accesses it. Raises TargetError.
    """
    facts = check_analysable(pid)
    name = printable(facts.name)
    say(
        f"the accessed bits of process {pid} ({name}), which the kernel chooses pages to swap out by, are cleared;"
        f" waiting for {format_duration(seconds)} (Ctrl-C ends the wait)"
    )
    clear_accessed(pid)
    waited = _wait(pid, seconds)
    accessed = read_accessed(pid)
    look = BlocksLook()
    found = idle_memory(explain_process(pid, look=look, say=say), accessed, waited)
    types, sizes = idle_types(look.groups, accessed), idle_sizes(look.groups, accessed)
    return replace(found, types=types, sizes=sizes, tree_holders=look.holders)


def _wait(pid: int, seconds: float) -> float:
    """Wait, at most until Ctrl-C; return the elapsed time."""
    began = time.monotonic()
    try:
        while True:
            left = began + seconds - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(left, _LOOK_SECONDS))
            if has_ended(pid):
                raise ended(pid)
    except KeyboardInterrupt:
        pass
    return time.monotonic() - began
