"""Run `gdbmem serve`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from gdbmem.api.profiles import ReadOptions, Run, current_folder, find_operand
from gdbmem.arguments import ArgumentParser
from gdbmem.cli.pages import open_browser, page_of
from gdbmem.cli.reading import read_options_from, source_roots
from gdbmem.cli.server import Served, Server
from gdbmem.errors import InputError
from gdbmem.page.page import Page
from gdbmem.profiles.query import Query, compile_regex
from gdbmem.runs.run import is_run


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Serve until Ctrl-C."""
    arguments = parser.parse_args(argv)
    operands = arguments.operands or [str(current_folder())]
    for operand in operands:
        if not _holds_runs(operand):
            find_operand(operand)
    query = Query(
        source_roots=source_roots(), mine=compile_regex(arguments.mine, "--mine"), embed_source=True
    )
    options = read_options_from(arguments)

    def served() -> list[Served]:
        return [one for operand in operands for one in _served_by(operand, query, options)]

    try:
        server = Server(served, arguments.port)
    except OSError as error:
        raise InputError(
            f"can't listen on port {arguments.port}: {error.strerror}",
            slug="cant-listen",
            hint="name another one with --port, or leave --port out for a free one",
        ) from error
    print(f"gdbmem: {server.address} shows it, until Ctrl-C", file=sys.stderr, flush=True)
    if arguments.open:
        open_browser(server.address)
    server.serve()
    return 0


def _holds_runs(operand: str) -> bool:
    return Path(operand).is_dir() and not is_run(Path(operand))


def _served_by(operand: str, query: Query, options: ReadOptions) -> list[Served]:
    """Return *operand* itself, or the runs now in that folder; nothing if it has been deleted."""
    with contextlib.suppress(InputError, OSError):
        if not _holds_runs(operand):
            return [_served(operand, query, options)]
        folders = sorted(path for path in Path(operand).iterdir() if path.is_dir() and is_run(path))
        return [_served(str(folder), query, options) for folder in folders]
    return []


def _served(name: str, query: Query, options: ReadOptions) -> Served:
    def page() -> Page:
        return page_of([name], query, options)

    place, _ = find_operand(name)
    return Served(Path(name).name, place.folder if isinstance(place, Run) else place, page)
