"""Options of the commands that read profiles: --format, --metric, --binaries."""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gdbmem.arguments import ArgumentParser
from gdbmem.formats.opening import FORMATS, Reading
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.errors import Notice
    from gdbmem.formats.addresses import Binary
    from gdbmem.model.calltree import Frame
    from gdbmem.symbols.address_names import GdbSymbols

_CHECKOUTS = (".git", ".hg", ".svn", ".jj")


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
    from gdbmem.analysis.profiles.query import BLOCKS, counts_blocks

    folders = [str(Path(folder)) for folder in arguments.binaries or ()]
    symbols = _LateSymbols(folders)
    metric = arguments.metric
    if counts_blocks(metric):  # of whichever bytes are counted
        metric = metric[: -len(BLOCKS)].rstrip("-") or None
    by_size = getattr(arguments, "by", None) == "size"
    return Reading(arguments.format, metric, symbols, by_size=by_size)


class _LateSymbols:
    """Names addresses through gdb (formats.addresses.Symbols); what that takes is imported where a file has some."""

    def __init__(self, folders: list[str]) -> None:
        self._folders = folders

    @cached_property
    def _symbols(self) -> GdbSymbols:
        from gdbmem.symbols.address_names import GdbSymbols

        return GdbSymbols(folders=self._folders, progress=_say)

    def frames(
        self, wanted: Mapping[Binary, Iterable[int]], *, recorded: float = 0.0
    ) -> tuple[Mapping[tuple[Binary, int], Sequence[Frame]], Sequence[Notice]]:
        return self._symbols.frames(wanted, recorded=recorded)

    def prepare(self, wanted: Mapping[Binary, Iterable[int]]) -> None:
        self._symbols.prepare(wanted)

    def look_in(self, folder: str) -> None:
        self._symbols.look_in(folder)


def source_roots() -> Sequence[str]:
    """Return the current folder, or the checkout that it is in: what a profile names elsewhere is not shown."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was deleted
        return []
    found = [one for one in (here, *here.parents) if any((one / name).exists() for name in _CHECKOUTS)]
    return [str(one) for one in [*found, here][:1] if one != Path("/")]


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
