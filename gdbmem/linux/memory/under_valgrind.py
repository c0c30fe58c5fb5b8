"""A program's own memory in a process that it shares with valgrind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gdbmem.linux.memory.maps import Mapping, parse_smaps
from gdbmem.linux.process.living import memory_folder

_STACK_BYTES = 8 << 20  # of a thread, by default


def program_mapped_bytes(pid: int) -> int:
    """Return the resident bytes of *pid*, under massif, that the program has mapped itself; 0: nothing can be read.

    valgrind's own memory, its stacks of the program's threads and the blocks that it hands out for malloc are mapped
    executable; what a program maps mostly isn't. Of what stands right above a guard page, a thread's stack at its
    lower end, as much as a stack may be is left out.
    """
    try:
        mappings = parse_smaps(Path(f"{memory_folder(pid)}/smaps").read_bytes())
    except OSError:
        return 0
    return mapped_bytes(mappings)


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
