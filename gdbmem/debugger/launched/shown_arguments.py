"""The program's arguments as gdb's `show args` says them, and back."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import gdb

from gdbmem.launch.conversation.protocol import NEWLINE


class ShownArguments:
    """The program's arguments in the form that `run` and `show args` share."""

    def __init__(self) -> None:
        self._text = ""  # gdb's, for what follows
        self._arguments: list[str] = []

    def show(self, arguments: Sequence[str]) -> None:
        """Have `show args` say *arguments*."""
        # gdb takes text: a byte that is none is shown by its number.
        text = one_line(shlex.join(arguments)).encode("utf-8", "backslashreplace").decode()
        gdb.execute(f"set args {text}", to_string=True)
        self._text, self._arguments = str(gdb.parameter("args") or ""), list(arguments)

    def show_again(self) -> None:
        """Have `show args` say what it did: gdb 18 takes arguments, without quotes, from what it connects to."""
        if self._text:
            gdb.execute(f"set args {self._text}", to_string=True)

    def read(self, text: str) -> list[str]:
        """Return the arguments that *text*, typed behind `run` or set as gdb's ``args``, stands for.

        Raises ValueError for a quotation that isn't closed.
        """
        if text == self._text:
            return self._arguments
        return [word.replace(f"${NEWLINE}", "\n") for word in shlex.split(text)]


def one_line(words: str) -> str:
    """Return a shell's quoted *words* without line ends, at which gdb would take the rest for its next command."""
    return words.replace("\n", f"'\"${NEWLINE}\"'")
