"""Names for addresses and classes: in this gdb, and as what a batch gdb is started for (symbols/batch_gdb.py)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

import gdb

from gdbmem.debugger.location import function_blocks
from gdbmem.debugger.terminal import file_name, source_file, symbol_at
from gdbmem.errors import Notice
from gdbmem.formats.addresses import Binary, MemoryMap, Symbols, parse_maps
from gdbmem.linux.memory.maps import maps_text
from gdbmem.model.calltree import Frame

_OFFSET = re.compile(r" \+ \d+$")

# function, file, line, is it inlined
Named = tuple[Optional[str], Optional[str], Optional[int], bool]


def name_addresses() -> None:
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


# The characters of a mangled name: none can be mistaken for an option or a second word.
_MANGLED = re.compile(r"[A-Za-z0-9_.$]+")
_PREFIX = "typeinfo name for "


def class_names(mangled: Iterable[str]) -> dict[str, str]:
    """Return the demangled name of each of *mangled* (as std::type_info has them) that can be demangled."""
    found = {}
    for name in mangled:
        if not _MANGLED.fullmatch(name):
            continue
        try:
            said = str(gdb.execute(f"demangle -l c++ -- _ZTS{name}", to_string=True)).strip()
        except gdb.error:
            continue
        if said.startswith(_PREFIX):
            found[name] = said[len(_PREFIX) :]
    return found


def demangle_file() -> None:
    """Read mangled names from one file and write the demangled ones to another, in a batch gdb."""
    with open(os.environ["GDBMEM_MANGLED"], encoding="ascii") as stream:  # noqa: PTH123
        names = json.load(stream)
    with open(os.environ["GDBMEM_NAMES"], "w", encoding="utf-8") as stream:  # noqa: PTH123
        json.dump(class_names(names), stream)


class LiveSymbols(Symbols):
    """Names addresses in the files that process *pid* has mapped: those of now, which gdb has."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._namer = Namer()
        self._known: dict[tuple[Binary, int], Sequence[Frame]] = {}

    def frames(
        self, wanted: Mapping[Binary, Iterable[int]], *, recorded: float = 0.0, are_calls: bool = False
    ) -> tuple[Mapping[tuple[Binary, int], Sequence[Frame]], Sequence[Notice]]:
        """Return the frames, innermost first, of file offsets in binaries; unknown ones are omitted."""
        places = [(binary, offset) for binary, offsets in wanted.items() for offset in offsets]
        if any(place not in self._known for place in places):
            maps = self._maps()
            for place in places:
                if place not in self._known:
                    self._known[place] = self._frames(maps, *place)
        return {place: self._known[place] for place in places if self._known[place]}, ()

    def _maps(self) -> MemoryMap:
        try:
            return parse_maps(maps_text(self._pid).splitlines())
        except OSError:
            return MemoryMap(())

    def _frames(self, maps: MemoryMap, binary: Binary, offset: int) -> Sequence[Frame]:
        for region in maps.regions:
            at = offset - region.offset
            if region.binary.path == binary.path and 0 <= at < region.end - region.start:
                named = self._namer.frames(region.start + at)
                return [Frame(f, file, line, None if file else binary.path, is_inlined)
                        for f, file, line, is_inlined in named]  # fmt: skip
        return ()
