"""The way in which one Python object refers to another: an attribute, a key, a number, a local variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from gdbmem.allocators.cpython.code_objects import member_offsets
from gdbmem.allocators.cpython.frames import LocatedFrame
from gdbmem.allocators.cpython.nodes import Nodes
from gdbmem.allocators.cpython.reach import Reach
from gdbmem.allocators.cpython.references import bases
from gdbmem.allocators.cpython.strings import read_str
from gdbmem.allocators.cpython.types import IS_DICT, IS_LIST, IS_STR, IS_TUPLE, Types
from gdbmem.arrays import import_numpy
from gdbmem.model.memory import Memory, MemoryUnreadable, words_at

_TUPLE_ITEMS = 3  # words before the first
_MOST_BYTES = 1 << 24  # size of the part of a block that is searched for a reference
_LONGEST = 40
_NAME_WORDS = range(2, 9)  # of a module object
_NUMPY_BASE_AT = 48  # numpy's arrayobject.h, PyArrayObject_fields


class Labels:
    """Finds the reference that leads to a node, and its label."""

    def __init__(
        self, memory: Memory, nodes: Nodes, reach: Reach, frames: Sequence[LocatedFrame], first_root: int
    ) -> None:
        self._memory, self._nodes, self._reach = memory, nodes, reach
        self._frames, self._first_root = frames, first_root
        self._types = Types(memory)
        self._members: dict[int, dict[int, str]] = {}

    def name(self, node: int) -> str:
        """Return the name of *node*, a module or class; "" if it can't be read."""
        address = int(self._nodes.objects[node])
        kind = self._types.at(address)
        if kind is not None:
            return kind.name
        try:
            content = words_at(self._memory, address, _NAME_WORDS.stop)
        except MemoryUnreadable:
            return ""
        return next((text for n in _NAME_WORDS for text in [self._text(content[n])] if text), "")

    def _text(self, address: int) -> str:
        """Return the text of the object at *address*; "" if it is not a str: another's words may look like one's."""
        try:
            kind = self._types.at(words_at(self._memory, address, 2)[1])
        except MemoryUnreadable:
            return ""
        return read_str(self._memory, address) if kind is not None and kind.flags & IS_STR else ""

    def of(self, node: int, *, exact: bool) -> str:
        """Return the label of the reference to *node*; only if *exact* with parts that differ between elements."""
        holder = int(self._reach.parent[node])
        try:
            if holder >= self._first_root:
                return self._local(node, holder - self._first_root)
            return self._in_block(node, holder, exact)
        except MemoryUnreadable:
            return ""

    def _local(self, node: int, root: int) -> str:
        if root >= len(self._frames):
            return ""
        frame = self._frames[root]
        wanted = int(self._nodes.objects[node])
        content = words_at(self._memory, frame.locals_at, (frame.end - frame.locals_at) // 8)
        at = next((n for n, word in enumerate(content) if word & ~7 == wanted), None)
        return frame.names[at] if at is not None and at < len(frame.names) else ""

    def _in_block(self, node: int, holder: int, exact: bool) -> str:
        owner = int(self._reach.owner[holder])
        if owner < 0 or self._nodes.kinds[owner] < 0:
            return ""
        kind = self._nodes.types[int(self._nodes.kinds[owner])]
        start, size = int(self._nodes.starts[holder]), int(self._nodes.sizes[holder])
        if size > _MOST_BYTES:
            return ""
        words = import_numpy().frombuffer(self._memory.read(start, size // 8 * 8), "uint64")
        at = self._place(words, node, owner if holder == owner else None, start)
        if at is None:
            return ""
        if kind.flags & IS_DICT and holder != owner:
            return self._key(words, at, exact)
        number = at - (int(self._nodes.objects[owner]) - start) // 8
        if holder == owner and not kind.flags & IS_TUPLE:
            return self._attribute(kind.address, kind.name, number * 8)
        if holder == owner:
            return f"[{number - _TUPLE_ITEMS}]" if exact else ""
        return f"[{at}]" if exact and kind.flags & IS_LIST else ""

    def _place(self, words: Any, node: int, owner: Optional[int], start: int) -> Optional[int]:
        """Return which of *words*, a block's from *start* on, refers to *node*; None if none does any more."""
        places = import_numpy().flatnonzero(words == int(self._nodes.objects[node])).tolist()
        if owner is not None:
            its_type = (int(self._nodes.objects[owner]) - start) // 8 + 1
            places = [one for one in places if one != its_type]
        return places[0] if places else None

    def _key(self, words: Any, at: int, exact: bool) -> str:
        text = self._text(int(words[at - 1])) if at else ""
        if not text:
            return ""
        short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
        return f"['{short}']" if exact else ""

    def _attribute(self, kind: int, name: str, offset: int) -> str:
        if name == "numpy.ndarray" and offset == _NUMPY_BASE_AT:
            return ".base"
        if kind not in self._members:
            self._members[kind] = self._offsets(kind)
        found = self._members[kind].get(offset)
        return f".{found}" if found else ""

    def _offsets(self, kind: int) -> dict[int, str]:
        found: dict[int, str] = {}
        for one in bases(self._memory, kind):
            try:
                named = member_offsets(self._memory, one)
            except MemoryUnreadable:
                continue
            for name, offset in named.items():
                found.setdefault(offset, name)
        return found
