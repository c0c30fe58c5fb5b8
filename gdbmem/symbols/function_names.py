"""Whether a location as it is typed names a function as gdb prints it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Callable, NamedTuple, Optional

_NO_FUNCTION = re.compile(r"\s*(?:\*|[-+]?\d+\s*$|$|-(?!function\b|qualified\b|q\b|source\b|func))")
_OPTION = re.compile(r"\s*-(?:qualified|q|function|func|source\s+\S+)\s+")
_FILE = re.compile(r"\s*(?:\"[^\"]*\"|[^\s:<(\[]*):(?!:)\s*")
_LINE = re.compile(r"\s*\d+\s*$")
_OPERATOR = re.compile(r"\boperator(?:\s*\(\)|\s*(?:<=>|<<=?|>>=?|->\*?|[<>]=?|[^\s\w(]+|[^(]+))")
_NAME = re.compile(r"[\w~{]")
_ANONYMOUS = "(anonymous namespace)"
_ABI_TAG = re.compile(r"\[abi:\w+\]")  # which gdb does not need to find a function


class FunctionName(NamedTuple):
    """A function's name in its parts."""

    parts: tuple[str, ...]  # namespaces, classes, the function; without template arguments
    arguments: Optional[str]  # of the template, at the end, without blanks
    parameters: Optional[str]  # without blanks


def split_function(text: str) -> FunctionName:
    """Split the name of a C or C++ function, with or without parameters."""
    parts, current, depth, arguments = [], "", 0, ""
    rest = _ABI_TAG.sub("", text.replace(_ANONYMOUS, "{anonymous}")).strip()
    at = 0
    while at < len(rest):
        operator = _OPERATOR.match(rest, at) if not depth else None
        if operator:
            current += "".join(operator[0].split())
            at = operator.end()
            continue
        one = rest[at]
        if one == "<":
            depth += 1
        if depth:
            arguments += one
            depth -= one == ">"
        elif one == "(":
            break
        elif rest.startswith("::", at):
            parts.append(current)
            current, arguments = "", ""
            at += 1
        elif not one.isspace():
            current, arguments = current + one, ""
        elif _NAME.match(rest, at + 1):
            parts, current = [], ""  # what stood in front is a return type, as a template's name has it
        at += 1
    parameters = "".join(rest[at:].split()) if at < len(rest) else None
    named = tuple(part for part in [*parts, current] if part)
    return FunctionName(named, "".join(arguments.split()) or None, parameters)


def named_function(location: str) -> Optional[FunctionName]:
    """Return the function that a gdb *location* names; None if it names a line or an address."""
    rest = location
    while match := _OPTION.match(rest):
        rest = rest[match.end() :]
    file = _FILE.match(rest)
    if file:
        rest = rest[file.end() :]
    if _NO_FUNCTION.match(rest) or _LINE.match(rest):
        return None
    return split_function(rest)


def is_named(wanted: FunctionName, symbol: str) -> bool:
    """Return whether gdb's *wanted* name means the function *symbol*: its last parts are enough."""
    found = split_function(symbol)
    if found.parts[-len(wanted.parts) :] != wanted.parts or not wanted.parts:
        return False
    if wanted.arguments is not None and wanted.arguments != found.arguments:
        return False
    if wanted.parameters is None or found.parameters is None:
        return True
    return found.parameters.replace("(void)", "()").startswith(wanted.parameters.replace("(void)", "()"))


# The names in an expression of gdb's that may be variables of the function where it is evaluated.


_TOKEN = re.compile(
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
