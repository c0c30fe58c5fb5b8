"""The reports of glibc's malloc: malloc_info's XML and malloc_stats' text.

Source of the formats: malloc_info(3), malloc_stats(3), and glibc, malloc/malloc.c, __malloc_stats.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.malloc_info import MallocInfoSums, parse_malloc_info
from gdbmem.formats.reports.rows import Row, Table, table_profile, truncated
from gdbmem.formats.stacks import FREE, HELD, IN_USE, StackProfile
from gdbmem.text import printable

_XML = re.compile(rb'<malloc version="1">.*?</malloc>', re.DOTALL)
_COUNT = rb" *= *([0-9]{1,20})\s*?\n"
_ARENA = re.compile(rb"Arena ([0-9]+):\r?\nsystem bytes" + _COUNT + rb"in use bytes" + _COUNT)
_WRAP = 1 << 32
_TOTAL = re.compile(rb"Total \(incl\. mmap\):\r?\nsystem bytes" + _COUNT + rb"in use bytes" + _COUNT)


_MOST_MAPPED = re.compile(rb"max mmap bytes" + _COUNT)


def read_malloc_info(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read the last document in *data*. Raises InputError if it was cut, or does not add up."""
    found = _XML.findall(bytes(data))
    if not found:
        raise truncated(source, "</malloc>")
    info = parse_malloc_info(found[-1].decode("utf-8", "replace").replace("\r\n", "\n"))
    used: list[Row] = []
    free: list[Row] = []
    for number, arena in enumerate(info.arenas):
        name = f"arena {number}"
        in_use = arena.system_bytes - arena.fast_bytes - arena.rest_bytes
        if in_use < 0:
            raise _differs(source, f"{name} has more free memory than it holds")
        used.append(Row(("in use", name), in_use))
        rows = (
            ("free, in fastbins", arena.fast_bytes, arena.fast_count),
            ("free", arena.rest_bytes, arena.rest_count),
        )
        free += [Row((text, name), size, count) for text, size, count in rows]
    used.append(Row(("in use, mapped individually",), info.mmapped_bytes, info.mmapped_count))
    if not _adds_up(info.arenas, info.total):
        raise _differs(source, "its arenas don't add up to its total")
    total = info.total.system_bytes + info.mmapped_bytes
    tables = {HELD: Table([*used, *free], total), IN_USE: Table(used), FREE: Table(free)}
    return table_profile(source, "malloc_info", tables, metric)


def _adds_up(arenas: Sequence[MallocInfoSums], total: MallocInfoSums) -> bool:
    return tuple(map(sum, zip(*arenas))) == tuple(total)


def read_malloc_stats(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read the last statistics in *data*. Raises InputError if they were cut, or don't add up."""
    content = bytes(data)
    start = content.rfind(b"Arena 0:")
    arenas, total = list(_ARENA.finditer(content, max(start, 0))), _TOTAL.search(content, max(start, 0))
    if total is None or not arenas:
        raise truncated(source, "'Total (incl. mmap)'")
    most = _MOST_MAPPED.search(content, total.end())
    if most is not None and int(most[1]) >= _WRAP:
        raise _differs(source, "it counts in 32 bits, and 4 GiB or more were mapped at once")
    used: list[Row] = []
    free: list[Row] = []
    for arena in arenas:
        name, system, in_use = f"arena {int(arena[1])}", int(arena[2]), int(arena[3])
        if in_use > system:
            raise _differs(source, f"{name} has more memory in use than it holds, as if it passed 4 GiB")
        used.append(Row(("in use", name), in_use))
        free.append(Row(("free", name), system - in_use))
    in_arenas = sum(row.bytes for row in used)
    system, mapped = int(total[1]), int(total[2]) - in_arenas
    if mapped < 0 or system != in_arenas + sum(row.bytes for row in free) + mapped:
        raise _differs(source, "its arenas don't add up to its total, as if that passed 4 GiB")
    used.append(Row(("in use, mapped individually",), mapped))
    text = f"malloc_stats counts in 32 bits: of each size in {printable(source)} a multiple of 4 GiB may be missing"
    notices = [Notice("counts-in-32-bits", f"{text} (malloc_info has all digits)")]
    tables = {HELD: Table([*used, *free], system), IN_USE: Table(used), FREE: Table(free)}
    return table_profile(source, "malloc_stats", tables, metric, notices=notices)


def _differs(source: str, why: str) -> InputError:
    return InputError(
        f"{printable(source)} can't be divided: {why}",
        slug="totals-differ",
        hint="malloc_info(0, FILE) writes all sums with all their digits",
    )
