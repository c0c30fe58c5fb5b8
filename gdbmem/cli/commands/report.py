"""Write a run, a profile or a difference as one HTML file that loads nothing from a network.

gdbmem report gdbmem.decoder.4711           the run: its history, its snapshots, what grew between them
gdbmem report massif.out.1 massif.out.2     what grew from one file to the other
gdbmem report *.heap                        which lines grow steadily
gdbmem report gdbmem.monitor.812            what a monitor recorded, with its verdict
gdbmem report 4711                          where the resident memory of a process is
gdbmem report train.log                     memory pools: chunks, free chunks, and the refused request
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional, TextIO

from gdbmem.analysis.profiles.query import Query, add_mine_option, compile_regex, counts_blocks, read_known
from gdbmem.api.profiles import spool_operands
from gdbmem.arguments import ArgumentParser
from gdbmem.cli.page.browser import open_browser
from gdbmem.cli.page.choosing import page_of
from gdbmem.cli.profiles.reading import add_reading_options, collector_paused, read_options_from, source_roots
from gdbmem.errors import UsageError
from gdbmem.report.output import open_named
from gdbmem.report.page.page import Page, render
from gdbmem.text import printable

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `gdbmem report`."""
    parser.usage = "gdbmem report [OPTIONS] A [B …]"
    parser.add_argument(
        "operands",
        metavar="A B",
        nargs="+",
        help="a run, RUN:NAME, a profile, a process, a core, or output of --json; two for their difference, more for a"
        " series, oldest first",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to FILE (default: NAME.html here; '-': stdout)"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument("--open", action="store_true", help="show it in a browser")
    parser.add_argument("--title", metavar="TEXT", help="title of the page")
    parser.add_argument(
        "--known", metavar="FILE", help="paths that are known and accepted: one regex per line, # comments"
    )
    add_mine_option(parser)
    parser.add_argument(
        "--source",
        metavar="FOLDER",
        action="append",
        help="folder to search for source files (may be repeated)",
    )
    parser.add_argument(
        "--embed-source",
        action="store_true",
        help="include the source lines around each place in the page; everyone who gets the page can read them",
    )
    group = parser.add_argument_group("a single picture, in place of the page")
    group.add_argument("--svg", metavar="FILE", help="write a picture of the page as SVG")
    group.add_argument(
        "--png", metavar="FILE", help="write it as PNG, rendered offline by an installed Chromium"
    )
    group.add_argument(
        "--picture",
        metavar="NAME",
        help="the picture whose section title contains NAME (default: the first)",
    )
    add_reading_options(parser)


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Read, fill the page, write it or a picture of it, and print the path."""
    arguments = parser.parse_args(argv)
    _check(arguments, parser)
    query = Query(
        known=tuple(read_known(arguments.known)) if arguments.known else (),
        source_folders=arguments.source or (),
        source_roots=source_roots(),
        mine=compile_regex(arguments.mine, "--mine"),
        by_blocks=counts_blocks(arguments.metric),
        embed_source=arguments.embed_source,
    )
    arguments.operands = spool_operands(arguments.operands)
    target = arguments.output
    if target is None and not (arguments.svg or arguments.png):
        target = f"{_stem(arguments.operands[-1])}.html"
    with collector_paused(), contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(open_named(name, force=arguments.force))
            for name in (target, arguments.svg, arguments.png)
        ]
        page = page_of(arguments.operands, query, read_options_from(arguments))
        if arguments.title:
            page.title = printable(arguments.title)
        _write(page, arguments.picture, *files)
    for name in (target, arguments.svg, arguments.png):
        if name not in (None, "-"):
            print(f"gdbmem: the {_word_for(name)} is {printable(name)}", file=sys.stderr)
    if arguments.open and target is not None:
        open_browser(Path(target).resolve().as_uri())
    return 0


def _check(arguments: argparse.Namespace, parser: ArgumentParser) -> None:
    pictures = arguments.svg or arguments.png
    if arguments.open and (arguments.output == "-" or (pictures and arguments.output is None)):
        parser.error("--open shows a page in a file: name it with -o FILE.html")
    if arguments.picture and not pictures:
        parser.error("--picture needs --svg FILE or --png FILE")
    if arguments.source and not arguments.embed_source:
        raise UsageError(
            "--source has no effect on a page without source lines",
            hint="add --embed-source",
        )


def _write(
    page: Page, wanted: Optional[str], html: Optional[TextIO], svg: Optional[TextIO], png: Optional[TextIO]
) -> None:
    if html is not None:
        html.write(render(page))
    if svg is None and png is None:
        return
    from gdbmem.cli.page.picture_files import choose_picture, pictures_of, png_of, standalone  # 15 ms

    picture = choose_picture(page, wanted)
    if wanted is None and len(pictures_of(page)) > 1:
        others = ", ".join(f"'{one.name}'" for one in pictures_of(page) if one != picture)
        print(
            f"gdbmem: of its pictures '{picture.name}' is drawn; --picture chooses: {others}", file=sys.stderr
        )
    if svg is not None:
        svg.write(standalone(picture))
    if png is not None:
        drawn = png_of(picture)
        png.flush()
        png.buffer.write(drawn)


def _word_for(name: str) -> str:
    return "picture" if Path(name).suffix.lower() in (".svg", ".png") else "report"


def _stem(operand: str) -> str:
    name = Path(operand.rstrip("/")).name
    return "".join(c if c.isalnum() or c in "._-+#" else "_" for c in name)[:100] or "report"
