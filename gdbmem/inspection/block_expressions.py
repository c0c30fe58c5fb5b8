"""The block that a variable leads to, by the symbols of the loaded files: ``LIBRARY!variable+OFFSET``."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from gdbmem.errors import InputError
from gdbmem.heap.text import encoded, in_words
from gdbmem.linux.elf.objects import ObjectSymbols
from gdbmem.model.memory import Memory, MemoryUnreadable
from gdbmem.symbols.batch_gdb import class_names
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.heap.blocks import Blocks
    from gdbmem.ledger.ledger import ProcessImage

_FORM = re.compile(
    r"(?P<address>&?)(?:(?P<file>[^!]+)!)?(?P<name>[^!]*?[^!+])(?:\+(?P<offset>0x[0-9a-fA-F]{1,9}|[0-9]{1,9}))?"
)
_MEMBER = re.compile(r"->|\.|\[|\*")
_LAST_NAME = re.compile(r"[A-Za-z_$][\w$]*(?=[^\w$]*$)")
_MOST_BYTES = 1 << 16  # of a variable, that are searched
_MOST_NAMED = 4


class _Variable(NamedTuple):
    file: str
    start: int
    size: int


def block_address(text: str, reading: ProcessImage, memory: Memory, blocks: Blocks) -> int:
    """Return an address in the block that the variable in *text* leads to. Raises InputError if there is none."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise _refused(f"'{printable(text)}' is neither an address nor a variable")
    if form["address"]:
        raise _refused(
            f"{printable(text)} is the address of a variable, which is in no block",
            f"without & it is the block that the variable leads to: {printable(text[1:])}",
        )
    variable = _find(form["file"] or "", form["name"], reading)
    if form["offset"] is not None:
        words = {int(form["offset"], 0): _word(memory, variable.start + int(form["offset"], 0))}
    else:
        words = {
            at: _word(memory, variable.start + at) for at in range(0, min(variable.size, _MOST_BYTES), 8)
        }
    led = {
        at: number
        for at, word in words.items()
        if (number := blocks.find_one(word)) >= 0 and blocks.live[number]
    }
    if not led:
        where = "the word there" if form["offset"] is not None else "no word of it"
        leads = "leads to no block" if form["offset"] is not None else "leads to a block"
        raise _refused(
            f"'{printable(text)}' is {variable.size} bytes at 0x{variable.start:x}, and {where} {leads}"
        )
    if len(set(led.values())) > 1:
        each = [f"{printable(text)}+{at}" for at in led]
        more = f" and {len(each) - _MOST_NAMED} more" if len(each) > _MOST_NAMED else ""
        raise _refused(
            f"'{printable(text)}' leads to {len(set(led.values()))} blocks",
            f"name one of its words: {', '.join(each[:_MOST_NAMED])}{more}",
        )
    return words[next(iter(led))]


def _word(memory: Memory, address: int) -> int:
    try:
        return int.from_bytes(memory.read(address, 8), "little")
    except MemoryUnreadable:
        return 0


def _find(file: str, name: str, reading: ProcessImage) -> _Variable:
    """Return the variable *name*, as its symbol has it or demangled, in the program, a library, or *file* alone."""
    symbols = ObjectSymbols(reading.images, reading.open)
    last = _LAST_NAME.search(name)
    found: dict[int, _Variable] = {}
    for image in reading.images:
        base = PurePath(image.name).name
        if file and file not in (base, image.name, base.split(".so")[0]):
            continue
        likely = [one for one in symbols.symbols_of(image) if last is None or last[0] in one[2]]
        shown = class_names({encoded(mangled) for _, _, mangled in likely} - {""})
        for start, end, mangled in likely:
            if name in (mangled, in_words(mangled, shown)):
                found.setdefault(image.bias + start, _Variable(base, image.bias + start, end - start))
    if not found:
        raise _unknown(file, name)
    if len(found) > 1:
        each = [f"{one.file} at 0x{one.start:x}" for one in found.values()]
        raise _refused(
            f"several variables are called '{printable(name)}': {', '.join(each[:_MOST_NAMED])}",
            "name the file, as in libparse.so!table, or give the address of a block",
        )
    return next(iter(found.values()))


def _unknown(file: str, name: str) -> InputError:
    if _MEMBER.search(name):
        return _refused(
            f"'{printable(name)}' is an expression of members or elements, which need types",
            "type memheap --block EXPR in gdb, or give the offset of the member: variable+16",
        )
    where = f"of {printable(file)}" if file else "of the program or a library"
    return _refused(f"no symbol {where} names a variable '{printable(name)}'")


def _refused(text: str, hint: str = "") -> InputError:
    return InputError(
        text,
        slug="no-such-variable",
        hint=hint
        or "name a global variable, with its offset or library if needed (LIBRARY!variable+16), or an address;"
        " memheap --block takes any expression of gdb's",
    )
