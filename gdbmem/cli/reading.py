"""Options of the commands that read profiles: --format, --metric, --binaries."""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gdbmem.api.profiles import FORMATS, ReadOptions
from gdbmem.arguments import ArgumentParser
from gdbmem.text import printable

_CHECKOUTS = (".git", ".hg", ".svn", ".jj")


def add_reading_options(parser: ArgumentParser) -> None:
    """Add the options that make ReadOptions."""
    group = parser.add_argument_group("how to read files")
    group.add_argument(
        "--format",
        metavar="NAME",
        help=f"read files as this format: {', '.join(FORMATS)} (default: determined from the content)",
    )
    group.add_argument(
        "--metric",
        metavar="NAME",
        help="the metric, if a file has several: in-use, allocated, peak, …; blocks, allocated-blocks, … list"
        " the rows with the most blocks first",
    )
    group.add_argument(
        "--binaries",
        metavar="FOLDER",
        action="append",
        help="folder that has the profiled programs and libraries, or another root folder with them (may be repeated)",
    )


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


def source_roots() -> Sequence[str]:
    """Return the current folder, or the checkout that it is in: source files elsewhere are not shown."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was deleted
        return []
    found = [one for one in (here, *here.parents) if any((one / name).exists() for name in _CHECKOUTS)]
    return [str(one) for one in [*found, here][:1] if one != Path("/")]


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
        print(f"gdbmem: {printable(text)}", file=sys.stderr)
