"""The base of gdbmem's gdb commands: names, help, arguments, and one sentence on error."""

from __future__ import annotations

import contextlib

import gdb

TYPE_CHECKING = False  # typing itself takes gdb 4 ms to import
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from gdbmem.commands.arguments import ArgumentParser
    from gdbmem.commands.description import GdbCommand


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
        import re  # gdb starts sooner

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
    import importlib  # gdb starts sooner

    module, _, class_name = description.implementation.partition(":")
    found: type[Command] = getattr(importlib.import_module(f"gdbmem.debugger.{module}"), class_name)
    return found(description, name)


def register(descriptions: Sequence[GdbCommand]) -> None:
    """Register each of the commands under each of its names."""
    for description in descriptions:
        for name in description.names:
            RegisteredCommand(description, name)


class RegisteredCommand(gdb.Command):  # type: ignore[misc]  # gdb's module has no types
    """A described command, registered with gdb."""

    def __init__(self, description: GdbCommand, name: str) -> None:
        self.__doc__ = description.help_for(name)
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
            from gdbmem.debugger.overview import completions  # not needed at gdb's start

            return completions(implementation_of(self._description, self._name), text, word, self._completer)
        except Exception:  # noqa: BLE001  (a host: Tab must not print a traceback)
            return []

    def invoke(self, argument: str, from_tty: bool) -> None:
        """Called by gdb. Raises only gdb.GdbError: any other exception would print a traceback."""
        if not self._description.repeats:
            self.dont_repeat()
        with gdb_errors(self._name):
            implementation_of(self._description, self._name).carry_out(argument)


@contextlib.contextmanager
def gdb_errors(name: str) -> Iterator[None]:
    """Turn every exception into a gdb.GdbError with one sentence: gdb would print a traceback of another one.

    *name* is that of the command inside the `with`.
    """
    from gdbmem.commands.arguments import ParserExit  # gdb starts sooner
    from gdbmem.errors import GdbmemError, internal_error  # gdb starts sooner
    from gdbmem.text import printable  # gdb starts sooner

    try:
        yield
    except (ParserExit, BrokenPipeError):
        return
    except gdb.GdbError:
        raise
    except GdbmemError as error:
        raise gdb.GdbError(printable(error.sentence)) from None
    except gdb.error as error:
        raise gdb.GdbError(printable(str(error))) from None
    except KeyboardInterrupt:
        raise gdb.GdbError(f"{name}: interrupted") from None
    except Exception as error:  # noqa: BLE001  (a host: nothing else may leave)
        if isinstance(error, ImportError) and error.name and error.name.split(".")[0] in _PACKAGES:
            raise gdb.GdbError(
                f"{name} needs the Python package {error.name.split('.')[0]}, which gdb's own Python "
                "doesn't have; type 'gdbmem install' in a shell and load gdbmem in a new gdb"
            ) from None
        raise gdb.GdbError(printable(internal_error(error))) from None


def say(text: str) -> None:
    """Print *text*, one line, made safe."""
    from gdbmem.text import printable  # gdb starts sooner

    gdb.write(printable(text) + "\n")


def warn(text: str, *, slug: str = "") -> None:
    """Print *text* to gdb's stderr, with the name of its paragraph in docs/messages.md if it has one."""
    from gdbmem.text import printable  # gdb starts sooner

    name = f" [{slug}]" if slug else ""
    gdb.write(f"gdbmem: {printable(text)}{name}\n", gdb.STDERR)


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
