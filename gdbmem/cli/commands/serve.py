"""Serve runs and profiles as pages that update with new snapshots, to this machine only.

gdbmem serve                                every run in the current folder
gdbmem serve gdbmem.decoder.4711 old.heap   these
"""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from gdbmem.analysis.profiles.query import Query, add_mine_option, compile_regex
from gdbmem.api.profiles import ReadOptions, Run, current_folder, find_operand
from gdbmem.arguments import ArgumentParser, value
from gdbmem.cli.page.choosing import page_of
from gdbmem.cli.profiles.reading import add_reading_options, read_options_from, source_roots
from gdbmem.cli.profiles.server import Served, Server
from gdbmem.errors import InputError
from gdbmem.report.page.page import Page
from gdbmem.runs.run import is_run
from gdbmem.text import printable


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `gdbmem serve` takes."""
    parser.usage = "gdbmem serve [OPTIONS] [RUN …]"
    parser.add_argument(
        "operands",
        metavar="RUN",
        nargs="*",
        help="runs and profiles (default: the runs in the current folder)",
    )
    parser.add_argument(
        "--port",
        type=value(_read_port, "N"),
        default=0,
        metavar="N",
        help="port to listen on (default: a free port)",
    )
    parser.add_argument("--open", action="store_true", help="show it in a browser")
    add_mine_option(parser)
    add_reading_options(parser)


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Serve until Ctrl-C."""
    arguments = parser.parse_args(argv)
    for operand in arguments.operands:
        find_operand(operand)
    query = Query(
        source_roots=source_roots(), mine=compile_regex(arguments.mine, "--mine"), embed_source=True
    )
    options = read_options_from(arguments)

    def served() -> list[Served]:
        names = arguments.operands or _runs_here()
        return [_served(name, query, options) for name in names]

    try:
        server = Server(served, arguments.port)
    except OSError as error:
        raise InputError(
            f"can't listen on port {arguments.port}: {error.strerror}",
            slug="cant-listen",
            hint="name another with --port, or none for a free one",
        ) from error
    print(f"gdbmem: {server.address} shows it, until Ctrl-C", file=sys.stderr, flush=True)
    if arguments.open and not webbrowser.open(server.address):
        print("gdbmem: no browser could be started to show it", file=sys.stderr)
    server.serve()
    return 0


def _read_port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 <= int(text) <= 65535:
        raise InputError(f"'{printable(text)}' is not a port", slug="bad-port", hint="a number up to 65535")
    return int(text)


def _runs_here() -> list[str]:
    folders = sorted(path for path in current_folder().iterdir() if path.is_dir() and is_run(path))
    return [str(folder) for folder in folders]


def _served(name: str, query: Query, options: ReadOptions) -> Served:
    def page() -> Page:
        return page_of([name], query, options)

    place, _ = find_operand(name)
    return Served(Path(name).name, place.folder if isinstance(place, Run) else place, page)
