"""The names in an expression of gdb's that may be variables of the function where it is evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Callable, NamedTuple, Optional

from gdbmem.patterns import lazy_pattern

_TOKEN = lazy_pattern(
    r"""(?P<skipped>\s+|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\$[\w$]*|\.?\d(?:[eEpP][-+]|[\w.])*)"""
    r"|(?P<name>[^\W\d]\w*)|(?P<sign>->|::|.)",
    0,
)
_MEMBER_OF = frozenset({".", "->", "::", "struct", "class", "union", "enum"})


class Name(NamedTuple):
    """One occurrence of a name."""

    start: int
    end: int
    text: str


def names_in(expression: str) -> Iterator[Name]:
    """Yield the names in *expression* but for members, qualified names, tags and gdb's own variables."""
    before, found = "", None
    for token in _TOKEN.finditer(expression):
        text = token[0]
        if text.isspace():
            continue
        if found is not None and text != "::":
            yield found
        found = None
        if token["name"] and not {before, text} & _MEMBER_OF:
            found = Name(token.start(), token.end(), text)
        before = text
    if found is not None:
        yield found


def replace_names(expression: str, replacement: Callable[[str], Optional[str]]) -> str:
    """Return *expression* with the *replacement* of each of its names; None leaves it as it is."""
    parts, at = [], 0
    for name in names_in(expression):
        other = replacement(name.text)
        if other is not None:
            parts += [expression[at : name.start], other]
            at = name.end
    return "".join([*parts, expression[at:]])
