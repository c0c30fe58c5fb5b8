"""Run `gdbmem report`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional, TextIO

from gdbmem.cli.report_pages import open_browser, page_of
from gdbmem.commands.arguments import ArgumentParser, read_options_from
from gdbmem.errors import InputError, UsageError
from gdbmem.files import spool_operands
from gdbmem.page.page import Page, render
from gdbmem.profiles.paths import Query, counts_blocks, read_known
from gdbmem.terminal.console import Working, open_named
from gdbmem.terminal.drawing import source_roots
from gdbmem.text import printable


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Read, fill the page, write it or a picture of it, and print the path."""
    arguments = parser.parse_args(argv)
    _check(arguments, parser)
    query = Query(
        known=tuple(read_known(arguments.known)) if arguments.known else (),
        source_folders=arguments.source or (),
        source_roots=source_roots(),
        mine=arguments.mine,
        by_blocks=counts_blocks(arguments.metric),
        embed_source=arguments.embed_source,
        annotate=arguments.annotate,
        links=arguments.links,
    )
    arguments.operands = spool_operands(arguments.operands)
    target = arguments.output
    if target is None and not arguments.svg:
        target = f"{_stem(arguments.operands[-1])}.html"
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(open_named(name, force=arguments.force)) for name in (target, arguments.svg)
        ]
        with Working("reading " + ", ".join(map(str, arguments.operands))):
            page = page_of(arguments.operands, query, read_options_from(arguments))
        if arguments.title:
            page.title = printable(arguments.title)
        _write(page, arguments.picture, *files)
    for kind, name in (("report", target), ("picture", arguments.svg)):
        if name not in (None, "-"):
            print(f"gdbmem: the {kind} is {printable(name)}", file=sys.stderr)
    if arguments.open and target is not None:
        open_browser(Path(target).resolve().as_uri())
    return 0


def _check(arguments: argparse.Namespace, parser: ArgumentParser) -> None:
    if arguments.open and (arguments.output == "-" or (arguments.svg and arguments.output is None)):
        parser.error("--open shows a page in a file: name it with -o FILE.html")
    if arguments.picture and not arguments.svg:
        parser.error("--picture needs --svg FILE")
    if arguments.source and not (arguments.embed_source or arguments.annotate or arguments.links):
        text = "--source has no effect on a page without source lines or links"
        raise UsageError(text, hint="add --embed-source or --links")


def _write(page: Page, wanted: Optional[str], html: Optional[TextIO], svg: Optional[TextIO]) -> None:
    if svg is not None:
        _write_picture(page, wanted, svg)  # first: the page may go to a pipe whose reader leaves
    if html is not None:
        html.write(render(page))


def _write_picture(page: Page, wanted: Optional[str], svg: TextIO) -> None:
    picture = choose_picture(page, wanted)
    if wanted is None and len(pictures_of(page)) > 1:
        others = ", ".join(f"'{one.name}'" for one in pictures_of(page) if one != picture)
        print(
            f"gdbmem: of its pictures '{picture.name}' is drawn; --picture chooses: {others}", file=sys.stderr
        )
    svg.write(standalone(picture))


def _stem(operand: str) -> str:
    name = Path(operand.rstrip("/")).name
    return "".join(c if c.isalnum() or c in "._-+#" else "_" for c in name)[:100] or "report"


# A single picture of a page, as SVG.


class DrawnPicture(NamedTuple):
    """A picture of a page."""

    name: str  # the title of its section
    svg: str


def pictures_of(page: Page) -> Sequence[DrawnPicture]:
    """Return the pictures of *page*, in its order."""
    found = [DrawnPicture(one.title, str(one.picture)) for one in page.sections if one.picture]
    if page.explored is not None and page.explored.stack:
        found.insert(0, DrawnPicture("the largest lines at each snapshot", page.explored.stack))
    return found


def choose_picture(page: Page, wanted: Optional[str]) -> DrawnPicture:
    """Return the picture whose name holds *wanted*, without regard to case; None: the first. Raises InputError."""
    found = pictures_of(page)
    names = ", ".join(f"'{one.name}'" for one in found)
    chosen = [one for one in found if wanted is None or wanted.casefold() in one.name.casefold()]
    if not chosen:
        what = "this page has no picture" if not found else f"no picture is named '{printable(wanted or '')}'"
        raise InputError(
            what, slug="no-picture", hint=f"there are {names}" if found else "-o FILE.html writes the page"
        )
    return chosen[0]


def standalone(picture: DrawnPicture) -> str:
    """Return *picture* as an SVG file on a white ground."""
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    head, close, rest = picture.svg.partition(">")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{close}{ground}{rest.rstrip()}\n'
