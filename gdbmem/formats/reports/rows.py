"""Reports that are tables: each row a name and sizes. They become profiles whose call paths are the names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.formats.stacks import (
    Content,
    Hidden,
    Singles,
    Stack,
    StackProfile,
    check_count,
    choose_metric,
    make_profile,
)
from gdbmem.model.calltree import BYTES_MISSING, Frame
from gdbmem.text import printable

UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


class Row(NamedTuple):
    """One row of a table; the first of its *names* is what is counted, the others say where."""

    names: Sequence[str]
    bytes: int
    blocks: int = 0


class Table(NamedTuple):
    """The rows of a report by one metric."""

    rows: Sequence[Row]
    total_bytes: Optional[int] = None  # by the report itself; None: it has none, or it was cut


def table_profile(
    source: str,
    source_format: str,
    tables: Mapping[str, Table],
    metric: Optional[str],
    *,
    has_blocks: bool = False,
    is_cut: bool = False,
    notices: Sequence[Notice] = (),
) -> StackProfile:
    """Return the table of *metric*, or the first one, as a profile. Raises InputError if it exceeds its total."""
    chosen = choose_metric(metric, list(tables), source)
    table = tables[chosen]
    numbers: dict[str, int] = {}
    stacks = [
        Stack(
            tuple(numbers.setdefault(name, len(numbers)) for name in row.names),
            check_count(row.bytes, source),
            check_count(row.blocks, source),
        )
        for row in table.rows
        if row.bytes or row.blocks
    ]
    listed = sum(stack.bytes for stack in stacks)
    hidden = unlisted(source, listed, table.total_bytes)
    said = [*notices]
    if is_cut:
        said.append(Notice(BYTES_MISSING, f"{printable(source)} was truncated: its last rows are missing"))
    if hidden.bytes:
        text = f"{printable(source)} lists {listed:,} of its {listed + hidden.bytes:,} bytes"
        said.append(Notice(BYTES_MISSING, f"{text}: rows are missing"))
    frames = Singles([Frame(file=name) for name in numbers])
    content = Content(stacks, frames, has_blocks=has_blocks, hidden=hidden)
    return make_profile(content, source, source_format, chosen, list(tables), notices=said)


def unlisted(source: str, listed: int, total: Optional[int]) -> Hidden:
    """Return what *total* counts beyond *listed*. Raises InputError if that is less than nothing."""
    if total is None or total == listed:
        return Hidden(0)
    if total < listed:
        raise InputError(
            f"the rows of {printable(source)} hold {listed:,} bytes, and its total is {total:,}",
            slug="totals-differ",
            hint="was the text edited?",
        )
    return Hidden(check_count(total, source) - listed)


def truncated(source: str, what: str) -> InputError:
    """Return the error for a report that was cut before *what*."""
    return InputError(
        f"{printable(source)} ends before {what}",
        slug="profile-truncated",
        hint="copy the whole text of the report",
    )
