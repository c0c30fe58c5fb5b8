"""The classes of objects in a process, by their vtables."""

from __future__ import annotations

from typing import Callable, Optional

from gdbmem.ledger.blocks import class_of
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.objects import VtableSymbols
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.memory import Memory

NameOf = Callable[[int], Optional[str]]


def namer(reading: ProcessImage, memory: Memory) -> NameOf:
    """Return a function from the address of a vtable to the mangled name of its class; None for other addresses."""
    files, symbols = constant_files(reading), VtableSymbols(reading.images, reading.open)
    in_file = files.__contains__
    return lambda vtable: class_of(memory, vtable, in_file, symbols.name) if vtable in files else None


def constant_files(reading: ProcessImage) -> Ranges:
    """Return the mapped parts of files that may contain vtables."""
    # Vtables are constant; lists end at variables in the same files.
    return Ranges((m.start, m.end) for m in reading.mappings if m.is_file and "w" not in m.permissions)
