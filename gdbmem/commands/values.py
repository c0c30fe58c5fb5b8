"""The values of options: which function reads one, by the placeholder of the value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Callable, Optional

from gdbmem.errors import InputError
from gdbmem.text import parse_duration, parse_size, printable

if TYPE_CHECKING:
    from gdbmem.recording.triggers import Condition


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


def parse_slope(text: str) -> float:
    """Return the bytes per second of ``1MiB/h`` and the like."""
    size, slash, per = text.partition("/")
    units = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    if not slash or per not in units or parse_size(size) <= 0:
        raise InputError(
            f"'{printable(text)}' is not a slope", slug="bad-fail-on", hint="write it as in 1MiB/h"
        )
    return parse_size(size) / units[per]


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise InputError(
            f"'{printable(text)}' is not a regular expression: {error}", slug="bad-regex"
        ) from None


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
    "N": int,
    "SECONDS": float,
    "SIZE": parse_size,
    "TIME": parse_duration,
    "PERCENT": _percent,
    "PORT": _port,
    ":PORT": _host_and_port,
    "PATTERN": _pattern,
    "CONDITION": _condition,
    "VERDICT[:SLOPE]": parse_fail_on,
    "SLOPE": parse_slope,
}
