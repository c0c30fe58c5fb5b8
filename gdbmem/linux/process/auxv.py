"""The auxiliary vector, which the kernel passes to a program at its start."""

from __future__ import annotations

import struct
from pathlib import Path

from gdbmem.errors import TargetError
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.process.living import memory_folder
from gdbmem.model.memory import MemoryUnreadable

_AT_RANDOM = 25
_RANDOM_BYTES = 16


def random_bytes(pid: int) -> bytes:
    """Return the random bytes that the program of *pid* got at its start; b"" if they can't be read.

    Each exec() gets new ones, also of the same program at the same addresses.
    Source: getauxval(3), AT_RANDOM.
    """
    try:
        with ProcMemory(pid) as memory:
            return memory.read(auxiliary_vector(pid)[_AT_RANDOM], _RANDOM_BYTES)
    except (OSError, struct.error, KeyError, TargetError, MemoryUnreadable):
        return b""


def auxiliary_vector(pid: int) -> dict[int, int]:
    """Return the values of the auxiliary vector of *pid* by their kinds. Raises OSError and struct.error."""
    return dict(struct.iter_unpack("<QQ", Path(f"{memory_folder(pid)}/auxv").read_bytes()))
