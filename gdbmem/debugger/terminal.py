"""Properties of gdb's terminal for reports: its width, and whether it supports colours."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO

import gdb

from gdbmem.report.console import Console, make_console


def console_on(stream: TextIO) -> Console:
    """Return a console that draws on *stream*: gdb's own standard output, or a file.

    gdb's `set width`, `set style enabled`, NO_COLOR and a dumb terminal are respected.
    """
    to_terminal = stream is sys.stdout and os.isatty(1)
    able = os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")
    color = to_terminal and able and bool(_parameter("style enabled"))
    # An unlimited width is None or 0.
    return make_console(stream, width=(_parameter("width") or None) if to_terminal else None, color=color)


def _parameter(name: str) -> Any:
    try:
        return gdb.parameter(name)
    except RuntimeError:  # this gdb doesn't have it
        return None
