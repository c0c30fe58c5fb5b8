"""Garbage collections of a Python process and its forked processes: each writes into all objects that it tracks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.allocators.cpython.collector import Collector, CollectorState, find_collector
from gdbmem.allocators.cpython.interpreters import find_interpreters
from gdbmem.errors import TargetError
from gdbmem.inspection.python.worker_pages import Family
from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.model.memory import Memory, MemoryUnreadable
from gdbmem.records import replace


def collector_of(memory: Memory, mappings: Sequence[Mapping]) -> Optional[Collector]:
    """Return the garbage collector of the main interpreter; None if it was not recognised."""
    try:
        interpreters = find_interpreters(memory, mappings)
        return None if interpreters is None else find_collector(memory, interpreters.addresses(memory)[0])
    except (MemoryUnreadable, IndexError):
        return None


def add_collections(
    family: Family, collector: Optional[Collector]
) -> tuple[Optional[int], Optional[int], bool]:
    """Add its full collections to each worker; return the least and most of the parent, and whether one has frozen.

    A forked process goes on counting from its parent's number at the fork, which is not known: the parent may have
    raised its own since.
    """
    ours = None if collector is None else _state(collector, family.pid)
    if collector is None or ours is None:
        return None, None, False
    least, frozen = 0, ours.has_frozen
    for number, worker in enumerate(family.workers):
        theirs = _state(collector, worker.pid)
        if theirs is not None:
            more = theirs.full_collections - ours.full_collections
            family.workers[number] = replace(
                worker, full_collections=max(more, 0), most_full_collections=theirs.full_collections
            )
            least = max(least, -more)
            frozen |= theirs.has_frozen
    return least, ours.full_collections, frozen


def _state(collector: Collector, pid: int) -> Optional[CollectorState]:
    try:
        with ProcMemory(pid) as memory:
            return collector.state(memory)
    except TargetError:
        return None
