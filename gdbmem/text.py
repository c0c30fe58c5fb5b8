"""Foreign text (symbol names, paths, command lines), made safe for a terminal."""

from __future__ import annotations

import unicodedata

# Control, format (also the bidirectional overrides), surrogate, private use, line and paragraph separators.
_UNSAFE_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def printable(text: str) -> str:
    r"""Return *text* with all control characters written as visible escapes.

    Undecodable bytes (surrogate escapes) are written as their byte, as in ``\xff``.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escape(char) if unicodedata.category(char) in _UNSAFE_CATEGORIES else char for char in text
    )


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")


def csv_cell(text: str) -> str:
    """Return *text* for a cell of a CSV file, with a quote before what spreadsheets would run as a formula."""
    is_formula = text.lstrip().startswith(("=", "+", "-", "@")) or text.startswith(("\t", "\r", "\n"))
    return f"'{text}" if is_formula else text


def plural(count: int, noun: str, plural_noun: str = "") -> str:
    """Return ``1 snapshot`` or ``2 snapshots``."""
    if count == 1:
        return f"1 {noun}"
    ends_in_y = noun.endswith("y") and noun[-2:-1] not in "aeiou"
    return f"{count:,} {plural_noun or (noun[:-1] + 'ies' if ends_in_y else noun + 's')}"
