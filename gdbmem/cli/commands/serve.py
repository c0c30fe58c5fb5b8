"""Run `gdbmem serve`, a web server for this machine only: pages of runs, rebuilt when their files change.

It listens on the loopback address. Every path begins with an unguessable token, pages are requested by number and never
by path, and any other Host name is refused, so that pages of other sites can't reach it (DNS rebinding).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from gdbmem.api.profiles import ReadOptions, Run, current_folder, find_operand
from gdbmem.cli.report_pages import open_browser, page_of
from gdbmem.commands.arguments import ArgumentParser, read_options_from
from gdbmem.errors import GdbmemError, InputError, internal_error
from gdbmem.page.page import IndexRow, Page, render, render_index
from gdbmem.profiles.paths import Query
from gdbmem.runs.run import is_run
from gdbmem.terminal.drawing import source_roots
from gdbmem.text import printable


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Serve until Ctrl-C."""
    arguments = parser.parse_args(argv)
    operands = arguments.operands or [str(current_folder())]
    for operand in operands:
        if not _holds_runs(operand):
            find_operand(operand)
    query = Query(
        source_roots=source_roots(),
        mine=arguments.mine,
        embed_source=True,
        links=arguments.links,
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


_STAMP = "stamp"  # of the index: the address that reports newer versions
_POLL_SECONDS = 0.2  # how long close() may have to wait
_ATTEMPTS = 3  # at a page of files that are being written
_HOSTS = ("127.0.0.1", "localhost")
_FAILED = (
    "this page could not be made, by an error in gdbmem; the terminal in which 'gdbmem serve' runs names it\n"
)


class Served(NamedTuple):
    """A run or profile, and the function that makes its page."""

    name: str
    path: Path
    page: Callable[[], Page]


class Server:
    """Serves pages of the runs and profiles that *served* returns when called."""

    def __init__(self, served: Callable[[], Sequence[Served]], port: int) -> None:
        """Listen on *port* of the loopback address, 0: a free one. Raises OSError."""
        self.served = served
        self.token = secrets.token_urlsafe(24)
        self._http = _Http(("127.0.0.1", port), _Handler)
        self._http.owner = self
        # The stamp of the files when the page was made, and the page.
        self._pages: dict[Path, tuple[str, str]] = {}
        self._numbers: dict[Path, int] = {}
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """The URL of the index, with the token."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._http.server_address[1])

    def serve(self) -> None:
        """Answer requests until Ctrl-C, or close() in another thread."""
        try:
            self._http.serve_forever(poll_interval=_POLL_SECONDS)
        except KeyboardInterrupt:
            print(file=sys.stderr)
        finally:
            self.end()

    def end(self) -> None:
        """Stop listening."""
        self._http.server_close()

    def close(self) -> None:
        """Make serve() return."""
        self._http.shutdown()

    def answer(self, path: str) -> tuple[HTTPStatus, str, str]:
        """Return status, content type and text for *path*, which begins with the token."""
        if path == "/favicon.ico":  # a browser asks for it, and would log a failure
            return HTTPStatus.NO_CONTENT, "text/plain", ""
        given, _, rest = path.lstrip("/").partition("/")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return HTTPStatus.NOT_FOUND, "text/plain", "not found\n"
        served = self._numbered()
        if rest == "":
            return HTTPStatus.OK, "text/html", self._index(served)
        if rest == _STAMP:
            return HTTPStatus.OK, "text/plain", _stamp_of_index(_entries(served))
        kind, _, number = rest.partition("/")
        one = served.get(number)
        if one is None:
            return HTTPStatus.NOT_FOUND, "text/plain", "not found\n"
        if kind == "stamp":
            return HTTPStatus.OK, "text/plain", stamp_of(one.path)
        if kind == "page":
            return self._page(one, f"/{self.token}/stamp/{number}")
        return HTTPStatus.NOT_FOUND, "text/plain", "not found\n"

    def _numbered(self) -> dict[str, Served]:
        # A run keeps its number when others are added.
        return {str(self._numbers.setdefault(one.path, len(self._numbers))): one for one in self.served()}

    def _index(self, served: Mapping[str, Served]) -> str:
        entries = _entries(served)
        return render_index(entries, (f"/{self.token}/{_STAMP}", _stamp_of_index(entries)))

    def _page(self, one: Served, stamp_address: str) -> tuple[HTTPStatus, str, str]:
        with self._lock:
            held = self._pages.get(one.path)
            if held is None or held[0] != stamp_of(one.path):
                page, stamp = _current_page(one)
                page.follows = (stamp_address, stamp)
                held = self._pages[one.path] = (stamp, render(page))
            return HTTPStatus.OK, "text/html", held[1]


def _current_page(one: Served) -> tuple[Page, str]:
    """Return the page of *one* and the stamp of its files; one that fails while they change is made again."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        stamp = stamp_of(one.path)
        try:
            return one.page(), stamp
        except GdbmemError as error:
            page = Page(one.name, notices=[str(error)])
        if not attempts_left or stamp_of(one.path) == stamp:
            break
    return page, stamp


def _entries(served: Mapping[str, Served]) -> list[IndexRow]:
    return [IndexRow(one.name, f"page/{number}", _changed(one.path)) for number, one in served.items()]


def _stamp_of_index(entries: Sequence[IndexRow]) -> str:
    return hashlib.sha256(repr(entries).encode()).hexdigest()[:16]


def stamp_of(path: Path) -> str:
    """Return a text that differs as soon as *path*, or a file in it if it is a folder, has changed."""
    newest, size, count = 0, 0, 0
    for found in _files(path):
        newest, size, count = max(newest, found.st_mtime_ns), size + found.st_size, count + 1
    return f"{newest:x}-{size:x}-{count:x}"


def _files(path: Path) -> list[os.stat_result]:
    found = []
    for folder, _, names in os.walk(path) if path.is_dir() else [(str(path.parent), [], [path.name])]:
        for name in names:
            try:
                found.append((Path(folder) / name).lstat())
            except OSError:  # deleted in between
                continue
    return found


def _changed(path: Path) -> float:
    return max((found.st_mtime for found in _files(path)), default=0.0)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    owner: Server

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that disconnected."""


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    server_version = "gdbmem"
    sys_version = ""
    timeout = 10  # seconds, for an idle connection

    def do_GET(self) -> None:
        host = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host") or ""
        if host not in _HOSTS:
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", "not the name of this server\n")
            return
        try:
            found = self.server.owner.answer(self.path.partition("?")[0])
        except Exception as error:  # noqa: BLE001  (a host: nothing else may leave)
            print(f"gdbmem: {printable(internal_error(error))}", file=sys.stderr)
            found = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", _FAILED
        self._send(*found)

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Write no log line for requests: their paths contain the token."""
