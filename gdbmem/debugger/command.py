"""The base of gdbmem's gdb commands: names, help, arguments, and one sentence on error."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Callable, Optional, Union

import gdb

from gdbmem.errors import GdbmemError, internal_error
from gdbmem.text import printable

if TYPE_CHECKING:
    import argparse

    from gdbmem.commands.arguments import ArgumentParser
    from gdbmem.commands.description import GdbCommand, Option

_PACKAGES = ("pygments",)  # `gdbmem install` provides them to gdb's Python


_parsers: dict[str, ArgumentParser] = {}


class Command:
    """The implementation of a gdb command, under one of its names."""

    def __init__(self, description: GdbCommand, name: str) -> None:
        self.description = description
        self.name = name

    def run(self, args: argparse.Namespace) -> None:
        """Execute it; raise GdbmemError for an error message."""
        raise NotImplementedError

    def words(self, argument: str) -> list[str]:
        """Split the text after the command's name."""
        return list(gdb.string_to_argv(argument))

    def parser(self) -> ArgumentParser:
        """Return the command's parser, which is made once: argparse looks for translations each time."""
        if self.name not in _parsers:
            _parsers[self.name] = self.description.parser(self.name)
        return _parsers[self.name]

    def leading_options(self, text: str) -> tuple[list[str], str]:
        """Return the words of the options that *text* begins with, and the rest, as it was typed; some take a value."""
        with_value = "|".join(name for one in self.description.options() if one.metavar for name in one.names)
        value = r"(?:\"[^\"]*\"|'[^']*'|\S+)"
        pattern = re.compile(rf"\s*((?:{with_value})(?:=|\s+){value}|--\w[\w-]*|-h)(?=\s|$)")
        options: list[str] = []
        at = 0
        while match := pattern.match(text, at):
            options += gdb.string_to_argv(match[1])
            at = match.end()
        return options, text[at:].strip()

    def operands(self) -> list[str]:
        """Return candidates for an operand, for completion."""
        return [word for one in self.description.options() if not one.names for word in one.choices]

    def saved_names(self) -> list[str]:
        """Return the names of the command's saved results, for completion."""
        return []

    def carry_out(self, argument: str) -> None:
        """Parse *argument* and run."""
        self.run(self.parser().parse_args(self.words(argument)))


def implementation_of(description: GdbCommand, name: str) -> Command:
    """Import what runs the described command, and return it under *name*."""
    module, _, class_name = description.implementation.partition(":")
    found: type[Command] = getattr(importlib.import_module(f"gdbmem.debugger.{module}"), class_name)
    return found(description, name)


def register(descriptions: Sequence[GdbCommand]) -> None:
    """Register each of the commands under each of its names."""
    for description in descriptions:
        for name in description.names:
            RegisteredCommand(description, name)


def encodable(text: str) -> str:
    """Return *text* in gdb's own character set: at a help text or an error beyond it, gdb itself fails.

    It is ASCII where no locale is set, as in a container; Python's is UTF-8 there.
    """
    if text.isascii() or '; currently UTF-8"' in gdb.execute("show host-charset", to_string=True):
        return text
    return text.replace("…", "...").encode("ascii", "backslashreplace").decode()


class RegisteredCommand(gdb.Command):  # type: ignore[misc]  # gdb's module has no types
    """A described command, registered with gdb."""

    def __init__(self, description: GdbCommand, name: str) -> None:
        self.__doc__ = encodable(description.help_for(name))
        self._description = description
        self._name = name
        category = getattr(gdb, f"COMMAND_{description.category.upper()}")
        self._completer = (
            getattr(gdb, f"COMPLETE_{description.completer.upper()}") if description.completer else None
        )
        if description.is_prefix and self._completer is not None:  # a second command follows
            super().__init__(name, category, self._completer, True)
        else:
            self.complete = self._complete
            super().__init__(name, category, prefix=description.is_prefix)

    def _complete(self, text: str, word: str | None) -> list[str] | int:
        try:
            return completions(implementation_of(self._description, self._name), text, word, self._completer)
        except Exception:  # noqa: BLE001  (a host: Tab must not print a traceback)
            return []

    def invoke(self, argument: str, from_tty: bool) -> None:
        """Called by gdb. Raises only gdb.GdbError: any other exception would print a traceback."""
        if not self._description.repeats:
            self.dont_repeat()
        step_in_place()
        with gdb_errors(self._name), _json_alone("--json" in argument.split()):
            implementation_of(self._description, self._name).carry_out(argument)


@functools.cache  # looking the setting up takes longer than the rest of a small command's preparation
def step_in_place() -> None:
    """Make gdb step over a breakpoint at the instruction itself, unless the user has chosen how.

    By itself gdb executes a copy elsewhere, for which it changes a register if an operand's address is relative to the
    instruction's. If a signal or a stop comes instead, gdb before 14 leaves that register changed.
    """
    if not hasattr(gdb, "notify_mi") and gdb.parameter("displaced-stepping") is None:
        gdb.execute("set displaced-stepping off", to_string=True)


@contextlib.contextmanager
def gdb_errors(name: str) -> Iterator[None]:
    """Turn every exception into a gdb.GdbError with one sentence: gdb would print a traceback of another one.

    *name* is that of the command inside the `with`.
    """
    from gdbmem.commands.arguments import ParserExit  # gdb starts sooner

    try:
        yield
    except (ParserExit, BrokenPipeError):
        return
    except gdb.GdbError:
        raise
    except GdbmemError as error:
        raise gdb.GdbError(encodable(printable(error.sentence))) from None
    except gdb.error as error:
        raise gdb.GdbError(encodable(printable(str(error)))) from None
    except KeyboardInterrupt:
        raise gdb.GdbError(f"{name}: interrupted") from None
    except Exception as error:  # noqa: BLE001  (a host: nothing else may leave)
        if isinstance(error, ImportError) and error.name and error.name.split(".")[0] in _PACKAGES:
            raise gdb.GdbError(
                f"{name} needs the Python package {error.name.split('.')[0]}, which gdb's own Python "
                "doesn't have; type 'gdbmem install' in a shell and load gdbmem in a new gdb"
            ) from None
        raise gdb.GdbError(encodable(printable(internal_error(error)))) from None


def say(text: str) -> None:
    """Print *text*, one line, made safe."""
    gdb.write(printable(text) + "\n")


hearers: list[
    Callable[[str, str], None]
] = []  # of the texts and slugs of warnings, where no user reads gdb's stderr
_prints_json = False


@contextlib.contextmanager
def _json_alone(asked: bool) -> Iterator[None]:
    """Keep messages out of what a script reads by gdb.execute(to_string=True), if it has *asked* for JSON.

    gdb takes its own standard error for that, too.
    """
    global _prints_json
    before, _prints_json = _prints_json, asked
    try:
        yield
    finally:
        _prints_json = before


def warn(text: str, *, slug: str = "") -> None:
    """Print *text* to gdb's stderr, with the name of its paragraph in docs/messages.md if it has one."""
    for hear in hearers:
        hear(text, slug)
    name = f" [{slug}]" if slug else ""
    line = f"gdbmem: {printable(text)}{name}\n"
    if _prints_json:
        with contextlib.suppress(OSError):
            os.write(2, line.encode(errors="backslashreplace"))
    else:
        gdb.write(line, gdb.STDERR)


def started_interpreter() -> str:
    """Return the interpreter that gdb was started with, such as mi3 or dap; "" for its console."""
    with open("/proc/self/cmdline", "rb") as stream:  # noqa: PTH123  (gdb starts sooner)
        words = stream.read().decode("utf-8", "replace").split("\0")
    words = words[: words.index("--args")] if "--args" in words else words
    for word, following in zip(words, words[1:]):  # gdb doesn't tell Python
        name, separator, value = word.partition("=")
        if word[:1] == "-" and name.lstrip("-")[:1] == "i" and "interpreter".startswith(name.lstrip("-")):
            return value if separator else following
    return ""


class OverviewCommand(Command):
    """Print the overview that `help gdbmem` prints, or the explanation of a message."""

    def run(self, args: argparse.Namespace) -> None:
        if args.name is None:
            gdb.execute("help gdbmem")
            return
        from gdbmem.messages import explain_message  # gdb starts sooner

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
