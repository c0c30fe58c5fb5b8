"""The functions that an address lies in: those inlined there, and the one whose code it is."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Optional

import gdb

from gdbmem.debugger.gdb_text import symbol_at
from gdbmem.patterns import lazy_pattern

BlockKey = tuple[int, int, str]  # start, end, function

_WITHIN = lazy_pattern(r" \+ \d+$|\.cold(?:\.\d+)?$")  # not at the address at which a symbol begins
_INLINED = lazy_pattern(
    r"^\[\(block \*\) \S+\] 0x([0-9a-f]+)\.\.0x([0-9a-f]+)\n  entry pc: 0x([0-9a-f]+)\n  inline function: (.*)$",
    re.MULTILINE,
)


def function_blocks(address: int, names: Optional[dict[int, str]] = None) -> list[gdb.Block]:
    """Return the blocks of the functions at *address*: those inlined, innermost first, then the one around them.

    A lambda or a method of a local class is declared within a function, whose block gdb has around it, but its
    code is its own: the function did not inline it. gdb 18 gives an inlined function without code one byte after the
    function that it is inlined into. *names* keeps gdb's names of addresses from one query to the next.
    """
    found: list[gdb.Block] = []
    block = gdb.block_for_pc(address)
    while block is not None and not block.is_static and not block.is_global:
        if block.function is not None:
            found.append(block)
        block = block.superblock
    while found and not found[-1].start <= address < found[-1].end:
        found.pop()
    ended = [at for at, one in enumerate(found) if not one.start <= address < one.end]
    found = found[ended[-1] + 1 if ended else 0 :]
    return found[: _out_of_line(found, {} if names is None else names)] if len(found) > 1 else found


def _out_of_line(blocks: list[gdb.Block], names: dict[int, str]) -> int:
    """Return how many of *blocks* there are up to the first that is a function's own.

    The range of a block is not sufficient: that of a function in two pieces spans whatever lies between them.
    """
    for block in blocks:
        start = block.start
        if start not in names:
            names[start] = symbol_at(start)
        name = names[start]
        if name and not _WITHIN.search(name):
            # A function inlined at the very beginning starts there, too. A colder part may lie in front of both.
            return max(
                at + 1
                for at, other in enumerate(blocks)
                if start in (other.start, int(other.function.value().address))
            )
    return len(blocks)


def block_key(block: gdb.Block) -> BlockKey:
    """Return a key that identifies *block*: gdb makes a new object for the same block each time."""
    return block.start, block.end, str(block.function)


def inlined_entries(address: int) -> Mapping[BlockKey, int]:
    """Return at which address each of the inlined functions at *address* is entered; empty before gdb 16.

    From then on gdb takes this from the debug information. It need not be where the function's code begins.
    """
    if not _has_entries():
        return {}
    said = gdb.execute(f"maintenance info blocks {address:#x}", to_string=True)
    return {
        (int(one[1], 16), int(one[2], 16), one[4]): int(one[3], 16) for one in _INLINED.finditer(str(said))
    }


@functools.cache
def _has_entries() -> bool:
    """Return whether gdb has the command. One that fails, in an event or as a breakpoint is hit, loses the program."""
    return bool(str(gdb.execute("complete maintenance info blocks", to_string=True)).strip())
