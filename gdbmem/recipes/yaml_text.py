"""YAML as text with positions: no types are guessed, no objects made, nothing is shared or unbounded."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, TypeVar, Union

import yaml

from gdbmem.errors import InputError
from gdbmem.files import read_small
from gdbmem.model.diff import Position
from gdbmem.text import plural, printable

T = TypeVar("T")

_MAX_BYTES = 256 * 1024
_MAX_DEPTH = 16  # a recipe needs 5; composing recurses
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")

Where = Union[yaml.Node, Position]


class Problem(NamedTuple):
    """One thing that is wrong in a recipe."""

    position: Position
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class RecipeError(InputError):
    """A recipe that can't be used; *problems* are all of its problems, in the file's order."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(sorted(problems, key=lambda problem: problem.position))
        first = self.problems[0]
        hint = first.hint
        if len(problems) > 1:
            others = plural(len(problems) - 1, "more problem")
            hint = f"{hint}; " if hint else ""
            hint += f"'gdbmem recipe check {printable(source)}' lists {others}"
        super().__init__(located(source, first.position, first.message), slug="recipe", hint=hint)


def located(source: str, position: Position, text: str) -> str:
    """Return *text* behind its place: ``leak.yaml:12:5: …``."""
    return f"{printable(source)}:{position.line}:{position.column}: {text}"


class Reader:
    """Reads values from YAML nodes; records every problem and continues."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def problem(self, where: Where, message: str, hint: str = "") -> None:
        """Note that something at *where* is wrong."""
        position = where if isinstance(where, Position) else position_of(where)
        self.problems.append(Problem(position, message, hint))

    def mapping(self, node: yaml.Node, what: str, known: Sequence[str]) -> dict[str, yaml.Node]:
        """Return the values of mapping *node* by key; unknown and repeated keys are problems."""
        found: dict[str, yaml.Node] = {}
        for key, key_node, value in self._pairs(node, what):
            if known and key not in known:
                self.problem(key_node, f"unknown key '{printable(key)}' in {what}", suggest(key, known))
                # Read on as if it were spelt right, so that its consequences are not reported as further problems.
                for close in difflib.get_close_matches(key, known, n=1):
                    found.setdefault(close, value)
            else:
                found[key] = value
        return found

    def table(self, node: yaml.Node, what: str) -> dict[str, str]:
        """Return mapping *node* as text by text."""
        return {
            key: self.text(value, f"'{printable(key)}'", empty=True)
            for key, _, value in self._pairs(node, what)
        }

    def _pairs(self, node: yaml.Node, what: str) -> Iterable[tuple[str, yaml.Node, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            self.problem(node, f"{what} must be made of 'key: value' lines, not {_kind(node)}")
            return
        lines: dict[str, int] = {}
        for key_node, value in node.value:
            key = self.text(key_node, f"a key of {what}")
            if key in lines:
                self.problem(
                    key_node, f"'{printable(key)}' occurs twice in {what}, first in line {lines[key]}"
                )
            elif key:
                lines[key] = position_of(key_node).line
                yield key, key_node, value

    def sequence(self, node: yaml.Node, what: str, example: str) -> list[yaml.Node]:
        """Return the items of list *node*."""
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        self.problem(node, f"{what} must be a list, not {_kind(node)}", f"write it as in {example}")
        return []

    def text(self, node: yaml.Node, what: str, *, empty: bool = False) -> str:
        """Return the text of scalar *node*; "" if there is a problem."""
        if not isinstance(node, yaml.ScalarNode):
            self.problem(
                node, f"{what} must be a text, not {_kind(node)}", "quote it if it holds [, { or ': '"
            )
            return ""
        value: str = node.value
        # A process can't be given the first, nor UTF-8 the second.
        if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            self.problem(node, f"{what} contains a character that can't be passed to a program")
            return ""
        if not value.strip() and not empty:
            self.problem(node, f"{what} has no value")
            return ""
        return value

    def line(self, node: yaml.Node, what: str) -> str:
        """Return the text of scalar *node*, which must be one line (gdb's commands are)."""
        value = self.text(node, what).strip()
        if "\n" in value or "\r" in value:
            self.problem(node, f"{what} must be one line")
            return ""
        return value

    def flag(self, node: yaml.Node, what: str) -> bool:
        """Return a yes or no."""
        value = self.text(node, what)
        if value and value.lower() not in _TRUE + _FALSE:
            self.problem(node, f"{what} must be true or false, not '{printable(value)}'")
        return value.lower() in _TRUE

    def count(self, node: yaml.Node, what: str) -> int:
        """Return a whole number from 1 up; 1 if there is a problem."""
        value = self.text(node, what)
        # Nine digits are more hits than a debugger lives to see.
        if value.isascii() and value.isdigit() and len(value) < 10 and int(value) > 0:
            return int(value)
        if value:
            self.problem(node, f"{what} must be a whole number from 1 to 999999999, not '{printable(value)}'")
        return 1

    def quantity(self, node: yaml.Node, what: str, read: Callable[[str], T]) -> Optional[T]:
        """Return what *read* (parse_size, parse_duration) makes of the text; None if there is a problem."""
        value = self.text(node, what)
        if not value:
            return None
        try:
            return read(value)
        except InputError as error:
            self.problem(node, f"{what}: {printable(error.message)}", printable(error.hint))
        except OverflowError:
            self.problem(node, f"{what} is too large")
        return None

    def choice(self, node: yaml.Node, what: str, known: Sequence[str]) -> str:
        """Return one word of *known*; "" on a problem."""
        value = self.text(node, what)
        if value and value not in known:
            self.problem(node, f"unknown {what} '{printable(value)}'", suggest(value, known))
        return value if value in known else ""


def suggest(word: str, known: Sequence[str]) -> str:
    """Return ``did you mean 'x'?`` for the nearest of *known*, or all of them."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean '{printable(close[0])}'?" if close else f"it can be {_listed(known)}"


def position_of(node: yaml.Node) -> Position:
    """Return where *node* starts."""
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)


def read_text(path: Path, source: str) -> str:
    """Return the text of the recipe at *path*; raises InputError or RecipeError."""

    def refuse(reason: str) -> InputError:
        text = f"cannot read the recipe {printable(source)}: {reason}"
        return InputError(text, slug="recipe", hint="check its path")

    data = read_small(path, limit_bytes=_MAX_BYTES, refuse=refuse)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        lines = error.object[: error.start].decode("utf-8", "replace").split("\n")
        position = Position(len(lines), len(lines[-1]) + 1)
        problem = Problem(position, "this byte is not UTF-8", "save the recipe as UTF-8")
        raise RecipeError(source, [problem]) from None


def compose(text: str, source: str) -> yaml.Node:
    """Return the YAML in *text* as nodes; raises RecipeError if it is none."""
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        before = text[: error.position].split("\n")
        position = Position(len(before), len(before[-1]) + 1)
        raise RecipeError(source, [Problem(position, "this character is not allowed in YAML")]) from None
    try:
        node: Optional[yaml.Node] = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        raise RecipeError(source, [_translated(error)]) from None
    except (ValueError, OverflowError):
        # The scanner's own: an escape such as "\U00110000" names no character.
        position = Position(loader.line + 1, loader.column + 1)
        raise RecipeError(source, [Problem(position, "this escape is not a character")]) from None
    if node is None:
        raise RecipeError(
            source,
            [Problem(Position(1, 1), "the recipe is empty", "it needs at least 'program:' and 'points:'")],
        )
    return node


class _Loader(yaml.SafeLoader):
    # Aliases could grow a few lines without bound, and tags ask for Python types: a recipe needs neither.
    depth = 0

    def compose_node(self, parent: Optional[yaml.Node], index: Any) -> Optional[yaml.Node]:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it bare
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _Refused("anchors (&) and aliases (*) are not allowed in recipes", _QUOTE, event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise _Refused("tags (!) are not allowed in recipes", _QUOTE, event.start_mark)
        if self.depth == _MAX_DEPTH:
            raise _Refused(
                "this is nested too deeply", "quote a text that starts with [ or {", event.start_mark
            )
        self.depth += 1
        node: Optional[yaml.Node] = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Refused(yaml.MarkedYAMLError):
    def __init__(self, message: str, hint: str, mark: Any) -> None:
        super().__init__(problem=message, problem_mark=mark)
        self.hint = hint


_QUOTE = "quote a text that starts with it"


# Part of a message of PyYAML → advice for the writer of the recipe.
_YAML_HINTS = (
    ("mapping values are not allowed", "quote a text that holds ': '"),
    (r"found character '\t'", "indent with blanks, not tabs"),
    ("found character '@'", "quote a text that starts with @"),
    ("found character '`'", "quote a text that starts with `"),
    ("found character '%'", "quote a text that starts with %"),
    ("could not find expected ':'", "a key is followed by ': ' and its value"),
    ("expected <block end>", "is it indented like the lines above it?"),
    ("but found another document", "a recipe is one document, without '---' in its middle"),
)


def _translated(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    if mark and error.context_mark and "flow" in str(error.context) and mark.line > error.context_mark.line:
        # Of a brace that is never closed the line is meant, not where the next begins.
        mark = error.context_mark
    position = Position(mark.line + 1, mark.column + 1) if mark else Position(1, 1)
    said = printable(str(error.problem or error.context or "unreadable").split("\n")[0])
    if isinstance(error, _Refused):
        return Problem(position, said, error.hint)
    whole = " ".join(filter(None, (error.context, error.problem)))
    hint = next((hint for part, hint in _YAML_HINTS if part in whole), "")
    return Problem(position, f"this is not YAML: {said}", hint)


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "'key: value' lines" if isinstance(node, yaml.MappingNode) else f"'{printable(node.value[:40])}'"


def _listed(words: Sequence[str]) -> str:
    shown = [printable(word) for word in words]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
