"""Names of vtables by the symbols of the files that are loaded: for programs that keep no type information."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from gdbmem.launch.elf import symbol_tables
from gdbmem.linux.elf import Image

_PREFIX = b"_ZTV"


class VtableSymbols:
    """The vtables that symbols name, in all loaded files; these are read when they are first asked for."""

    def __init__(self, images: Sequence[Image], root: str = "") -> None:
        self._images = sorted(images, key=lambda image: image.start)
        self._root = root
        self._known: dict[str, list[tuple[int, int, str]]] = {}

    def name(self, address: int) -> str:
        """Return the mangled name of the class whose vtable *address* lies in; "" where no symbol says it."""
        number = bisect_right([image.start for image in self._images], address) - 1
        if number < 0:
            return ""
        image = self._images[number]
        if image.name not in self._known:
            self._known[image.name] = _vtables(Path(f"{self._root}{image.name}"))
        found = self._known[image.name]
        at = bisect_right(found, (address - image.bias, 1 << 64, "")) - 1
        if at >= 0 and found[at][0] <= address - image.bias < found[at][1]:
            return found[at][2]
        return ""


def _vtables(path: Path) -> list[tuple[int, int, str]]:
    found = set()
    for symbols, names in symbol_tables(path):
        for name, _, _, _, value, size in struct.iter_unpack("<IBBHQQ", symbols):
            if size and names[name : name + 4] == _PREFIX:
                text = names[name + 4 : names.index(b"\0", name)]
                found.add((value, value + size, text.decode("ascii", "replace")))
    return sorted(found)
