"""Expressions in the scope of an inlined call that begins where a thread is stopped.

There gdb shows the caller's frame, as if the call were still to come, and takes a name for the caller's variable.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Optional

import gdb

from gdbmem.debugger.location import BlockKey, block_key, block_of, function_blocks, function_key
from gdbmem.debugger.terminal import file_name
from gdbmem.errors import UsageError
from gdbmem.symbols.function_names import names_in, replace_names

_PREFIX = "gdbmem_"  # of the convenience variables that stand for variables of the call


def holds_inlined(condition: str, call: BlockKey) -> bool:
    """Return whether *condition* is true in the inlined *call* that begins at the newest frame's address.

    Raises UsageError if gdb can't tell: it knows no such variable, or has no value of it there.
    """
    frame = gdb.selected_frame()  # which makes its language the current one
    try:
        block = _block_of(call, frame.pc())
        if block is None:
            raise gdb.error("gdb does not know its variables there")
        is_shown = block_key(block) == function_key(frame)
        return bool(
            gdb.parse_and_eval(
                condition if is_shown else replace_names(condition, _Scope(frame, block).replacement)
            )
        )
    except gdb.error as error:
        position = gdb.find_pc_line(frame.pc())
        first = f" ({PurePath(file_name(position.symtab)).name}:{position.line})" if position.symtab else ""
        raise UsageError(
            f"'{condition}' can't be evaluated where {call[2]}, which is inlined, begins{first}:"
            f" {str(error).rstrip('.')}; put the point at a later line of it, with the same condition"
        ) from None


def check_inlined(condition: str, call: BlockKey, address: int) -> None:
    """Raise UsageError if the compiler keeps no value of a variable of *condition* in *call*, which *address* is in."""
    block = _block_of(call, address)
    if block is None:
        return
    for name in names_in(condition):
        symbol, _ = gdb.lookup_symbol(name.text, block)
        if symbol is not None and symbol.addr_class == gdb.SYMBOL_LOC_OPTIMIZED_OUT:
            into = function_blocks(address)[-1].function
            raise UsageError(
                f"'{condition}' can't be evaluated for calls that are inlined into {into}: the compiler has optimized"
                f" out '{name.text}' there; put the point at a line that calls {call[2]}, or compile with -fno-inline"
            )


def _block_of(call: BlockKey, address: int) -> Optional[gdb.Block]:
    """Return the block of the inlined *call* at *address*; a copy of a call has another start than its block."""
    found, block = None, gdb.block_for_pc(address)
    while block is not None and not block.is_static:
        if block.function is not None and block_key(block)[1:] == call[1:]:
            found = block
        block = block.superblock
    return found


class _Scope:
    """The variables of one inlined call."""

    def __init__(self, frame: gdb.Frame, block: gdb.Block) -> None:
        self._frame = frame
        self._block = block
        self._callers = block_of(frame)

    def replacement(self, name: str) -> Optional[str]:
        """Return what stands for *name* in an expression that is evaluated in the caller; None for the name itself."""
        symbol, is_member = gdb.lookup_symbol(name, self._block)
        if is_member:
            return f"({self.replacement('this')}->{name})"
        if symbol is None:
            if name == "this" or self._is_callers(name):
                raise gdb.error(f'No symbol "{name}" in current context.')
            return None
        is_value = symbol.is_variable or symbol.is_argument or symbol.is_constant
        return self._stand_in(name, symbol) if is_value else None

    def _is_callers(self, name: str) -> bool:
        if self._callers is None:
            return False
        symbol, is_member = gdb.lookup_symbol(name, self._callers)
        return is_member or (symbol is not None and (symbol.needs_frame or symbol.is_argument))

    def _stand_in(self, name: str, symbol: gdb.Symbol) -> str:
        value = symbol.value(self._frame)
        address = value.address
        gdb.set_convenience_variable(_PREFIX + name, value if address is None else address)
        return f"${_PREFIX}{name}" if address is None else f"(*${_PREFIX}{name})"
