"""Where the compiler says that calls of a function begin: gcc marks the entry and each statement of inlined code.

The marks are rows of the line table that begin a statement. They stay where the call was, and are copied with it, while
the instructions of the call move, join and vanish.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import AbstractSet, NamedTuple, Optional

import gdb

from gdbmem.debugger.function_source import source_lines
from gdbmem.debugger.terminal import file_name, gdb_text, library_at
from gdbmem.symbols.function_names import split_function
from gdbmem.symbols.function_text import functions_at
from gdbmem.symbols.line_table import LineRow, read_line_rows

Place = tuple[int, int]
"""A line and a column."""


class Marks(NamedTuple):
    """The marks of one function, and of all statements around them."""

    symtab: gdb.Symtab
    declared: Place  # of its name: the rest of a function that was split has such a mark, too
    first: Optional[Place]  # of the first statement of its body, which may be a loop; None: unknown
    own: Sequence[LineRow]  # of statements in its file
    rows: Sequence[LineRow]  # of statements in all files

    def begins(self, place: Place) -> Counter[int]:
        """Return at which addresses there are marks of this *place*, and how many at each."""
        return Counter(one.address for one in self.own if (one.line, one.column) == place)


def read_marks(
    symtab: gdb.Symtab,
    line: int,
    function: str,
    entry: int,
    instructions: AbstractSet[int],
    inlined: AbstractSet[int],
) -> Optional[Marks]:
    """Return the marks of the *function* of this *line* among the *instructions* of another that begins at *entry*.

    *inlined*: those of them that belong to inlined calls of it. None: the compiler makes no marks, as clang, or the
    line table can't be read.
    """
    loaded = _loaded_text(entry)
    if loaded is None:
        return None
    rows = [
        one
        for one in read_line_rows(str(symtab.objfile.filename), entry, loaded)
        if one.begins_statement and one.address in instructions
    ]
    own = of_file(rows, symtab)
    inside = [(one.line, one.column) for one in own if one.address in inlined]
    lines, name = source_lines(symtab), split_function(function).parts[-1]
    declared = (line, _column(lines[line - 1], name))
    if declared in inside:
        behind = {one for one in inside if one[1] and declared < one and one[0] <= len(lines)}
        # Code of the caller may be joined with that of the call.
        first = min(
            (one for one, (_, around) in functions_at(lines, behind).items() if around == name), default=None
        )
        return Marks(symtab, declared, first, own, rows)
    # The compiler may have moved the first instructions of each call away from its mark.
    is_marked = any((one.line, one.column) == declared for one in own)
    return Marks(symtab, declared, None, own, rows) if is_marked else None


def read_places(file: str, entry: int, instructions: Iterable[int]) -> dict[int, Place]:
    """Return the line and column of each of the *instructions* of the function at *entry*; none of unknown ones.

    *file*: the ELF file with the line table.
    """
    loaded = _loaded_text(entry)
    rows = sorted(read_line_rows(file, entry, loaded), key=lambda one: one.address) if loaded else []
    starts = [one.address for one in rows]
    found = ((at, bisect_right(starts, at) - 1) for at in instructions)
    return {
        at: (rows[n].line, rows[n].column) for at, n in found if n >= 0 and rows[n].line and rows[n].column
    }


def _column(text: str, name: str) -> int:
    """Return the column, from 1 on, of the *name* of a function in the line that defines it; 0 if it has none."""
    found = re.search(rf"(?<!\w){re.escape(name)}\s*(?:\(|$)", text)
    return found.start() + 1 if found else 0


def of_file(rows: Iterable[LineRow], symtab: gdb.Symtab) -> list[LineRow]:
    """Return the rows of the file of *symtab*; none if several may be meant."""
    name = file_name(symtab)
    found = [one for one in rows if f"/{one.file}".endswith(f"/{name.lstrip('/')}")]
    return found if len({one.file for one in found}) == 1 else []


def _loaded_text(address: int) -> Optional[int]:
    """Return where the .text with *address*, or of the same object, begins; None if that is not known."""
    library = library_at(address) or ""
    for line in gdb_text("info files").splitlines():
        where, found, object_file = line.partition(" is .text")
        if found and object_file.strip().partition("in ")[2] == library and object_file[:1] in ("", " "):
            return int(where.split()[0], 16)
    return None
