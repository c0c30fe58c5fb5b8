"""Java's class histogram (jcmd PID GC.class_histogram, jmap -histo) and its native memory (VM.native_memory).

Source of the formats: OpenJDK, memory/heapInspection.cpp and services/memReporter.cpp.
"""

from __future__ import annotations

import re
from typing import Optional

from gdbmem.files import Data
from gdbmem.formats.reports.rows import UNITS, Row, Table, table_profile, truncated
from gdbmem.formats.stacks import COMMITTED, IN_USE, RESERVED, StackProfile, bad_line

_CLASS = re.compile(r" *[0-9]+: +([0-9]{1,19}) +([0-9]{1,19})  ?(\S.*)")
_TOTAL = re.compile(r"Total +([0-9]{1,19}) +([0-9]{1,19}) *")
_TYPES = {
    "B": "byte", "C": "char", "D": "double", "F": "float", "I": "int", "J": "long", "S": "short", "Z": "boolean",
}  # fmt: skip
_ARRAY = re.compile(r"(\[+)(?:([BCDFIJSZ])|L([^;]+);)( .*)?")
_SIZE = r"([0-9]{1,19})([KMGT]?)B?(?: [-+][0-9]+[KMGT]?B?)?"
_SIZES = rf"reserved={_SIZE}, committed={_SIZE}"
_CATEGORY = re.compile(rf"- +(\S.*?) \({_SIZES}\)")
_MOST_LEFT_OUT = 16  # categories under one unit
_SUM = re.compile(rf"Total: {_SIZES}")


def read_histogram(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*. Raises InputError if its classes exceed its total, or a line is of another format."""
    rows: list[Row] = []
    total: Optional[int] = None
    for number, line in enumerate(_whole_lines(data), 1):
        found, last = _CLASS.fullmatch(line), _TOTAL.fullmatch(line)
        if found is not None:
            rows.append(Row((_type_name(found[3]),), int(found[2]), int(found[1])))
        elif last is not None:
            total = int(last[2])
        elif rows and line.strip():
            raise bad_line(source, number, line.encode("utf-8", "surrogateescape"), "a class, or the total")
    if not rows:
        raise truncated(source, "its first class")
    return table_profile(
        source, "java-histogram", {IN_USE: Table(rows, total)}, metric, has_blocks=True, is_cut=total is None
    )


def _type_name(text: str) -> str:
    """Return ``byte[]`` for ``[B``, and the name of a class as it is."""
    array = _ARRAY.fullmatch(text.rstrip())
    if array is None:
        return text.rstrip()
    return f"{_TYPES.get(array[2] or '', array[3])}{'[]' * len(array[1])}{array[4] or ''}"


def read_native_memory(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*. Raises InputError if its categories exceed its total by more than it rounds."""
    rows: list[tuple[str, int, int]] = []
    total: Optional[tuple[int, int]] = None
    step = 1
    for line in _whole_lines(data):
        found, whole = _CATEGORY.fullmatch(line), _SUM.fullmatch(line)
        if found is not None:
            rows.append((found[1].strip(), _bytes(found[2], found[3]), _bytes(found[4], found[5])))
            step = max(step, UNITS[found[3]])
        elif whole is not None:
            total = _bytes(whole[1], whole[2]), _bytes(whole[3], whole[4])
    if total is None or not rows:
        raise truncated(source, "its first category")
    tables = {}
    for at, name in ((1, COMMITTED), (0, RESERVED)):
        listed = [Row((category,), sizes[at]) for category, *sizes in rows]
        missing = total[at] - sum(row.bytes for row in listed)
        # Each size is rounded, and what rounds to nothing is left out.
        if 0 < missing < step * (len(rows) + _MOST_LEFT_OUT):
            listed.append(Row(("rounded off, or left out",), missing))
        is_rounded = -step * len(rows) < missing < 0
        tables[name] = Table(listed, None if is_rounded else total[at])
    return table_profile(source, "java-native", tables, metric)


def _bytes(number: str, unit: str) -> int:
    return int(number) * UNITS[unit]


def _whole_lines(data: Data) -> list[str]:
    return bytes(data).decode("utf-8", "surrogateescape").replace("\r\n", "\n").split("\n")[:-1]
