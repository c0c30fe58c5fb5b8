"""Properties of gdb's terminal for reports: its width, and whether it supports colours."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Optional, TextIO

import gdb

if TYPE_CHECKING:
    from gdbmem.terminal.console import Console


def console_on(stream: TextIO) -> Console:
    """Return a console that draws on *stream*: gdb's own standard output, or a file.

    gdb's `set width`, `set style enabled`, NO_COLOR and a dumb terminal are respected.
    """
    from gdbmem.terminal.console import make_console  # gdb starts sooner

    to_terminal = stream is sys.stdout and os.isatty(1)
    able = os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")
    color = to_terminal and able and bool(_parameter("style enabled"))
    # An unlimited width is None or 0.
    return make_console(stream, width=(_parameter("width") or None) if to_terminal else None, color=color)


def _parameter(name: str) -> Any:
    try:
        return gdb.parameter(name)
    except RuntimeError:  # this gdb doesn't have it
        return None


# gdb's output and the names that it knows, also where they hold bytes that are not UTF-8.
#
# Some gdbs can't hand such a name to Python: they raise UnicodeDecodeError. Files are the user's, so any name may
# come.


def gdb_text(command: str) -> str:
    """Return the output of gdb's *command*, which must have no effect; it may be executed twice."""
    try:
        return str(gdb.execute(command, to_string=True))
    except UnicodeDecodeError:
        return piped_text(command)


def piped_text(command: str) -> str:
    """Return the output of gdb's *command* by way of gdb's `pipe`; bytes that are not UTF-8 are lone surrogates."""
    import tempfile  # gdb starts sooner

    # The name goes through a shell: TMPDIR may hold anything.
    with tempfile.NamedTemporaryFile(prefix="gdbmem-", dir="/tmp") as answer:
        gdb.execute(f"pipe {command} | cat >{answer.name}", to_string=True)
        return answer.read().decode("utf-8", "surrogateescape")


def symbol_at(address: int, *, demangled: Optional[bool] = None) -> str:
    """Return gdb's name of *address*, with the offset in the symbol: ``table + 16``; "" if it has none.

    *demangled*: or not, whatever the user's `set print demangle` is.
    """
    setting = "" if demangled is None else f"with print demangle {'on' if demangled else 'off'} -- "
    # In C, as not each language has such numbers: where a command fails in a breakpoint's stop(), gdb resumes the
    # program, but waits for it no longer.
    try:
        text = gdb_text(f"with language c -- {setting}info symbol {address:#x}")
    except gdb.error:
        return ""
    name, found, _ = text.partition(" in section ")
    return name if found else ""


def source_file(symtab: Optional[gdb.Symtab]) -> Optional[str]:
    """Return the full name of the file of *symtab*; None without one, or if Python can't have it."""
    try:
        return None if symtab is None else str(symtab.fullname())
    except UnicodeDecodeError:
        return None


def file_name(symtab: gdb.Symtab) -> str:
    """Return the name of the file of *symtab* as the compiler recorded it; "?" if Python can't have it."""
    try:
        return str(symtab.filename)
    except UnicodeDecodeError:
        return "?"


def library_at(address: int) -> Optional[str]:
    """Return the library with the code at *address*; None if it is the program's, "?" if Python can't have its name."""
    try:
        name: Optional[str] = gdb.solib_name(address)
    except UnicodeDecodeError:
        return "?"
    return name
