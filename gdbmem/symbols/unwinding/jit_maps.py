"""Names of the code that a JIT compiler made: /tmp/perf-PID.map, which node, Java, Python and others write.

Source: Linux, tools/perf/Documentation/jit-interface.txt: lines ``START SIZE NAME``, hexadecimal.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress

from gdbmem.errors import TargetError
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.process.status import own_tid
from gdbmem.patterns import lazy_pattern

_LARGEST_BYTES = 64 << 20
_LONGEST_NAME = 1000
_LINE = lazy_pattern(rb"^(?:0x)?([0-9a-f]{1,16}) (?:0x)?([0-9a-f]{1,16}) ([^\n]+)$", re.M | re.I)


def jit_names(pid: int, addresses: Iterable[int]) -> dict[int, str]:
    """Return the names of those of *addresses* that the map of process *pid* has.

    The file is one that the process may change: it is read with the process's own rights, if it is a regular file.
    """
    with suppress(OSError, TargetError), TargetFiles(pid) as files:
        with files.open(f"/tmp/perf-{own_tid(pid)}.map") as stream:
            data = stream.read(_LARGEST_BYTES)
        return _named(data, addresses)
    return {}


def _named(data: bytes, addresses: Iterable[int]) -> dict[int, str]:
    rows = [(int(m[1], 16), int(m[2], 16), m[3]) for m in _LINE.finditer(data)]
    # If two overlap, the one written later is valid.
    last = {start: (size, name) for start, size, name in rows}
    starts = sorted(last)
    names = {}
    for address in addresses:
        at = bisect_right(starts, address) - 1
        if at >= 0 and address < starts[at] + last[starts[at]][0]:
            names[address] = last[starts[at]][1][:_LONGEST_NAME].decode("utf-8", "surrogateescape")
    return names
