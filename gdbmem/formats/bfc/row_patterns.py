"""Regular expressions for dictionaries that a pickle repeats with different numbers: one match for forty opcodes.

A pattern is made from the bytes of one such dictionary: the keys literally, each value as any of its kind. Data that
doesn't match is read opcode by opcode, so that a pattern only affects the speed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Callable, NamedTuple, Optional

FRAME = "frame"  # the kind of the dictionaries that lists of frames hold
MEMO = "memo of "
_MOST = 48  # patterns tried at one place
_MOST_FRAMES = 8

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
            self._frames = [shape.text, *self._frames][:_MOST_FRAMES]
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
