"""Run `gdbmem report`."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional, TextIO

from gdbmem.cli.pages import open_browser, page_of
from gdbmem.commands.arguments import ArgumentParser, read_options_from
from gdbmem.errors import InputError, MissingToolError, ToolError, UsageError
from gdbmem.files import spool_operands
from gdbmem.page.page import Page, render
from gdbmem.profiles.paths import Query, compile_regex, counts_blocks, read_known
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
        mine=compile_regex(arguments.mine, "--mine"),
        by_blocks=counts_blocks(arguments.metric),
        embed_source=arguments.embed_source,
    )
    arguments.operands = spool_operands(arguments.operands)
    target = arguments.output
    if target is None and not (arguments.svg or arguments.png):
        target = f"{_stem(arguments.operands[-1])}.html"
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(open_named(name, force=arguments.force))
            for name in (target, arguments.svg, arguments.png)
        ]
        with Working("reading " + ", ".join(map(str, arguments.operands))):
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
        raise UsageError("--source has no effect on a page without source lines", hint="add --embed-source")


def _write(
    page: Page, wanted: Optional[str], html: Optional[TextIO], svg: Optional[TextIO], png: Optional[TextIO]
) -> None:
    if html is not None:
        html.write(render(page))
    if svg is None and png is None:
        return

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


# Write a single picture of a page into a file: unchanged SVG, or PNG drawn by an installed Chromium, offline.


_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
_SECONDS = 60
_PIXELS_A_UNIT = 2
_LARGEST = 16384  # pixels: the largest height that a browser draws
_SIZE = re.compile(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"')
_PNG = b"\x89PNG\r\n\x1a\n"
_PAGE = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    "<style>body{{margin:0;background:#fff}}svg{{display:block;width:{width}px;height:{height}px}}</style>"
    "</head><body>{svg}</body></html>\n"
)
# Nothing is fetched: the page's policy forbids it, and no host name is resolved.
_OFFLINE = (
    "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-sync", "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9",
)  # fmt: skip


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


def png_of(picture: DrawnPicture) -> bytes:
    """Return *picture* as a PNG, drawn by an installed Chromium. Raises ToolError if there is none, or it fails."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise MissingToolError(
            "a PNG is drawn by Chromium, and none is installed",
            slug="no-chromium",
            hint="install it (on Debian: apt install chromium), or write SVG: --svg FILE",
        )
    size = _SIZE.search(picture.svg)
    width, height = (math.ceil(float(number)) for number in size.groups()) if size else (960, 600)
    scale = max(1, min(_PIXELS_A_UNIT, _LARGEST // max(width, height, 1)))
    with tempfile.TemporaryDirectory(prefix="gdbmem-") as folder:
        page, target = Path(folder, "picture.html"), Path(folder, "picture.png")
        page.write_text(
            _PAGE.format(svg=picture.svg, width=width, height=height),
            encoding="utf-8",
            errors="backslashreplace",
        )
        options = [*_OFFLINE, f"--user-data-dir={folder}/profile", f"--window-size={width},{height}"]
        options += [f"--force-device-scale-factor={scale}", f"--screenshot={target}"]
        options += ["--no-sandbox"] if os.geteuid() == 0 else []  # without it Chromium refuses to run as root
        said = _run([browser, *options, page.as_uri()], folder)
        drawn = target.read_bytes() if target.is_file() else b""
    if not drawn.startswith(_PNG):
        last = said.strip().rpartition("\n")[2][:200]
        raise ToolError(
            f"{browser} drew nothing{f': {printable(last)}' if last else ''}",
            slug="chromium-failed",
            hint="write SVG: --svg FILE",
        )
    return drawn


def _run(argv: Sequence[str], home: str) -> str:
    """Run the browser in its own session, and end that with it; return its output."""
    environment = {**os.environ, "HOME": home}
    browser = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    try:
        return browser.communicate(timeout=_SECONDS)[1].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        return f"it took more than {_SECONDS} s"
    finally:
        if browser.poll() is None:
            os.killpg(browser.pid, signal.SIGKILL)
            browser.communicate()
