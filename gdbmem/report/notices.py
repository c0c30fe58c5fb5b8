"""Notices below a result."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.errors import Notice
from gdbmem.report.console import Console, print_sentence
from gdbmem.text import printable


def print_notices(notices: Sequence[Notice], console: Console) -> None:
    """Print *notices*, each once, after an empty line."""
    said = dict.fromkeys(printable(notice.sentence) for notice in notices)
    if said:
        console.print()
    for message in said:
        print_sentence(console, message, label="note: ")
