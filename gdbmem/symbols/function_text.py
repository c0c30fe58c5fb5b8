"""Functions in the text of C and C++ sources: what each call does once, and which places may write a variable."""

from __future__ import annotations

import enum
import functools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Optional

from gdbmem.symbols.function_names import split_function

_SKIPPED = re.compile(r"//.*|/\*(?s:.*?)\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'")
_ADDS_ONE = re.compile(
    r"\b(?:__(?:atomic|sync)_(?:fetch_and_add|add_and_fetch|fetch_add|add_fetch)|(?:std::)?atomic_fetch_add(?:_explicit)?)"
    r"\s*\(\s*&\s*(?P<variable>[\w.>-]+)\s*,\s*1\b[^()\n]*\)"
    r"|(?P<object>\b[\w.>-]+?)(?:\.|->)fetch_add\s*\(\s*1\b[^()\n]*\)"
)
_LONGEST_HEADER = 12  # lines from the name of a function to its first statement
_KEYWORDS = "(?:if|while|for|switch|return|sizeof|catch)"
_BRANCHES = re.compile(r"\b(?:if|else|for|while|do|switch|case|try|catch)\b|\breturn\b[^;]*;|[?]|&&|[|][|]")
_CONDITION = re.compile(r"(?:if|switch|while)\s*\(")
_UNSURE = re.compile(r"[?{]|&&|[|][|]|\b(?:sizeof|for|while|do|case|default|else|and|or)\b")
_LEAVES = re.compile(r"\b(?:if|switch|return|goto|break|continue)\b|:\s*$")
_LONGEST_STATEMENT = 12  # lines behind its first one
_LONGEST_BODY = 400  # lines of what an ``if`` decides on, or between a call and what is beside it
_GOES_BACK = re.compile(r"\bgoto\b")
_MAY_LEAVE = re.compile(
    r"\b(?:return|goto|break|continue|throw|case|default|try|catch|co_\w+)\b|^\s*#", re.MULTILINE
)
_HEAD = re.compile(r"(?:if|switch)\s*\(|return\b(?!\s*;)")
_OPENS = re.compile(r"\s*(?:(for|while|do)\b|(if|switch)\s*\(|else\b|{|(?:case\b[^:]*|\w+)\s*:(?!:))")
_MAY_BRANCH = re.compile(
    r"\b(?:if|switch|return|goto|break|continue|throw|try|catch)\b|^\s*#|:\s*$", re.MULTILINE
)
_PARENTHESES = {"(": 1, ")": -1}
_NOT_RUN = re.compile(
    r"(?<![\w)\]])\s*\[[^\[\]]*\]\s*(?:\([^()]*\))?(?:\s|->|[\w:<>&*])*{|\b(?:struct|class|union)\b[^;(){}]*{"
)
_OUTER = re.compile(r"\b(?:namespace|class|struct|union|extern)\b[^()=]*$")  # braces around functions
_CLASS = re.compile(r"\b(?:class|struct|union)\s+(\w+)")
_NAME_OF = re.compile(r"([~\w:]+)\s*\(")
_ATTRIBUTES = re.compile(r"\b__attribute__\s*\(\(.*?\)\)|\[\[.*?\]\]", re.DOTALL)
_COUNTS_TO_CONSTANT = re.compile(
    r"[^;]*;\s*\w+\s*(?:<=?|>=?|!=)\s*(?:\d+u?|[A-Z][A-Z0-9_]*|\(?\s*sizeof[^;]*)\s*;[^;]*$"
)
_COUNTS_UP = re.compile(r"\+\+|[^;=+]*(?:\+\+|\+=\s*1u?l{0,2}[\s)]*$)", re.I)
_CALLS_MEMBER = re.compile(r"(?:\.|->)\s*\w+\s*\(")


class CodeLines(list[str]):
    """The lines of a source, and what was looked for in them: hundreds of times for one function of a large file."""

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__(lines)
        self.definitions: dict[str, Optional[FunctionText]] = {}


def code_lines(text: str) -> CodeLines:
    """Return the lines of a source with spaces for comments and strings; what adds 1 atomically is written as ``++``.

    The columns stay as they are.
    """
    plain = _SKIPPED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return CodeLines(_ADDS_ONE.sub(_as_increment, plain).split("\n"))


def _as_increment(found: re.Match[str]) -> str:
    return f"{found['variable'] or found['object']}++".ljust(len(found[0]))


class FunctionText(NamedTuple):
    """A function with its body, in one source file."""

    name: str  # as a pattern
    body: str  # between its braces, without those of lambdas and local classes

    @property
    def calls_itself(self) -> bool:
        return bool(re.search(rf"(?<![\w.>]){self.name}\s*\(", self.body))

    def before_name(self, name: str) -> Optional[str]:
        """Return the text in front of a *name* (a pattern) that each call reaches once; None if none is."""
        return self._straight_to([at for at, _ in mentions(name, self.body)])

    def before_count(self, variable: str) -> Optional[str]:
        """Return the text in front of where each call adds 1 to a *variable* (a pattern) once; None if none does."""
        return self._straight_to([at for at, text in mentions(variable, self.body) if _COUNTS_UP.match(text)])

    def _straight_to(self, places: Sequence[int]) -> Optional[str]:
        before = self.body[: places[0]] if len(places) == 1 else ""
        is_straight = len(places) == 1 and not (_BRANCHES.search(before) or _GOES_BACK.search(self.body))
        return before if is_straight else None


def text_before(lines: Sequence[str], function: str, number: int, line: int, column: int) -> Optional[str]:
    """Return the text from the beginning of a *function*, on line *number*, to a place that each call reaches once.

    Loops and branches may be in front if none leaves the function. None: calls reach it more or less often.
    """
    text = "\n".join(lines[number - 1 :])
    start = re.search(rf"{name_pattern(function)}\s*\([^;{{]*{{", text)
    place = sum(len(one) + 1 for one in lines[number - 1 : line - 1]) + column - 1
    if not start or line < number or place < start.end():
        return None
    if _GOES_BACK.search(_up_to_brace(text[start.end() :])):
        return None
    before = text[start.end() : place]
    at = 0
    while (end := _statement_end(before, at)) is not None:
        if _MAY_LEAVE.search(before[at:end]):
            return None
        at = end
    rest = before[at:].lstrip()
    condition = _HEAD.match(rest)
    inside = rest[condition.end() :] if condition else rest
    if _UNSURE.search(inside) or _MAY_BRANCH.search(inside):
        return None
    depths = accumulate((_PARENTHESES.get(one, 0) for one in inside), initial=1)
    return before if condition is None or condition[0] == "return" or all(depths) else None


class Loops(NamedTuple):
    """The loops that are around a call in the source of one function."""

    number: int
    variable: int  # of those that may end after any number of rounds
    is_known: bool = True  # there is no other one

    def further(self, others: Loops) -> Loops:
        """Return these loops with those around the function itself."""
        return Loops(
            self.number + others.number, self.variable + others.variable, self.is_known and others.is_known
        )


def loops_around(lines: Sequence[str], function: str, line: int, called: str) -> Loops:
    """Return the loops of the *function* around the call of *called* on this *line*."""
    numbers = [one for one in defined_on(lines, function) if one <= line]
    call = _calls(called, lines[line - 1]) if 0 < line <= len(lines) else None
    if not numbers or call is None:
        return Loops(0, 0, is_known=False)
    text = "\n".join([*lines[numbers[-1] - 1 : line - 1], lines[line - 1][: call.start()]])
    start = re.search(rf"{name_pattern(function)}\s*\([^;{{]*{{", text)
    if not start or _GOES_BACK.search(_up_to_brace("\n".join(lines[numbers[-1] - 1 :])[start.end() :])):
        return Loops(0, 0, is_known=False)
    at, number, variable = start.end(), 0, 0
    while True:
        end = _statement_end(text, at)
        head = _OPENS.match(text, at) if end is None else None
        if end is not None:
            at = end
            continue
        if head is None:
            return Loops(number, variable)
        opens = re.compile(r"\s*\(").match(text, head.end()) if head[1] in ("for", "while") else None
        inside = opens.end() if opens else head.end()
        at = _behind_parenthesis(text, inside) if opens or head[2] else inside
        if head[1]:
            number += 1
            is_constant = head[1] == "for" and _COUNTS_TO_CONSTANT.match(text[inside : at - 1])
            variable += not is_constant
        if head[1] == "do" and _statement_end(text, inside) is not None:
            return Loops(number, variable)  # in its condition


def _statement_end(text: str, at: int) -> Optional[int]:
    """Return where the statement that begins at *at* ends; None if the text ends in it."""
    at += len(text[at:]) - len(text[at:].lstrip())
    head = re.compile(r"(?:(if|while|for|switch)\s*\(|(else|do)\b|{)").match(text, at)
    if not head:
        depth = 0
        for found in re.compile(r"[](){}[;]").finditer(text, at):
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1, ";": 0}[found[0]]
            if found[0] == ";" and not depth:
                return found.end()
        return None
    if head[0] == "{":
        body = _up_to_brace(text[head.end() :])
        end = head.end() + len(body) + 1
        return end if end <= len(text) else None
    if head[2] == "do":
        body_end = _statement_end(text, head.end())
        return _statement_end(text, body_end) if body_end is not None else None
    if head[2]:
        return None
    end = _behind_parenthesis(text, head.end())
    inner = _statement_end(text, end) if end < len(text) else None
    rest = re.compile(r"\s*else\b").match(text, inner) if inner is not None and head[1] == "if" else None
    return _statement_end(text, rest.end()) if rest else inner


def _behind_parenthesis(text: str, at: int) -> int:
    """Return the place behind the parenthesis that closes the one in front of *at*; the text's end if none does."""
    depth = 1
    while depth and at < len(text):
        depth += _PARENTHESES.get(text[at], 0)
        at += 1
    return at


def name_pattern(function: str) -> str:
    """Return a pattern for the plain name of a *function*."""
    return re.escape(split_function(function).parts[-1])


def find_function(lines: Sequence[str], function: str, line: int) -> Optional[FunctionText]:
    """Return the *function* whose name stands on this *line*, or shortly before it; None if it has no body there."""
    for number in range(line, max(line - _LONGEST_HEADER, 0), -1):
        found = _function_on(lines, function, number)
        if found is not None:
            return found
    return None


def definition(lines: Sequence[str], function: str) -> Optional[FunctionText]:
    """Return the first body of the *function* among the *lines*; None if they have none."""
    known = lines.definitions if isinstance(lines, CodeLines) else {}
    if function not in known:
        name, header = split_function(function).parts[-1], _header(name_pattern(function))
        found = (
            _function_on(lines, function, number)
            for number, line in enumerate(lines, 1)
            if name in line and header.match(line)
        )
        known[function] = next(filter(None, found), None)
    return known[function]


def defined_on(lines: Sequence[str], function: str) -> list[int]:
    """Return the numbers of the lines on which the name of the *function* stands in front of a body."""
    name = split_function(function).parts[-1]
    called = re.compile(rf"\s*#|.*\b{_KEYWORDS}\s*\(.*{re.escape(name)}")
    return [
        number
        for number, line in enumerate(lines, 1)
        if name in line and not called.match(line) and _function_on(lines, function, number) is not None
    ]


def surely_calls(lines: Sequence[str], number: int, column: int, function: str) -> bool:
    """Return whether the statement that begins at this line and column (from 1 on) calls the *function* each time."""
    text = "\n".join([lines[number - 1][column - 1 :], *lines[number : number + _LONGEST_STATEMENT]])
    condition = _CONDITION.match(text)
    depth = 0
    for found in re.finditer(r"[(){};]", text[condition.end() :] if condition else text):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth < 0 or (found[0] not in "()" and not depth):
            start = condition.end() if condition else 0
            statement = text[start : start + found.start()]
            break
    else:
        return False
    call = _calls(function, statement)
    return found[0] != "{" and call is not None and not _UNSURE.search(statement[: call.start()])


class Side(enum.Enum):
    """Where a place is from a call that is reached as often."""

    IN_FRONT = "in front"
    BEHIND = "behind"


def beside(lines: Sequence[str], number: int, function: str, line: int, column: int) -> Optional[Side]:
    """Return on which side of a call of the *function*, on line *number*, a place is that each call passes.

    None if a branch, a loop or a label may be between.
    """
    call = _calls(function, lines[number - 1]) if 0 < number <= len(lines) else None
    if call is None or not 0 < line <= len(lines):
        return None
    start, place = (number, call.start()), (line, column - 1)
    first, last = min(start, place), max(start, place)
    if last[0] - first[0] > _LONGEST_BODY:
        return None
    text = "\n".join([*lines[first[0] - 1 : last[0] - 1], lines[last[0] - 1][: last[1]]])
    between = text[first[1] :]
    in_front = [
        *lines[max(number - 1 - _LONGEST_STATEMENT, 0) : number - 1],
        lines[number - 1][: call.start()],
    ]
    statement = re.split(r"[;{}]", "\n".join(in_front))[-1]
    depths = accumulate((_PARENTHESES.get(one, 0) for one in between), initial=0)
    if min(depths) < 0 or re.search(rf"}}|{_UNSURE.pattern}|{_MAY_BRANCH.pattern}", between, re.MULTILINE):
        return None
    if place < start:
        return Side.IN_FRONT
    return None if re.search(r"\b(?:if|for|while|do|else|switch|case)\b|:", statement) else Side.BEHIND


def may_skip(lines: Sequence[str], number: int, column: int, functions: Sequence[str]) -> bool:
    """Return whether an ``if`` at this line and column decides whether what is behind it calls one of the *functions*.

    The call is in it, or its statements leave what they stand in; but not if its condition is the call.
    """
    head = re.match(r"if\s*(?:constexpr\s*)?\(", lines[number - 1][column - 1 :])
    if not head:
        return False
    text = "\n".join([lines[number - 1][column - 1 :], *lines[number : number + _LONGEST_BODY]])
    end = _behind_parenthesis(text, head.end())
    condition, statement_end = text[head.end() : end], _statement_end(text + "\n", 0)
    body = text[end:statement_end]
    in_condition = [call for one in functions if (call := _calls(one, condition))]
    if any(_UNSURE.search(condition[: call.start()]) for call in in_condition):
        return True
    if any(_calls(one, body) for one in functions):
        return True
    return not in_condition and (statement_end is None or _MAY_LEAVE.search(body) is not None)


def surely_called(lines: Sequence[str], number: int, column: int, function: str) -> bool:
    """Return whether the statement at this line and column follows one that calls the *function* each time."""
    text = "\n".join(
        [*lines[max(number - 1 - _LONGEST_STATEMENT, 0) : number - 1], lines[number - 1][: column - 1]]
    )
    *_, statement, rest = ["", "", *re.split(r"[;{}]", text)]
    call = None if rest.strip() or not text.rstrip().endswith(";") else _calls(function, statement)
    return call is not None and not (_UNSURE.search(statement[: call.start()]) or _LEAVES.search(statement))


def _calls(function: str, text: str) -> Optional[re.Match[str]]:
    return re.search(rf"(?<!\w){name_pattern(function)}\s*\(", text)


@functools.lru_cache(maxsize=64)
def _header(name: str) -> re.Pattern[str]:
    """Return a pattern for a line on which a definition of a function may begin."""
    return re.compile(rf"^(?!\s*#)(?:(?!\b{_KEYWORDS}\b)[\w\s*&():<>,~])*?(?<![\w.>]){name}\s*\(")


def _function_on(lines: Sequence[str], function: str, number: int) -> Optional[FunctionText]:
    name = name_pattern(function)
    start = "" if not name[-1:].isalnum() else r"(?<![\w.>])"
    text = "\n".join(lines[number - 1 : number + 2 * _LONGEST_HEADER])
    found = re.search(rf"{start}{name}\s*\([^;{{]*{{", text)
    if not found or found.start() > len(lines[number - 1]):
        return None
    return FunctionText(name, without_inner(_up_to_brace("\n".join(lines[number - 1 :])[found.end() :])))


def _up_to_brace(text: str) -> str:
    """Return the *text*, which is behind an opening brace, up to the one that closes it."""
    depth = 1
    for found in re.finditer(r"[{}]", text):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return text[: found.start()]
    return text


def function_bodies(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each function of a source, with lambdas and local classes.

    The name is "" for what runs without being called by name: constructors, destructors, operators, initial values.
    """
    classes = set(_CLASS.findall(text))
    start = depth = 0
    name, body = "", 0
    for found in re.finditer(r"[{};]", text):
        if depth:
            depth += {"{": 1, "}": -1, ";": 0}[found[0]]
            if not depth:
                yield name, text[body : found.start()]
        else:
            header = _without_attributes(text[start : found.start()])
            if found[0] == "{" and not _OUTER.search(header):
                depth = 1
                named = _NAME_OF.search(header)
                body = start + (named.end() if named else 0)
                is_called = named and named[1].isidentifier() and "operator" not in header
                name = named[1] if named and is_called and named[1] not in classes else ""
            elif found[0] == ";" and "=" in header:
                yield "", header
        start = found.end()


def _without_attributes(header: str) -> str:
    return _ATTRIBUTES.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), header)


def functions_at(
    lines: Sequence[str], places: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], tuple[int, str]]:
    """Return the function that each of the *places*, lines and columns (from 1 on), is in: its number, and its name.

    The name is "" if it has none that is known. Places in front of all functions are left out.
    """
    text, lengths = "\n".join(lines), [0, *accumulate(len(line) + 1 for line in lines)]
    starts, names = list[int](), list[str]()
    start = depth = 0
    for found in re.finditer(r"[{};]", text):
        if depth:
            depth += {"{": 1, "}": -1, ";": 0}[found[0]]
        elif found[0] == "{" and not _OUTER.search(text[start : found.start()]):
            named = _NAME_OF.search(_without_attributes(text[start : found.start()]))
            starts.append(start)
            names.append(named[1] if named else "")
            depth = 1
        start = found.end()
    numbers = {
        (line, column): bisect_right(starts, lengths[line - 1] + column - 1) for line, column in places
    }
    return {place: (number, names[number - 1]) for place, number in numbers.items() if number}


def without_inner(body: str) -> str:
    """Return the *body* of a function without those of its lambdas and classes."""
    found = _NOT_RUN.search(body)
    if not found:
        return body
    inner = _up_to_brace(body[found.end() :])
    return body[: found.end()] + without_inner(body[found.end() + len(inner) :])


def declares(variable: str, line: str) -> bool:
    """Return whether the *line* declares a static *variable* (a pattern) with its first value."""
    return re.search(rf"\bstatic\b[^;=]*\b{variable}\s*[={{]", line) is not None


def calls_member(text: str) -> bool:
    return _CALLS_MEMBER.search(text) is not None


def called_functions(text: str) -> set[str]:
    """Return the plain names of functions, or macros, that the *text* calls; none of variables that it declares."""
    calls = rf"(?:(?<=\breturn\s)|(?<=\belse\s)|(?<![\w>]\s)(?<![\w.>:]))(?!{_KEYWORDS}\b)([A-Za-z_]\w*)\s*\("
    return set(re.findall(calls, text))


def mentions(pattern: str, text: str) -> list[tuple[int, str]]:
    """Return where a name of this *pattern* stands in *text*, and what stands around each; none of an empty one."""
    if not (pattern and re.search(pattern, text)):  # which takes a tenth of the time
        return []
    word = re.compile(rf"((?:\+\+\s*)?(?:\w+(?:\.|->|::))*(?<!\w){pattern}(?!\w))(?=([^;,]*))")
    return [(found.start(), found[1] + found[2]) for found in word.finditer(text)]


@functools.lru_cache(maxsize=64)
def writing(name: str, base: str, *, is_c: bool) -> re.Pattern[str]:
    """Return a pattern for text that may write the variable *name*, or take its address; *base*: what it is in."""
    kinds = [
        rf"(?:\+\+|--)\s*(?:\w+(?:\.|->|::))*(?<!\w){name}(?!\w)",
        rf"(?<!\w){name}\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))",
        rf"(?<!\w){name}\s*\.\s*(?:store|exchange|compare_exchange\w*|fetch_\w+)\s*\(",
        rf"(?<![&\w)\]])\s*&\s*(?:\w+(?:\.|->|::))*(?:{name}|{base})(?!\w)",
        rf"(?<!\w){base}\s*=(?!=)",
        rf"\b[A-Z_][A-Z_0-9]+\s*\([^;]*(?<!\w){base}(?!\w)",  # a macro
    ]
    if not is_c:
        kinds += [
            rf"&\s*\w+\s*[=({{]\s*(?:{name}|{base})(?!\w)",
            rf"(?<!\w)(?!{_KEYWORDS}\b)\w+\s*\(\s*(?:{name}|{base})\s*[,)]",
        ]
    return re.compile("|".join(kinds))
