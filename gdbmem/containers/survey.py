"""Following C++ containers through raw memory: plans have the offsets, a scan sums the memory held.

A plan is made once for each type (from gdb's type information); reading goes by offsets over blocks of bytes, so
that a vector of a million vectors costs one read and a million steps.
Source of the layouts: libstdc++ bits/stl_vector.h, stl_bvector.h, basic_string.h, stl_deque.h, stl_list.h, stl_tree.h,
hashtable.h; the same since GCC 5.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

from gdbmem.containers.containers import not_read, not_sound, ranked
from gdbmem.containers.library_types import (
    COUNTED_READERS,
    ONE_OF_READERS,
    OWNER_READERS,
    READERS,
    TypePlan,
    Unsound,
)
from gdbmem.errors import Notice
from gdbmem.model.containers import Container, Survey
from gdbmem.model.memory import Memory, MemoryUnreadable, WindowedMemory

MOST_ELEMENTS = 1_000_000  # elements of one container that are followed
DEEPEST = 30  # most pointers and containers from a variable to an object
_MOST_BYTES = 1 << 46
_DEQUE_NODE = 512
_PROBES, _PROBED = 32, 1 << 20  # of what is larger, one word in so many bytes is read, or a 32nd
_LEAST_LOAD = 1 / 1024  # elements that a bucket may have
_LOAD_CHANGED = 8  # a table isn't rebuilt when that is changed
_NO_CONTAINERS = {"struct", "pointer", "array", "optional", "variant", "any", "unread"}
_OTHERS = {**READERS, **ONE_OF_READERS, **OWNER_READERS, **COUNTED_READERS}
_OBJECT_WORDS = 8  # bytes of an object that are examined to see whether it was constructed


@dataclass
class _Sum:
    containers: int = 0
    size: int = 0
    capacity: int = 0
    held: int = 0
    slack: int = 0

    def add(self, other: _Sum, times: int = 1) -> None:
        self.containers += times * other.containers
        self.size += times * other.size
        self.capacity += times * other.capacity
        self.held += times * other.held
        self.slack += times * other.slack


class Surveyor:
    """Walks from variables to the containers they hold."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._windows = WindowedMemory(memory)
        self._sums: dict[tuple[str, str], _Sum] = {}
        self._seen: dict[str, set[int]] = {}  # addresses by type
        self._cut: set[str] = set()
        self._cut_deep = False
        self._noted = _Sum()  # the last additions
        # Objects by path and type: of an unknown layout, and those with contents invalid for their type.
        self._unread_objects: Counter[tuple[str, str]] = Counter()
        self._unsound_objects: Counter[tuple[str, str]] = Counter()
        # Objects to visit after all that are nearer to a variable: of several paths to an object
        # the shortest names it, and the depth of lists and trees is not a recursion.
        self._later: deque[tuple[Any, ...]] = deque()  # the function to call, and its arguments
        self._paths: dict[str, str] = {}  # one string for each, not one for each object
        self._readers: dict[str, Callable[[str, TypePlan, int, int], None]] = {
            "struct": self._struct, "array": self._array, "pointer": self._pointer, "optional": self._optional,
            "vector": self._vector, "bits": self._bits, "string": self._string, "deque": self._deque,
            "list": self.read_list, "forward": self._forward, "tree": self._tree, "hash": self._hash,
            "unread": self._unread,
        }  # fmt: skip

    def visit(self, path: str, plan: TypePlan, address: int, *, is_target: bool = False) -> None:
        """Follow the variable *path* of type *plan* at *address*; *is_target*: it was referred to."""
        try:
            found = self.object_at(path, plan, address) if is_target else (path, plan, address)
        except MemoryUnreadable:
            return
        if found is not None:
            self._visit(*found, 0)

    def survey(self, notices: Sequence[Notice] = ()) -> Survey:
        """Return the result, the largest first, with *notices* before its own."""
        while self._later:
            look, *arguments = self._later.popleft()
            look(*arguments)
        found = [
            Container(path, name, s.containers, s.size, s.capacity, s.held, s.slack)
            for (path, name), s in self._sums.items()
            if s.containers
        ]
        cut = [
            Notice("containers-cut", f"only the first {MOST_ELEMENTS:,} elements of {path} were scanned")
            for path in sorted(self._cut)
        ]
        if self._cut_deep:
            text = f"objects behind more than {DEEPEST} containers and pointers were not scanned"
            cut.append(Notice("containers-cut", text))
        unread, unsound = ranked(self._unread_objects), ranked(self._unsound_objects)
        if unread:
            cut.append(not_read(unread))
        if unsound:
            cut.append(not_sound(unsound))
        found.sort(key=lambda c: (-c.held_bytes, c.path))
        return Survey(found, [*notices, *cut], unread=tuple(unread), unsound=tuple(unsound))

    def _visit(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        if plan.kind not in ("pointer", "array", "optional") and not self.is_new(address, plan.type_name):
            return  # reached before: from another variable, or by a cycle
        if depth > DEEPEST:
            self._cut_deep = True
            return
        try:
            reader = self._readers.get(plan.kind)
            if reader is not None:
                reader(path, plan, address, depth)
            else:
                _OTHERS[plan.kind](self, path, plan, address, depth)
        except (Unsound, MemoryUnreadable):
            if plan.kind not in _NO_CONTAINERS and self._is_made(plan, address):
                self._note_unsound(path, plan)

    def _is_made(self, plan: TypePlan, address: int) -> bool:
        """Return whether the object was constructed: before that, globals are all zeros."""
        try:
            return any(self.words(address, max(min(plan.size // 8, _OBJECT_WORDS), 1)))
        except MemoryUnreadable:
            return False  # no object exists

    def _note_unsound(self, path: str, plan: TypePlan) -> None:
        self._unsound_objects[path, plan.type_name] += 1

    def is_new(self, address: int, type_name: str) -> bool:
        """Return whether the object of that type is encountered for the first time, and remember it."""
        seen = self._seen.setdefault(type_name, set())
        count = len(seen)
        seen.add(address)
        return len(seen) > count

    # -- for the readers of container kinds ---------------------------------------------------------------

    def words(self, address: int, count: int) -> list[int]:
        """Return *count* words from *address* on; raises MemoryUnreadable."""
        if address % 8:
            return [int.from_bytes(self._memory.read(address + 8 * n, 8), "little") for n in range(count)]
        return self._windows.words(address, count)

    def bytes(self, address: int, size: int) -> memoryview:
        """Return the bytes at *address*; raises MemoryUnreadable."""
        return memoryview(self._memory.read(address, size))

    def number(self, address: int, size: int) -> int:
        """Return the unsigned number of *size* bytes at *address*; raises MemoryUnreadable."""
        return int.from_bytes(self._memory.read(address, size), "little")

    def visit_inside(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        """Follow the part at *address* of an object that is being read."""
        self._visit(path, plan, address, depth)

    def readable(self, address: int, size: int) -> bool:
        """Return whether ``[address, address + size)`` can be read: both ends, and places in between of a large one."""
        step = max(size // _PROBES, _PROBED)
        try:
            for place in range(address, address + size, step):
                self._windows.word(place & -8)
            self._windows.word((address + size - 1) & -8)
        except (MemoryUnreadable, OverflowError):
            return False
        return True

    def note(self, path: str, plan: TypePlan, size: int, capacity: int, held: int, slack: int) -> None:
        """Add one container; *held* and *slack* are bytes."""
        self._noted = _Sum(1, size, capacity, held, slack)
        self._sums.setdefault((path, plan.type_name), _Sum()).add(self._noted)

    def _take_back(self, path: str, plan: TypePlan, noted: _Sum) -> None:
        """Count the container *noted* as unsound instead: its nodes are invalid."""
        path = path.removesuffix("[*]")
        self._sums[path, plan.type_name].add(noted, -1)
        self._note_unsound(path, plan)

    def object_at(self, path: str, plan: TypePlan, address: int) -> Optional[tuple[str, TypePlan, int]]:
        """Return path, plan and address of the whole object whose part of type *plan* is at *address*.

        None if there is no object of such a class.
        """
        if plan.resolve is None or plan.kind != "struct":
            return path, plan, address
        word = self.words(address, 1)[0]
        if word not in plan.resolved:
            plan.resolved[word] = plan.resolve(word, address)
        found = plan.resolved[word]
        if found is None:
            return None
        if found.plan.type_name != plan.type_name:
            path = f"{path}.({found.plan.type_name})"
        return path, found.plan, address - found.offset

    def later(self, look: Callable[..., None], path: str, *arguments: Any) -> None:
        """Call *look* after all objects nearer to a variable have been visited."""
        self._later.append((look, self._paths.setdefault(path, path), *arguments))

    def elements(self, path: str, plan: TypePlan, start: int, count: int, depth: int) -> None:
        """Visit *count* contiguous elements."""
        if self._looks_into(path, plan, count):
            self.later(self._elements, f"{path}[*]", plan, start, min(count, MOST_ELEMENTS), depth + 1)

    def _looks_into(self, path: str, plan: TypePlan, count: int) -> bool:
        if plan.element is None or not count or not plan.element.holds():
            return False
        if count > MOST_ELEMENTS:
            self._cut.add(path)
        return True

    def _elements(self, path: str, plan: TypePlan, start: int, count: int, depth: int) -> None:
        assert plan.element is not None
        for address in range(start, start + count * plan.element_size, plan.element_size):
            self._visit(path, plan.element, address, depth)

    # -- one method per kind ------------------------------------------------------------------------------

    def _struct(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        for offset, name, inner in plan.fields:
            self._visit(f"{path}.{name}" if name else path, inner, address + offset, depth)
        # The offset of a virtual base depends on the whole object, which is then visited, once.
        whole = self.object_at(path, plan, address) if plan.has_virtual_base else None
        if whole is not None and self.is_new(whole[2], "whole"):
            self._struct(path, whole[1], whole[2], depth)

    def _array(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        self.elements(path, plan, address, plan.count, depth)

    def _pointer(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        target = self.words(address, 1)[0]
        found = self.object_at(path, plan.element, target) if target and plan.element is not None else None
        if found is not None and self.readable(found[2], found[1].size):
            self.later(self._visit, *found, depth + 1)

    def _optional(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        if plan.element is not None and self._memory.read(address + plan.element.size, 1) == b"\1":
            self._visit(path, plan.element, address, depth)

    def _vector(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        begin, end, limit = self.words(address, 3)
        size = plan.element_size
        if not begin <= end <= limit < begin + _MOST_BYTES or (end - begin) % size or (limit - begin) % size:
            raise Unsound
        if begin and not self.readable(begin, max(limit - begin, 1)):
            raise Unsound
        count, capacity = (end - begin) // size, (limit - begin) // size
        self.note(path, plan, count, capacity, limit - begin, limit - end)
        self.elements(path, plan, begin, count, depth)

    def _bits(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        # vector<bool>: two iterators, each a word's address and a bit's number, and the end of the words.
        begin, first, last_word, last, limit = self.words(address, 5)
        first, last = first & 0xFFFFFFFF, last & 0xFFFFFFFF
        if not begin <= last_word <= limit < begin + _MOST_BYTES or first > 63 or last > 63:
            raise Unsound
        if begin and not self.readable(begin, max(limit - begin, 1)):
            raise Unsound
        count = 8 * (last_word - begin) + last - first
        if count < 0:
            raise Unsound
        self.note_bits(path, plan, count, limit - begin)

    def note_bits(self, path: str, plan: TypePlan, count: int, held: int) -> None:
        """Add a vector<bool> of *count* bits in *held* bytes of whole words."""
        self.note(path, plan, count, 8 * held, held, held - -(-count // 64) * 8)

    def _string(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        data, length, capacity = self.words(address, 3)
        width = plan.element_size
        if data == address + 16:  # short: it is in the object itself
            if length >= 16 // width:
                raise Unsound
            self.note(path, plan, length, 16 // width - 1, 0, 0)
            return
        held = (capacity + 1) * width
        if not length <= capacity < _MOST_BYTES or not data or not self.readable(data, held):
            raise Unsound
        self.note(path, plan, length, capacity, held, (capacity - length) * width)

    def _deque(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        table, slots, *ends = self.words(address, 10)
        first, _, first_end, first_node, last, last_begin, _, last_node = ends
        size = plan.element_size
        per_node = max(_DEQUE_NODE // size, 1)
        nodes = (last_node - first_node) // 8 + 1
        if not table or not 0 < nodes <= slots < 1 << 40 or not self.readable(table, slots * 8):
            raise Unsound
        if not table <= first_node <= last_node < table + 8 * slots or (first_end - first) % size:
            raise Unsound
        count = (last - first) // size
        if nodes > 1:
            count = (nodes - 2) * per_node + ((first_end - first) + (last - last_begin)) // size
        held = slots * 8 + nodes * per_node * size
        self.note(path, plan, count, nodes * per_node, held, held - count * size)
        if plan.element is None or not plan.element.holds():
            return
        for number in range(nodes):
            start = self.words(first_node + 8 * number, 1)[0]
            low = first if number == 0 else start
            high = last if number == nodes - 1 else start + per_node * size
            self.elements(path, plan, low, (high - low) // size, depth)

    def read_list(self, path: str, plan: TypePlan, address: int, depth: int, *, link: int = 0) -> None:
        """Read a list: the node before the first, its pointer to the next one at *link*, and the size."""
        *ends, count = self.words(address, 3)
        following, before = ends[link // 8], ends[1 - link // 8]
        if not following or count > 1 << 40 or (following == address) != (count == 0):
            raise Unsound
        neighbours = (following + 8 - link, before + link)
        if count and any(self.words(pointer, 1)[0] != address for pointer in neighbours):
            raise Unsound
        self.note(path, plan, count, count, count * plan.node_size, 0)
        self.chain(path, plan, following, address, count, depth, link=link)

    def _forward(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        first = node = self.words(address, 1)[0]
        seen: set[int] = set()
        while node and node not in seen and len(seen) < MOST_ELEMENTS:
            seen.add(node)
            node = self.words(node, 1)[0]
        if node in seen:
            raise Unsound  # it is circular: this is not a list
        if node:
            self._cut.add(path)
        self.note(path, plan, len(seen), len(seen), len(seen) * plan.node_size, 0)
        self.chain(path, plan, first, 0, len(seen), depth)

    def _unread(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        if plan.element is not None and not plan.element.holds():
            return  # it may contain plain values
        if self._is_made(plan, address):
            self.unread_object(path, plan)

    def unread_object(self, path: str, plan: TypePlan) -> None:
        self._unread_objects[path, plan.type_name] += 1

    def chain(
        self, path: str, plan: TypePlan, node: int, end: int, count: int, depth: int, *, link: int = 0
    ) -> None:
        """Visit *count* nodes, just noted, from *node* on, each with a pointer to the next one at *link*."""
        if self._looks_into(path, plan, count):
            nodes = self._chained(node, end, min(count, MOST_ELEMENTS), link)
            self.later(self._each, f"{path}[*]", plan, nodes, depth + 1, self._noted)

    def _chained(self, node: int, end: int, count: int, link: int) -> Iterator[int]:
        for _ in range(count):
            if node in (0, end):
                raise Unsound  # fewer than it says
            yield node
            node = self.words(node + link, 1)[0]

    def nodes(self, path: str, plan: TypePlan, root: int, count: int, depth: int, *, children: int) -> None:
        """Visit a tree of *count* nodes, just noted, each with two pointers to its children at *children*."""
        if self._looks_into(path, plan, count):
            nodes = self._branching(root, min(count, MOST_ELEMENTS), children)
            self.later(self._each, f"{path}[*]", plan, nodes, depth + 1, self._noted)

    def _branching(self, root: int, count: int, children: int) -> Iterator[int]:
        stack = [root]
        for _ in range(count):
            if not stack:
                raise Unsound  # fewer than it says
            node = stack.pop()
            yield node
            stack += [child for child in self.words(node + children, 2) if child]

    def _each(self, path: str, plan: TypePlan, nodes: Iterator[int], depth: int, noted: _Sum) -> None:
        assert plan.element is not None
        try:
            for node in nodes:
                self._visit(path, plan.element, node + plan.element_offset, depth)
        except (Unsound, MemoryUnreadable):
            self._take_back(path, plan, noted)

    def _tree(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        # address: comparator (padded), then the header node: color, parent, left, right; then the count.
        header = address + 8
        _, root, leftmost, _, count = self.words(header, 5)
        if count > 1 << 40 or (root == 0) != (count == 0) or (not root and leftmost != header):
            raise Unsound
        if root and self.words(root + 8, 1)[0] != header:
            raise Unsound
        self.note(path, plan, count, count, count * plan.node_size, 0)
        self.nodes(path, plan, root, count, depth, children=16)

    def _hash(self, path: str, plan: TypePlan, address: int, depth: int) -> None:
        table, buckets, first, count = self.words(address, 4)
        if not buckets or buckets > 1 << 40 or count > 1 << 40 or (first == 0) != (count == 0):
            raise Unsound
        # In both libraries the maximum load factor follows the count.
        load = struct.unpack("<f", self._memory.read(address + 32, 4))[0]
        if not _LEAST_LOAD <= load <= 1 / _LEAST_LOAD or count > _LOAD_CHANGED * max(load, 1) * buckets:
            raise Unsound
        if not self.readable(table, buckets * 8) or (first and not self.readable(first, plan.node_size)):
            raise Unsound
        single = table == address + 48  # one bucket, stored in the object
        held = (0 if single else buckets * 8) + count * plan.node_size
        self.note(path, plan, count, max(buckets, count), held, 0)
        self.chain(path, plan, first, 0, count, depth)
