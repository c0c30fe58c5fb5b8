"""The block that a variable leads to: ``LIBRARY!variable+OFFSET``, by the symbols of the loaded files.

Members and elements, as in ``object.member``, ``pointer->member`` and ``*table[3].first``, are found by the debug
information of the file; which pointers have to be followed is known before any memory is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Optional

from gdbmem.errors import InputError
from gdbmem.heap.places import thread_in_words
from gdbmem.heap.text import encoded, in_words
from gdbmem.heap.thread_local import place_of_thread_local
from gdbmem.linux.elf.objects import Image, ObjectSymbols, ThreadLocalSymbols
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.model.memory import Memory, MemoryUnreadable, ThreadPointers
from gdbmem.symbols.batch_gdb import class_names
from gdbmem.symbols.variables import find_member
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.heap.blocks import Blocks

_FORM = re.compile(
    r"(?P<address>&?)(?:(?P<file>[^!]+)!)?(?P<name>[^!]*?[^!+])(?:\+(?P<offset>0x[0-9a-fA-F]{1,9}|[0-9]{1,9}))?"
)
_STEP = re.compile(
    r"(?P<name>.+?)(?:(?:->|\.)(?P<member>[A-Za-z_]\w*)|\[(?P<index>0x[0-9a-fA-F]{1,9}|[0-9]{1,9})\])", re.S
)
_EXPRESSION = re.compile(r"->|\.|\[|\*|\(")
_CALL = re.compile(r"\w\(")
_LAST_NAME = re.compile(r"[A-Za-z_$][\w$]*(?=[^\w$]*$)")
_MOST_BYTES = 1 << 16  # of a variable, that are searched
_MOST_NAMED = 4
_MOST_STEPS = 64


class Located(NamedTuple):
    """What an expression stands for, without any memory of the process."""

    text: str
    image: Image
    start: int  # address of the variable, or its place in the file's thread-local memory
    is_thread_local: bool
    moves: Sequence[int]  # bytes to what is meant; each but the first from where the pointer there leads to
    size: int
    offset: Optional[int]  # the word there is meant; None: all of them


def locate(text: str, images: Sequence[Image], files: TargetFiles) -> Located:
    """Return what the expression *text* stands for in a process with these *images*. Raises InputError."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise _refused(f"'{printable(text)}' is neither an address nor a variable")
    if form["address"]:
        raise _refused(
            f"{printable(text)} is the address of a variable, which is in no block",
            f"without & it is the block that the variable leads to: {printable(text[1:])}",
        )
    offset = int(form["offset"], 0) if form["offset"] is not None else None
    file, name, steps = form["file"] or "", form["name"], list[str]()
    symbols = _Symbols(images, files.open)
    found = symbols.find(file, name)
    if found is None:
        name, steps = _parsed(name)
        found = symbols.find(file, name)
    if found is None:
        raise _unknown(file, name, is_expression=bool(steps))
    if not steps:
        return Located(text, found.image, found.start, found.is_thread_local, (0,), found.size, offset)
    if files.rights is not None and not files.is_trusted(found.image.name):
        raise _refused(
            f"the types of {printable(found.file)} are not read: another user could change the file"
        )
    address = None if found.is_thread_local else found.start - found.image.bias
    path = Path(found.image.name)
    answer = find_member(path, found.image.build_id, (found.mangled, address), steps)
    if isinstance(answer, str):
        raise _refused(f"'{printable(text)}' can't be resolved: {printable(answer)}")
    return Located(text, found.image, found.start, found.is_thread_local, answer.moves, answer.size, offset)


def _parsed(text: str) -> tuple[str, list[str]]:
    """Return the variable in the expression *text*, and what is done to it: ``*``, a member's name, ``[3]``."""
    if text.startswith("*"):
        name, steps = _parsed(text[1:].strip())
        return name, [*steps, "*"]
    after: list[str] = []
    while len(after) < _MOST_STEPS:
        if text.startswith("(") and text.endswith(")"):
            name, steps = _parsed(text[1:-1].strip())
            return name, [*steps, *reversed(after)]
        step = _STEP.fullmatch(text)
        if step is None:
            break
        text = step["name"].strip()
        after.append(step["member"] or f"[{int(step['index'], 0)}]")
    return text, after[::-1]


def block_address(located: Located, memory: Memory, blocks: Blocks, threads: Sequence[ThreadPointers]) -> int:
    """Return an address in the block to which the words that are meant lead. Raises InputError if there is none."""
    words: dict[str, int] = {}  # by how each can be named
    text, place = printable(located.text), 0
    for thread, start in _starts(located, memory, threads):
        place = _followed(located, memory, start)
        every = range(0, min(located.size, _MOST_BYTES), 8)
        for one in every if located.offset is None else (located.offset,):
            word = _word(memory, place + one)
            if word is not None and (number := blocks.find_one(word)) >= 0 and blocks.live[number]:
                name = f"{text}+{one}" if located.offset is None else text
                words[f"0x{word:x} of {thread}" if thread else name] = word
    led = {blocks.find_one(word) for word in words.values()}
    if not led:
        where = "the word there" if located.offset is not None else "no word of it"
        leads = "leads to no block" if located.offset is not None else "leads to a block"
        number = blocks.find_one(place)
        inside = (
            f"; it lies in a block itself: name 0x{place:x}" if number >= 0 and blocks.live[number] else ""
        )
        raise _refused(f"'{text}' is {located.size} bytes at 0x{place:x}, and {where} {leads}{inside}")
    if len(led) > 1:
        names = list(words)
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        kind = "addresses" if located.is_thread_local else "words"
        raise _refused(
            f"'{text}' leads to {len(led)} blocks",
            f"name one of its {kind}: {', '.join(names[:_MOST_NAMED])}{more}",
        )
    return next(iter(words.values()))


def _starts(located: Located, memory: Memory, threads: Sequence[ThreadPointers]) -> Sequence[tuple[str, int]]:
    """Return where the variable is: in each thread, if it is thread-local; raises InputError if that is unknown."""
    if not located.is_thread_local:
        return [("", located.start)]
    offset = place_of_thread_local(memory, located.image)
    known = [one for one in threads if one.thread_pointer]
    if offset is None or not known:
        raise _refused(
            f"'{printable(located.text)}' is thread-local, and where threads have it is unknown here"
        )
    return [
        (thread_in_words(one.tid, one.name), one.thread_pointer + offset + located.start) for one in known
    ]


def _followed(located: Located, memory: Memory, start: int) -> int:
    """Return the address of what is meant, of the variable at *start*; 0: a pointer on the way leads nowhere."""
    at = start + located.moves[0]
    for number, move in enumerate(located.moves[1:], start=1):
        word = _word(memory, at)
        if not word or _word(memory, word) is None:
            if located.is_thread_local:
                return 0
            to = f"0x{word:x}" if word is not None else "unknown"
            raise _refused(f"'{printable(located.text)}': pointer number {number}, at 0x{at:x}, is {to}")
        at = word + move
    return at


def _word(memory: Memory, address: int) -> Optional[int]:
    try:
        return int.from_bytes(memory.read(address, 8), "little")
    except (MemoryUnreadable, OverflowError):
        return None


class _Variable(NamedTuple):
    image: Image
    file: str
    start: int
    size: int
    mangled: str
    is_thread_local: bool


class _Symbols:
    """The variables of the program and its libraries, global ones and the program's thread-local ones."""

    def __init__(self, images: Sequence[Image], opened: Callable[[str], BinaryIO]) -> None:
        self._images = images
        self._symbols = ObjectSymbols(images, opened), ThreadLocalSymbols(images, opened)

    def find(self, file: str, name: str) -> Optional[_Variable]:
        """Return the variable *name*, as its symbol has it or demangled, in all files, or *file* alone; None: no such.

        Raises InputError if there are several.
        """
        last = _LAST_NAME.search(name)
        found: dict[tuple[int, bool], _Variable] = {}
        for image in self._images:
            base = PurePath(image.name).name
            if file and file not in (base, image.name, base.split(".so")[0]):
                continue
            for symbols in self._symbols:
                is_thread_local = isinstance(symbols, ThreadLocalSymbols)
                if is_thread_local and image is not self._images[0]:
                    continue
                likely = [one for one in symbols.symbols_of(image) if last is None or last[0] in one[2]]
                shown = class_names({encoded(mangled) for _, _, mangled in likely} - {""})
                for start, end, mangled in likely:
                    if name in (mangled, in_words(mangled, shown)):
                        at = start + (0 if is_thread_local else image.bias)
                        one = _Variable(image, base, at, end - start, mangled, is_thread_local)
                        found.setdefault((at, is_thread_local), one)
        if len(found) > 1:
            each = [f"{one.file} at 0x{one.start:x}" for one in found.values()]
            raise _refused(
                f"several variables are called '{printable(name)}': {', '.join(each[:_MOST_NAMED])}",
                "name the file, as in libparse.so!table, or give the address of a block",
            )
        return next(iter(found.values()), None)


def _unknown(file: str, name: str, *, is_expression: bool) -> InputError:
    if _CALL.search(name) and name.endswith(")"):
        return _refused(f"'{printable(name)}' calls a function: nothing is called in the process")
    if _EXPRESSION.search(name) and not is_expression:
        return _refused(
            f"'{printable(name)}' is neither a variable nor one of its members or elements",
            "members are named as in object.member, pointer->member and table[3]; memheap --block EXPR in gdb takes all"
            " expressions",
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
