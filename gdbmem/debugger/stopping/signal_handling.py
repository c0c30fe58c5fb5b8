"""gdb's settings for a signal, as `handle` makes them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import NamedTuple

import gdb


class Handling(NamedTuple):
    """True if gdb stops at a signal, prints it, and passes it to the program."""

    stop: bool
    print: bool
    passed: bool

    def words(self) -> str:
        names = (("stop", self.stop), ("print", self.print), ("pass", self.passed))
        return " ".join(name if wanted else f"no{name}" for name, wanted in names)


def handling(name: str) -> Handling:
    """Return gdb's settings for the signal *name*."""
    text = str(gdb.execute(f"info signals {name}", to_string=True))
    words = re.findall(rf"^{name}\s+(Yes|No)\s+(Yes|No)\s+(Yes|No)", text, re.M)
    return Handling(*(word == "Yes" for word in words[0])) if words else Handling(True, True, True)


def handle(name: str, words: str) -> None:
    """Make gdb handle the signal *name* as *words* specify."""
    confirm = bool(gdb.parameter("confirm"))
    if confirm:  # gdb asks before it changes what SIGINT does
        gdb.execute("set confirm off")
    try:
        gdb.execute(f"handle {name} {words}", to_string=True)
    finally:
        if confirm:
            gdb.execute("set confirm on")


@contextlib.contextmanager
def stopping_at(name: str) -> Iterator[None]:
    """Make gdb stop at the signal *name*, and restore the user's `handle` setting afterwards."""
    before = handling(name)
    if before.stop:
        yield
        return
    handle(name, "stop print")
    try:
        yield
    finally:
        handle(name, before.words())


def stops_at(name: str) -> bool:
    """Return whether gdb stops at the signal *name* by the user's `handle` setting."""
    return handling(name).stop
