"""The sources of the program's functions: which effects each call has once, and which variables count its calls."""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, AbstractSet, NamedTuple, Optional

import gdb

from gdbmem.debugger.location import function_symtab, memory_address
from gdbmem.debugger.terminal import symbol_at
from gdbmem.symbols.function_names import FunctionName, split_function
from gdbmem.symbols.function_text import (
    FunctionText,
    called_functions,
    calls_member,
    code_lines,
    declares,
    defined_on,
    definition,
    find_function,
    function_bodies,
    functions_at,
    mentions,
    name_pattern,
    text_before,
    without_inner,
    writing,
)

if TYPE_CHECKING:  # it imports this module
    from gdbmem.debugger.memwatch.driving.function_code import SourceLine

_SURE = ("assert", "static_assert", "decltype", "alignof", "offsetof")  # which do not leave a function
_INCLUDES = re.compile(r'^\s*#\s*include\s+"([^"\n]+)"', re.MULTILINE)
_LIBRARY = re.compile(r"/usr/(?:include|lib)/|.*/include/c\+\+/")
_PLAIN_MACRO = re.compile(
    r"^\s*#\s*define\s+(\w+)\([^)]*\)\s*(?![^\n]*(?:[{\\]|\b(?:if|return|goto|break|continue|for|while)\b))"
)
_ALONE = re.compile(r"\s*[A-Za-z_]\w*\s*;?\s*$")
_NEAR = 12  # lines behind the one that gdb gives for inlined code


class Effect(NamedTuple):
    """The visible effect of an instruction: it calls, or writes memory that is not the stack's."""

    line: Optional[SourceLine]
    target: Optional[int]  # the function called, or the static variable written; None: unknown
    is_call: bool


def called_instead(
    name: FunctionName, places: Iterable[tuple[str, int]], effect: Optional[Effect]
) -> set[str]:
    """Return functions that the source calls at *places* where the program calls that of this *name*.

    Their own code is gone: the compiler has found it to be the same. Each call has the *effect* then, if one is known.
    """
    found = set[str]()
    for file, number in set(places):
        lines = source_lines(_symtab_of(file))
        text = next(iter(lines[number - 1 : number]), "")
        if name.parts[-1].isidentifier() and not mentions(name.parts[-1], text):
            called = {one: definition(lines, one) for one in called_functions(text)}
            found |= {
                one for one, its in called.items() if its and _may_be(its, effect) and not _has_code(one)
            }
    return found


def callers_of(name: FunctionName, places: Iterable[tuple[str, int]]) -> list[tuple[tuple[str, int], str]]:
    """Return where the sources of *places* call the function of the *name*, no member, and in which function."""
    wanted, found = name.parts[-1], list[tuple[tuple[str, int], str]]()
    if len(name.parts) > 1 or not wanted.isidentifier():
        return found
    call = re.compile(rf"(?<![\w.>:])\b{wanted}\s*\(")
    for file in {file for file, _ in places}:
        symtab = _symtab_of(file)
        lines = source_lines(symtab)
        own = defined_on(lines, wanted)
        calls = {
            (number, one.start() + 1)
            for number, line in enumerate(lines, 1)
            if wanted in line and number not in own and not line.lstrip().startswith("#")
            for one in call.finditer(line)
        }
        found += [
            ((file, line), function)
            for (line, _), (_, function) in sorted(functions_at(lines, calls).items())
            if function not in ("", wanted)
        ]
    return found


def _may_be(function: FunctionText, effect: Optional[Effect]) -> bool:
    return effect is None or bool(mentions(target_name(effect), function.body))


def _symtab_of(file: str) -> Optional[gdb.Symtab]:
    with suppress(gdb.error):
        return next((one.symtab for one in gdb.decode_line(f'"{file}":1')[1] or ()), None)
    return None


def _has_code(function: str) -> bool:
    try:
        return bool(gdb.decode_line(function)[1])
    except gdb.error:
        return False


class Step(NamedTuple):
    """A function, and the place in it that is looked at: of an effect, or of a call that is inlined there."""

    function: str
    symtab: Optional[gdb.Symtab]
    line: int


class Reach(NamedTuple):
    """How the calls of a function come to an effect."""

    is_once: Optional[bool]  # each call does, once; None: it is not known
    in_front: str = ""  # the source of the function, and of those inlined into it, up to there

    @property
    def calls_member(self) -> bool:
        """True if a function that may be virtual is called in front of the effect."""
        return calls_member(self.in_front)

    def is_behind(self, function: str) -> bool:
        """Return whether a call of the *function* is in front of the effect."""
        return bool(mentions(name_pattern(function), self.in_front))


def reach_of(steps: Sequence[Step], effect: Effect) -> Reach:
    """Return whether the source shows that each call of the first function has the *effect* once, before any branch.

    *steps*: down to the function that has it, by functions inlined into each other. A variable must be counted up by
    one: the compiler joins other writes.
    """
    target, in_front = target_name(effect), ""
    for step, inner in zip(steps, (*steps[1:], None)):
        found = find_function(source_lines(step.symtab), step.function, step.line)
        if not target or found is None:
            return Reach(None)
        before = None if effect.is_call else found.before_count(target)
        is_last = before is not None or inner is None
        if before is None and (inner is not None or effect.is_call):
            before = found.before_name(target if inner is None else name_pattern(inner.function))
        if before is None:
            return Reach(False)
        in_front += before
        if is_last:
            break
    is_sure = not any(map(_may_be_macro, called_functions(in_front)))  # which has branches
    return Reach(True if is_sure else None, in_front)


def is_reached_once(steps: Sequence[Step], column: int) -> bool:
    """Return whether each call of the first function comes once to the place of the last step, in this *column*.

    *steps*: down to the function that has the place, by functions inlined into each other.
    """
    for step, inner in zip(steps, (*steps[1:], None)):
        lines = source_lines(step.symtab)
        numbers = defined_on(lines, step.function)
        if inner is not None:
            text = next(iter(lines[step.line - 1 : step.line]), "")
            calls = mentions(_call_pattern(split_function(inner.function).parts[-1]), text)
            if len(calls) != 1:
                return False
            column = calls[0][0] + 1
        before = (
            text_before(lines, step.function, numbers[0], step.line, column) if len(numbers) == 1 else None
        )
        if before is None or any(map(_may_be_macro, called_functions(before) - _plain_macros(lines))):
            return False
    return True


def text_at(step: Step, column: int) -> str:
    """Return what stands in the source line of the *step* from this *column* on."""
    return next(iter(source_lines(step.symtab)[step.line - 1 : step.line]), "")[column - 1 :]


def _plain_macros(lines: Iterable[str]) -> set[str]:
    """Return the names of the macros, among the *lines*, that are an expression on one line."""
    found = (_PLAIN_MACRO.match(line) for line in lines)
    return {one[1] for one in found if one}


def _may_be_macro(name: str) -> bool:
    """Return whether what is called so is not known as a function or a type, or as the compiler's own."""
    with suppress(gdb.error):
        return not (name in _SURE or name.startswith("_") or _has_code(name) or gdb.lookup_type(name))
    return True


def calls_itself(block: gdb.Block) -> bool:
    """Return whether the source of the function of *block* has a call of its own name."""
    found = find_function(source_lines(function_symtab(block)), block.function.name, block.function.line)
    return found is not None and found.calls_itself


def calls_to(
    function: gdb.Symbol, symtab: Optional[gdb.Symtab], name: str, numbers: Sequence[int] = ()
) -> Optional[Counter[str]]:
    """Return how often the source of a *function* calls that of the *name*, and others that come to it.

    *symtab*: its source file. *numbers*: of its lines, for a source that is not found by its name. None if there is no
    source.
    """
    lines, wanted = source_lines(symtab), split_function(name).parts[-1]
    found = find_function(lines, str(function.name), function.line) or definition(lines, str(function.name))
    if not lines or (found is None and not numbers):
        return None
    text = found.body if found is not None else "\n".join(lines[min(numbers) : max(numbers)])
    coming = {one for one in called_functions(text) if _comes_to(lines, one, wanted, {str(function.name)})}
    return Counter({one: len(mentions(_call_pattern(one), text)) for one in {wanted, *coming}})


def declared_at(
    places: Iterable[tuple[Optional[gdb.Symtab], int]], name: str
) -> Optional[tuple[gdb.Symtab, int]]:
    """Return the file and line of the definition of the function *name* that has code at these files and lines.

    None if there is no source, or several define such a function.
    """
    found = []
    for symtab in {one.fullname(): one for one, _ in places if one is not None}.values():
        numbers = defined_on(source_lines(symtab), name)
        first = min(line for one, line in places if one is not None and one.fullname() == symtab.fullname())
        number = (
            numbers[0] if len(numbers) == 1 else max((one for one in numbers if one <= first), default=None)
        )
        found += [(symtab, number)] if number is not None else []
    return found[0] if len(found) == 1 else None


def is_only_declared(symtab: Optional[gdb.Symtab], number: int, name: str) -> bool:
    """Return whether the definition of the function *name* begins on this line, which does not call it."""
    lines = source_lines(symtab)
    return number in defined_on(lines, name) and len(mentions(name_pattern(name), lines[number - 1])) == 1


def _call_pattern(function: str) -> str:
    return name_pattern(function) + r"(?=\s*\()"


def comes_to(lines: Sequence[str], function: str, wanted: str) -> bool:
    """Return whether a *function* of these *lines* calls the *wanted* one, by way of others, too."""
    return _comes_to(lines, split_function(function).parts[-1], split_function(wanted).parts[-1], set())


def _comes_to(lines: Sequence[str], function: str, wanted: str, seen: set[str]) -> bool:
    found = definition(lines, function) if function not in seen else None
    seen.add(function)
    return found is not None and (
        bool(mentions(_call_pattern(wanted), found.body))
        or any(_comes_to(lines, one, wanted, seen) for one in called_functions(found.body))
    )


def are_calls_known(symtabs: Iterable[gdb.Symtab], name: str, known: AbstractSet[str]) -> bool:
    """Return whether the *known* functions can call that of the *name* only where their own sources do.

    Others in the same files, and those that they include, may call it if nothing runs them but a call by their name
    elsewhere. Libraries' headers call it only by what a program hands to them. False if a file is not to be had.
    """
    wanted, files = split_function(name).parts[-1], _with_included(symtabs)
    texts = ["\n".join(lines) for lines in files.values()]
    if not all(texts) or any(
        re.search(rf"^\s*#.*\b{re.escape(wanted)}\b", text, re.MULTILINE) for text in texts
    ):
        return False
    functions = [one for text in texts for one in function_bodies(text)]
    reached = "\n".join(text for function, text in functions if function in known)
    for function, text in functions:
        calls = mentions(_call_pattern(wanted), text)
        is_reached = not function or mentions(_call_pattern(function), reached)
        if calls and (
            (function not in known and is_reached)
            or len(calls) > len(mentions(_call_pattern(wanted), without_inner(text)))
        ):
            return False
    return True


def _with_included(symtabs: Iterable[gdb.Symtab]) -> dict[Path, list[str]]:
    """Return the lines of source files, and of those that they include by a name in quotes; none of missing ones."""
    found: dict[Path, list[str]] = {}
    files = [(Path(os.path.normpath(one.fullname())), source_lines(one), one) for one in symtabs]
    todo = [one for one in files if not _LIBRARY.match(str(one[0]))]
    while todo:
        path, lines, symtab = todo.pop()
        if path in found:
            continue
        found[path] = lines
        with suppress(OSError):
            for name in _INCLUDES.findall(path.read_text(errors="replace")):
                included = Path(os.path.normpath(path.parent / name))
                todo.append((included, _lines_beside(symtab, included), symtab))
    return found


def names(place: gdb.Symtab_and_line, effect: Effect, *, is_inlined: bool = False) -> bool:
    """Return whether the source line of *place* names the target of the *effect*; True if there is no source.

    In the code of an inlined function gdb may give a line of it that is in front.
    """
    lines = source_lines(place.symtab)
    if not lines:
        return bool(place.line)
    text = lines[place.line - 1 : place.line + (_NEAR if is_inlined else 0)] if place.line else []
    return bool(mentions(target_name(effect), "\n".join(text)))


def may_use_macro(place: gdb.Symtab_and_line) -> bool:
    """Return whether the source line of *place* may have a macro in it, which does what only its definition says."""
    text = line_text(place)
    return bool(_ALONE.match(text)) or any(map(_may_be_macro, called_functions(text)))


def line_text(place: gdb.Symtab_and_line) -> str:
    return next(iter(source_lines(place.symtab)[max(place.line - 1, 0) : place.line]), "")


def target_name(effect: Effect) -> str:
    """Return a pattern for the name of a called function or a variable; empty if it is unknown."""
    symbol = symbol_at(effect.target, demangled=True) if effect.target is not None else ""
    symbol, _, offset = symbol.partition("@")[0].partition(" + ")
    if effect.is_call:
        return re.escape(next(reversed(split_function(symbol).parts), "").partition(".")[0])
    name = re.escape(symbol.rpartition("::")[2].partition(".")[0])
    for one in _symbols(symbol)[:1] if name else ():
        kind = one.type.strip_typedefs() if one.is_variable else None
        if (
            kind is not None
            and kind.code == gdb.TYPE_CODE_STRUCT
            and not str(kind.name).startswith("std::atomic<")
        ):
            if memory_address(one.value()) is None:  # clang has made a variable of each field
                return ""
            fields = (
                field for field in kind.fields() if getattr(field, "bitpos", -1) == 8 * int(offset or 0)
            )
            return next((rf"{name}\s*(?:\.|->)\s*{field.name}" for field in fields if field.name), name)
    return name


def _symbols(name: str) -> list[gdb.Symbol]:
    """Return the global and static symbols of this name, first those with an address.

    With link-time optimization, a variable is described without one, too, in its own file; which gdb finds first
    depends on what it has read by then.
    """
    found = [
        one for one in (gdb.lookup_global_symbol(name), *gdb.lookup_static_symbols(name)) if one is not None
    ]
    return sorted(found, key=lambda one: one.is_variable and memory_address(one.value()) is None)


@functools.lru_cache(maxsize=64)
def _lines_of(path: str, changed: float) -> list[str]:
    source = Path(path)
    return [] if source.stat().st_mtime > changed else code_lines(source.read_text(errors="replace"))


def source_lines(symtab: Optional[gdb.Symtab]) -> list[str]:
    """Return the lines of a source file, without comments; none if it is not to be had, or newer than the program."""
    try:
        if symtab is None:
            return []
        return _lines_beside(symtab, Path(symtab.fullname()))
    except ValueError:
        return []


def _lines_beside(symtab: gdb.Symtab, path: Path) -> list[str]:
    """Return the lines of the source file *path* of the program of *symtab*, as source_lines()."""
    try:
        return _lines_of(str(path), Path(symtab.objfile.filename).stat().st_mtime)
    except OSError:
        return []


def only_write(variable: Effect, symtabs: Iterable[gdb.Symtab]) -> Optional[tuple[gdb.Symtab, int]]:
    """Return the only line on which the sources may write a *variable*, or take its address.

    None if there are others, or a source is not to be had.
    """
    name, found = target_name(variable), list[tuple[gdb.Symtab, int]]()
    base = name.partition(r"\s*(?:")[0]
    if not name:
        return None
    symbol = symbol_at(variable.target or 0).partition(" + ")[0]
    declared = next(iter(_symbols(symbol)), None)
    declaring = [declared.symtab] if declared is not None and declared.symtab is not None else []
    sources = {one.fullname(): one for one in (*symtabs, *declaring) if not one.filename.startswith("<")}
    for symtab in sources.values():  # but not "<artificial>"
        lines = source_lines(symtab)
        if not lines:
            return None
        written = writing(name, base, is_c=symtab.filename.endswith(".c"))
        for number, line in enumerate(lines, 1):
            is_declared = declared is not None and (declared.symtab, declared.line) == (symtab, number)
            if base in line and not is_declared and not declares(base, line):
                found += [(symtab, number)] * len(written.findall(line))
    return found[0] if len(found) == 1 else None
