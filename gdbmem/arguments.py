"""Option parsing that the `gdbmem` command and the gdb commands share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any, NoReturn, Optional

from gdbmem.errors import InputError, UsageError
from gdbmem.text import printable

_COLUMNS = 80  # without a terminal


class ParserExit(Exception):  # noqa: N818  (not an error: --help was answered)
    """Raised in place of argparse's exit, which inside gdb would end gdb."""


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """argparse's formatter without shutil, which it uses for the width and which takes 4 ms to import."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("width", _columns() - 2)
        super().__init__(*args, **kwargs)


def _columns() -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(1).columns or _COLUMNS
    except OSError:
        return _COLUMNS


class ArgumentParser(argparse.ArgumentParser):
    """argparse that raises: UsageError for wrong words, ParserExit after --help."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", _HelpFormatter)
        # An abbreviation that works today is ambiguous after the next release.
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", hint=f"see '{self.prog} --help'")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but suggest an option for a superfluous word."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            raise self.unknown(unknown[0])
        return found

    def parse_mixed(self, args: Sequence[str]) -> Any:
        """Parse as parse_args does, but allow an optional operand after options, too: `PID --run DIR NAME`."""
        found, unknown = self.parse_known_intermixed_args(args)
        if unknown:
            raise self.unknown(unknown[0])
        return found

    def unknown(self, word: str, hint: str = "") -> UsageError:
        """Return the error for a *word* too many, with the nearest option, else *hint*."""
        import difflib  # not always needed

        see = f"see '{self.prog} --help'"
        if not word.startswith("-"):
            takes_names = any(not action.option_strings for action in self._actions)
            quotes = "quote a name that contains blanks, or " if takes_names else ""
            return UsageError(
                f"{self.prog} got an extra argument '{printable(word)}'", hint=hint or quotes + see
            )
        option = word.partition("=")[0]
        known = [name[2:] for name in self._option_string_actions if name.startswith("--")]
        close = difflib.get_close_matches(option.lstrip("-"), known, n=1)
        message = f"{self.prog} has no option {printable(option)}"
        return UsageError(message, hint=f"did you mean --{close[0]}?" if close else hint or see)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        # argparse's own words are "invalid int value".
        name = "/".join(action.option_strings) or action.metavar
        try:
            return action.type(arg_string) if callable(action.type) else arg_string
        except InputError as error:
            message = f"{self.prog}: argument {name}: {error.message}"
            raise UsageError(message, slug=error.slug, hint=error.hint) from None
        except ValueError:
            name = action.option_strings[-1] if action.option_strings else action.metavar
            number = "whole number" if action.type is int else "number"
            self.error(f"{name} takes a {number}, not '{printable(arg_string)}'")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # argparse's own words are "argument check: invalid choice: …".
        if action.choices is None or value in action.choices:
            return
        import difflib  # not always needed

        names = [str(choice) for choice in action.choices]
        close = difflib.get_close_matches(str(value), names, n=1)
        said = f"'{printable(str(value))}'"
        if action.option_strings:
            message = f"{self.prog}: {action.option_strings[-1]} can't be {said}"
        else:
            message = f"{self.prog} has no command {said}"
        hint = f"did you mean '{close[0]}'?" if close else f"it is one of: {', '.join(names)}"
        raise UsageError(message, hint=hint)

    def exit(self, status: int = 0, message: Optional[str] = None) -> NoReturn:
        raise ParserExit


def gdb_words(args: argparse.Namespace) -> list[str]:
    """Return the arguments of gdb for -x and --ex."""
    words = [word for script in args.gdb_scripts or () for word in ("-x", script)]
    return words + [word for line in args.gdb_commands or () for word in ("-ex", line)]


def check_alone(args: argparse.Namespace, option: str, others: Sequence[str]) -> None:
    """Refuse *option*, if it was given, together with those of *others* that it would make ineffective."""

    def is_given(name: str) -> bool:
        return getattr(args, name) is not None and getattr(args, name) is not False  # 0 is a valid number

    given = [f"--{name.replace('_', '-')}" for name in others if is_given(name)]
    if is_given(option) and given:
        raise UsageError(
            f"--{option.replace('_', '-')} can't be shown together with {' and '.join(given)}",
            hint="ask for one at a time",
        )


def read_address(text: str) -> int:
    """Return the address *text*, written as gdb prints it. Raises UsageError if it is not an address."""
    try:
        address = int(text, 0)
    except ValueError:
        address = -1
    if not 0 <= address < 1 << 64:
        raise UsageError(f"{printable(text)} is not an address", hint="write it as 0x55d0c0ffee10")
    return address


def split_program(words: Sequence[str]) -> tuple[list[str], Optional[list[str]]]:
    """Split *words* at the first ``--`` into gdbmem's own and the program's (None without ``--``)."""
    if "--" not in words:
        return list(words), None
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1 :])
