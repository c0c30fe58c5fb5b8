"""File offsets of the code of a program that ran under valgrind, whose files have no map of the memory."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import IO

from gdbmem.files import open_regular
from gdbmem.symbols.elf_files import Elf
from gdbmem.symbols.identity import SURE, ends_call

_LIBRARIES_FROM = 0x4000000  # their addresses depend on free space, and are in no file
_LOADED_AT = (0x108000, _LIBRARIES_FROM)  # a position-independent program: up to valgrind 3.26, and since
_ET_EXEC, _ET_DYN = 2, 3
_X86_64 = 62


def offsets_in(elf: Elf, addresses: Iterable[int]) -> Mapping[int, int]:
    """Return the place in the file *elf* of each of *addresses*, which are in calls; {} unless they surely are."""
    every = list(addresses)
    try:
        with open_regular(elf.path) as stream:
            kind, machine = struct.unpack_from("<HH", stream.read(20), 16)
            if machine != _X86_64 or kind not in (_ET_EXEC, _ET_DYN):
                return {}
            if kind == _ET_EXEC:
                return _calls(elf, stream, every, 0)
            # The loader may be there as well: its own frames are not worth the start of a gdb.
            for bias in _LOADED_AT if elf.is_program else _LOADED_AT[:1]:
                found = _calls(elf, stream, every, bias)
                if found:
                    return found
    except (OSError, struct.error):
        pass
    return {}


def _calls(elf: Elf, stream: IO[bytes], addresses: Iterable[int], bias: int) -> Mapping[int, int]:
    """Return the places of the calls where the program was loaded at *bias*; {} if they surely are none."""
    found = {address: elf.offset(address - bias) for address in addresses}
    # Below the libraries there is the program alone; above, what lies in it.
    wanted = [
        at for at, offset in found.items() if at < _LIBRARIES_FROM or (offset is not None and at >= bias)
    ]
    places = {address: offset for address in wanted for offset in [found[address]] if offset is not None}
    calls = {
        address: offset
        for address, offset in places.items()
        if ends_call(stream.fileno(), _X86_64, offset + 1)
    }
    return calls if wanted and len(calls) >= SURE * len(wanted) else {}
