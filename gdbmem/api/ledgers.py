"""Ledgers: where the resident memory of a process or a core file is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Optional, Union

from gdbmem.analysis.ledger.pinners import PinnerPaths
from gdbmem.errors import TargetError
from gdbmem.inspection.idle import read_idle
from gdbmem.inspection.live_process import explain_process
from gdbmem.inspection.looks import Looks
from gdbmem.inspection.pinner_paths import paths_of_pinners
from gdbmem.inspection.read_process import explain_core as explain_core_file
from gdbmem.inspection.saved_ledgers import load_heap_map, load_ledger, place_to_save, save_ledger
from gdbmem.launch.measured import MeasuredRun, trim_by_gdb
from gdbmem.launch.program import find_program
from gdbmem.model.ledger.heap_map import HeapMap
from gdbmem.model.ledger.idle import IdleMemory
from gdbmem.model.ledger.ledger import Ledger
from gdbmem.symbols.address_names import GdbSymbols
from gdbmem.symbols.demangling import class_names

__all__ = [
    "Looks",
    "MeasuredRun",
    "class_names",
    "explain",
    "explain_core",
    "explain_idle",
    "find_program",
    "pinner_paths",
    "place_to_save",
    "read_ledger",
    "save_ledger",
    "saved_heap_map",
    "trim_by_gdb",
]

Operand = Union[str, "os.PathLike[str]"]


def explain(
    pid: int,
    *,
    copy: Optional[bool] = None,
    swapped: bool = False,
    progress: Optional[Callable[[str], None]] = None,
    look: Optional[Looks] = None,
) -> Ledger:
    """Return the ledger of process *pid*: its resident set, divided down to malloc's live and free blocks.

    With *copy* a motionless copy of the process is analysed, with False the process itself while it is stopped; by
    default a copy if possible. Swapped pages of a stopped process are read only with *swapped*, as that
    brings them back into memory. *progress* is called before the process has to wait for long. Raises TargetError
    where it can't be read.
    """
    if pid == os.getpid():
        raise TargetError(
            "this process can't read its own heap: it would have to stop itself",
            slug="own-process",
            hint="call explain() from another process, such as a child of this one",
        )
    say = progress or (lambda text: None)
    ledger = explain_process(pid, fork=copy, look=look, say=say, swapped=swapped)
    ledger.check()
    return ledger


def explain_idle(pid: int, seconds: float, *, progress: Optional[Callable[[str], None]] = None) -> IdleMemory:
    """Return the memory of process *pid* that is resident but was not touched for *seconds*, by entry of its ledger.

    Only the accessed bits of its pages are changed: they are cleared. Raises TargetError if that is
    refused.
    """
    return read_idle(pid, seconds, say=progress or (lambda text: None))


def explain_core(core: Operand, program: Optional[Operand] = None, *, look: Optional[Looks] = None) -> Ledger:
    """Return the ledger of the core file *core*; *program* is the program's file, if it has moved.

    Raises InputError if *core* is not a core file, or of another program.
    """
    ledger = explain_core_file(Path(core), program=Path(program) if program else None, look=look)
    ledger.check()
    return ledger


def read_ledger(operand: Operand) -> Ledger:
    """Return the ledger in a file that `gdbmem explain --json` wrote, or that is saved in a run: ``RUN``, ``RUN:NAME``.

    Raises InputError if there is none.
    """
    return load_ledger(os.fspath(operand))


def saved_heap_map(operand: Operand) -> Optional[HeapMap]:
    """Return the map of the heap that was saved with the ledger of *operand*; None if there is none."""
    return load_heap_map(os.fspath(operand))


def pinner_paths(operand: str, ledger: Ledger) -> PinnerPaths:
    """Return the call paths that allocate blocks of the sizes that pin pages in *ledger*, by snapshot *operand*."""
    return paths_of_pinners(operand, ledger, GdbSymbols())
