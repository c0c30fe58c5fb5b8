"""Names of variables and vtables by the symbols of the files that are loaded."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import BinaryIO, Callable

from gdbmem.files import open_regular
from gdbmem.linux.elf.headers import Image
from gdbmem.symbols.elf_files import symbol_tables

_OBJECT = 1  # STT_OBJECT
_MOST_BYTES = 256 << 20  # of symbol tables, of all files: a browser has 100 MiB


class ObjectSymbols:
    """The variables that symbols name, in all loaded files; these are read when they are first asked for."""

    prefix = b""  # of the symbols that are kept, which is cut off

    def __init__(self, images: Sequence[Image], opened: Callable[[str], BinaryIO] = open_regular) -> None:
        self._images = sorted(images, key=lambda image: image.start)
        self._open = opened
        self._left = _MOST_BYTES
        self._known: dict[str, list[tuple[int, int, str]]] = {}

    def name(self, address: int) -> str:
        """Return the mangled name of the symbol that contains *address*; "" if there is none."""
        return self.place(address)[0]

    def place(self, address: int) -> tuple[str, int]:
        """Return name() with the distance from its beginning."""
        number = bisect_right([image.start for image in self._images], address) - 1
        if number < 0:
            return "", 0
        image = self._images[number]
        if image.name not in self._known:
            self._known[image.name] = self._read(image.name)
        found = self._known[image.name]
        at = bisect_right(found, (address - image.bias, 1 << 64, "")) - 1
        if at >= 0 and found[at][0] <= address - image.bias < found[at][1]:
            return found[at][2], address - image.bias - found[at][0]
        return "", 0

    def _read(self, file: str) -> list[tuple[int, int, str]]:
        found = set()
        for symbols, names in symbol_tables(lambda: self._open(file), max(self._left, 0)):
            self._left -= len(symbols) + len(names)
            for name, kind, _, _, value, size in struct.iter_unpack("<IBBHQQ", symbols):
                if size and kind & 15 == _OBJECT and names.startswith(self.prefix, name):
                    text = names[name + len(self.prefix) : names.index(b"\0", name)]
                    found.add((value, value + size, text.decode("ascii", "replace")))
        return sorted(found)


class VtableSymbols(ObjectSymbols):
    """The vtables that symbols name: for programs that keep no type information."""

    prefix = b"_ZTV"
