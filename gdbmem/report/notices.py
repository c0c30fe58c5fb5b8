"""Lines below a result: the pause, and notices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.report.console import Console, print_sentence
from gdbmem.text import printable
from gdbmem.units import format_duration


def print_notices(notices: Sequence[Notice], console: Console) -> None:
    """Print *notices*, each once, after an empty line."""
    said = dict.fromkeys(printable(notice.sentence) for notice in notices)
    if said:
        console.print()
    for message in said:
        print_sentence(console, message, label="note: ")


def print_pause(seconds: Optional[float], console: Console) -> None:
    """Print the time for which the process was stopped, if it is known."""
    if seconds is not None:
        console.print(f"The process was stopped for {format_duration(seconds)}.")
