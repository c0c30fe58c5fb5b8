"""Option parsing that the `gdbmem` command and the gdb commands share, and the values of options."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Callable, NoReturn, Optional

from gdbmem.errors import InputError, UsageError
from gdbmem.text import parse_duration, parse_regex, parse_size, printable

if TYPE_CHECKING:
    from gdbmem.api.profiles import ReadOptions
    from gdbmem.gates.reports import CiFile
    from gdbmem.model.heap_graph import HeapLimit
    from gdbmem.recording.triggers import Condition

_COLUMNS = 80  # without a terminal


class ParserExit(Exception):  # noqa: N818  (not an error: --help was answered)
    """Raised in place of argparse's exit, which inside gdb would end gdb."""


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """argparse's formatter without shutil, which it uses for the width and which takes 4 ms to import."""

    def __init__(self, *args: Any, is_action: bool = False, **kwargs: Any) -> None:
        """*is_action*: the parser of a command's second word."""
        self._is_action = is_action
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

    def __init__(self, *args: Any, is_action: bool = False, **kwargs: Any) -> None:
        """*is_action*: the parser of a command's second word."""
        self._is_action = is_action
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

    def parse_known_args(  # type: ignore[override]  # declared with overloads
        self, args: Any = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as argparse does; a superfluous word after a command's second word is an error of that one.

        The number in `--try 4711` is an operand: it can't be the value, which may be left out.
        """
        words = list(sys.argv[1:] if args is None else args)
        for number, word in enumerate(words[:-1]):
            if word == "--":
                break
            option = self._option_string_actions.get(word)
            if option is not None and option.nargs == "?" and words[number + 1].isdigit():
                words[number] = f"{word}={option.const}"
        found, unknown = super().parse_known_args(words, namespace)
        if unknown and self._is_action:
            raise self.unknown(unknown[0])
        return found, unknown

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


# Of explain and memexplain: the views of a ledger, then the other options that say what to do with it.
_LEDGER_VIEWS = ("sizes", "pinners", "paths", "types", "arena")
LEDGER_OPTIONS = (*_LEDGER_VIEWS, "chunk", "bins", "map", "html", "remedies", "save", "since")


def check_views_apart(args: argparse.Namespace) -> None:
    """Refuse views of a ledger that can't be shown at once, and a name for a picture that is none."""
    check_alone(args, "since", (*_LEDGER_VIEWS, "remedies", "chunk", "bins"))
    check_alone(args, "remedies", (*_LEDGER_VIEWS, "chunk", "bins"))
    check_alone(args, "chunk", (*_LEDGER_VIEWS, "bins"))
    check_alone(args, "bins", _LEDGER_VIEWS)
    if args.map is not None:
        from gdbmem.terminal.console import picture_kind  # only for --map

        picture_kind(args.map, "--map")


def check_whole(args: argparse.Namespace) -> None:
    """Raise UsageError for options that don't go together, as those that show a part, where the whole is saved."""
    part = next((name for name in ("without", "leaks", "block", "type") if getattr(args, name)), None)
    part = f"by {args.by}" if args.by in ("object", "thread") else part
    if args.type and (args.leaks or args.block or args.by in ("type", "size")):
        raise UsageError("--type lists holders", hint="leave --leaks, --block, --by type and --by size out")
    if getattr(args, "paths", None) and (args.since or args.block):
        raise UsageError("--paths is about the rows of a heap", hint="leave --since and --block out")
    whole = next((name for name in ("save", "since") if getattr(args, name) is not None), None)
    if part and whole:
        raise UsageError(
            f"--{whole} is about the whole heap, --{part} about a part of it", hint="leave one of them out"
        )


_TABLES = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}


def columns_asked_for(args: argparse.Namespace) -> Optional[str]:
    """Return the format of tables that -o asks for, by the file's name; None: text or JSON.

    Raises UsageError beside options that show something else than all live blocks.
    """
    kind = _TABLES.get(PurePath(args.output or "").suffix.lower())
    other = next(
        (name for name in ("json", "since", "without", "leaks", "block", "type") if getattr(args, name)), None
    )
    if kind is not None and other is not None:
        raise UsageError(
            f"-o {args.output} is about all live blocks, --{other} about something else",
            hint="leave it out, or name a file that does not end in .parquet, .arrow or .feather",
        )
    return kind


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


def read_options_from(arguments: argparse.Namespace) -> ReadOptions:
    """Return the ReadOptions of the options of add_reading_options()."""
    from pathlib import Path  # as the next

    from gdbmem.api.profiles import ReadOptions  # for commands that read profiles

    options = ReadOptions(
        arguments.format,
        arguments.metric,
        [str(Path(folder)) for folder in arguments.binaries or ()],
        by_size=getattr(arguments, "by", None) == "size",
        by_thread=getattr(arguments, "by", None) == "thread",
        begin=getattr(arguments, "begin", None),
        end=getattr(arguments, "end", None),
        progress=_print_progress,
    )
    options.check()
    return options


def kind_asked(arguments: argparse.Namespace) -> Optional[str]:
    """Return the kind of saved result that --ledger, --containers or --heap asks for; None if it is none of them."""
    return next((kind for kind in ("ledger", "containers", "heap") if getattr(arguments, kind)), None)


def _print_progress(text: str) -> None:
    from gdbmem.terminal.console import Working  # as above

    if sys.stderr.isatty():
        Working.print_above(f"gdbmem: {printable(text)}")


# Operands that are processes.


def pid_or_core(args: argparse.Namespace, command: str) -> Optional[int]:
    """Return the process id that *args* name; None for a core. Raises UsageError."""
    if args.core is None:
        return checked_pid(args.target, command)
    if args.fork is not None or args.swapped:
        raise UsageError("a core is a copy already", hint="leave out --fork, --hold and --swapped")
    return None


def checked_pid(word: Optional[str], command: str, *, reads_cores: bool = True) -> int:
    """Return the process id *word*. Raises UsageError if it is not one."""
    if word is None:
        if not reads_cores:
            raise UsageError("name a process", hint=f"gdbmem {command} PID")
        raise UsageError(
            "name a process or a core", hint=f"gdbmem {command} PID, or gdbmem {command} --core CORE"
        )
    if not word.isdecimal() or int(word) == 0:
        hint = "a core is named with --core" if reads_cores and os.path.isfile(word) else "'ps' lists them"  # noqa: PTH113  (pathlib is slow to import)
        raise UsageError(f"{printable(word)} is not a process id", hint=hint)
    return int(word)


def check_pid(pid: int) -> int:
    """Return *pid*; raises UsageError if it is not a valid process id."""
    if pid <= 0:
        raise UsageError(f"{pid} is not a process id", hint="'ps' lists them")
    return pid


def is_process(word: str) -> bool:
    """Return whether *word* is a process id and not the name of a file."""
    return word.isascii() and word.isdecimal() and int(word) > 0 and not os.path.exists(word)  # noqa: PTH110  (as above)


# The values of options: which function reads one, by the placeholder of the value.


def reader_for(name: str, metavar: str) -> Optional[Callable[[str], Any]]:
    """Return the function that argparse calls with the text of an option's value, by its name or its placeholder.

    None: the text itself is the value, as of all operands (*name* without dashes) but pid.
    """
    return _BY_NAME.get(name, _BY_METAVAR.get(metavar) if name[0] == "-" else None)


def default_in(text: str, read: Optional[Callable[[str], Any]]) -> Any:
    """Return the default that the help of an option states as ``(default: VALUE)``; None if it states none."""
    stated = text.partition("(default: ")[2].partition(")")[0].partition(";")[0]
    return None if not stated or " " in stated else stated if read is None else read(stated)


def parse_fail_on(text: str) -> tuple[str, float]:
    """Return the verdict and the least slope, bytes per second, of ``growing``, ``growing:1MiB/h`` and the like."""
    from gdbmem.model.series import KINDS  # not always needed

    kind, colon, slope = text.partition(":")
    if kind not in KINDS:
        raise InputError(
            f"'{printable(kind)}' is not a verdict", slug="bad-fail-on", hint=f"one of {', '.join(KINDS)}"
        )
    return kind, parse_slope(slope) if colon else 0.0


def _ci_file(text: str) -> CiFile:
    from gdbmem.gates.reports import parse_ci  # not always needed

    return parse_ci(text)


def parse_heap_limit(text: str) -> HeapLimit:
    """Return the limit of ``10MiB``, ``leaked=0``, ``tasks=1MiB``: a name may have ``=`` in it."""
    from gdbmem.model.heap_graph import HeapLimit  # not always needed

    subject, equal, size = text.rpartition("=")
    if equal and not subject:
        raise InputError(
            f"'{printable(text)}' names nothing to be limited",
            slug="bad-fail-on",
            hint="write it as in leaked=1MiB",
        )
    return HeapLimit(subject, parse_size(size))


def parse_slope(text: str) -> float:
    """Return the bytes per second of ``1MiB/h`` and the like."""
    size, slash, per = text.partition("/")
    units = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    if not slash or per not in units or parse_size(size) <= 0:
        raise InputError(
            f"'{printable(text)}' is not a slope", slug="bad-fail-on", hint="write it as in 1MiB/h"
        )
    return parse_size(size) / units[per]


def _condition(text: str) -> Condition:
    from gdbmem.recording.triggers import parse_condition  # slow to import

    return parse_condition(text)


def _percent(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise InputError(
            f"'{printable(text)}' is not a percentage", slug="bad-percent", hint="a number from 0 to 100"
        )
    return percent


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError(
            f"'{text}' is not a number of rows", slug="bad-count", hint="write it as in --top 20"
        )
    return int(text)


def _period(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 1 << 31:
        raise InputError(
            f"'{printable(text)}' is not a number of faults",
            slug="bad-count",
            hint="write it as in --period 100",
        )
    return int(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 <= int(text) <= 65535:
        raise InputError(f"'{printable(text)}' is not a port", slug="bad-port", hint="a number up to 65535")
    return int(text)


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise InputError(
            f"'{printable(text)}' is not a port", slug="bad-port", hint="write it as in :9877 or 0.0.0.0:9877"
        )
    return host or "127.0.0.1", int(port)


_BY_NAME: dict[str, Callable[[str], Any]] = {"--top": _count, "--period": _period, "pid": int}
_BY_METAVAR: dict[str, Callable[[str], Any]] = {
    "KIND[=FILE]": _ci_file,
    "N": int,
    "SECONDS": float,
    "SIZE": parse_size,
    "TIME": parse_duration,
    "PERCENT": _percent,
    "PORT": _port,
    ":PORT": _host_and_port,
    "PATTERN": parse_regex,
    "REGEX": parse_regex,
    "CONDITION": _condition,
    "VERDICT[:SLOPE]": parse_fail_on,
    "SLOPE": parse_slope,
    "LIMIT": parse_heap_limit,
}
