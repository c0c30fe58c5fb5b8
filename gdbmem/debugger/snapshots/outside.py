"""Figures beside a snapshot of a recipe, by which a gate knows what the engine could not see."""

from __future__ import annotations

import functools
import zlib
from typing import Any, Optional

import gdb

from gdbmem.debugger.execution import executions
from gdbmem.debugger.launched.valgrind_monitor import monitor
from gdbmem.debugger.location import real_pid
from gdbmem.debugger.session import session
from gdbmem.debugger.snapshots.summary import unseen_malloc
from gdbmem.engines.valgrind import MEMORY_COMMAND, client_arena_bytes
from gdbmem.linux.memory.maps import mappings_of
from gdbmem.linux.memory.outside_heap import own_bytes, under_valgrind, unmapped_bytes
from gdbmem.linux.process.auxv import random_bytes
from gdbmem.model.profiles.snapshot import HEAP_BYTES


def execution_here() -> Optional[str]:
    """Return what names the program that the process executes, as the runs of recipes have it; None elsewhere."""
    pid = real_pid() if session.judged else None
    if pid is None:
        return None
    random = executions.here()[1] if session.native is not None else random_bytes(pid)
    return f"{pid}.{zlib.crc32(random):08x}"


def beside_resident_facts() -> dict[str, Any]:
    """Return the fields of a record on memory that is not in the resident set: swapped, unmapped, in huge pages."""
    pid = real_pid() if session.judged else None
    if pid is None:
        return {}
    try:
        mappings = mappings_of(pid, "smaps")
    except OSError:
        return {"execution": execution_here()}
    apart = sum(mapping.swap_bytes + mapping.hugetlb_bytes for mapping in mappings)
    return {"execution": execution_here(), "outside_bytes": apart + unmapped_bytes(pid, mappings)}


@functools.lru_cache(maxsize=1)
def _unseen_malloc(execution: Optional[str]) -> str:
    """Return unseen_malloc() of one *execution*: it may read the whole program."""
    return unseen_malloc()


def outside_facts(
    heap_bytes: Optional[int], unit: str, allocator_bytes: Optional[int] = None
) -> dict[str, Any]:
    """Return the fields of a snapshot's record on memory that the engine does not count; {} if nothing is judged.

    *allocator_bytes* are the resident bytes of the allocator that the engine has preloaded.
    """
    pid = real_pid() if session.judged else None
    if pid is None or heap_bytes is None or unit != HEAP_BYTES:
        return {}
    execution = execution_here()
    facts: dict[str, Any] = {"execution": execution, "unseen_malloc": _unseen_malloc(execution)}
    try:
        mappings = mappings_of(pid, "smaps")
    except OSError:
        return facts
    unmapped = unmapped_bytes(pid, mappings)
    if session.native is None:
        outside, executable = under_valgrind(mappings)
        blocks = client_arena_bytes(monitor(MEMORY_COMMAND))
        # Where valgrind doesn't tell, executable memory of the program's own is not known.
        return {**facts, "outside_bytes": unmapped + outside + (0 if blocks is None else executable - blocks)}
    # Blocks that were never written make it negative.
    own = own_bytes(mappings)
    outside = own - (heap_bytes if allocator_bytes is None else allocator_bytes)
    threads = len(gdb.selected_inferior().threads())
    return {**facts, "outside_bytes": unmapped + outside, "own_bytes": own, "threads": threads}
