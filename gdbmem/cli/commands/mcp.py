"""Run `gdbmem mcp`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from gdbmem.cli.start import unwind_when_ended
from gdbmem.commands.arguments import ArgumentParser
from gdbmem.errors import InputError
from gdbmem.mcp.calls import Toolbox
from gdbmem.mcp.server import MOST_LINE_BYTES, Server
from gdbmem.text import printable


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)
    folder = Path(args.folder or ".")
    if not folder.is_dir():
        raise InputError(
            f"{printable(args.folder)} is not a folder", slug="outside-folder", hint="name one with --folder"
        )
    unwind_when_ended()
    toolbox = Toolbox(folder)
    try:
        Server(toolbox, sys.stdout.buffer, may_run=args.allow_run).serve(_lines(sys.stdin.buffer))
    finally:
        toolbox.end()
    return 0


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of *stream*; of one that is too long, MOST_LINE_BYTES + 1 bytes."""
    while line := stream.readline(MOST_LINE_BYTES + 1):
        yield line
        while len(line) > MOST_LINE_BYTES and not line.endswith(b"\n"):
            line = stream.readline(MOST_LINE_BYTES + 1)
