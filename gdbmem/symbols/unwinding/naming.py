"""Names of the places in code that recorded call paths go through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Callable, Optional

from gdbmem.errors import Notice
from gdbmem.formats.addresses import Binary, Symbols
from gdbmem.model.profiles.calltree import Frame
from gdbmem.patterns import lazy_pattern
from gdbmem.symbols.unwinding.call_paths import Place

_NO_FILE = "memory without a file"
# py::function:/path/file.py of Python, JS:*function /path/file.js:2:17 of node
_IN_NAMES = (
    lazy_pattern(r"py::(?P<function>[^\n]+):(?P<file>[^\n:]+)"),
    lazy_pattern(
        r"(?:JS|Function|LazyCompile|Eval|Script):[*^~+]?(?P<function>\S+)"
        r" (?P<file>[^\n]+):(?P<line>\d{1,9}):\d{1,9}"
    ),
)


def name_places(
    places: Sequence[Place],
    symbols: Symbols,
    may_open: Callable[[Binary], bool],
    jit: Mapping[tuple[int, int], str],
) -> tuple[list[Sequence[Frame]], Sequence[Notice]]:
    """Return the frames of each of *places*, innermost first, and notices.

    Files that *may_open* refuses are not read. *jit* names places in no file, by process and address.
    """
    wanted: dict[Binary, set[int]] = {}
    for place in places:
        if place.binary is not None and place.binary.path.startswith("/") and may_open(place.binary):
            wanted.setdefault(place.binary, set()).add(place.offset)
    found, notices = symbols.frames(wanted) if wanted else ({}, ())
    chains: list[Sequence[Frame]] = []
    for place in places:
        if place.binary is None:
            chains.append((_jit_frame(jit.get((place.pid, place.offset)), place.offset),))
        else:
            plain = Frame(f"0x{place.offset:x}", object=place.binary.path)
            chains.append(found.get((place.binary, place.offset)) or (plain,))
    return chains, notices


def _jit_frame(name: Optional[str], address: int) -> Frame:
    """Return the frame of code that no file holds: Python and node include the source in the name."""
    for pattern in _IN_NAMES:
        match = pattern.fullmatch(name or "")
        if match:
            line = match.groupdict().get("line")
            return Frame(match["function"], match["file"], int(line) if line else None)
    return Frame(name or f"0x{address:x}", object=_NO_FILE)
