"""Code behind the names of functions: chosen when the program is loaded (IFUNC), or shared by several (folded)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Optional

import gdb

from gdbmem.debugger.location import real_pid
from gdbmem.debugger.program import GdbMemory
from gdbmem.debugger.terminal import symbol_at
from gdbmem.errors import UsageError
from gdbmem.linux.elf.objects import chosen_code, folded_with, images, plain_name
from gdbmem.linux.memory.maps import mappings_of
from gdbmem.symbols.function_names import split_function


def code_chosen_for(location: str) -> str:
    """Return where the breakpoint goes: *location*, or the code that was chosen if it is an indirect function (IFUNC).

    Raises NotChosenError if the program has not chosen it: gdb would stop in the function that does.
    """
    try:
        function = gdb.parse_and_eval(f"&{location}")
        places = {place.pc for place in gdb.decode_line(location)[1] or ()}
    except (gdb.error, ValueError):
        return location
    if "gnu-indirect-function" not in str(function.type):
        return location
    resolver = int(function)
    if resolver not in places:
        return location
    code = _code_of(resolver)
    name = symbol_at(code) if code is not None else ""
    if not name or " + " in name or "@plt" in name:
        raise NotChosenError(
            f"'{location}' is an indirect function (IFUNC): the program chooses its code when it is loaded",
            hint="type 'break main' and 'continue' first, or put the point on the function that is chosen",
        )
    return f"*{code:#x}"


class NotChosenError(UsageError):
    """An indirect function has no code yet."""


def _code_of(resolver: int) -> Optional[int]:
    pid = real_pid()
    if pid is None:
        return None
    memory, mappings = GdbMemory(), mappings_of(pid)
    mapped = next((one for one in mappings if one.start <= resolver < one.end), None)
    for image in images(memory, mappings) if mapped is not None else ():
        if mapped is not None and image.name == mapped.name:
            return chosen_code(memory, image.start, image.bias, resolver)
    return None


def names_of_code(block: gdb.Block) -> set[str]:
    """Return the names of all functions with the code of *block*, if the linker may have folded some."""
    symtab, address = block.function.symtab, int(block.function.value().address)
    symbol = symbol_at(address, demangled=False)
    try:
        names = folded_with(Path(symtab.objfile.filename), symbol)
    except (OSError, ValueError, struct.error, AttributeError):
        return set()
    if names is None:
        return set()
    # Some linkers leave out the symbols of folded functions that are static, but not what describes them.
    described = [
        one for part in (symtab.static_block(), symtab.global_block()) for one in part if one.is_function
    ]
    here = {str(one) for one in described if int(one.value().address) == address}
    found = {"::".join(split_function(name).parts) for name in (*map(plain_name, [symbol, *names]), *here)}
    return found if len(found) > 1 else set()
