"""Pickles of plain data (dictionaries, lists, numbers, text), read without any code that a pickle can name.

Python's pickler (protocols 2 to 5) and torch's own in C++ write such data with some 30 opcodes; others are refused.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Sequence
from typing import Callable, Union

from gdbmem.errors import InputError
from gdbmem.files import Data
from gdbmem.text import format_size, printable

DEEPEST = 64  # containers in containers
_STEP = 1 << 15  # opcodes between two checks of the memory in use
_LONGEST_NUMBER = 32  # bytes
_BUDGET_BYTES = 512 << 20
_MOST_PENDING = 1 << 24  # values of lists that are still open: torch's pickler closes a list at its end
_FORGET_BYTES = 64 << 20  # of a mapped file, so often what was read is given back


class PlainList(list[object]):
    """A list, its nesting depth, its number in the memo, and a number that its reader may assign."""

    __slots__ = ("level", "memo", "number")

    def __init__(self) -> None:
        self.level = 0
        self.memo = -1
        self.number = -1


class PlainDict(dict[object, object]):
    """A dictionary, its nesting depth, its number in the memo, and the offset of its pickle."""

    __slots__ = ("level", "memo", "number", "start")

    def __init__(self, start: int) -> None:
        self.level = 0
        self.memo = -1
        self.number = -1  # its reader may give it one
        self.start = start


class _Missing:
    """Stands for what a reader has skipped."""


MISSING = _Missing()


class Cut(Exception):  # noqa: N818  (what it says is the condition)
    """The pickle ends before its last opcode."""


class PickleMachine:
    """Reads one pickle into PlainDict, PlainList and values; a reader overrides filled() and empty_dict().

    Memory is bounded: filled() may replace a dictionary by something smaller, and more than 512 MiB of other data is
    refused.
    """

    def __init__(self, data: Data, source: str) -> None:
        self.data = data
        self.source = source
        self.stack: list[object] = []
        self.outer: list[list[object]] = []  # stacks below the marks
        self.memo: dict[int, object] = {}
        self.memoized = 0  # how often a value was memoized without a number
        self.frame_end = 0  # where what the last opcode FRAME announced ends
        self.has_skipped = False  # a memo that is missing may be one that was skipped
        self.is_cut = False
        self.budget = _BUDGET_BYTES
        self._given_back = 0  # bytes of a mapped file
        self._ended = False

    # --- for readers

    def filled(self, found: PlainDict, end: int) -> object:
        """Return the replacement of the complete dictionary *found*, whose pickle ends before *end*."""
        return found

    def run(self) -> object:
        """Return the content of the pickle; if it is cut, the content before the cut, and set `is_cut`."""
        try:
            self._run()
        except Cut:
            self.is_cut = True
            self._close_all()
        if len(self.stack) != 1:
            raise self.damaged(
                len(self.data), "it ends with more than one value" if self.stack else "it is empty"
            )
        return self.stack[0]

    def damaged(self, at: int, why: str) -> InputError:
        """Return the error for the byte *at*."""
        return InputError(
            f"{printable(self.source)} is not a valid pickle: {why} at byte {at}",
            slug="pickle-damaged",
            hint="was it copied completely?",
        )

    def recall(self, number: int, at: int) -> object:
        """Return the value that was memoized as *number*, MISSING if it was skipped."""
        found = self.memo.get(number, MISSING)
        if found is MISSING and not self.has_skipped:
            raise self.damaged(at, f"it recalls value {number}, which it never made,")
        return found

    # --- the loop

    def _run(self) -> None:
        data, handlers = self.data, _HANDLERS
        at, end = 0, len(self.data)
        while not self._ended:
            for _ in range(_STEP):
                if at >= end:
                    raise Cut
                handler = handlers.get(data[at])
                if handler is None:
                    raise self._refused(at)
                at = handler(self, at + 1)
                if self._ended:
                    return
            self.look_at_memory(at)

    def look_at_memory(self, at: int) -> None:
        """Refuse data that needs too much memory, and release the pages of the file before *at*."""
        if self.budget < 0 or len(self.stack) > _MOST_PENDING:
            raise InputError(
                f"{printable(self.source)} makes more than {format_size(_BUDGET_BYTES)} of single values",
                slug="pickle-too-big",
                hint="is it a snapshot of torch.cuda.memory? record with a smaller max_entries",
            )
        if isinstance(self.data, mmap.mmap) and at - self._given_back > _FORGET_BYTES:
            give_back(self.data, self._given_back, at)
            self._given_back = at

    def _close_all(self) -> None:
        """Close the containers that a cut left open, with the values read so far."""
        while self.outer:
            items, self.stack = self.stack, self.outer.pop()
            container = self.stack[-1] if self.stack else None
            with contextlib.suppress(InputError):
                if isinstance(container, PlainList):
                    self._extend(container, items, len(self.data))
                elif isinstance(container, PlainDict):
                    self._set(container, items[: len(items) & ~1], len(self.data))
        del self.stack[1:]

    def _refused(self, at: int) -> InputError:
        code = self.data[at]
        name = _CODE_OPCODES.get(code)
        if name is None:
            return self.damaged(at, f"opcode 0x{code:02x} does not occur in plain data")
        what = ""
        if name in ("GLOBAL", "INST"):
            words = bytes(self.data[at + 1 : at + 201]).split(b"\n")[:2]
            what = ".".join(word.decode("utf-8", "surrogateescape") for word in words)
        elif name == "STACK_GLOBAL":
            what = ".".join(str(value) for value in self.stack[-2:] if isinstance(value, str))[:200]
        named = f"names {printable(what)}" if what else f"has opcode {name}"
        return InputError(
            f"{printable(self.source)} {named} at byte {at}, which would make a reader run code; reading stopped there",
            slug="pickle-refused",
            hint="a snapshot of torch.cuda.memory._dump_snapshot() is plain data: where does this file come from?",
        )

    def take(self, at: int, size: int) -> bytes:
        """Return *size* bytes from *at* on. Raises Cut if they aren't there."""
        if at + size > len(self.data):
            raise Cut
        return self.data[at : at + size]

    # --- containers; each handler takes the offset after its opcode, and returns that of the next one

    def empty_list(self, at: int) -> int:
        self.budget -= 96
        self.stack.append(PlainList())
        return at

    def empty_dict(self, at: int) -> int:
        self.budget -= 104
        self.stack.append(PlainDict(at - 1))
        return at

    def mark(self, at: int) -> int:
        if len(self.outer) >= 2 * DEEPEST:
            raise self._too_deep(at)
        self.outer.append(self.stack)
        self.stack = []
        return at

    def _to_mark(self, at: int) -> list[object]:
        if not self.outer:
            raise self.damaged(at, "it closes a container that it never opened,")
        items, self.stack = self.stack, self.outer.pop()
        return items

    def appends(self, at: int) -> int:
        items = self._to_mark(at)
        self._extend(self._top(at), items, at)
        return at

    def append(self, at: int) -> int:
        item = self._pop(at)
        self._extend(self._top(at), [item], at)
        return at

    def _extend(self, container: object, items: Sequence[object], at: int) -> None:
        if not isinstance(container, PlainList):
            raise self.damaged(at, "it appends to something other than a list,")
        self._deepen(container, items, at)
        self.budget -= 8 * len(items)
        container.extend(items)

    def setitems(self, at: int) -> int:
        items = self._to_mark(at)
        if len(items) & 1:
            raise self.damaged(at, "a key lacks its value")
        self._set(self._top(at), items, at)
        return at

    def setitem(self, at: int) -> int:
        value, key = self._pop(at), self._pop(at)
        self._set(self._top(at), [key, value], at)
        return at

    def _set(self, container: object, items: Sequence[object], at: int) -> None:
        if not isinstance(container, PlainDict):
            raise self.damaged(at, "it sets an item of something other than a dictionary,")
        self._deepen(container, items[1::2], at)
        self.budget -= 64 * len(items)
        for key, value in zip(items[::2], items[1::2]):
            if not isinstance(key, (str, int)):
                raise self.damaged(at, "a key is neither text nor a number")
            container[key] = value
        self.stack[-1] = self.filled(container, at)

    def _deepen(self, container: Union[PlainList, PlainDict], items: Sequence[object], at: int) -> None:
        level = container.level
        for item in items:
            if isinstance(item, (PlainList, PlainDict)) and item.level >= level:
                level = item.level + 1
        if level > DEEPEST:
            raise self._too_deep(at)
        container.level = level

    def _too_deep(self, at: int) -> InputError:
        return InputError(
            f"{printable(self.source)} nests more than {DEEPEST} deep at byte {at}",
            slug="pickle-too-deep",
            hint="a snapshot of torch.cuda.memory._dump_snapshot() nests 8 deep: where does this file come from?",
        )

    def tuple_of_mark(self, at: int) -> int:
        return self._tuple(self._to_mark(at), at)

    def tuple_of(self, count: int, at: int) -> int:
        if len(self.stack) < count:
            raise self.damaged(at, "a tuple lacks its items")
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return self._tuple(items, at)

    def _tuple(self, items: Sequence[object], at: int) -> int:
        self.budget -= 48 + 8 * len(items)
        # No tuple of a snapshot contains containers: their content is left out, so that none is nested.
        self.stack.append(tuple(None if isinstance(item, (list, dict, tuple)) else item for item in items))
        return at

    # --- the memo

    def memoize(self, at: int) -> int:
        self.remember(self.memoized, at)
        self.memoized += 1
        return at

    def remember(self, number: int, at: int) -> None:
        """Memoize the value on top as *number*."""
        self.budget -= 100
        top = self.memo[number] = self._top(at)
        if isinstance(top, (PlainList, PlainDict)):
            top.memo = number

    def forget(self, value: Union[PlainList, PlainDict]) -> None:
        """Take *value* out of the memo: recall() returns MISSING from now on."""
        if value.memo >= 0:
            self.has_skipped = True
            self.memo.pop(value.memo, None)
            self.budget += 100
            value.memo = -1

    def _top(self, at: int) -> object:
        if not self.stack:
            raise self.damaged(at, "a value is missing")
        return self.stack[-1]

    def _pop(self, at: int) -> object:
        self._top(at)
        return self.stack.pop()

    # --- values

    def text(self, at: int, size: int) -> int:
        self.budget -= 60 + size
        self.stack.append(self.take(at, size).decode("utf-8", "surrogateescape"))
        return at + size

    def number(self, at: int, size: int) -> int:
        if size > _LONGEST_NUMBER:
            raise self.damaged(at, f"a number of {size} bytes")
        self.budget -= 36
        self.stack.append(int.from_bytes(self.take(at, size), "little", signed=True))
        return at + size

    def frame(self, at: int) -> int:
        self.frame_end = at + 8 + int.from_bytes(self.take(at, 8), "little")
        return at + 8

    def stop(self, at: int) -> int:
        if self.outer:
            raise self.damaged(at, "it ends within a container")
        self._ended = True
        return at


def give_back(data: mmap.mmap, start: int, end: int) -> None:
    """Release the pages of *data* from *start* to *end*: they are backed by the file, and can be read again."""
    page = mmap.PAGESIZE
    start, end = start // page * page, end // page * page
    if end > start:
        data.madvise(mmap.MADV_DONTNEED, start, end - start)


Handler = Callable[[PickleMachine, int], int]  # takes the place behind its opcode, returns that of the next


def _fixed(value: object) -> Handler:
    def handler(machine: PickleMachine, at: int) -> int:
        machine.stack.append(value)
        return at

    return handler


def _unsigned(size: int) -> Handler:
    def handler(machine: PickleMachine, at: int) -> int:
        machine.stack.append(int.from_bytes(machine.take(at, size), "little"))
        return at + size

    return handler


def _long(size: int) -> Handler:
    def handler(machine: PickleMachine, at: int) -> int:
        return machine.number(at + size, int.from_bytes(machine.take(at, size), "little"))

    return handler


def _text(size: int) -> Handler:
    def handler(machine: PickleMachine, at: int) -> int:
        return machine.text(at + size, int.from_bytes(machine.take(at, size), "little"))

    return handler


def _put(size: int) -> Handler:
    def handler(machine: PickleMachine, at: int) -> int:
        machine.remember(int.from_bytes(machine.take(at, size), "little"), at)
        return at + size

    return handler


def _get(size: int) -> Handler:
    def handler(machine: PickleMachine, at: int) -> int:
        number = int.from_bytes(machine.take(at, size), "little")
        found = machine.memo.get(number)
        machine.stack.append(machine.recall(number, at) if found is None else found)
        return at + size

    return handler


def _protocol(machine: PickleMachine, at: int) -> int:
    machine.take(at, 1)
    return at + 1


def _tuple_of(count: int) -> Handler:
    return lambda machine, at: machine.tuple_of(count, at)


def _float(machine: PickleMachine, at: int) -> int:
    machine.stack.append(struct.unpack(">d", machine.take(at, 8))[0])
    return at + 8


_HANDLERS: dict[int, Handler] = {
    0x80: _protocol,
    0x95: PickleMachine.frame,
    ord("}"): lambda machine, at: machine.empty_dict(at),
    ord("]"): PickleMachine.empty_list,
    ord("("): PickleMachine.mark,
    ord("e"): PickleMachine.appends,
    ord("a"): PickleMachine.append,
    ord("u"): PickleMachine.setitems,
    ord("s"): PickleMachine.setitem,
    ord("t"): PickleMachine.tuple_of_mark,
    ord(")"): _tuple_of(0),
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    0x94: PickleMachine.memoize,
    ord("q"): _put(1),
    ord("r"): _put(4),
    ord("h"): _get(1),
    ord("j"): _get(4),
    0x8C: _text(1),  # SHORT_BINUNICODE
    ord("X"): _text(4),
    0x8D: _text(8),
    ord("K"): _unsigned(1),
    ord("M"): _unsigned(2),
    ord("J"): lambda machine, at: machine.number(at, 4),
    0x8A: _long(1),
    0x8B: _long(4),
    ord("G"): _float,
    ord("N"): _fixed(None),
    0x88: _fixed(True),
    0x89: _fixed(False),
    ord("."): PickleMachine.stop,
}
_CODE_OPCODES = {
    ord("c"): "GLOBAL",
    0x93: "STACK_GLOBAL",
    ord("R"): "REDUCE",
    ord("b"): "BUILD",
    ord("i"): "INST",
    ord("o"): "OBJ",
    0x81: "NEWOBJ",
    0x92: "NEWOBJ_EX",
    ord("P"): "PERSID",
    ord("Q"): "BINPERSID",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
}
