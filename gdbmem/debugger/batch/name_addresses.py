"""Names for addresses, in a batch gdb: function, file, line and inlined frames of each."""

from __future__ import annotations

import json
import os
import re
from typing import Optional

import gdb

from gdbmem.debugger.function_blocks import function_blocks
from gdbmem.patterns import lazy_pattern

_SYMBOL = lazy_pattern(r"(.+?)(?: \+ \d+)? in section \S+(?: of .*)?", re.DOTALL)

# function, file, line, is it inlined
Named = tuple[Optional[str], Optional[str], Optional[int], bool]


def answer() -> None:
    """Read addresses from one file and write their frames to another; the environment has both paths."""
    with open(os.environ["GDBMEM_ADDRESSES"], encoding="ascii") as stream:  # noqa: PTH123
        addresses = json.load(stream)
    namer = Namer()
    frames = {address: namer.frames(address) for address in addresses}
    with open(os.environ["GDBMEM_NAMES"], "w", encoding="ascii") as stream:  # noqa: PTH123
        json.dump(frames, stream)


class Namer:
    """Names addresses of the program that gdb has loaded."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}

    def frames(self, address: int) -> list[Named]:
        """Return the frames at *address*, innermost first; none if nothing is known."""
        position = gdb.find_pc_line(address)
        functions = [block.function for block in function_blocks(address)]
        if position.symtab is None or not functions:
            return self._symbol(address)
        file, line = self._file(position.symtab), position.line or None
        named: list[Named] = []
        for number, function in enumerate(functions):
            named.append((function.name, file, line, number + 1 < len(functions)))
            # For an inlined function gdb keeps the place of the call, not that of the definition.
            file, line = self._file(function.symtab), function.line or None
        return named

    def _symbol(self, address: int) -> list[Named]:
        match = _SYMBOL.fullmatch(gdb.execute(f"info symbol {address:#x}", to_string=True).strip())
        return [(match[1], None, None, False)] if match else []

    def _file(self, symtab: gdb.Symtab) -> str:
        name = str(symtab.filename)
        if name not in self._files:
            full = name if name.startswith("/") else str(symtab.fullname())
            # Relative folders of a distribution's build do not exist here: use the name as the compiler recorded it.
            self._files[name] = full if os.path.exists(full) else name  # noqa: PTH110
        return self._files[name]
