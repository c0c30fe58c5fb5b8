"""Strangers' text (symbol names, paths, command lines), made safe for a terminal."""

from __future__ import annotations

import unicodedata

# Control, format (also the bidirectional overrides), surrogate, private use, line and paragraph separators.
_UNSAFE_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def printable(text: str) -> str:
    r"""Return *text* with everything that a terminal might obey written as a visible escape.

    Undecodable bytes (surrogate escapes) come out as the byte they stand for, as in ``\xff``.
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


def plural(count: int, noun: str, plural_noun: str = "") -> str:
    """Return ``1 snapshot`` or ``2 snapshots``."""
    return f"{count:,} {noun if count == 1 else plural_noun or noun + 's'}"
