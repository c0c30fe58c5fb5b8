"""A program's own memory in its valgrind process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gdbmem.linux.memory.maps import Mapping, mappings_of
from gdbmem.linux.memory.resident import parse_statm

_STACK_BYTES = 8 << 20  # of a thread, by default


def program_mapped_bytes(pid: int) -> int:
    """Return the resident bytes of *pid*, under massif, that the program has mapped itself; 0 if unreadable.

    valgrind's own memory, its stacks for the program's threads and its malloc blocks are mapped executable; mappings
    of a program mostly aren't. Right above a guard page, where thread stacks begin, the maximum size of a stack is
    excluded.
    """
    try:
        mappings = mappings_of(pid, "smaps")
    except OSError:
        return 0
    return mapped_bytes(mappings)


def anonymous_bytes(pid: int) -> int:
    """Return all resident bytes of *pid* that are not of files or shared memory, by statm; 0 if unreadable.

    statm may lag behind by some pages of each processor.
    """
    try:
        statm = parse_statm(Path(f"/proc/{pid}/statm").read_bytes())
    except OSError:
        return 0
    return 0 if statm is None else statm.resident_bytes - statm.shared_bytes


def mapped_bytes(mappings: Sequence[Mapping]) -> int:
    """Return the same of *mappings*, lowest first."""
    total, guard_end = 0, -1
    for mapping in mappings:
        if mapping.permissions.startswith("---"):
            guard_end = mapping.end
        elif mapping.is_anonymous and mapping.permissions == "rw-p" and not mapping.name:
            stack = _STACK_BYTES if mapping.start == guard_end else 0
            total += max(mapping.anonymous_bytes - stack, 0)
    return total
