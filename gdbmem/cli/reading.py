"""Options of the commands that read profiles: --format, --metric, --binaries."""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

from gdbmem.api.profiles import ReadOptions
from gdbmem.terminal.console import Working
from gdbmem.text import printable


def read_options_from(arguments: argparse.Namespace) -> ReadOptions:
    """Return the ReadOptions of the options of add_reading_options()."""
    options = ReadOptions(
        arguments.format,
        arguments.metric,
        [str(Path(folder)) for folder in arguments.binaries or ()],
        by_size=getattr(arguments, "by", None) == "size",
        progress=_say,
    )
    options.check()
    return options


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Disable Python's cycle collector while a profile's many small objects are created; none are in cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _say(text: str) -> None:
    if sys.stderr.isatty():
        Working.print_above(f"gdbmem: {printable(text)}")
