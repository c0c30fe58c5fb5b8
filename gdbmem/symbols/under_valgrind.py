"""File offsets of the code of a program that ran under valgrind, whose files have no map of the memory."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import IO

from gdbmem.files import open_regular
from gdbmem.symbols.elf_files import Elf

_LOADED_AT = 0x108000  # a position-independent program; libraries go where there is room, which no file tells
_LIBRARIES_FROM = 0x4000000
_ET_EXEC, _ET_DYN = 2, 3
_X86_64 = 62
_SURE = 0.9  # of the addresses stand behind a call; in another build, or elsewhere, one in a hundred does


def offsets_in(elf: Elf, addresses: Iterable[int]) -> Mapping[int, int]:
    """Return the place in the file *elf* of each of *addresses*, which are in calls; {} unless they surely are."""
    wanted = [address for address in addresses if address < _LIBRARIES_FROM]
    try:
        with open_regular(elf.path) as stream:
            kind, machine = struct.unpack_from("<HH", stream.read(20), 16)
            if machine != _X86_64 or kind not in (_ET_EXEC, _ET_DYN):
                return {}
            bias = _LOADED_AT if kind == _ET_DYN else 0
            found = {address: elf.offset(address - bias) for address in wanted}
            places = {address: offset for address, offset in found.items() if offset is not None}
            calls = {address: offset for address, offset in places.items() if _is_call(stream, offset + 1)}
    except (OSError, struct.error):
        return {}
    return calls if wanted and len(calls) >= _SURE * len(wanted) else {}


def _is_call(stream: IO[bytes], end: int) -> bool:
    """Tell whether an instruction that calls ends at *end*: CALL rel32, or CALL r/m64 in one of its lengths."""
    if end < 7:
        return False
    stream.seek(end - 7)
    code = stream.read(7)
    if len(code) < 7:
        return False
    return code[-5] == 0xE8 or any(code[-n] == 0xFF and code[1 - n] >> 3 & 7 == 2 for n in (2, 3, 4, 6, 7))
