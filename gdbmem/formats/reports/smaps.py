"""Dumps of /proc/PID/smaps, smaps_rollup, and what pmap prints.

Source of the formats: proc(5), and procps, pmap.c.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from gdbmem.files import Data
from gdbmem.formats.reports.rows import Row, Table, table_profile, truncated
from gdbmem.formats.stacks import DIRTY, MAPPED, PSS, RESIDENT, SWAP, StackProfile, bad_line, several_dumps

_FIELDS = {"Rss": RESIDENT, "Pss": PSS, "Swap": SWAP, "Size": MAPPED}
_COLUMNS = {
    "rss": RESIDENT, "pss": PSS, "swap": SWAP, "kbytes": MAPPED, "size": MAPPED, "dirty": DIRTY,
}  # fmt: skip
# Of the parts of a resident set, each page is in one.
_PARTS = ("Shared_Clean", "Shared_Dirty", "Private_Clean", "Private_Dirty")
_MAPPING = re.compile(r"([0-9a-f]{1,16})-[0-9a-f]{1,16} ([-rwxsp]{4}) [0-9a-f]+ [0-9a-f:]+ [0-9]+ *(.*)")
_FIELD = re.compile(r"(\w+): +([0-9]{1,18}) kB")
_LAST = ("[vsyscall]", "[vdso]", "[vvar]", "[stack]", "[vectors]", "[sigpage]")  # of a process's mappings


def read_smaps(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*. A mapping that was cut is left out; raises InputError for a line of another format."""
    mappings: list[tuple[Sequence[str], dict[str, int]]] = []
    is_whole, last, end = False, "", 0
    lines = _lines(data)
    for number, line in enumerate(lines[:-1], 1):
        head, field = _MAPPING.fullmatch(line), _FIELD.fullmatch(line)
        if head is not None:
            if mappings and not is_whole:
                raise bad_line(
                    source,
                    number,
                    line.encode("utf-8", "surrogateescape"),
                    "VmFlags, the last line of a mapping",
                )
            if int(head[1], 16) < end:
                raise several_dumps(source, head[1])
            end, last = int(head[1], 16) + 1, head[3]
            mappings.append(((last or "anonymous", head[2]), {}))
            is_whole = False
        elif field is not None and mappings:
            mappings[-1][1][field[1]] = int(field[2]) << 10
        elif line.startswith("VmFlags:"):
            is_whole = True
        elif line.strip() and not re.match(r"[A-Za-z_]+:", line):
            raise bad_line(source, number, line.encode("utf-8", "surrogateescape"), "a line of smaps")
    if mappings and last == "[rollup]":
        return _rollup(mappings[-1][1], source, metric)
    if mappings and not is_whole:
        mappings.pop()
    if not mappings:
        raise truncated(source, "the end of its first mapping")
    tables = {
        name: Table([Row(names, fields.get(key, 0)) for names, fields in mappings])
        for key, name in _FIELDS.items()
    }
    return table_profile(source, "smaps", tables, metric, is_cut=not is_whole or last not in _LAST)


def _rollup(fields: dict[str, int], source: str, metric: Optional[str]) -> StackProfile:
    if not {"Rss", *_PARTS} <= set(fields):
        raise truncated(source, "the parts of its resident set")
    rows = [Row((part.lower().replace("_", " "),), fields[part]) for part in _PARTS]
    return table_profile(source, "smaps", {RESIDENT: Table(rows, fields["Rss"])}, metric)


def read_pmap(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read what pmap printed of one process, with or without -x, -X, -XX or -d. Raises InputError if it was cut."""
    lines = [line for line in _lines(data) if line.strip()]
    heading = next((line for line in lines[:3] if line.split()[0] == "Address"), "")
    columns = heading.split()
    # Words of VmFlags, the column before, may be any number; the columns are aligned.
    at = heading.find("Mapping") if "VmFlags" in columns else -1
    rows: list[tuple[Sequence[str], dict[str, int]]] = []
    total: Optional[dict[str, int]] = None
    for number, line in enumerate(lines[1:], 2):
        words = line.split()
        if words == columns or set(line) <= set("-= "):
            continue
        if total is not None:
            raise bad_line(
                source,
                number,
                line.encode("utf-8", "surrogateescape"),
                "nothing behind the total of a process",
            )
        found = _totals(line, columns)
        if found is not None:
            total = found
        else:
            names, sizes = _row(line, columns, source, number)
            rows.append(((line[at:].strip() or "anonymous", names[1]) if at > 0 else names, sizes))
    if total is None:
        raise truncated(source, "its total")
    tables = {
        name: Table([Row(names, sizes.get(name, 0)) for names, sizes in rows], size)
        for name, size in sorted(total.items(), key=lambda item: item[0] != RESIDENT)
    }
    return table_profile(source, "pmap", tables, metric)


def _row(line: str, columns: Sequence[str], source: str, number: int) -> tuple[Sequence[str], dict[str, int]]:
    words = line.split(None, len(columns) - 1 if columns else 3)
    names = columns or ["Address", "Kbytes", "Mode", "Mapping"]
    if len(words) < len(names) - 1 or not re.fullmatch(r"[0-9a-f]{8,16}", words[0]):
        raise bad_line(source, number, line.encode("utf-8", "surrogateescape"), "a mapping")
    cells = dict(zip(names, words))
    try:
        sizes = {
            _COLUMNS[name.lower()]: int(cell.rstrip("K")) << 10
            for name, cell in cells.items()
            if name.lower() in _COLUMNS and cell != "-"
        }
    except ValueError:
        raise bad_line(source, number, line.encode("utf-8", "surrogateescape"), "a mapping") from None
    name = cells.get("Mapping", "").strip() or "anonymous"
    return ("anonymous" if name == "[ anon ]" else name, cells.get("Mode") or cells.get("Perm") or ""), sizes


def _totals(line: str, columns: Sequence[str]) -> Optional[dict[str, int]]:
    """Return the totals in *line*; None if it is another."""
    plain = re.fullmatch(r" *(?:total +|mapped: )([0-9]+)K(?: .*)?", line)
    if plain is not None:
        return {MAPPED: int(plain[1]) << 10}
    words = line.split()
    if words[:2] == ["total", "kB"]:
        sums, names = words[2:], columns[1 : len(words) - 1]
    elif words[-1] == "KB" and "Size" in columns:
        sums = words[:-1]
        names = columns[columns.index("Size") : columns.index("Size") + len(sums)]
    else:
        return None
    found = zip(names, sums)
    return {
        _COLUMNS[name.lower()]: int(word) << 10
        for name, word in found
        if name.lower() in _COLUMNS and word.isdigit()
    }


def _lines(data: Data) -> list[str]:
    return bytes(data).decode("utf-8", "surrogateescape").replace("\r\n", "\n").split("\n")
