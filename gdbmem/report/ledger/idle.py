"""Memory that was not touched for a while: text and JSON."""

from __future__ import annotations

from typing import Any

from gdbmem.model.ledger.idle import IdleEntry, IdleMemory
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.document import Document, head, to_json
from gdbmem.report.drawing import Table
from gdbmem.report.ledger.ledger_text import what_grew
from gdbmem.text import printable
from gdbmem.units import format_duration, format_size

_LEAST_SHARE = 0.001
_LIMITS = (
    "the kernel counts touched pages by mapping: entries that share one have bounds. A page counts as touched when any"
    " byte of it is, a huge one as a whole; some MiB that are in use all the time may not show"
)


def print_idle(idle: IdleMemory, name: str, console: Console) -> None:
    """Print how much was not touched, and the entries of the ledger that it may be in."""
    sizes = f"{format_size(idle.idle_bytes)} of {format_size(idle.rss_bytes)}"
    print_sentence(
        console, f"{sizes} resident in {name} were not touched for {format_duration(idle.seconds)}", "bold"
    )
    console.print()
    table = Table(header_style="bold")
    table.add_column("not touched", justify="right", no_wrap=True)
    table.add_column("resident", justify="right", no_wrap=True)
    table.add_column("where")
    for one in idle.entries:
        if one.most_idle_bytes > _LEAST_SHARE * idle.rss_bytes:
            words = printable(what_grew(one.category, one.label))
            table.add_row(_bounds(one), format_size(one.resident_bytes), words)
    console.print(table)
    afterwards = format_size(sum(one.resident_bytes for one in idle.entries))
    if afterwards != format_size(idle.rss_bytes):
        print_sentence(console, f"what lies where was read after that, when {afterwards} were resident")
    print_sentence(console, _LIMITS)


def _bounds(one: IdleEntry) -> str:
    least, most = format_size(one.least_idle_bytes), format_size(one.most_idle_bytes)
    return most if least == most else f"{least} to {most}"


def idle_json(idle: IdleMemory, pid: int) -> str:
    """Return it as text."""
    entries: list[dict[str, Any]] = [
        {
            "category": one.category,
            "label": one.label,
            "resident_bytes": one.resident_bytes,
            "least_idle_bytes": one.least_idle_bytes,
            "most_idle_bytes": one.most_idle_bytes,
        }
        for one in idle.entries
    ]
    document: Document = {
        **head("idle", ()),
        "pid": pid,
        "seconds": idle.seconds,
        "rss_bytes": idle.rss_bytes,
        "idle_bytes": idle.idle_bytes,
        "entries": entries,
    }
    return to_json(document)
