"""Where a step that was interrupted in a call, or in an inlined function, comes back to the code of its own frame.

gdb's `next` would now step through the inlined function, line by line; the step that was interrupted runs over it.
"""

from __future__ import annotations

import itertools
from typing import Optional

import gdb

from gdbmem.debugger.function_blocks import BlockKey, block_key, function_blocks
from gdbmem.debugger.gdb_text import source_file
from gdbmem.debugger.inlined_code import Kind, LargeFunctionError, read_inlined_code
from gdbmem.debugger.memwatch.driving.function_code import FunctionCode
from gdbmem.debugger.memwatch.driving.loop_lines import Ends, own_frame

Line = tuple[Optional[str], Optional[int]]  # file, number

_MOST_INSTRUCTIONS = 1 << 14  # of inlined functions


def return_ends(frame: gdb.Frame, call: gdb.Frame) -> Optional[Ends]:
    """Return where *call*, which *frame* has made, comes back; None without debug information.

    A stop of `until` would be inside a function that is inlined from there on; a step ends in front of it.
    """
    back = call.older().pc()
    blocks = function_blocks(back)
    return _ends(FunctionCode(frame.architecture(), blocks[-1]), {back}, calls=True) if blocks else None


def inlined_ends(frame: gdb.Frame, line: Line) -> Optional[Ends]:
    """Return where a step of *frame* from *line* may end, the selected thread being in a function inlined into it.

    That is where control leaves these functions, or begins one that another line calls. None if the thread is in
    none, or if a jump there goes to a computed address.
    """
    here = gdb.newest_frame().pc()
    key, blocks = _function_of(frame), function_blocks(here)
    if key is None or key not in map(block_key, blocks[1:]):
        return None
    code = FunctionCode(frame.architecture(), blocks[-1])
    seen, todo, exits = {here}, [here], set()
    calls = False
    while todo:
        one = code.instruction(todo.pop())
        calls = calls or one.is_call
        if not (one.is_known or one.returns) or len(seen) > _MOST_INSTRUCTIONS:
            return None
        for address in one.successors():
            if address in seen:
                continue
            seen.add(address)
            if _goes_on(code, address, key, line):
                todo.append(address)
            else:
                exits.add(address)
    return _ends(code, exits, calls=calls)


def finish_ends(frame: gdb.Frame) -> Optional[Ends]:
    """Return where the inlined call that *frame* shows is left; None if it shows none, or that can't be seen.

    gdb's own `finish` stops where another piece of its code begins, too.
    """
    key = _function_of(frame) if frame.type() == gdb.INLINE_FRAME else None
    is_newest = own_frame(frame) == own_frame(gdb.newest_frame())
    blocks = function_blocks(
        frame.pc() if is_newest else frame.pc() - 1
    )  # the call is in front of where it returns
    if key is None or key not in map(block_key, blocks[:-1]):
        return None
    try:
        code = read_inlined_code(frame.architecture(), blocks[-1], lambda block: block_key(block) == key)
    except LargeFunctionError:
        return None
    if code is None or code.unclear:
        return None
    exits = [at for at, one in code.passages.items() if one.kind is Kind.ARRIVES and not one.is_middle]
    return Ends(sorted(exits), int(blocks[-1].function.value().address))


def _goes_on(code: FunctionCode, address: int, key: BlockKey, line: Line) -> bool:
    """Return whether a step from *line* of the function with *key* continues in a function inlined at *address*."""
    blocks = function_blocks(address)
    inlined = list(itertools.takewhile(lambda block: block_key(block) != key, blocks))
    if not inlined or len(inlined) == len(blocks):
        return False
    symbol = inlined[-1].function
    is_called_there = (source_file(symbol.symtab), symbol.line) == line
    return is_called_there or not code.begins_calls(address, inlined)


def _ends(code: FunctionCode, addresses: set[int], *, calls: bool) -> Ends:
    # A caught exception continues at another statement.
    handlers = {address for address, _ in code.statements()} if calls and _has_exceptions() else set()
    return Ends(sorted(addresses | handlers), code.entry)


def _has_exceptions() -> bool:
    try:
        return bool(gdb.parse_and_eval("&__cxa_begin_catch"))
    except gdb.error:
        return False


def _function_of(frame: gdb.Frame) -> Optional[BlockKey]:
    try:
        block = frame.block()
    except RuntimeError:  # no debug information
        return None
    while block is not None and block.function is None:
        block = block.superblock
    return block_key(block) if block is not None else None
