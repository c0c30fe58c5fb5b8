"""The call paths that allocate blocks pinning free pages, from a snapshot of another run."""

from __future__ import annotations

from gdbmem.analysis.ledger.pinners import PinnerPaths, join_paths
from gdbmem.formats.opening import OpenOptions
from gdbmem.model.ledger.ledger import Ledger
from gdbmem.runs.operand import format_of, load_operand
from gdbmem.symbols.address_names import GdbSymbols


def paths_of_pinners(operand: str, ledger: Ledger, symbols: GdbSymbols) -> PinnerPaths:
    """Return the call paths that allocate blocks of the pinning sizes in *ledger*, from the snapshot *operand*."""
    reading = OpenOptions(symbols=symbols)
    snapshot = load_operand(operand, reading).snapshot
    return join_paths(ledger, snapshot, source_format=format_of(operand, reading))
