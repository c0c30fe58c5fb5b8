"""The contents, at the end of a recording, of the memory that lines made resident."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.ledger.text import what_grew
from gdbmem.model.faults import HeldNow, SiteHoldings
from gdbmem.profiles.sites import describe_site
from gdbmem.terminal.console import Console
from gdbmem.terminal.document import Document
from gdbmem.terminal.drawing import Table
from gdbmem.text import format_size, plural, printable

_LEAST_SHARE = 0.01
_LEFT = "no longer resident"


def print_held(held: Sequence[SiteHoldings], console: Console) -> None:
    """Print a table: each line, and below it the contents of its memory."""
    if not held:
        return
    table = Table(header_style="bold")
    table.add_numbers("bytes")
    table.add_column("contents of each line's memory now, by the addresses of its samples")
    for one in held:
        samples = plural(one.samples, "sample")
        table.add_row(format_size(round(one.bytes)), f"{describe_site(one.site)}, {samples}")
        for part in one.parts:
            _add(table, part, one.bytes)
    console.print()
    console.print(table)


def _add(table: Table, part: HeldNow, whole: float) -> None:
    if part.bytes < _LEAST_SHARE * whole:
        return
    table.add_row(format_size(round(part.bytes)), f"  {printable(_words(part))}")
    for name, size in sorted(part.pools.items(), key=lambda item: -item[1]):
        if size >= _LEAST_SHARE * whole:
            table.add_row(format_size(round(size)), f"    {name}")


def _words(part: HeldNow) -> str:
    return what_grew(part.category, part.label) if part.category else _LEFT


def held_document(held: Sequence[SiteHoldings]) -> list[Document]:
    """Return it as JSON values."""
    return [
        {
            "site": {"function": one.site.function, "file": one.site.file, "line": one.site.line},
            "bytes": round(one.bytes),
            "samples": one.samples,
            "holds": [
                {
                    "category": part.category or None,
                    "label": part.label,
                    "bytes": round(part.bytes),
                    "pools": {name: round(size) for name, size in part.pools.items()},
                }
                for part in one.parts
            ],
        }
        for one in held
    ]
