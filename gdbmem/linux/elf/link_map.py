"""The dynamic linker's list of loaded libraries in a process, whose names a debugger uses to find the files.

Source: glibc, elf/link.h (struct r_debug, struct link_map); elf(5).
"""

from __future__ import annotations

import struct

from gdbmem.linux.process.auxv import auxiliary_vector
from gdbmem.model.memory import Memory, MemoryUnreadable, read_text, words_at

_AT_PHDR, _AT_PHENT, _AT_PHNUM = 3, 4, 5
_PT_DYNAMIC, _PT_PHDR, _DT_DEBUG = 2, 6, 21
_ROW = 56  # bytes of a segment's description
_MOST = 4096  # libraries, and bytes of a name


def loaded_by(pid: int, memory: Memory) -> list[tuple[int, bytes]]:
    """Return the address of the dynamic section, and the name, of each library in the list of *pid*.

    [] if the process has no such list, or not yet. The data is under the control of the process.
    """
    try:
        entries = auxiliary_vector(pid)
        at = _list(memory, entries[_AT_PHDR], entries[_AT_PHENT], entries[_AT_PHNUM])
        found: list[tuple[int, bytes]] = []
        while at and len(found) < _MOST:
            _, name, dynamic, at = words_at(memory, at, 4)
            found.append((dynamic, read_text(memory, name, _MOST) or b""))
    except (OSError, struct.error, KeyError, MemoryUnreadable):
        return []
    return found


def _list(memory: Memory, table: int, size: int, count: int) -> int:
    if size != _ROW:
        raise MemoryUnreadable(table, "it is not a table of segments")
    data = memory.read(table, size * min(count, 512))
    rows = [struct.unpack_from("<IIQQQQQQ", data, at) for at in range(0, len(data), size)]
    places = {row[0]: (row[3], row[6]) for row in rows}
    bias = table - places[_PT_PHDR][0]
    start, size = places[_PT_DYNAMIC]
    words = words_at(memory, bias + start, min(size, 1 << 16) // 16 * 2)
    debug = dict(zip(words[::2], words[1::2])).get(_DT_DEBUG, 0)
    return words_at(memory, debug, 2)[1] if debug else 0
