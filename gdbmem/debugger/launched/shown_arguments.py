"""Converting the program's arguments to and from gdb's `show args`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import gdb

from gdbmem.launch.conversation.protocol import NEWLINE


class ShownArguments:
    """The program's arguments in the form that `run` and `show args` share."""

    def __init__(self) -> None:
        self._text = ""  # of gdb, for what follows
        self._arguments: list[str] = []

    def show(self, arguments: Sequence[str]) -> None:
        """Make `show args` print *arguments*."""
        # gdb takes text: an invalid byte is shown by its number.
        text = one_line(shlex.join(arguments)).encode("utf-8", "backslashreplace").decode()
        gdb.execute(f"set args {text}", to_string=True)
        self._text, self._arguments = str(gdb.parameter("args") or ""), list(arguments)

    def show_again(self) -> None:
        """Restore `show args`: gdb 18 takes the arguments, without quotes, from the target that it connects to."""
        if self._text:
            gdb.execute(f"set args {self._text}", to_string=True)

    def read(self, text: str) -> list[str]:
        """Parse *text*, typed after `run` or set as gdb's ``args``, into arguments.

        Raises ValueError for a quotation that isn't closed.
        """
        if text == self._text:
            return self._arguments
        return [word.replace(f"${NEWLINE}", "\n") for word in shlex.split(text)]


def one_line(words: str) -> str:
    """Return a shell's quoted *words* without newlines, after which gdb would read the rest as its next command."""
    return words.replace("\n", f"'\"${NEWLINE}\"'")
