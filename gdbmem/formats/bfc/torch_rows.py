"""The rows of a PyTorch snapshot: blocks become columns, stacks and frames are numbered, the history is skipped."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple, Optional, Union, overload

from gdbmem.errors import InputError
from gdbmem.files import Data
from gdbmem.formats.bfc.plain_pickle import MISSING, PickleMachine, PlainDict, PlainList
from gdbmem.formats.stacks import DEEPEST
from gdbmem.model.bfc import FREE, IN_USE, PENDING
from gdbmem.model.calltree import Frame
from gdbmem.text import printable

# Regular expressions for dictionaries that a pickle repeats with different numbers: one match for forty opcodes.
#
# A pattern is made from the bytes of one such dictionary: the keys literally, each value as any of its kind. Data
# that doesn't match is read opcode by opcode, so that a pattern only affects the speed.


FRAME = "frame"  # the kind of the dictionaries that lists of frames hold
MEMO = "memo of "
_MOST = 48  # patterns tried at one place
_RECENT_FRAMES = 8

_LONG = b"|".join(b"\\x8a\\x%02x.{%d}" % (size, size) for size in range(11))
_REFERENCE = rb"(?:h.|j.{4})"
_ATOM = rb"(?:h.|j.{4}|K.|M..|J.{4}|" + _LONG + rb"|[N\x88\x89]|G.{8})"
# Eight references at a time, then one by one: a mismatch fails without trying all mixtures of both.
_ITEMS = rb"(?:\((?:%s){0,125}%s{0,1000}e|%sa)?" % (8 * b"j.{4}", _REFERENCE, _REFERENCE)
_PUT = rb"(?:q.|r.{4})"
# Python's pickler. Torch's own writes each text once, by another opcode, and refers to it later.
_TEXT = rb"\x8c(?:" + b"|".join(b"\\x%02x.{%d}" % (size, size) for size in range(64)) + b")"
# A frame's value; its text may end too early: a frame counts only if the same bytes have been read opcode by opcode.
_FRAME_VALUE = rb"(?:" + _ATOM + rb"|\x8c.[^\x94]{0,255}\x94)"
_FRAMES = b"(?#frames)"  # stands for a list's items, frames among them, until the pattern is compiled


class RowPattern(NamedTuple):
    """The shape of one kind of dictionary."""

    kind: str
    text: bytes  # a regular expression without names
    memoized: int  # values that one of them memoizes without a number, without those of its frames
    # Key → which group of it has the value, from 1; MEMO + key → what memoizes it afterwards.
    groups: Mapping[str, int]
    memo_of_list: Mapping[str, int]  # key → how many values of it are memoized before its list

    @property
    def has_frames(self) -> bool:
        """True if its list has frames, not only references to them; they are a group then."""
        return _FRAMES in self.text


class RowPatterns:
    """All shapes that were seen, the newest first, and those of the frames in their lists."""

    def __init__(self) -> None:
        self.compiled: Optional[re.Pattern[bytes]] = None
        self.by_group: dict[int, RowPattern] = {}  # the number of a match's outermost group → its shape
        self._shapes: list[RowPattern] = []
        self._frames: list[bytes] = []
        self._known: set[bytes] = set()
        self._set_frames()

    def add(self, shape: RowPattern) -> None:
        """Try *shape* from now on."""
        if shape.text in self._known:
            return
        self._known.add(shape.text)
        if shape.kind == FRAME:
            self._frames = [shape.text, *self._frames][:_RECENT_FRAMES]
            self._set_frames()
        else:
            # A list that may have frames is tried last: its values have to be looked up.
            self._shapes = sorted([shape, *self._shapes], key=lambda each: each.has_frames)[:_MOST]
        texts, at = [], 1
        for each in self._shapes:
            self.by_group[at] = each
            at += 1 + len(each.groups)
            texts.append(b"(%s)" % each.text.replace(_FRAMES, self._items))
        if texts:
            self.compiled = re.compile(b"|".join(texts), re.DOTALL)

    def _set_frames(self) -> None:
        single = b"|".join([_REFERENCE, *self._frames])
        self._items = rb"(?:\((?:(?:%s)%s?){0,1000}e|(?:%s)%s?a)" % (single, _PUT, single, _PUT)
        self._single = re.compile(rb"(%s)%s?" % (single, _PUT), re.DOTALL)
        self._token = re.compile(
            rb"(?P<atom>%s)|(?P<list>\](?:\x94|%s)?(?:%s|(?P<frames>%s)|%s))|(?P<memo>\x94|%s)|(?P<pair>\x86)"
            % (_ATOM, _PUT, _ITEMS[:-1], self._items, rb"(?!\()", _PUT),
            re.DOTALL,
        )

    def items(self, pickled: bytes) -> Sequence[bytes]:
        """Return the items of the pickled list, without what memoizes them."""
        found: list[bytes] = self._single.findall(pickled, 1 + len(list_memo(pickled)))
        return found

    def shape_of(
        self,
        kind: str,
        pickled: bytes,
        key_of: Callable[[bytes], Optional[str]],
        wanted: Collection[str],
        *,
        with_texts: bool,
    ) -> Optional[RowPattern]:
        """Return the pattern of the dictionary *pickled*; None if its like can't be matched.

        *key_of* maps a reference to its key. The values of *wanted* become groups; an action has to be
        the same. Texts and frames are skipped if *with_texts*: their memoized values can't be recalled.
        """
        opening = re.match(rb"\}(\x94|q.|r.{4})?\(", pickled, re.DOTALL)
        closing = re.search(rb"u(q.|r.{4})?\Z", pickled, re.DOTALL)
        if opening is None or closing is None:
            return None
        tokens = self._tokens(pickled, opening.end(), closing.start())
        shape = _RowShape(kind, with_texts=with_texts)
        shape.add(rb"\}", opening[1] or b"")
        shape.add(rb"\(")
        at = 0
        while at < len(tokens):
            key = key_of(tokens[at][1]) if tokens[at][0] == "atom" else None
            used = shape.add_pair(tokens[at : at + 5], key, wanted) if key is not None else 0
            if not used:
                return None
            at += used
        shape.add(b"u", closing[1] or b"")
        return RowPattern(kind, b"".join(shape.text), shape.memoized, shape.groups, shape.memo_of_list)

    def _tokens(self, pickled: bytes, at: int, end: int) -> Sequence[tuple[str, bytes]]:
        """Return the tokens of *pickled* from *at* to *end*, each with its kind; one that no pattern has is "other"."""
        found: list[tuple[str, bytes]] = []
        while at < end:
            token = self._token.match(pickled, at, end)
            if token is not None:
                found.append(("frames" if token["frames"] else str(token.lastgroup), token[0]))
            elif pickled[at : at + 1] == b"\x8c" and at + 2 + pickled[at + 1] < end:
                found.append(("text", pickled[at : at + 2 + pickled[at + 1]]))
            else:
                return [*found, ("other", b"")]
            at += len(found[-1][1])
        return found


class _RowShape:
    # The data gathered for one pattern.
    def __init__(self, kind: str, *, with_texts: bool) -> None:
        self._is_frame = kind == FRAME
        self.text: list[bytes] = []
        self.memoized = 0
        self.groups: dict[str, int] = {}
        self.memo_of_list: dict[str, int] = {}
        self._with_texts = with_texts

    def add(self, pattern: bytes, memo: bytes = b"") -> None:
        """Add *pattern*, and what memoizes its value as *memo* does."""
        self.text.append(pattern + _memo_pattern(memo))
        self.memoized += memo == b"\x94"

    def add_pair(self, tokens: Sequence[tuple[str, bytes]], key: str, wanted: Collection[str]) -> int:
        """Add the key and the value that *tokens* begin with; return their number, 0 for none of this kind."""
        if key in self.groups:  # twice in one dictionary: no pickler writes that
            return 0
        kinds = [kind for kind, _ in tokens]
        pattern = self._value(kinds, tokens[1][1] if len(tokens) > 1 else b"", key, key in wanted)
        if pattern is None:
            return 0
        used, memo = 4 if "pair" in kinds[1:4] else 2, b""
        if kinds[used : used + 1] == ["memo"]:
            memo = tokens[used][1]
            used += 1
        if key in wanted or kinds[1] == "frames":
            self.groups[key] = 1 + len(self.groups)
            pattern = b"(" + pattern + b")"
            if memo[:1] in (b"q", b"r"):
                self.groups[MEMO + key] = 1 + len(self.groups)
                pattern, memo = pattern + b"(" + _PUT + b")", b""
        if self._is_frame and memo:  # the pattern has it
            self.memoized += memo == b"\x94"
            memo = b""
        self.add(re.escape(tokens[0][1]) + pattern, memo)
        return used

    def _value(self, kinds: Sequence[str], value: bytes, key: str, is_wanted: bool) -> Optional[bytes]:
        """Return the pattern of values as the one of *key*, which the tokens *kinds* make; None for one of no kind."""
        kind = kinds[1] if len(kinds) > 1 else ""
        if self._is_frame:
            return _FRAME_VALUE if kind in ("atom", "text") and kinds[2:4] != ["atom", "pair"] else None
        if kinds[1:4] == ["atom", "atom", "pair"]:
            return _ATOM + _ATOM + rb"\x86"
        if kind == "atom":
            return re.escape(value) if key == "action" else _ATOM
        if kind == "text" and self._with_texts:
            # A text that is needed, and that later values may refer to, has been read before.
            return re.escape(value) if key == "action" or is_wanted else _TEXT
        if kind == "list" or (kind == "frames" and self._with_texts):
            memo = list_memo(value)
            self.memo_of_list[key] = self.memoized
            self.memoized += memo == b"\x94"
            return rb"\]" + _memo_pattern(memo) + (_ITEMS if kind == "list" else _FRAMES)
        return None


def _memo_pattern(memo: bytes) -> bytes:
    return rb"\x94" if memo == b"\x94" else _PUT if memo else b""


def list_memo(pickled: bytes) -> bytes:
    """Return the opcode that memoizes the pickled list before its items, if there is one."""
    return pickled[1 : 1 + {b"\x94": 1, b"q": 2, b"r": 5}.get(pickled[1:2], 0)]


def atom(pickled: bytes) -> tuple[Optional[int], Optional[int]]:
    """Return *pickled* as a number, and as the number of a reference; None for the one that it is not."""
    code = pickled[0]
    if code in b"KM":
        return int.from_bytes(pickled[1:], "little"), None
    if code == 0x8A:
        return int.from_bytes(pickled[2:], "little", signed=True), None
    if code in b"hj":
        return None, int.from_bytes(pickled[1:], "little")
    if code == ord("J"):
        return int.from_bytes(pickled[1:], "little", signed=True), None
    return None, None


def text_of(pickled: bytes) -> Optional[str]:
    """Return *pickled* as a text; None if it is something else."""
    return pickled[2:].decode("utf-8", "surrogateescape") if pickled[:1] == b"\x8c" else None


BLOCK, ENTRY = "block", "entry"  # kinds of rows
_NEEDED = ("address", "size", "requested_size", "state")  # of a block
NO_STACK = 0  # the number of the stack without frames
STATES = {
    "active_allocated": IN_USE,
    "active_pending_free": PENDING,  # as C++ writes it
    "active_awaiting_free": PENDING,  # as the documentation has it
    "inactive": FREE,
}
_MOST_FRAMES = 1 << 25  # of all stacks together
_LONGEST_ROW = 1 << 14  # bytes of one that a pattern is made of
_SMALL = 1 << 18  # bytes of a file that is read faster by opcodes than with compiled patterns
_ROWS = 1 << 12  # between two checks of the memory in use
_CACHED_COUNTS = 1 << 16
_CACHED_BYTES = 64 << 20  # of pickled stacks


class NeedsHistory(Exception):  # noqa: N818  (what it says is the condition)
    """A block's stack is that of a skipped history entry: the file has to be read with all stacks."""


@dataclass(frozen=True)
class BlockSpan:
    """Rows of the columns that follow each other: an item of a list of blocks."""

    first: int
    count: int


class KnownStack(NamedTuple):
    """A list of frames that was matched: its stack."""

    number: int


class SkippedRows:
    """Entries of the history that are not needed: an item of a list."""


_SKIPPED = SkippedRows()


@dataclass
class BlockColumns:
    """The blocks of a snapshot, in the order of the file. Sizes are bytes."""

    address: array[int] = field(default_factory=lambda: array("Q"))  # 0: not in the file
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
        # A pickled stack → its number, and what it memoizes.
        self._by_pickled: dict[bytes, tuple[int, int]] = {}
        self._cached_bytes = 0
        self._known: dict[bytes, int] = {}  # an item of a list of frames → the frame
        # The same → values that it memoizes without a number; none of references.
        self._item_memos: dict[bytes, int] = {}
        # Lists that were matched, not made: under which number they are memoized, and the stack that they are.
        self._list_memos, self._list_stacks = array("Q"), array("i")

    # --- rows that match a pattern

    def empty_dict(self, at: int) -> int:
        pattern, shapes, data = self._patterns.compiled, self._patterns.by_group, self.data
        if pattern is None:
            return super().empty_dict(at)
        first, rows, place, kind = len(self.blocks.size), 0, at - 1, ""
        while True:
            found = pattern.match(data, place)
            end = found.end() if found is not None else 0
            if found is None:
                found, end = self._match_across(pattern, place)
            if found is None:
                break
            group = found.lastindex or 0
            shape = shapes[group]
            if shape.kind != (kind or shape.kind):
                break
            if shape.groups and not self._take(found, group, shape, place):
                break
            kind, place = shape.kind, end
            self.memoized += shape.memoized
            rows += 1
            if rows % _ROWS == 0:
                self.look_at_memory(place)
        if not rows:
            return super().empty_dict(at)
        self.look_at_memory(place)  # Python's pickler writes 1,000 rows at once
        self.has_skipped = True
        self.entries += rows if kind == ENTRY else 0
        self.stack.append(_SKIPPED if kind == ENTRY else BlockSpan(first, len(self.blocks.size) - first))
        return place

    def _match_across(self, pattern: re.Pattern[bytes], place: int) -> tuple[Optional[re.Match[bytes]], int]:
        """Match the row at *place* if it goes on in the next of the pieces in which Python's pickler writes.

        Return also where it ends. A piece has 64 KiB, and its length before it.
        """
        data, left = self.data, self.frame_end - place
        if not 0 < left < _LONGEST_ROW or data[self.frame_end : self.frame_end + 1] != b"\x95":
            return None, 0
        behind = self.frame_end + 9
        found = pattern.match(data[place : self.frame_end] + data[behind : behind + _LONGEST_ROW])
        if found is None or found.end() <= left:
            return None, 0
        self.frame_end = behind + int.from_bytes(data[behind - 8 : behind], "little")
        return found, place + found.end() + 9

    def _take(self, found: re.Match[bytes], group: int, shape: RowPattern, at: int) -> bool:
        """Take the row *found*, whose groups begin behind *group*; return False if its frames aren't known yet."""
        offset = shape.groups.get("frames")
        frames = b"" if offset is None else found[group + offset]
        if shape.kind == ENTRY and not self._with_history:
            items = self._patterns.items(frames) if frames else ()
            stack = None if self._path(items, at) is None else (NO_STACK, self._memos(items))
        else:
            after = shape.groups.get(MEMO + "frames")
            stack = self._stack_of(frames, shape, b"" if after is None else found[group + after], at)
        if stack is None:
            return False
        if shape.kind == BLOCK:
            self._add_matched([found[group + shape.groups[key]] for key in _NEEDED], stack[0], at)
        self.memoized += stack[1]
        return True

    def _add_matched(self, pickled: Sequence[bytes], stack: int, at: int) -> None:
        address, size, requested, state = pickled
        place, known = atom(address)[0], self._counts
        if place is None or place < 0:
            raise self.damaged(at, "an address is invalid")
        columns = self.blocks
        columns.address.append(place)
        columns.size.append(known[size] if size in known else self._count_of(size, at))
        columns.requested.append(known[requested] if requested in known else self._count_of(requested, at))
        columns.state.append(self._state_of(state, at))
        columns.stack.append(stack)
        columns.is_listed.append(0)

    def _count_of(self, pickled: bytes, at: int) -> int:
        number = self.count(atom(pickled)[0], at)
        if len(self._counts) < _CACHED_COUNTS:
            self._counts[pickled] = number
        return number

    def _state_of(self, pickled: bytes, at: int) -> int:
        state = self._states.get(pickled)
        if state is None:
            state = self._states[pickled] = self._state(self._value_of(pickled, at), at)
        return state

    def _state(self, name: object, at: int) -> int:
        if name is MISSING and not self._with_history:
            raise NeedsHistory
        state = STATES.get(name) if isinstance(name, str) else None
        if state is None:
            raise self.damaged(at, f"a block is in a state '{printable(str(name)[:40])}'")
        return state

    def _value_of(self, pickled: bytes, at: int) -> object:
        number, reference = atom(pickled)
        if reference is not None:
            return self.recall(reference, at)
        return text_of(pickled) if number is None else number

    def _stack_of(
        self, pickled: bytes, shape: RowPattern, after: bytes, at: int
    ) -> Optional[tuple[int, int]]:
        """Return the stack of a row's pickled frames, and how many values they memoize; None if one isn't known yet.

        *after* is the opcode that memoizes them afterwards.
        """
        if pickled[:1] != b"]":
            _, reference = atom(pickled) if pickled else (None, None)
            return (NO_STACK if reference is None else self.stack_of(self.recall(reference, at), at)), 0
        memo = list_memo(pickled)
        items = pickled[1 + len(memo) :]
        stack = self._by_pickled.get(items)
        if stack is None:
            single = self._patterns.items(pickled)
            path = self._path(single, at)
            if path is None:
                return None
            stack = self._number(path), self._memos(single) if shape.has_frames else 0
            self._cached_bytes += len(items)
            if self._cached_bytes < _CACHED_BYTES:
                self._by_pickled[items] = stack
        place = self.memoized + shape.memo_of_list["frames"]
        if memo or after:
            self._keep_list(
                place if memo == b"\x94" else int.from_bytes((memo or after)[1:], "little"), stack[0]
            )
        return stack

    def _memos(self, items: Sequence[bytes]) -> int:
        """Return how many values the items of a list of frames memoize without a number."""
        return sum([self._item_memos.get(item, 0) for item in items])

    def _path(self, items: Sequence[bytes], at: int) -> Optional[Sequence[int]]:
        """Return the frames that the items of a pickled list are; None if one isn't known yet."""
        known = self._known
        path = [known.get(item, -1) for item in items]
        if -1 in path:
            for index, item in enumerate(items):
                if path[index] < 0:
                    _, reference = atom(item)
                    if reference is None:
                        return None
                    path[index] = known[item] = self._frame(self.recall(reference, at), at)
        return path

    def _keep_list(self, memo: int, stack: int) -> None:
        """Note that the list memoized as *memo* is *stack*."""
        if not self._list_memos or memo > self._list_memos[-1]:
            self._list_memos.append(memo)
            self._list_stacks.append(stack)

    def recall(self, number: int, at: int) -> object:
        found = super().recall(number, at)
        if found is MISSING:
            known = bisect_left(self._list_memos, number)
            if known < len(self._list_memos) and self._list_memos[known] == number:
                return KnownStack(self._list_stacks[known])
        return found

    def remember(self, number: int, at: int) -> None:
        if isinstance(self._top(at), (BlockSpan, SkippedRows)):
            self.has_skipped = True
        else:
            super().remember(number, at)

    # --- rows that were made opcode by opcode

    def filled(self, found: PlainDict, end: int) -> object:
        if "state" in found and "size" in found:
            return self._take_block(found, end)
        if "action" in found:
            return self._take_entry(found, end)
        if "filename" in found and "name" in found and not self._with_history:
            self._learn_frame(found, end)
        return found

    def _take_entry(self, found: PlainDict, end: int) -> object:
        self.entries += 1
        self._learn(ENTRY, found, end, ("frames",) if self._with_history and "frames" in found else ())
        frames = found.get("frames")
        if found["action"] == "oom":
            if not isinstance(frames, int):
                found["frames"] = self.stack_of(frames, end)
            return found
        if self._with_history:
            self.stack_of(frames, end)
        elif isinstance(frames, PlainList):
            self._drop(frames)
        self._drop(found)
        return _SKIPPED

    def _drop(self, found: Union[PlainDict, PlainList]) -> None:
        """Forget *found*, whose rows have been taken."""
        self.forget(found)
        self.budget += 104 + 128 * len(found) if isinstance(found, PlainDict) else 96 + 8 * len(found)
        found.clear()

    def _take_block(self, found: PlainDict, at: int) -> object:
        if found.number >= 0:
            raise self.damaged(at, "a block is described twice")
        values, frames = dict(found), found.get("frames")
        history = found.get("history")  # up to PyTorch 2.0
        if isinstance(history, PlainList) and history and isinstance(history[0], PlainDict):
            frames = history[0].get("frames")
            values.setdefault("requested_size", history[0].get("real_size"))
        found.number = len(self.blocks.size)
        self._add_block(values, self.stack_of(frames, at), at)
        self._learn(BLOCK, found, at, (*_NEEDED, "frames"))
        self._drop(found)
        return BlockSpan(found.number, 1)

    def _learn_frame(self, found: PlainDict, end: int) -> None:
        """Remember the frame *found*, to recognise it by its bytes in a list that a pattern matches."""
        if len(self.data) < _SMALL:
            return
        pickled = bytes(self.data[found.start : min(end, found.start + _LONGEST_ROW)])
        if pickled in self._known or MISSING in (found["name"], found["filename"]):
            return
        shape = self._patterns.shape_of(FRAME, pickled, self._key_of, (), with_texts=True)
        if shape is not None:
            self.budget -= 250 + len(pickled)
            self._known[pickled] = self._frame(found, end)
            self._item_memos[pickled] = shape.memoized
            self._patterns.add(shape)

    def _learn(self, kind: str, found: PlainDict, end: int, wanted: Sequence[str]) -> None:
        """Make a pattern of *found*, by which the next ones like it are matched."""
        if len(self.data) < _SMALL:
            return
        if found.get("action") == "oom" or "history" in found or end - found.start > _LONGEST_ROW:
            return
        behind = self.data[end : end + 1]
        end += {b"q": 2, b"r": 5}.get(bytes(behind), 0)
        pickled, texts = bytes(self.data[found.start : end]), not self._with_history
        shape = self._patterns.shape_of(kind, pickled, self._key_of, wanted, with_texts=texts)
        if shape is not None and shape.groups.keys() >= set(wanted):
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
            raise self.damaged(at, "a size or an address is invalid")
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
            memo = value.memo
            self._drop(value)
            if memo >= 0:
                self._keep_list(memo, value.number)
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
            raise self.damaged(at, "a frame is not a dictionary")
        if value.number < 0:
            name, file, line = value.get("name"), value.get("filename"), value.get("line")
            if MISSING in (name, file) and not self._with_history:
                raise NeedsHistory
            frame = Frame(
                name if isinstance(name, str) and name not in ("", "??") else None,
                file if isinstance(file, str) and file not in ("", "??") else None,
                line if isinstance(line, int) and 0 < line < 1 << 31 else None,
            )
            value.number = self._frame_numbers.setdefault(frame, len(self.frames))
            if value.number == len(self.frames):
                self.frames.append(frame)
        return value.number
