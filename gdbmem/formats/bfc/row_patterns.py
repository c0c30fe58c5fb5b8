"""Regular expressions for dictionaries that a pickle repeats with other numbers: one match instead of forty opcodes.

A pattern is made of one such dictionary's own bytes: the keys as they are, each value as any of its kind. What doesn't
match is read opcode by opcode, so that a pattern can only make reading faster.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Callable, Optional

_MOST = 48  # patterns tried at one place

_LONG = b"|".join(b"\\x8a\\x%02x.{%d}" % (size, size) for size in range(11))
_REFERENCE = rb"(?:h.|j.{4})"
_ATOM = rb"(?:h.|j.{4}|K.|M..|J.{4}|" + _LONG + rb"|[N\x88\x89]|G.{8})"
# Eight references at a time, then one by one: what doesn't match fails without trying all mixtures of both.
_ITEMS = rb"(?:\((?:%s){0,125}%s{0,1000}e|%sa)?" % (8 * b"j.{4}", _REFERENCE, _REFERENCE)
_LIST = rb"\](?:\x94|q.|r.{4})?" + _ITEMS
_PUT = rb"(?:q.|r.{4})"
_TOKEN = re.compile(
    rb"(?P<atom>" + _ATOM + rb")|(?P<list>" + _LIST + rb")|(?P<memo>\x94|q.|r.{4})|(?P<pair>\x86)", re.DOTALL
)
_LIST_PARTS = re.compile(rb"\](?P<before>\x94|q.|r.{4})?(?P<items>" + _ITEMS + rb")", re.DOTALL)
_REFERENCES = re.compile(_REFERENCE, re.DOTALL)


@dataclass(frozen=True)
class RowPattern:
    """The shape of one kind of dictionary."""

    kind: str
    text: bytes  # a regular expression without names
    memoized: int  # values that one of them memoizes without a number
    groups: Mapping[str, int]  # key → which group of it has the value, from 1
    memo_of_list: Mapping[str, int]  # key → how many values of it are memoized before its list


class RowPatterns:
    """All shapes that were seen, the newest first."""

    def __init__(self) -> None:
        self._shapes: list[RowPattern] = []
        self._known: set[bytes] = set()
        self.compiled: Optional[re.Pattern[bytes]] = None
        self.by_group: dict[int, RowPattern] = {}  # the number of a match's outermost group → its shape

    def add(self, shape: RowPattern) -> None:
        """Try *shape* from now on."""
        if shape.text in self._known:
            return
        self._known.add(shape.text)
        self._shapes = [shape, *self._shapes][:_MOST]
        self.by_group, at = {}, 1
        for each in self._shapes:
            self.by_group[at] = each
            at += 1 + len(each.groups)
        self.compiled = re.compile(b"|".join(b"(%s)" % each.text for each in self._shapes), re.DOTALL)


def shape_of(
    kind: str,
    pickled: bytes,
    key_of: Callable[[bytes], Optional[str]],
    wanted: Collection[str],
    fixed: Collection[str],
) -> Optional[RowPattern]:
    """Return the pattern of the dictionary *pickled*; None where its like can't be matched.

    *key_of* tells the key that a reference stands for. The values of *wanted* become groups, those of *fixed* have to
    be the same bytes.
    """
    opening = re.match(rb"\}(\x94|q.|r.{4})?\(", pickled, re.DOTALL)
    closing = re.search(rb"u(q.|r.{4})?\Z", pickled, re.DOTALL)
    if opening is None or closing is None:
        return None
    tokens = _tokens(pickled, opening.end(), closing.start())
    shape = _Shape()
    shape.add(rb"\}", opening[1] or b"")
    shape.add(rb"\(")
    at = 0
    while at < len(tokens):
        key = key_of(tokens[at][1]) if tokens[at][0] == "atom" else None
        used = shape.add_pair(tokens[at : at + 5], key, wanted, fixed) if key is not None else 0
        if not used:
            return None
        at += used
    shape.add(b"u", closing[1] or b"")
    return RowPattern(kind, b"".join(shape.text), shape.memoized, shape.groups, shape.memo_of_list)


def _tokens(pickled: bytes, at: int, end: int) -> Sequence[tuple[str, bytes]]:
    """Return the tokens of *pickled* from *at* to *end*, each with its kind; one that no pattern has is "other"."""
    found: list[tuple[str, bytes]] = []
    while at < end:
        token = _TOKEN.match(pickled, at, end)
        if token is None:
            return [*found, ("other", b"")]
        found.append((str(token.lastgroup), token[0]))
        at = token.end()
    return found


class _Shape:
    # What is gathered of one pattern.
    def __init__(self) -> None:
        self.text: list[bytes] = []
        self.memoized = 0
        self.groups: dict[str, int] = {}
        self.memo_of_list: dict[str, int] = {}

    def add(self, pattern: bytes, memo: bytes = b"") -> None:
        """Add *pattern*, and what memoizes its value as *memo* does."""
        self.text.append(pattern + _memo_pattern(memo))
        self.memoized += memo == b"\x94"

    def add_pair(
        self, tokens: Sequence[tuple[str, bytes]], key: str, wanted: Collection[str], fixed: Collection[str]
    ) -> int:
        """Add the key and the value that *tokens* begin with; return of how many they are, 0 for none of this kind."""
        if key in self.groups:  # twice in one dictionary: no pickler writes that
            return 0
        kinds = [kind for kind, _ in tokens]
        memo = b""
        if kinds[1:4] == ["atom", "atom", "pair"]:
            used, pattern = 4, _ATOM + _ATOM + rb"\x86"
        elif kinds[1:2] == ["atom"]:
            used, pattern = 2, re.escape(tokens[1][1]) if key in fixed else _ATOM
        elif kinds[1:2] == ["list"]:
            before, _ = split_list(tokens[1][1])
            self.memo_of_list[key] = self.memoized
            self.memoized += before == b"\x94"
            used, pattern = 2, rb"\]" + _memo_pattern(before) + _ITEMS
        else:
            return 0
        if kinds[used : used + 1] == ["memo"]:
            memo = tokens[used][1]
            used += 1
        if key in wanted:
            self.groups[key] = 1 + len(self.groups)
            pattern = b"(" + pattern + b")"
        self.add(re.escape(tokens[0][1]) + pattern, memo)
        return used


def _memo_pattern(memo: bytes) -> bytes:
    return rb"\x94" if memo == b"\x94" else _PUT if memo else b""


def split_list(pickled: bytes) -> tuple[bytes, bytes]:
    """Return how the pickled list of references is memoized before its items, and the items' references."""
    parts = _LIST_PARTS.match(pickled)
    if parts is None:
        return b"", b""
    return parts["before"] or b"", (parts["items"] or b"").lstrip(b"(")


def references(pickled: bytes) -> list[int]:
    """Return the numbers of the references in *pickled*."""
    return [int.from_bytes(one[1:], "little") for one in _REFERENCES.findall(pickled)]


def atom(pickled: bytes) -> tuple[Optional[int], Optional[int]]:
    """Return the number that *pickled* is, and the number of the reference that it is; None what it isn't."""
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
