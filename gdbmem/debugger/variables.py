"""Variables of a program's functions and files, for a batch gdb: their types, and where those in scope are stored."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Optional, Union

import gdb

_SECONDS = 10.0  # after which what has been found counts
_MOST, _LONGEST = 1000, 4096  # variables of a function; bytes of a type's name
_PROBES = 64  # addresses at which a block is looked for
_REFERENCES = gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF
_SYMBOL = re.compile(r"^Symbol (\S+) is (.*?)(?:, length \d+)?\.$", re.M | re.S)
_RANGE = re.compile(r"Range (0x[0-9a-f]+)-(0x[0-9a-f]+): (.*?)(?=\n *(?:Base address|Range) |\Z)", re.S)
_IN_REGISTER = re.compile(r"a variable in \$(\w+)")
_AT_BASE = re.compile(r"a variable at frame base reg \$(\w+) offset (-?\d+)\+(-?\d+)")
_AT_OFFSET = re.compile(r"a variable at offset (-?\d+) from base reg \$(\w+)")
_ONE_STEP = re.compile(
    r"a (?:variable with )?complex DWARF expression:\s+0: DW_OP_(\w+) (-?\d+)(?: \[\$(\w+)\])?"
)

Location = Optional[
    tuple[str, int]
]  # "cfa" or a register with an offset; "=" and a register, which has the value


def describe_variables() -> None:
    """Read questions from one file and write their answers to another; the environment has both paths.

    Questions: ``code``, addresses; ``variables``, each a name as the linker has it and its address, null for a
    thread-local one; ``member``, a name and an address, and steps from there as _member() takes them.
    """
    with open(os.environ["GDBMEM_ADDRESSES"], encoding="ascii") as stream:  # noqa: PTH123
        asked = json.load(stream)
    end = time.monotonic() + _SECONDS
    code, variables = {}, {}
    for address in asked["code"]:
        if time.monotonic() < end:
            code[address] = _frame(address)
    for name, address in asked["variables"]:
        if time.monotonic() < end:
            variables[name] = _variable(name, address)
    member = _member(*asked["member"]) if "member" in asked else None
    with open(os.environ["GDBMEM_NAMES"], "w", encoding="ascii") as stream:  # noqa: PTH123
        json.dump({"code": code, "variables": variables, "member": member}, stream)


def _frame(address: int) -> list[object]:
    """Return the function at *address*, and of each variable in scope its function, name, type and location."""
    found: list[object] = []
    function, names = "", set[tuple[str, str]]()
    with suppress(gdb.error, RuntimeError):
        blocks = list(_blocks(address))
        functions = [str(block.function) if block.function is not None else "" for block in blocks]
        function = next(filter(None, reversed(functions)), "")
        for number, block in enumerate(blocks):
            of = next(filter(None, functions[number:]), "")
            symbols = [one for one in block if one.needs_frame and (one.is_variable or one.is_argument)]
            places = _places(block, address) if symbols else {}
            for one in symbols[:_MOST]:
                place = places.get(one.name)
                if place is not None and (of, one.name) not in names:
                    names.add((of, one.name))
                    found.append([of, one.name, *_described(one.type), *place])
    return [function, found]


def _blocks(address: int) -> Iterator[gdb.Block]:
    """Yield the blocks around *address*, the innermost first, up to that of the function that was not inlined."""
    block = gdb.block_for_pc(address)
    while (
        block is not None
        and not block.is_global
        and not block.is_static
        and block.start <= address < block.end
    ):
        yield block
        block = block.superblock


def _places(block: gdb.Block, address: int) -> dict[str, tuple[str, int]]:
    """Return where the variables of *block* are stored while the function is at *address*."""
    inside = _address_in(block, address)
    if inside is None:
        return {}
    found: dict[str, tuple[str, int]] = {}
    for name, text in _SYMBOL.findall(_printed(f"info scope *{inside:#x}")):
        place = _place(text, address)
        if place is not None:
            found.setdefault(name, place)
    return found


def _printed(command: str) -> str:
    """Return what *command* prints until it ends, or fails, as `info scope` does at some variables."""
    with tempfile.TemporaryFile() as stream:
        gdb.flush()
        saved = os.dup(1)
        try:
            os.dup2(stream.fileno(), 1)
            with suppress(gdb.error):
                gdb.execute(command)
            gdb.flush()
        finally:
            os.dup2(saved, 1)
            os.close(saved)
        stream.seek(0)
        return stream.read().decode(errors="replace")


def _address_in(block: gdb.Block, address: int) -> Optional[int]:
    """Return an address whose innermost block is *block*; None if none is found."""
    size = block.end - block.start
    for at in (address, block.start, *(block.start + size * number // _PROBES for number in range(_PROBES))):
        found = gdb.block_for_pc(at)
        if found is not None and _same(found) == _same(block):
            return int(at)
    return None


def _same(block: gdb.Block) -> tuple[int, int, str]:
    return block.start, block.end, str(block.function)


def _place(text: str, address: int) -> Location:
    ranges = _RANGE.findall(text)
    if ranges:
        text = next((what for low, high, what in ranges if int(low, 16) <= address < int(high, 16)), "")
    text = text.strip()
    if match := _IN_REGISTER.fullmatch(text):
        return f"={match[1]}", 0
    if match := _AT_BASE.fullmatch(text):
        return match[1], int(match[2]) + int(match[3])
    if match := _AT_OFFSET.fullmatch(text):
        return match[2], int(match[1])
    if match := _ONE_STEP.fullmatch(text):
        if match[1] == "fbreg":
            return "cfa", int(match[2])
        if match[1].startswith("breg") and match[3]:
            return match[3], int(match[2])
    return None


def _variable(name: str, address: Optional[int]) -> Optional[list[object]]:
    """Return the type of the variable that the linker calls *name*, as _described(); None if it is unknown."""
    found = _type_of(name, address)
    return _described(found) if found is not None else None


def _member(name: str, address: Optional[int], steps: list[str]) -> Union[list[object], str]:
    """Return how *steps* lead from the variable to what they mean: bytes, those behind each pointer; and its size.

    A step is ``*``, the name of a member, or a number in brackets. If it can't be taken, a sentence's part says why.
    """
    kind = _type_of(name, address)
    if kind is None:
        return f"there is no type of '{name}'"
    moves = [0]
    try:
        for step in steps:
            kind, move, follows = _step(kind.strip_typedefs(), step)
            if follows:
                moves.append(0)
            moves[-1] += move
        return [moves, int(kind.sizeof)]
    except (gdb.error, RuntimeError, ValueError) as error:
        return str(error)


def _step(kind: gdb.Type, step: str) -> tuple[gdb.Type, int, bool]:
    """Return the type that *step* leads to, how far that is, and whether a pointer is followed before."""
    follows = kind.code in (gdb.TYPE_CODE_PTR, *_REFERENCES)
    was_pointer = kind.code == gdb.TYPE_CODE_PTR
    if follows:
        kind = kind.target().strip_typedefs()
        if not was_pointer and kind.code == gdb.TYPE_CODE_PTR:
            raise ValueError("a reference to a pointer is followed by memheap --block in gdb alone")
    if step == "*" or step.startswith("["):
        index = 0 if step == "*" else int(step[1:-1])
        if was_pointer:
            return kind, index * kind.sizeof, True
        if kind.code != gdb.TYPE_CODE_ARRAY:
            raise ValueError(f"{_named(kind)} has no elements of its own; operators are not called")
        low, high = kind.range()
        if not low <= index <= max(high, 0):
            raise ValueError(f"[{index}] is not in {_named(kind)}")
        return kind.target(), (index - low) * kind.target().sizeof, follows
    if kind.code not in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        raise ValueError(f"{_named(kind)} has no members")
    field = _field(kind, step)
    if field is None:
        raise ValueError(f"{_named(kind)} has no member '{step}'; operators are not called")
    if not hasattr(field, "bitpos"):
        raise ValueError(f"'{step}' is a static member: it is a variable of {_named(kind)}")
    place = gdb.Value(0).cast(kind.pointer()).dereference()[step].address
    if place is None or field.bitsize:
        raise ValueError(f"'{step}' is a part of a word")
    return field.type, int(place), follows


def _field(kind: gdb.Type, name: str) -> Optional[gdb.Field]:
    """Return the member *name* of a class, of one of its bases, or of a member of these without a name."""
    bases: list[gdb.Type] = []
    for field in kind.fields():
        if field.name == name and not field.is_base_class:
            return field
        if field.is_base_class or not field.name:
            bases.append(field.type.strip_typedefs())
    for base in bases:
        if base.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
            found = _field(base, name)
            if found is not None:
                return found
    return None


def _named(kind: gdb.Type) -> str:
    return str(kind)[:_LONGEST].split(" {")[0]


def _type_of(name: str, address: Optional[int]) -> Optional[gdb.Type]:
    """Return the type of the variable that the linker calls *name*; None if it is unknown."""
    plain = name
    with suppress(gdb.error):
        if re.fullmatch(r"_Z[A-Za-z0-9_.$]+", name):
            plain = str(gdb.execute(f"demangle -- {name}", to_string=True)).strip()
    with suppress(gdb.error, RuntimeError):
        for symbol in (gdb.lookup_global_symbol(plain), *gdb.lookup_static_symbols(plain)):
            if (
                symbol is not None and not symbol.is_function
            ):  # one that is only declared is no variable for gdb
                if address is None:
                    return symbol.type
                if symbol.type.strip_typedefs().code in _REFERENCES:
                    return symbol.type  # the place of its value is that of another variable
                place = symbol.value().address
                if place is not None and int(place) == address:
                    return symbol.type
    if address is not None and "::" in plain:  # of a function
        with suppress(gdb.error, RuntimeError):
            value = gdb.parse_and_eval(plain)
            if value.address is not None and int(value.address) == address:
                return value.type
    return None


def _described(type_: gdb.Type) -> list[object]:
    """Return the name of a type, its size, and the size of its first argument as a template, 0 if it has none."""
    plain = type_.strip_typedefs().unqualified()
    element = 0
    with suppress(gdb.error, RuntimeError):
        first: Any = plain.template_argument(0)
        element = int(first.strip_typedefs().sizeof) if isinstance(first, gdb.Type) else 0
    return [str(plain)[:_LONGEST], int(plain.sizeof), element]
