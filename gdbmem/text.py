"""Foreign text (symbol names, paths, command lines), made safe for a terminal."""

from __future__ import annotations

import re
import warnings

from gdbmem.errors import InputError

# Control, format (also the bidirectional overrides), surrogate, private use, line and paragraph separators.
_UNSAFE_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def printable(text: str) -> str:
    r"""Return *text* with all control characters written as visible escapes.

    Undecodable bytes (surrogate escapes) are written as their byte, as in ``\xff``.
    """
    if text.isascii() and text.isprintable():
        return text
    import unicodedata  # gdb starts sooner without it

    return "".join(
        _escape(char) if unicodedata.category(char) in _UNSAFE_CATEGORIES else char for char in text
    )


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")


_STRING = r"std::(?:__cxx11::)?basic_string<char, std::char_traits<char>, std::allocator<char> ?>|std::__cxx11::string"


def plain_strings(name: str) -> str:
    """Return *name*, of a C++ type or function, with the full type of std::string abbreviated."""
    return re.sub(_STRING, "std::string", name) if "std::" in name else name


def csv_cell(text: str) -> str:
    """Return *text* for a cell of a CSV file, with a quote before what spreadsheets would run as a formula."""
    is_formula = text.lstrip().startswith(("=", "+", "-", "@")) or text.startswith(("\t", "\r", "\n"))
    return f"'{text}" if is_formula else text


def parse_regex(text: str, place: str = "", *, slug: str = "bad-regex") -> re.Pattern[str]:
    """Return *text* compiled. Raises InputError, with *place* before its message, if it is not a regular expression."""
    with warnings.catch_warnings():
        # The warning that "[[" may change its meaning in a future Python doesn't concern the user.
        warnings.simplefilter("ignore")
        try:
            return re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            message = f"{place}'{printable(text)}' is not a regular expression: {printable(str(error))}"
            raise InputError(message, slug=slug, hint=r"write \( for a literal parenthesis") from None


def plural(count: int, noun: str, plural_noun: str = "") -> str:
    """Return ``1 snapshot`` or ``2 snapshots``."""
    if count == 1:
        return f"1 {noun}"
    ends_in_y = noun.endswith("y") and noun[-2:-1] not in "aeiou"
    return f"{count:,} {plural_noun or (noun[:-1] + 'ies' if ends_in_y else noun + 's')}"


# Sizes and durations: printed in KiB, MiB, GiB and seconds; read with a unit.


_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SIZE_UNITS = {"b": 1} | {
    f"{prefix}{suffix}".lower(): base**power
    for power, prefix in enumerate("KMGTP", start=1)
    for suffix, base in (("iB", 1024), ("B", 1000))
}
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = r"\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*"


def format_size(size_bytes: float) -> str:
    """Return *size_bytes* for people: ``0 B``, ``1,023 B``, ``1.5 KiB``, ``-2.0 MiB``."""
    magnitude = abs(size_bytes)
    sign = "-" if size_bytes < 0 else ""
    if magnitude < 1024:
        return f"{sign}{magnitude:,.0f} B"
    for unit in _BINARY[1:]:
        magnitude /= 1024
        # 1023.96 would print as "1024.0".
        if magnitude < 1023.95 or unit == _BINARY[-1]:
            break
    return f"{sign}{magnitude:,.1f} {unit}"


def format_delta(size_bytes: float) -> str:
    """Return *size_bytes* with its sign: ``+1.5 KiB``, ``-3 B``, ``0 B``."""
    return f"+{format_size(size_bytes)}" if size_bytes > 0 else format_size(size_bytes)


def parse_size(text: str) -> int:
    """Return the bytes that ``10MiB``, ``1.5 kB``, ``-4KiB`` or ``0`` stand for (KiB = 1024, kB = 1000).

    Raises InputError for anything else, a bare number too: its unit would be a guess.
    """
    match = re.fullmatch(_QUANTITY, text)
    if match is None:
        raise InputError(f"'{text}' is not a size", slug="bad-size", hint="write it as in 10MiB, 1.5kB or 0")
    sign, number, unit = match.groups()
    value = float(number)
    if not unit and value != 0:
        raise InputError(
            f"size '{text}' has no unit", slug="bad-size", hint=f"write {number}B, {number}KiB or {number}MiB"
        )
    factor = _SIZE_UNITS.get(unit.lower()) if unit else 1
    if factor is None:
        raise InputError(
            f"'{text}' has an unknown unit '{unit}'",
            slug="bad-size",
            hint="B, KiB, MiB, GiB (1024) or kB, MB, GB (1000)",
        )
    # Integers stay exact beyond 2^53.
    size = int(number) * factor if number.isdigit() else round(value * factor)
    return -size if sign == "-" else size


def parse_duration(text: str) -> float:
    """Return the seconds that ``10min``, ``0.2s``, ``500ms``, ``2h`` or ``0`` stand for.

    Raises InputError for anything else.
    """
    match = re.fullmatch(_QUANTITY, text)
    if match is not None and match[1] != "-":
        _, number, unit = match.groups()
        if unit.lower() in _DURATION_UNITS:
            return float(number) * _DURATION_UNITS[unit.lower()]
        if not unit and float(number) == 0:
            return 0.0
    raise InputError(
        f"'{text}' is not a duration", slug="bad-duration", hint="write it as in 500ms, 10s, 5min or 2h"
    )


def format_rate(bytes_per_second: float) -> str:
    """Return a rate for people, per the unit that keeps it readable: ``+1.5 MiB/s``, ``+40 MiB/min``, ``+3 KiB/h``."""
    return format_rates(bytes_per_second)[0]


def format_rates(*rates: float) -> list[str]:
    """Return *rates* (bytes per second) that are read together, all per the same unit of time."""
    unit, seconds = _time_of_rate(max(rates, key=abs))
    return [f"{format_delta(round(rate * seconds))}/{unit}" for rate in rates]


def _time_of_rate(bytes_per_second: float) -> tuple[str, int]:
    for unit, seconds in (("s", 1), ("min", 60)):
        if abs(bytes_per_second) * seconds >= 1 << 20:
            return unit, seconds
    return "h", 3600


def format_duration(seconds: float) -> str:
    """Return *seconds* for people: ``85 ms``, ``2.4 s``, ``11 min 40 s``, ``3 h 20 min``."""
    # The bounds are where rounding would reach the next unit: never "1000 ms" or "60.0 s".
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def format_time(time: float, unit: str) -> str:
    """Return *time* of a profile formatted: instructions, bytes allocated, or a duration."""
    if unit == "i":
        return _count(time) + " instructions"
    if unit == "B":
        return format_size(time) + " allocated"
    return format_duration(time / 1000 if unit == "ms" else time)


def format_moment(time: float, unit: str) -> str:
    """Return *time* of a recording as exactly as its file has it: ``1.005 s``, ``512,000 instructions``."""
    if unit in ("s", "ms"):
        return f"{time / 1000 if unit == 'ms' else time:,.3f} s"
    return f"{time:,.0f} {'instructions' if unit == 'i' else 'bytes allocated'}"


def _count(number: float) -> str:
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:,.1f} {suffix}"
    return f"{number:,.0f}"
