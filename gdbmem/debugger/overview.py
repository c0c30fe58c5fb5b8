"""`gdbmem`: an overview of the other commands, and the explanation of a message."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional, Union

import gdb

from gdbmem.debugger.command import Command
from gdbmem.terminal.console import explain_message

if TYPE_CHECKING:
    from gdbmem.commands.description import Option


class OverviewCommand(Command):
    """Print the overview that `help gdbmem` prints, or the explanation of a message."""

    def run(self, args: argparse.Namespace) -> None:
        if args.name is None:
            gdb.execute("help gdbmem")
            return

        gdb.write(explain_message(args.name))


# Completion by Tab of the options and operands of gdbmem's gdb commands, as their descriptions have them.


# A gdb command that takes such operands.
_LIKE = {gdb.COMPLETE_LOCATION: "break", gdb.COMPLETE_EXPRESSION: "print", gdb.COMPLETE_FILENAME: "file"}
# gdb's completer for the argument of an option, by its placeholder in --help.
_BY_METAVAR = {
    "FILE": gdb.COMPLETE_FILENAME,
    "FOLDER": gdb.COMPLETE_FILENAME,
    "LOCATION": gdb.COMPLETE_LOCATION,
    "ADDRESS": gdb.COMPLETE_EXPRESSION,
}


def completions(
    command: Command, text: str, word: Optional[str], completer: Optional[int]
) -> Union[list[str], int]:
    """Return candidates for *word*, the part of the typed *text* after gdb's last word break.

    *completer* is gdb's for the command's operands, which completes them itself if no option precedes them.
    """
    *before, typed = text.split(" ")
    options = command.description.options()
    if before and (option := _option(options, before[-1])) is not None:
        known = _arguments(command, option, typed)
    elif typed.startswith("--") and "=" in typed:
        name, _, begun = typed.partition("=")
        option = _option(options, name)
        known = [f"{name}={one}" for one in _arguments(command, option, begun)] if option is not None else []
    elif typed.startswith("-"):
        known = ["--help", *(n for one in options for n in one.names if n.startswith("--"))]
    elif completer is None:
        known = _words(command.operands())
    elif not any(one.startswith("-") for one in before):
        return completer
    else:
        known = _by_gdb(typed, completer)
    # gdb also breaks words at a dash or a hash, and expects the rest from there.
    return [
        one[len(typed) - len(word or "") :] for one in known if one.startswith(typed) and one.isprintable()
    ]


def _option(options: Sequence[Option], name: str) -> Optional[Option]:
    """Return the option *name* if it takes an argument."""
    return next((one for one in options if name in one.names and one.metavar), None)


def _arguments(command: Command, option: Option, typed: str) -> list[str]:
    """Return candidates for the argument of *option* that begins with *typed*."""
    if option.choices:
        return list(option.choices)
    names = _words(command.saved_names()) if option.dest == "since" else []
    completer = _BY_METAVAR.get(option.metavar)
    return names if completer is None else [*names, *_by_gdb(typed, completer)]


def _by_gdb(typed: str, completer: int) -> list[str]:
    """Return gdb's own completions of *typed*, from a gdb command that takes such operands."""
    like = _LIKE.get(completer)
    if like is None:
        return []
    lines = str(gdb.execute(f"complete {like} {typed}", to_string=True)).splitlines()
    found = [line[len(like) + 1 :] for line in lines]
    return _words(found) if completer == gdb.COMPLETE_FILENAME else found


def _words(names: list[str]) -> list[str]:
    """Return the *names* that consist of one word; others would need quotes."""
    return [name for name in names if " " not in name]
