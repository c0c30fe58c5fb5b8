"""The statistics that allocators print: gperftools' tcmalloc, jemalloc, mimalloc, and PyTorch's memory_summary().

Source of the formats: gperftools, tcmalloc.cc; jemalloc(3), stats; mimalloc, stats.c; PyTorch, cuda/memory.py.
"""

from __future__ import annotations

import json
import re
from typing import Any, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.reports.rows import UNITS, Row, Table, table_profile, truncated
from gdbmem.formats.stacks import COMMITTED, FREE, HELD, IN_USE, RESERVED, RESIDENT, StackProfile, check_count
from gdbmem.json_values import MISFITS
from gdbmem.text import printable

_TCMALLOC = re.compile(rb"MALLOC: ([ +=]) +([0-9]{1,20}) \([^)\n]*\) ([^\r\n]+)\r?\n")
_TCMALLOC_USED = "Bytes in use by application"
_TCMALLOC_SUM, _TCMALLOC_ALL = "Actual memory used (physical + swap)", "Virtual address space used"
_JEMALLOC = re.compile(
    rb"\nAllocated: ([0-9]{1,20}), active: ([0-9]{1,20}), metadata: ([0-9]{1,20})(?: \(n_thp [0-9]+\))?,"
    rb" resident: ([0-9]{1,20}), mapped: [0-9]{1,20}(?:, retained: [0-9]{1,20})?\r?\n"
)
_MIMALLOC = re.compile(
    rb" *(reserved|committed):((?: +-?[0-9.]+(?: [KMGT]?i?B)?){4,5}) *(?:ok|not all freed!)?\r?\n"
)
_AMOUNT = re.compile(r"(-?[0-9.]+)(?: ([KMGT]?)i?B)?")
_TORCH_DEVICE = re.compile(rb"PyTorch CUDA memory summary, device ID ([0-9]+)")
_TORCH = re.compile(rb"\| *([A-Za-z][^|\n]*?) *\| +([0-9]{1,18}) ([KMGTP]?)i?B +\|")


def read_tcmalloc_stats(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read the last statistics in *data*. Raises InputError if they were cut, or don't add up."""
    content = bytes(data)
    start = max(content.rfind(_TCMALLOC_USED.encode()), 0)
    start = content.rfind(b"\n", 0, start) + 1
    found = [
        (sign, int(size), name.decode("utf-8", "replace"))
        for sign, size, name in _TCMALLOC.findall(content, start)
    ]
    sums = {name: size for sign, size, name in found if sign == b"="}
    if _TCMALLOC_SUM not in sums or _TCMALLOC_ALL not in sums or found[0][2] != _TCMALLOC_USED:
        raise truncated(source, f"'{_TCMALLOC_ALL}'")
    rows = [Row((_plain(name),), size) for sign, size, name in found if sign != b"="]
    released = [row for row in rows if "released to OS" in row.names[0]]
    held = [row for row in rows if row not in released]
    tables = {
        HELD: Table(held, sums[_TCMALLOC_SUM]),
        IN_USE: Table(rows[:1]),
        FREE: Table([row for row in held if "freelist" in row.names[0]]),
        RESERVED: Table(rows, sums[_TCMALLOC_ALL]),
    }
    return table_profile(source, "tcmalloc-stats", tables, metric)


def _plain(name: str) -> str:
    text = name.strip()
    return text[len("Bytes ") :] if text.startswith("Bytes ") else text


def read_jemalloc_stats(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read the last statistics in *data*, text or JSON. Raises InputError if they were cut."""
    content = bytes(data)
    if content.lstrip()[:1] == b"{":
        try:
            stats: Any = json.loads(content)["jemalloc"]["stats"]
            sums = [
                check_count(int(stats[name]), source)
                for name in ("allocated", "active", "metadata", "resident")
            ]
        except MISFITS:
            raise truncated(source, "the end of its JSON, or its sums") from None
    else:
        found = _JEMALLOC.findall(content)
        if not found:
            raise truncated(source, "its line 'Allocated: …, retained: …'")
        sums = [check_count(int(size), source) for size in found[-1]]
    allocated, active, metadata, resident = sums
    if allocated > active:
        raise InputError(
            f"{printable(source)} counts more memory allocated than active",
            slug="totals-differ",
            hint="was it edited?",
        )
    # Metadata and active pages that nobody touched are not resident.
    touched = max(resident, active)
    own = min(metadata, touched - active)
    rows = [
        Row(("allocated, with what thread caches keep",), allocated),
        Row(("in slabs, not allocated",), active - allocated),
        Row(("jemalloc's own",), own),
        Row(("free pages",), touched - active - own),
    ]
    tables = {RESIDENT: Table(rows, touched), IN_USE: Table(rows[:1])}
    return table_profile(source, "jemalloc-stats", tables, metric)


def read_mimalloc_stats(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read the last statistics in *data*: only their sums, which are rounded. Raises InputError if they were cut."""
    sums: dict[str, int] = {}
    for name, cells in _MIMALLOC.findall(bytes(data)):
        amounts = _AMOUNT.findall(cells.decode("ascii"))
        number, unit = amounts[3]
        sums[name.decode("ascii")] = check_count(round(float(number) * UNITS[unit]), source)
    if set(sums) != {COMMITTED, RESERVED}:
        raise truncated(source, "its committed memory")
    text = f"{printable(source)} has sizes of two or three digits, and does not count what is in use"
    tables = {name: Table([Row((f"mimalloc, {name}",), sums[name])]) for name in (COMMITTED, RESERVED)}
    notices = [Notice("sizes-rounded", f"{text} (gdbmem explain PID reads that from the process)")]
    return table_profile(source, "mimalloc-stats", tables, metric, notices=notices)


def read_torch_summary(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read the tables of memory_summary(), one a device, whose sizes are rounded. Raises InputError if one was cut."""
    content = bytes(data)
    found = list(_TORCH_DEVICE.finditer(content))
    ends = [*(one.start() for one in found[1:]), len(content)]
    used: list[Row] = []
    reserved: list[Row] = []
    # The last table of each device: programs print them again and again.
    for device, start, end in {
        int(one[1]): (int(one[1]), one.end(), end) for one, end in zip(found, ends)
    }.values():
        name = f"device {device}"
        sizes = _torch_sizes(content[start:end])
        keys = ("Allocated memory", "Active memory", "GPU reserved memory")
        if not all(key in sizes for key in keys):
            raise truncated(source, f"'{keys[-1]}' of {name}")
        allocated, active, held = (sizes[key][0] for key in keys)
        pools = list(zip(("large pool", "small pool"), sizes[keys[0]][1:]))
        used += [Row((f"allocated, {pool}", name), size) for pool, size in pools]
        rest = allocated - sum(size for _, size in pools)  # all of it in an abbreviated summary
        if rest > 0:
            used.append(Row(("rounded off" if pools else "allocated", name), rest))
        reserved += [
            Row(("allocated", name), allocated),
            Row(("freed, but still used by a stream", name), max(active - allocated, 0)),
            Row(("cached: reserved, not allocated", name), max(held - max(active, allocated), 0)),
        ]
    text = f"{printable(source)} has whole units of each size: sums may be less by one for each row"
    tables = {RESERVED: Table(reserved), IN_USE: Table(used)}
    return table_profile(source, "torch-summary", tables, metric, notices=[Notice("sizes-rounded", text)])


def _torch_sizes(table: bytes) -> dict[str, list[int]]:
    """Return the sizes of each row of a table that are in use now, with those of its pools behind."""
    sizes: dict[str, list[int]] = {}
    last = ""
    for label, size, unit in _TORCH.findall(table):
        text = label.decode("utf-8", "replace")
        last = last if text.startswith("from ") else text
        sizes.setdefault(last, []).append(int(size) * UNITS[unit.decode()])
    return sizes
