"""Reads the type of a variable for the heap: how many elements a container has, and whether pointers are hidden.

Source of the layouts: libstdc++ stl_tree.h, hashtable.h, stl_list.h, stl_vector.h, stl_deque.h; libc++ __tree,
__hash_table, list.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import NamedTuple, Optional

from gdbmem.heap.graph import Place
from gdbmem.model.heap_graph import HiddenPointers, Holder

_CONTAINER = re.compile(r"std::(?:__\w+::)*(\w+)<")
_TREES, _HASHES = ("map", "set", "multimap", "multiset"), re.compile(r"unordered_(?:multi)?(?:map|set)")
_SIZE_AT = {"tree": 40, "hash": 24, "list": 16}  # of libstdc++
_SIZE_AT_LIBCXX = {"tree": 16, "hash": 24, "list": 16}
_LARGEST = 1 << 40


class Elements(NamedTuple):
    """The elements of a container."""

    number: int
    are_nodes: bool  # each is in a block of its own
    bytes: int  # of all, at least; 0: unknown


def count_elements(
    type_name: str, size: int, contents: bytes, *, is_libcxx: bool = False
) -> Optional[Elements]:
    """Return the elements of a container with these *contents*; *size* is that of one. None if it is no container."""
    found = _CONTAINER.match(type_name)
    if found is None or type_name.endswith(("*", "&")):
        return None
    name = found[1]
    kind = "tree" if name in _TREES else "hash" if _HASHES.fullmatch(name) else name
    if kind in _SIZE_AT:
        at = (_SIZE_AT_LIBCXX if is_libcxx else _SIZE_AT)[kind]
        if len(contents) < at + 8:
            return None
        count = int(struct.unpack_from("<Q", contents, at)[0])
        return Elements(count, True, 0) if count < _LARGEST else None
    if name == "vector" and size > 0 and len(contents) >= 24:
        begin, end, limit = struct.unpack_from("<3Q", contents)
        if not begin <= end <= limit or (end - begin) % size:
            return None
        return Elements((end - begin) // size, False, end - begin)
    if name == "deque" and size > 0 and len(contents) >= 80 and not is_libcxx:
        cur, first, last, node, to, to_first, _, to_node = struct.unpack_from("<8Q", contents, 16)
        if not (first <= cur <= last and to_first <= to and node <= to_node and first < last):
            return None
        nodes = (to_node - node) // 8
        held = (nodes - 1) * (last - first) + (last - cur) + (to - to_first)
        return Elements(held // size, False, held) if 0 <= held < _LARGEST and held % size == 0 else None
    return None


def typed(holder: Holder, place: Place, of: Optional[tuple[str, int]]) -> Holder:
    """Return the *holder* that *place* is, with its type: *of*, or that of the place; and the number of its elements.

    That number only if the blocks that it retains may have so many.
    """
    name, size = of or (place.type, place.element_size)
    holder = holder._replace(type=name)
    found = count_elements(name, size, place.contents)
    if found is None:
        return holder
    if found.number > holder.retained_blocks if found.are_nodes else found.bytes > holder.retained_bytes:
        return holder
    return holder._replace(elements=found.number, element_nodes=found.are_nodes)


# Types whose pointers are not addresses, so that a reader of words does not see them.
class _Hidden(NamedTuple):
    """A kind of such types."""

    named: str  # pattern of the part of a type's name
    mangled: bytes  # pattern in the names of functions; the first group is shown where `shown` is ""
    shown: str
    keeps: str


_XOR = r"xor_?(?:linked_?)?list(?:_?node)?|xor_?node|xor_?(?:ptr|pointer)"
_DISTANCES, _COUNTS = "distances from their own places", "counts in the upper bits of addresses"
_HIDDEN = (
    _Hidden(
        r"boost::interprocess::(?:\w+::)*offset_ptr",
        rb"5boost12interprocess10offset_ptr",
        "boost::interprocess::offset_ptr",
        _DISTANCES,
    ),
    _Hidden(
        r"boost::lockfree::(?:\w+::)*(?:tagged_ptr|stack|queue)",
        rb"5boost8lockfree(?:6detail10tagged_ptr|5stack|5queue)",
        "boost::lockfree",
        _COUNTS,
    ),
    _Hidden(
        r"folly::(?:\w+::)*(?:DiscriminatedPtr|PackedSyncPtr)",
        rb"5folly(?:16DiscriminatedPtr|13PackedSyncPtr)",
        "folly::DiscriminatedPtr or PackedSyncPtr",
        "numbers in the upper bits of addresses",
    ),
    _Hidden(
        r"v8::internal::(?:\w+::)*V8HeapCompressionScheme\w*",
        rb"2v88internal\d+V8HeapCompressionScheme",
        "v8::internal::V8HeapCompressionScheme",
        "32 bits of an address",
    ),
    _Hidden(
        rf"(?:\w+::)*(?i:{_XOR})",
        rb"(?<=\d)(?i:(" + _XOR.encode() + rb"))(?=[EICDRPK\d])",
        "",
        "the XOR of two addresses",
    ),
    _Hidden(
        r"thrust::(?:\w+::)*device_(?:vector|ptr)",
        rb"6thrust\w*?1[13]device_(?:vector|ptr)",
        "thrust::device_vector or device_ptr",
        "addresses of a device's memory",
    ),
)
_PATTERNS = [(re.compile(rf"(?<![\w:])({one.named})\b"), one.keeps) for one in _HIDDEN]


def hidden_in_symbols(names: bytes) -> list[HiddenPointers]:
    """Return the types that hide pointers and have functions among the mangled *names* of symbols."""
    found = []
    for one in _HIDDEN:
        match = re.search(one.mangled, names)
        if match is not None:
            shown = one.shown or match[1].decode("ascii", "replace")
            found.append(HiddenPointers(shown, one.keeps, ""))
    return found


def hidden_pointers(type_name: str) -> Optional[tuple[str, str]]:
    """Return the part of *type_name* that is known to hide pointers, and what it keeps instead; None if none is."""
    for pattern, what in _PATTERNS:
        found = pattern.search(type_name)
        if found is not None:
            return found[1], what
    return None


def hidden_types(
    variables: Iterable[tuple[str, str]], classes: Iterable[str], of_symbols: Iterable[HiddenPointers]
) -> list[HiddenPointers]:
    """Return what hides pointers: by the types of *variables*, by name, by the *classes* of objects, by symbols."""
    found: dict[str, HiddenPointers] = {}
    for name, type_ in (*variables, *(("", name) for name in classes)):
        hidden = hidden_pointers(type_)
        if hidden is not None:
            found.setdefault(hidden[1], HiddenPointers(*hidden, name))
    for one in of_symbols:
        found.setdefault(one.keeps, one)
    return list(found.values())
