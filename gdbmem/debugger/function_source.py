"""What the source says of a function: which effects each call has once, and which variables count its calls."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

import gdb

from gdbmem.debugger.terminal import symbol_at
from gdbmem.symbols.function_names import FunctionName, split_function

if TYPE_CHECKING:  # it imports this module
    from gdbmem.debugger.memwatch.driving.function_code import SourceLine

COMMENT = re.compile(r"//.*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'")  # and a string
_LONGEST_HEADER = 12  # lines from the name of a function to its first statement
_KEYWORDS = "(?:if|while|for|switch|return|sizeof|catch)"
_BRANCHES = re.compile(r"\b(?:if|else|for|while|do|switch|case|goto|return|try|catch)\b|[?]|&&|[|][|]")
_COUNTS_UP = re.compile(r"\+\+|[^;=+]*(?:\+\+|\+=\s*1\b)")


class Effect(NamedTuple):
    """The visible effect of an instruction: it calls, or writes memory that is not the stack's."""

    line: Optional[SourceLine]
    target: Optional[int]  # the function called, or the static variable written; None: unknown
    is_call: bool


def called_instead(name: FunctionName, places: Iterable[tuple[str, int]]) -> set[str]:
    """Return functions that the source calls at *places* where the program calls that of this *name*.

    Their own code is gone: the compiler has found it to be the same.
    """
    found = set[str]()
    for file, number in set(places):
        lines = source_lines(_symtab_of(file))
        text = COMMENT.sub("", next(iter(lines[number - 1 : number]), ""))
        if not text or not name.parts[-1].isidentifier() or mentions(re.escape(name.parts[-1]), text):
            continue
        for called in set(re.findall(rf"(?<![\w.>:])(?!{_KEYWORDS}\b)([A-Za-z_]\w*)\s*\(", text)):
            if any(map(_header(called, r"\w\s*&").match, lines)) and not _has_code(called):
                found.add(called)
    return found


def defines(symtab: gdb.Symtab, function: str) -> bool:
    """Return whether the source file has a body of the *function*, as far as its lines tell."""
    lines, header = source_lines(symtab), _header(name_pattern(function), r"\w\s*&():<>,")
    found = (number for number, line in enumerate(lines) if header.match(line))
    bodies = ("\n".join(lines[number : number + _LONGEST_HEADER]) for number in found)
    return any(re.match(r"[^;{]*\{", COMMENT.sub("", text)) for text in bodies)


def _header(function: str, before: str) -> re.Pattern[str]:
    """Return a pattern for a line with which a definition of the *function* begins; *before*: characters in front."""
    start = rf"^(?!\s*#)(?!.*\b{_KEYWORDS}\b)[{before}]*\b{function}"
    return re.compile(rf"{start}\s*\([^;]*$|{start}\s*\([^;]*\)\s*{{")


def _symtab_of(file: str) -> Optional[gdb.Symtab]:
    with suppress(gdb.error):
        return next((one.symtab for one in gdb.decode_line(f'"{file}":1')[1] or ()), None)
    return None


def _has_code(function: str) -> bool:
    try:
        return bool(gdb.decode_line(function)[1])
    except gdb.error:
        return False


def is_done_once(function: str, place: gdb.Symtab_and_line, effect: Effect) -> Optional[bool]:
    """Return whether the source shows that each call of the *function* has the *effect* once, on the line of *place*.

    It does not if there is a branch or a loop up to there, or if a variable is not counted up by one: the compiler
    joins other writes. None: it is not known.
    """
    lines, last = source_lines(place.symtab), place.line
    parts, target = split_function(function).parts, target_name(effect)
    if not lines or not parts or not target:
        return None
    name = re.escape(parts[-1])
    header = re.compile(
        rf"(?<![\w.>]){name}\s*\([^;{{]*{{" if name[-1].isalnum() else rf"{name}\s*\([^;{{]*{{"
    )
    for number in range(last, max(last - _LONGEST_HEADER, 0), -1):
        found = header.search(COMMENT.sub("", "\n".join(lines[number - 1 : last + _LONGEST_HEADER])))
        if not found or found.start() > len(lines[number - 1]):
            continue
        body = _body_of("\n".join(COMMENT.sub("", line) for line in lines[number - 1 :]), found.end())
        first = number + found.string[: found.end()].count("\n")
        done = [at for at, text in mentions(target, body) if effect.is_call or _COUNTS_UP.match(text)]
        here = [at for at in done if first + body[:at].count("\n") == last]
        if effect.is_call or len(done) == 1:
            here = done
        return len(here) == 1 and not _BRANCHES.search(body[: here[0]])
    return None


def calls_itself(function: gdb.Symbol) -> bool:
    """Return whether the source of the *function* has a call of its own name."""
    text = "\n".join(
        COMMENT.sub("", line) for line in source_lines(function.symtab)[max(function.line - 1, 0) :]
    )
    body = _body_of(text, text.find("{") + 1)
    return bool(re.search(rf"(?<![\w.>]){name_pattern(function.name)}\s*\(", body))


def _body_of(text: str, start: int) -> str:
    """Return the *text* from *start*, behind an opening brace, to the brace that closes it."""
    depth = 1
    for found in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return text[start : found.start()]
    return text[start:]


def names(place: gdb.Symtab_and_line, effect: Effect, *, is_inlined: bool = False) -> bool:
    """Return whether the source line of *place* names the target of the *effect*; True if there is no source.

    In the code of an inlined function gdb may give a line of it that is in front.
    """
    lines = source_lines(place.symtab)
    if not lines:
        return bool(place.line)
    text = (
        "\n".join(lines[place.line - 1 : place.line + (_LONGEST_HEADER if is_inlined else 0)])
        if place.line
        else ""
    )
    return bool(mentions(target_name(effect), text))


def line_text(place: gdb.Symtab_and_line) -> str:
    return COMMENT.sub("", next(iter(source_lines(place.symtab)[max(place.line - 1, 0) : place.line]), ""))


def name_pattern(function: str) -> str:
    """Return a pattern for the plain name of a *function*."""
    return re.escape(split_function(function).parts[-1])


def target_name(effect: Effect) -> str:
    """Return a pattern for the name of a called function or a variable; empty if it is unknown."""
    symbol = symbol_at(effect.target, demangled=True) if effect.target is not None else ""
    symbol, _, offset = symbol.partition("@")[0].partition(" + ")
    if effect.is_call:
        return re.escape(next(reversed(split_function(symbol).parts), "").partition(".")[0])
    name = re.escape(symbol.rpartition("::")[2].partition(".")[0])
    for one in (gdb.lookup_global_symbol(symbol), gdb.lookup_static_symbol(symbol)) if name else ():
        kind = one.type.strip_typedefs() if one is not None and one.is_variable else None
        if kind is not None and kind.code == gdb.TYPE_CODE_STRUCT:
            if one.value().address is None:  # clang has made a variable of each field
                return ""
            fields = (
                field for field in kind.fields() if getattr(field, "bitpos", -1) == 8 * int(offset or 0)
            )
            return next((rf"{name}\s*(?:\.|->)\s*{field.name}" for field in fields if field.name), name)
    return name


def mentions(pattern: str, text: str) -> list[tuple[int, str]]:
    """Return where a name of this *pattern* stands in *text*, and what stands around each; none of an empty one."""
    word = re.compile(rf"((?:\+\+\s*)?(?:\w+(?:\.|->|::))*(?<!\w){pattern}(?!\w))(?=([^;,]*))")
    return [(found.start(), found[1] + found[2]) for found in word.finditer(text)] if pattern else []


@functools.lru_cache(maxsize=64)
def _lines_of(path: str, changed: float) -> list[str]:
    source = Path(path)
    return [] if source.stat().st_mtime > changed else source.read_text(errors="replace").splitlines()


def source_lines(symtab: Optional[gdb.Symtab]) -> list[str]:
    """Return the lines of a source file; none if it is not to be had, or newer than the program."""
    try:
        if symtab is None:
            return []
        program = symtab.objfile.filename
        return _lines_of(symtab.fullname(), Path(program).stat().st_mtime)
    except (OSError, ValueError):
        return []


def only_write(variable: Effect, symtabs: Iterable[gdb.Symtab]) -> Optional[gdb.Symtab_and_line]:
    """Return the only place where the sources may write a *variable*, or take its address.

    None if there are others, or a source is not to be had.
    """
    name, found = target_name(variable), list[tuple[gdb.Symtab, int]]()
    base = name.partition(r"\s*(?:")[0]
    if not name:
        return None
    declared = _declaration(symbol_at(variable.target or 0).partition(" + ")[0])
    declaring = [declared.symtab] if declared is not None and declared.symtab is not None else []
    sources = {one.fullname(): one for one in (*symtabs, *declaring) if not one.filename.startswith("<")}
    for symtab in sources.values():  # but not "<artificial>"
        lines = source_lines(symtab)
        if not lines:
            return None
        written = _may_write(name, base, is_c=symtab.filename.endswith(".c"))
        for number, line in enumerate(lines, 1):
            if base not in line:
                continue
            text = COMMENT.sub("", line)
            is_declared = declared is not None and (declared.symtab, declared.line) == (symtab, number)
            if not is_declared and not re.search(rf"\bstatic\b[^;=]*\b{base}\s*[={{]", text):
                found += [(symtab, number)] * len(written.findall(text))
    if len(found) != 1:
        return None
    symtab, number = found[0]
    return next((one for one in gdb.decode_line(f'"{symtab.fullname()}":{number}')[1] or ()), None)


def _declaration(symbol: str) -> Optional[gdb.Symbol]:
    return gdb.lookup_global_symbol(symbol) or gdb.lookup_static_symbol(symbol)


@functools.lru_cache(maxsize=64)
def _may_write(name: str, base: str, *, is_c: bool) -> re.Pattern[str]:
    """Return a pattern for text that may write the variable *name*, or take its address; *base*: what it is in."""
    kinds = [
        rf"(?:\+\+|--)\s*(?:\w+(?:\.|->|::))*(?<!\w){name}(?!\w)",
        rf"(?<!\w){name}\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))",
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
