"""The rows of a PyTorch snapshot: blocks become columns, stacks and frames are numbered, the history is skipped."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Union, overload

from gdbmem.errors import InputError
from gdbmem.formats.bfc.plain_pickle import MISSING, PickleMachine, PlainDict, PlainList
from gdbmem.formats.bfc.row_patterns import RowPattern, RowPatterns, atom, references, shape_of, split_list
from gdbmem.formats.massif_tree import Data
from gdbmem.formats.stacks import DEEPEST
from gdbmem.model.bfc import FREE, IN_USE, PENDING
from gdbmem.model.calltree import Frame
from gdbmem.text import printable

NO_STACK = 0  # the number of the stack without frames
STATES = {
    "active_allocated": IN_USE,
    "active_pending_free": PENDING,  # as C++ writes it
    "active_awaiting_free": PENDING,  # as the documentation has it
    "inactive": FREE,
}
_MOST_FRAMES = 1 << 25  # of all stacks together
_CACHED_COUNTS = 1 << 16
_CACHED_BYTES = 64 << 20  # of pickled stacks


class NeedsHistory(Exception):  # noqa: N818  (what it says is the condition)
    """A block's stack is one that a skipped entry of the history has: it has to be read with all stacks."""


@dataclass(frozen=True)
class BlockSpan:
    """Rows of the columns that follow each other: an item of a list of blocks."""

    first: int
    count: int


@dataclass(frozen=True)
class KnownStack:
    """A list of frames that was matched: its stack."""

    number: int


class SkippedRows:
    """Entries of the history that nobody needs: an item of a list."""


_SKIPPED = SkippedRows()


@dataclass
class BlockColumns:
    """The blocks of a snapshot, in the order of the file. Sizes are bytes."""

    address: array[int] = field(default_factory=lambda: array("Q"))  # 0: the file doesn't tell
    size: array[int] = field(default_factory=lambda: array("Q"))
    requested: array[int] = field(default_factory=lambda: array("Q"))
    state: bytearray = field(default_factory=bytearray)
    stack: array[int] = field(default_factory=lambda: array("i"))
    is_listed: bytearray = field(default_factory=bytearray)  # 1: a list of blocks has it


class StackTable(Sequence[Sequence[int]]):
    """Stacks, each once: the numbers of their frames in 4 bytes each."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {b"": NO_STACK}
        self._stacks = [b""]
        self.frames = 0  # of all together

    def __len__(self) -> int:
        return len(self._stacks)

    @overload
    def __getitem__(self, index: int) -> Sequence[int]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Sequence[int]]: ...

    def __getitem__(self, index: Union[int, slice]) -> Sequence[int] | Sequence[Sequence[int]]:
        if isinstance(index, slice):
            return [array("i", one) for one in self._stacks[index]]
        return array("i", self._stacks[index])

    def number_of(self, path: Iterable[int]) -> int:
        """Return the number of the stack *path*, a new one where it hasn't been seen."""
        packed = array("i", path).tobytes()
        number = self._numbers.setdefault(packed, len(self._stacks))
        if number == len(self._stacks):
            self._stacks.append(packed)
            self.frames += len(packed) // 4
        return number


class SnapshotMachine(PickleMachine):
    """Reads the pickle of a snapshot."""

    def __init__(self, data: Data, source: str, *, with_history: bool) -> None:
        super().__init__(data, source)
        self.blocks = BlockColumns()
        self.stacks = StackTable()
        self.frames: list[Frame] = []
        self.entries = 0  # of the history
        self._with_history = with_history
        self._patterns = RowPatterns()
        self._counts: dict[bytes, int] = {}  # pickled → the number
        self._states: dict[bytes, int] = {}
        self._frame_numbers: dict[Frame, int] = {}
        self._by_pickled: dict[bytes, int] = {}  # a pickled stack → its number
        self._cached_bytes = 0
        # Lists that were matched, not made: under which number they are memoized, and the stack that they are.
        self._list_memos, self._list_stacks = array("Q"), array("i")

    # --- rows that match a pattern

    def empty_dict(self, at: int) -> int:
        pattern = self._patterns.compiled
        found = pattern.match(self.data, at - 1) if pattern is not None else None
        if pattern is None or found is None:
            return super().empty_dict(at)
        first, shapes = len(self.blocks.size), self._patterns.by_group
        is_block = shapes[found.lastindex or 0].kind == "block"
        while found is not None:
            group = found.lastindex or 0
            shape = shapes[group]
            if (shape.kind == "block") != is_block:
                break
            if is_block:
                self._match_block(found, group, shape)
            else:
                self.entries += 1
                if self._with_history and "frames" in shape.groups:
                    self._stack_of(found[group + shape.groups["frames"]], shape, at)
            self.memoized += shape.memoized
            at = found.end()
            found = pattern.match(self.data, at)
        self.has_skipped = True
        self.stack.append(BlockSpan(first, len(self.blocks.size) - first) if is_block else _SKIPPED)
        return at

    def _match_block(self, found: re.Match[bytes], group: int, shape: RowPattern) -> None:
        at, offsets, known = found.start(), shape.groups, self._counts
        size_text, requested_text = found.group(group + offsets["size"], group + offsets["requested_size"])
        size, requested = known.get(size_text), known.get(requested_text)
        address = atom(found[group + offsets["address"]])[0]
        if address is None or address < 0:
            raise self.damaged(at, "an address is none")
        columns = self.blocks
        columns.address.append(address)
        columns.size.append(self._count_of(size_text, at) if size is None else size)
        columns.requested.append(self._count_of(requested_text, at) if requested is None else requested)
        columns.state.append(self._state_of(found[group + offsets["state"]], at))
        columns.stack.append(self._stack_of(found[group + offsets["frames"]], shape, at))
        columns.is_listed.append(0)

    def _count_of(self, pickled: bytes, at: int) -> int:
        number = self.count(atom(pickled)[0], at)
        if len(self._counts) < _CACHED_COUNTS:
            self._counts[pickled] = number
        return number

    def _state_of(self, pickled: bytes, at: int) -> int:
        state = self._states.get(pickled)
        if state is None:
            reference = atom(pickled)[1]
            state = self._states[pickled] = self._state(
                None if reference is None else self.recall(reference, at), at
            )
        return state

    def _state(self, name: object, at: int) -> int:
        state = STATES.get(name) if isinstance(name, str) else None
        if state is None:
            raise self.damaged(at, f"a block is in a state '{printable(str(name)[:40])}'")
        return state

    def _stack_of(self, pickled: bytes, shape: RowPattern, at: int) -> int:
        """Return the stack of a row's pickled frames: a reference, or a list of references, which is memoized."""
        if pickled[:1] != b"]":
            _, reference = atom(pickled)
            return self.stack_of(self.recall(reference, at), at) if reference is not None else NO_STACK
        memo, items = split_list(pickled)
        number = self._by_pickled.get(items)
        if number is None:
            number = self._number([self._frame(self.recall(one, at), at) for one in references(items)])
            self._cached_bytes += len(items)
            if self._cached_bytes < _CACHED_BYTES:
                self._by_pickled[items] = number
        if memo:
            place = self.memoized + shape.memo_of_list["frames"]
            place = place if memo == b"\x94" else int.from_bytes(memo[1:], "little")
            if not self._list_memos or place > self._list_memos[-1]:
                self._list_memos.append(place)
                self._list_stacks.append(number)
        return number

    def recall(self, number: int, at: int) -> object:
        found = super().recall(number, at)
        if found is MISSING:
            known = bisect_left(self._list_memos, number)
            if known < len(self._list_memos) and self._list_memos[known] == number:
                return KnownStack(self._list_stacks[known])
        return found

    # --- rows that were made opcode by opcode

    def filled(self, found: PlainDict, end: int) -> None:
        if "state" in found and "size" in found:
            self._take_block(found, end)
        elif "action" in found:
            self.entries += 1
            self._learn("entry", found, end, ("frames",) if self._with_history else ())
            if found["action"] != "oom":
                found.clear()
            elif not isinstance(found.get("frames"), int):
                found["frames"] = self.stack_of(found.get("frames"), end)

    def _take_block(self, found: PlainDict, at: int) -> None:
        if found.number >= 0:
            raise self.damaged(at, "a block is described twice")
        values, frames = dict(found), found.get("frames")
        history = found.get("history")  # up to PyTorch 2.0
        if isinstance(history, PlainList) and history and isinstance(history[0], PlainDict):
            frames = history[0].get("frames")
            values.setdefault("requested_size", history[0].get("real_size"))
        found.number = len(self.blocks.size)
        self._add_block(values, self.stack_of(frames, at), at)
        self._learn("block", found, at, ("address", "size", "requested_size", "state", "frames"))
        found.clear()

    def _learn(self, kind: str, found: PlainDict, end: int, wanted: Sequence[str]) -> None:
        """Make a pattern of *found*, by which the next ones like it are matched."""
        if found.get("action") == "oom" or "history" in found or end - found.start > 1 << 14:
            return
        behind = self.data[end : end + 1]
        end += {b"q": 2, b"r": 5}.get(bytes(behind), 0)
        shape = shape_of(kind, bytes(self.data[found.start : end]), self._key_of, wanted, ("action",))
        if shape is not None and (kind == "entry" or len(shape.groups) == len(wanted)):
            self._patterns.add(shape)

    def _key_of(self, pickled: bytes) -> Optional[str]:
        _, reference = atom(pickled)
        key = self.memo.get(reference) if reference is not None else None
        return key if isinstance(key, str) else None

    def _add_block(self, values: Mapping[Any, object], stack: int, at: int) -> None:
        size, requested = self.count(values.get("size"), at), values.get("requested_size")
        columns = self.blocks
        columns.address.append(self.count(values.get("address", 0), at))
        columns.size.append(size)
        columns.requested.append(size if requested is None else self.count(requested, at))
        columns.state.append(self._state(values.get("state"), at))
        columns.stack.append(stack)
        columns.is_listed.append(0)

    def count(self, value: object, at: int) -> int:
        """Return *value* if it can be a size or an address."""
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
            raise self.damaged(at, "a size or an address is none")
        return value

    def stack_of(self, value: object, at: int) -> int:
        """Return the number of the stack *value*, a list of dictionaries."""
        if value is MISSING and not self._with_history:
            raise NeedsHistory
        if isinstance(value, KnownStack):
            return value.number
        if not isinstance(value, PlainList):
            return NO_STACK
        if value.number < 0:
            value.number = self._number([self._frame(one, at) for one in value])
        return value.number

    def _number(self, path: Sequence[int]) -> int:
        number = self.stacks.number_of(path)
        if len(path) > DEEPEST or self.stacks.frames > _MOST_FRAMES:
            many = f"a stack of {len(path)}" if len(path) > DEEPEST else f"stacks of more than {_MOST_FRAMES}"
            raise InputError(f"{printable(self.source)} holds {many} frames", slug="stack-too-deep")
        return number

    def _frame(self, value: object, at: int) -> int:
        if not isinstance(value, PlainDict):
            if value is MISSING and not self._with_history:
                raise NeedsHistory
            raise self.damaged(at, "a frame is no dictionary")
        if value.number < 0:
            name, file, line = value.get("name"), value.get("filename"), value.get("line")
            frame = Frame(
                name if isinstance(name, str) and name not in ("", "??") else None,
                file if isinstance(file, str) and file not in ("", "??") else None,
                line if isinstance(line, int) and 0 < line < 1 << 31 else None,
            )
            value.number = self._frame_numbers.setdefault(frame, len(self.frames))
            if value.number == len(self.frames):
                self.frames.append(frame)
        return value.number
