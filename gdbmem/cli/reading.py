"""How the commands that read profiles are told to read them: --format, --metric, --binaries."""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

from gdbmem.arguments import ArgumentParser
from gdbmem.formats.opening import FORMATS, Reading
from gdbmem.text import printable


def add_reading_options(parser: ArgumentParser) -> None:
    """Add the options that make a Reading."""
    group = parser.add_argument_group("how to read files")
    group.add_argument(
        "--format",
        metavar="NAME",
        help=f"take files for this format: {', '.join(FORMATS)} (default: what is in them tells)",
    )
    group.add_argument(
        "--metric",
        metavar="NAME",
        help="what to count, where a file counts several: in-use, allocated, peak, …; blocks, allocated-blocks, … list"
        " what has the most blocks first",
    )
    group.add_argument(
        "--binaries",
        metavar="FOLDER",
        action="append",
        help="where to look for programs and libraries that are not where a profile says (may be repeated)",
    )


def reading_from(arguments: argparse.Namespace) -> Reading:
    """Return the Reading that the options of add_reading_options() stand for."""
    from gdbmem.analysis.query import BLOCKS, counts_blocks
    from gdbmem.launch.symbols import GdbSymbols

    folders = [str(Path(folder)) for folder in arguments.binaries or ()]
    symbols = GdbSymbols(folders=folders, progress=_say)
    metric = arguments.metric
    if counts_blocks(metric):  # of whichever bytes are counted
        metric = metric[: -len(BLOCKS)].rstrip("-") or None
    by_size = getattr(arguments, "by", None) == "size"
    return Reading(arguments.format, metric, symbols, by_size=by_size)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keep Python's collector of cycles off the many small objects of a profile, of which none are cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"gdbmem: {printable(text)}", file=sys.stderr)
