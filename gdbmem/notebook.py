"""The notebook extension: ``%load_ext gdbmem``, then ``%%memlines`` above a cell."""

from __future__ import annotations

import argparse
import linecache
import shlex
from typing import Any

from gdbmem.line_recorder import BACKENDS, RSS, LineRecorder, plain_tables

_cells = 0


def load_ipython_extension(shell: Any) -> None:
    """Register the magics with IPython's *shell*."""

    def memlines(line: str, cell: str) -> None:
        _memlines(shell, line, cell)

    shell.register_magic_function(memlines, "cell", "memlines")


def _memlines(shell: Any, line: str, cell: str) -> None:
    """Run *cell*, and print how each of its lines changed memory.

    ``%%memlines [--backend rss|uss|tracemalloc] [--function NAME]``: the lines of functions called NAME, too.
    """
    global _cells
    parser = argparse.ArgumentParser(prog="%%memlines", add_help=False, exit_on_error=False)
    parser.add_argument("--backend", choices=BACKENDS, default=RSS)
    parser.add_argument("--function", action="append", default=[])
    try:
        args = parser.parse_args(shlex.split(line))
    except (argparse.ArgumentError, ValueError, SystemExit) as error:
        print(f"%%memlines: {error}")
        return
    _cells += 1
    name = f"<memlines {_cells}>"
    text = shell.transform_cell(cell) if hasattr(shell, "transform_cell") else cell
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    code = compile(text, name, "exec")
    recorder = LineRecorder(args.backend, args.function)
    recorder.add(code)
    recorder.start()
    try:
        exec(code, shell.user_ns)
    finally:
        recorder.stop()
        print(plain_tables(recorder.document()), end="")
