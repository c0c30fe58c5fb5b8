"""What all of gdbmem's gdb commands share: names, help, arguments, and one sentence on error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

import gdb

from gdbmem.errors import GdbmemError, internal_error
from gdbmem.text import printable

if TYPE_CHECKING:
    import argparse

    from gdbmem.arguments import ArgumentParser

MASSIF_GROUP = "massif"
GENERAL_GROUP = "mem"


class Command(gdb.Command):  # type: ignore[misc]  # gdb's module has no types
    """One gdb command under one of its names.

    A subclass's docstring is what `help` prints: a summary line, the usage with its options, an example.
    (Written by hand: making it from the parser would import argparse while gdb starts. A test compares.)
    """

    names: tuple[str, ...] = ()  # the first is the one that documentation uses
    category = gdb.COMMAND_DATA
    completer: Optional[int] = gdb.COMPLETE_NONE

    def __init__(self, name: str) -> None:
        self.name = name
        lines = (type(self).__doc__ or "").replace("COMMAND", name).rstrip().split("\n")
        self.__doc__ = "\n".join(line[4:] if line.startswith("    ") else line for line in lines)
        if self.completer is None:
            super().__init__(name, self.category)
        else:
            super().__init__(name, self.category, self.completer)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the command's options to *parser*."""

    def run(self, args: argparse.Namespace) -> None:
        """Do it; raise GdbmemError for what the user must be told."""
        raise NotImplementedError

    def words(self, argument: str) -> list[str]:
        """Split what stands behind the command's name."""
        return list(gdb.string_to_argv(argument))

    def parser(self) -> ArgumentParser:
        from gdbmem.arguments import ArgumentParser

        parser = ArgumentParser(prog=self.name, add_help=True)
        self.add_arguments(parser)
        return parser

    def invoke(self, argument: str, from_tty: bool) -> None:
        """Called by gdb. Nothing but gdb.GdbError leaves here: anything else would print a traceback."""
        from gdbmem.arguments import ParserExit

        self.dont_repeat()
        try:
            self.run(self.parser().parse_args(self.words(argument)))
        except ParserExit:
            return
        except GdbmemError as error:
            raise gdb.GdbError(printable(str(error))) from None
        except gdb.GdbError:
            raise
        except gdb.error as error:
            raise gdb.GdbError(printable(str(error))) from None
        except BrokenPipeError:
            return
        except KeyboardInterrupt:
            raise gdb.GdbError(f"{self.name}: interrupted") from None
        except Exception as error:  # noqa: BLE001  (a host: nothing else may leave)
            raise gdb.GdbError(printable(internal_error(error))) from None


def say(text: str) -> None:
    """Print *text*, one line, made safe."""
    gdb.write(printable(text) + "\n")


def warn(text: str) -> None:
    """Print *text* to gdb's stderr."""
    gdb.write(f"gdbmem: {printable(text)}\n", gdb.STDERR)
