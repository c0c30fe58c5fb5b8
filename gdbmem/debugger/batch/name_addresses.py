"""Names for addresses, in a batch gdb: function, file, line and inlined frames of each."""

from __future__ import annotations

import json
import os
from typing import Optional

import gdb

from gdbmem.debugger.location import function_blocks
from gdbmem.debugger.terminal import file_name, source_file, symbol_at
from gdbmem.patterns import lazy_pattern

_OFFSET = lazy_pattern(r" \+ \d+$")

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
            named.append((function.name, file, line if file else None, number + 1 < len(functions)))
            # For an inlined function gdb keeps the place of the call, not that of the definition.
            file, line = self._file(function.symtab), function.line or None
        return named

    def _symbol(self, address: int) -> list[Named]:
        name = _OFFSET.sub("", symbol_at(address))
        return [(name, None, None, False)] if name else []

    def _file(self, symtab: gdb.Symtab) -> Optional[str]:
        name = file_name(symtab)
        if name == "?":
            return None
        if name not in self._files:
            full = name if name.startswith("/") else source_file(symtab) or name
            # Relative folders of a distribution's build do not exist here: use the name as the compiler recorded it.
            self._files[name] = full if os.path.exists(full) else name  # noqa: PTH110
        return self._files[name]
