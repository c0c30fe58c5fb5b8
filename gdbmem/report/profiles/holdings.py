"""Containers that hold the growth, below a diff and in its JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbmem.analysis.profiles.sites import describe_site
from gdbmem.model.holding import Holding
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.containers.containers import short_type
from gdbmem.text import printable
from gdbmem.units import format_delta

if TYPE_CHECKING:
    from gdbmem.report.document import Document

_MOST_SHOWN = 10


def print_holdings(found: Sequence[Holding], console: Console) -> None:
    """Print a sentence for each of *found*, after an empty line."""
    if found:
        console.print()
    for holding in found[:_MOST_SHOWN]:
        print_sentence(console, holding_sentence(holding))


def holding_sentence(holding: Holding) -> str:
    """Return the sentence that names the container of *holding*."""
    what = f"{printable(holding.container)} ({short_type(holding.type_name)})"
    added = holding.after_size - holding.before_size
    text = f"{describe_site(holding.site)} {format_delta(holding.delta_bytes)} = {what}"
    text += f", {added:+,} elements ({holding.before_size:,} to {holding.after_size:,})"
    if holding.surveys > 2 and holding.never_shrank:
        text += f"; none of {holding.surveys} surveys found fewer than the one before"
    return text


def holdings_document(found: Sequence[Holding]) -> list[Document]:
    """Return *found* for JSON."""
    return [
        {
            "site": holding.site._asdict(),
            "delta_bytes": holding.delta_bytes,
            "path": holding.container,
            "type": holding.type_name,
            "before_size": holding.before_size,
            "after_size": holding.after_size,
            "surveys": holding.surveys,
            "never_shrank": holding.never_shrank,
        }
        for holding in found
    ]
