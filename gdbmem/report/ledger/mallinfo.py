"""The numbers of mallinfo2 beside those of the walk over the heap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gdbmem.errors import Notice
from gdbmem.report import drawing
from gdbmem.report.console import Console
from gdbmem.report.document import head, to_json

_MEANING = {
    "arena": "bytes from the system, without those mapped individually",
    "ordblks": "free blocks",
    "smblks": "free blocks in fastbins",
    "hblks": "blocks mapped individually",
    "hblkhd": "bytes in those",
    "fsmblks": "free bytes in fastbins",
    "uordblks": "bytes in use, those in tcaches too",
    "fordblks": "free bytes",
    "keepcost": "bytes at the end of the main heap",
}


def mallinfo_json(theirs: Mapping[str, int], ours: Mapping[str, int], notices: Sequence[Notice]) -> str:
    """Return both as ``kind=mallinfo``."""
    figures = [{"name": name, "mallinfo": theirs[name], "ledger": ours[name]} for name in _MEANING]
    return to_json({**head("mallinfo", notices), "figures": figures})


def print_mallinfo(theirs: Mapping[str, int], ours: Mapping[str, int], console: Console) -> None:
    """Print both, line by line."""
    table = drawing.Table(header_style="dim")
    table.add_column("mallinfo2", justify="right")
    table.add_column("gdbmem", justify="right")
    table.add_column("", no_wrap=True)
    table.add_column("what")
    for name, meaning in _MEANING.items():
        difference = "" if theirs[name] == ours[name] else " (they differ)"
        table.add_row(f"{theirs[name]:,}", f"{ours[name]:,}", name, meaning + difference)
    console.print(table)
