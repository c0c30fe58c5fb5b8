"""The base of gdbmem's gdb commands: names, help, arguments, and one sentence on error."""

from __future__ import annotations

import gdb

TYPE_CHECKING = False  # typing itself takes gdb 4 ms to import
if TYPE_CHECKING:
    import argparse

    from gdbmem.arguments import ArgumentParser  # gdb starts 4 ms sooner


_PACKAGES = ("pygments",)  # `gdbmem install` provides them to gdb's Python


class Declared:
    """A gdb command as data. (No dataclass: importing that module takes gdb longer than all of these do.)"""

    __slots__ = ("category", "completer", "implementation", "is_prefix", "names", "repeats", "text")

    def __init__(
        self,
        *,
        names: tuple[str, ...],
        implementation: str,
        category: int,
        completer: int | None,
        text: str,
        is_prefix: bool = False,
        repeats: bool = False,
    ) -> None:
        self.names = names  # the first is the one that documentation uses
        self.implementation = implementation  # module:class in this folder
        self.category = category
        self.completer = completer  # gdb's; None: the command's options and operands
        self.text = text  # text of `help`: a summary line, the usage and its options, an example
        self.is_prefix = is_prefix  # prefix of commands of two words
        self.repeats = repeats  # an empty line repeats it

    def help_for(self, name: str) -> str:
        """Return the text of `help` for one of the command's names."""
        return self.text.replace("COMMAND", name).rstrip()

    def load(self) -> type[Command]:
        """Import the implementation."""
        import importlib  # 2 ms of gdb's start

        module, _, name = self.implementation.partition(":")
        found: type[Command] = getattr(importlib.import_module(f"gdbmem.debugger.{module}"), name)
        return found


_parsers: dict[tuple[type[Command], str], ArgumentParser] = {}


class Command:
    """The implementation of a gdb command, under one of its names."""

    def __init__(self, name: str) -> None:
        self.name = name

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the command's options to *parser*."""

    def run(self, args: argparse.Namespace) -> None:
        """Execute it; raise GdbmemError for an error message."""
        raise NotImplementedError

    def words(self, argument: str) -> list[str]:
        """Split the text after the command's name."""
        return list(gdb.string_to_argv(argument))

    def parser(self) -> ArgumentParser:
        """Return the command's parser, which is made once: argparse looks for translations each time."""
        key = type(self), self.name
        if key not in _parsers:
            from gdbmem.arguments import ArgumentParser  # gdb starts 4 ms sooner

            _parsers[key] = ArgumentParser(prog=self.name, add_help=True)
            self.add_arguments(_parsers[key])
        return _parsers[key]

    def operands(self) -> list[str]:
        """Return candidates for an operand, for completion."""
        return [
            str(word) for action in self.parser()._positionals._group_actions for word in action.choices or ()
        ]

    def saved_names(self) -> list[str]:
        """Return the names of the command's saved results, for completion."""
        return []

    def carry_out(self, argument: str) -> None:
        """Parse *argument* and run."""
        self.run(self.parser().parse_args(self.words(argument)))


class GdbCommand(gdb.Command):  # type: ignore[misc]  # gdb's module has no types
    """A declared command, registered with gdb."""

    def __init__(self, declared: Declared, name: str) -> None:
        self.__doc__ = declared.help_for(name)
        self._declared = declared
        self._name = name
        if declared.is_prefix and declared.completer is not None:  # a second command follows
            super().__init__(name, declared.category, declared.completer, True)
        else:
            self.complete = self._complete
            super().__init__(name, declared.category, prefix=declared.is_prefix)

    def _complete(self, text: str, word: str | None) -> list[str] | int:
        try:
            from gdbmem.debugger.overview import completions  # not needed at gdb's start

            return completions(self._declared.load()(self._name), text, word, self._declared.completer)
        except Exception:  # noqa: BLE001  (a host: Tab must not print a traceback)
            return []

    def invoke(self, argument: str, from_tty: bool) -> None:
        """Called by gdb. Raises only gdb.GdbError: any other exception would print a traceback."""
        from gdbmem.arguments import ParserExit  # gdb starts 4 ms sooner
        from gdbmem.errors import GdbmemError, internal_error  # gdb starts 4 ms sooner
        from gdbmem.text import printable  # gdb starts 4 ms sooner

        if not self._declared.repeats:
            self.dont_repeat()
        try:
            self._declared.load()(self._name).carry_out(argument)
        except (ParserExit, BrokenPipeError):
            return
        except gdb.GdbError:
            raise
        except GdbmemError as error:
            raise gdb.GdbError(printable(error.sentence)) from None
        except gdb.error as error:
            raise gdb.GdbError(printable(str(error))) from None
        except KeyboardInterrupt:
            raise gdb.GdbError(f"{self._name}: interrupted") from None
        except Exception as error:  # noqa: BLE001  (a host: nothing else may leave)
            if isinstance(error, ImportError) and error.name and error.name.split(".")[0] in _PACKAGES:
                raise gdb.GdbError(
                    f"{self._name} needs the Python package {error.name.split('.')[0]}, which gdb's own Python "
                    "doesn't have; type 'gdbmem install' in a shell and load gdbmem in a new gdb"
                ) from None
            raise gdb.GdbError(printable(internal_error(error))) from None


def say(text: str) -> None:
    """Print *text*, one line, made safe."""
    from gdbmem.text import printable  # gdb starts 4 ms sooner

    gdb.write(printable(text) + "\n")


def warn(text: str, *, slug: str = "") -> None:
    """Print *text* to gdb's stderr, with the name of its paragraph in docs/messages.md if it has one."""
    from gdbmem.text import printable  # gdb starts 4 ms sooner

    name = f" [{slug}]" if slug else ""
    gdb.write(f"gdbmem: {printable(text)}{name}\n", gdb.STDERR)
