"""The parts of a type that may hold containers: computed once for each type, used for each object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional

if TYPE_CHECKING:
    from gdbmem.containers.survey import Surveyor


class Unsound(Exception):  # noqa: N818  (it is counted)
    """An object that is not a valid container of its type: not constructed yet, destroyed, or overwritten."""


@dataclass
class TypePlan:
    """The parts of a type; *kind* determines how it is read."""

    # struct, vector, bits, string, deque, list, forward, tree, hash, unique, owned_array, shared, optional, array,
    # pointer, variant, any, counted, pointed, open_hash, unread (a container of an unknown library)
    kind: str
    type_name: str
    size: int  # of an object of this type
    element: Optional[TypePlan] = None  # plan of the elements; None if they hold no containers
    element_size: int = 0
    element_offset: int = 0  # of the value in a node; of an owned array the bytes before its first element
    node_size: int = 0
    count: int = 0  # of an array; of a shared_ptr the bytes of its counts
    # Offset (variant: index), name, plan.
    fields: list[tuple[int, str, TypePlan]] = field(default_factory=list)
    # Offset and size of the numbers that a container of another library consists of, as its reader expects them.
    places: tuple[tuple[int, int], ...] = ()
    has_virtual_base: bool = False
    # The dynamic type of an object by its first word: its class by the vtable; the content of an any by its manager.
    resolve: Optional[Resolve] = None
    resolved: dict[int, Optional[Resolved]] = field(default_factory=dict)

    _holds: Optional[bool] = None

    def holds(self) -> bool:
        """True if containers may be in objects of this type (valid when all plans are complete)."""
        if self._holds is None:
            self._holds = self._look(set())
        return self._holds

    def _look(self, seen: set[int], *, seen_through: bool = False) -> bool:
        if self.kind == "struct" and self.resolve is not None and (seen_through or self.has_virtual_base):
            return True  # a derived class may hold what this one doesn't
        if id(self) in seen:
            return False
        seen.add(id(self))
        if self.kind in ("struct", "variant"):
            return any(plan._look(seen) for _, _, plan in self.fields)
        if self.kind in ("array", "pointer", "optional"):
            through = self.kind == "pointer"
            return self.element is not None and self.element._look(seen, seen_through=through)
        return True


class Resolved(NamedTuple):
    """The dynamic type of an object."""

    plan: TypePlan
    offset: int = 0  # offset of the part that was pointed to
    is_outside: bool = False  # the content of an any: in a separate block


Resolve = Callable[[int, int], Optional[Resolved]]
# Of one kind of object: path, plan, address, depth.
Reader = Callable[["Surveyor", str, TypePlan, int, int], None]


# Containers of other libraries in raw memory: elements behind a pointer with a count, and open hash tables.
#
# Source of the layouts: Rust's alloc::raw_vec, vec, vec_deque; hashbrown raw.rs; boost/container/vector.hpp;
# protobuf repeated_field.h, repeated_ptr_field.h; absl/container/internal/raw_hash_set.h.


_MOST = 1 << 40
_GROUP = 16  # control bytes that both tables read at once, and repeat behind the last
_PIECE = 1 << 16
_BUFFER = "a buffer"  # in the place of a type's name


def _figures(survey: Surveyor, plan: TypePlan, address: int) -> list[int]:
    return [survey.number(address + offset, size) for offset, size in plan.places]


def read_counted(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read a pointer, a number of elements and a capacity; ``plan.count`` bytes are allocated besides the elements.

    A fourth place is the index of the first element in a ring (VecDeque).
    """
    pointer, count, capacity, *head = _figures(survey, plan, address)
    size = plan.element_size
    if not count <= capacity < _MOST or (head and head[0] > capacity):
        raise Unsound
    if capacity and not survey.is_new(pointer, _BUFFER):
        return  # a value of Rust that was moved: its former place still has the pointer
    is_inside = address <= pointer < address + plan.size  # a small vector's own room
    if not capacity or is_inside:
        survey.note(path, plan, count, capacity, 0, 0)
    elif not survey.readable(pointer, capacity * size):
        raise Unsound
    else:
        survey.note(path, plan, count, capacity, capacity * size + plan.count, (capacity - count) * size)
    first = head[0] if head else 0
    before_end = min(count, capacity - first)
    survey.elements(path, plan, pointer + first * size, before_end, depth)
    survey.elements(path, plan, pointer, count - before_end, depth)


def read_pointed(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read protobuf's RepeatedPtrField: a table with pointers to objects, of which it keeps those that were removed."""
    table, count, capacity = _figures(survey, plan, address)
    if not table:
        if count:
            raise Unsound
        survey.note(path, plan, 0, 0, 0, 0)
        return
    kept = survey.number(table, 4)
    if not count <= kept <= capacity < _MOST or not survey.readable(table, 8 + 8 * capacity):
        raise Unsound
    held = 8 + 8 * capacity + kept * plan.element_size
    slack = 8 * (capacity - kept) + (kept - count) * (8 + plan.element_size)
    survey.note(path, plan, count, capacity, held, slack)
    if plan.element is not None and plan.element.holds():
        survey.later(_pointed, f"{path}[*]", plan, survey.words(table + 8, count), survey, depth + 1)


def _pointed(path: str, plan: TypePlan, objects: list[int], survey: Surveyor, depth: int) -> None:
    assert plan.element is not None
    for address in objects:
        survey.visit_inside(path, plan.element, address, depth)


def read_open_hash(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read a table of slots with one control byte each, whose upper bit is clear where the slot is full.

    With a fourth place the slots are there, else in front of the control bytes, in reverse (hashbrown).
    """
    control, mask, count, *slots = _figures(survey, plan, address)
    buckets, size = mask + 1, plan.element_size
    if buckets & mask or buckets > _MOST or count > buckets:
        raise Unsound
    if not mask:
        survey.note(path, plan, 0, 0, 0, 0)
        return
    start = slots[0] if slots else control - buckets * size
    if not survey.readable(control, buckets) or not survey.readable(start, buckets * size):
        raise Unsound
    if not survey.is_new(control, _BUFFER):
        return
    held = _table_bytes(buckets, size)
    needed = _table_bytes(_buckets_for(count), size) if count else 0
    survey.note(path, plan, count, _room(buckets), held, max(held - needed, 0))
    if plan.element is not None and plan.element.holds():
        survey.later(_slots, f"{path}[*]", plan, (control, buckets, start, not slots), survey, depth + 1)


def _slots(
    path: str, plan: TypePlan, table: tuple[int, int, int, bool], survey: Surveyor, depth: int
) -> None:
    assert plan.element is not None
    control, buckets, start, is_reversed = table
    for first in range(0, buckets, _PIECE):
        states = survey.bytes(control + first, min(_PIECE, buckets - first))
        for number, state in enumerate(states, first):
            if state < 0x80:
                slot = buckets - 1 - number if is_reversed else number
                survey.visit_inside(path, plan.element, start + slot * plan.element_size, depth)


def _table_bytes(buckets: int, size: int) -> int:
    return (buckets * size + _GROUP - 1) // _GROUP * _GROUP + buckets + _GROUP


def _room(buckets: int) -> int:
    """Return how many elements fit before the table grows: seven eighths, or all but one of a small table."""
    return buckets - 1 if buckets <= 8 else buckets // 8 * 7


def _buckets_for(count: int) -> int:
    buckets = 4
    while _room(buckets) < count:
        buckets *= 2
    return buckets


COUNTED_READERS: dict[str, Reader] = {
    "counted": read_counted,
    "pointed": read_pointed,
    "open_hash": read_open_hash,
}


# libc++'s containers in raw memory, if they differ from libstdc++'s; read by `containers.survey.Surveyor`.
#
# Source of the layouts: libc++ include/string, deque, list, __tree, __hash_table, __memory/shared_ptr.h; the members
# read here are the same from LLVM 7 to 21. Strings have two layouts, chosen when libc++ is configured.


_MOST_BYTES = 1 << 46
_MOST_ELEMENTS = 1 << 40
_OBJECT = 24  # bytes of a string
_BLOCK = 4096  # of a deque, for small elements


def read_string(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read a string: capacity (lowest bit: it is long), size, data; or size and characters in place."""
    first, size, data = survey.words(address, 3)
    if first & 1:
        _long_string(survey, path, plan, data, size, first & ~1)
    else:
        _short_string(survey, path, plan, (first & 0xFF) >> 1)


def read_other_string(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read a string of the alternate layout: data, size, capacity (highest bit: it is long)."""
    data, size, last = survey.words(address, 3)
    if last >> 63:
        _long_string(survey, path, plan, data, size, last & ~(1 << 63))
    else:
        _short_string(survey, path, plan, last >> 56)


def _long_string(survey: Surveyor, path: str, plan: TypePlan, data: int, size: int, room: int) -> None:
    width = plan.element_size
    if not size < room < _MOST_BYTES or not data or not survey.readable(data, room * width):
        raise Unsound
    survey.note(path, plan, size, room - 1, room * width, (room - 1 - size) * width)


def _short_string(survey: Surveyor, path: str, plan: TypePlan, size: int) -> None:
    room = max((_OBJECT - 1) // plan.element_size, 2)  # characters, including the terminator
    if size >= room:
        raise Unsound
    survey.note(path, plan, size, room - 1, 0, 0)


def read_bits(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read a vector<bool>: its words, the number of bits, the capacity in words."""
    begin, count, words = survey.words(address, 3)
    if words >= _MOST_BYTES >> 3 or count > 64 * words or (words and not survey.readable(begin, 8 * words)):
        raise Unsound
    survey.note_bits(path, plan, count, 8 * words)


def read_deque(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read a deque: the table of its blocks (first, begin, end, limit), its offset in them, its size."""
    first, begin, end, limit, start, count = survey.words(address, 6)
    size = plan.element_size
    each = _BLOCK // size if size < 256 else 16  # elements in a block
    if not first <= begin <= end <= limit < first + _MOST_BYTES or (end - begin) % 8:
        raise Unsound
    blocks = (end - begin) // 8
    if start + count > blocks * each or (first and not survey.readable(first, max(limit - first, 1))):
        raise Unsound
    held = limit - first + blocks * each * size
    survey.note(path, plan, count, blocks * each, held, held - count * size)
    if plan.element is None or not plan.element.holds():
        return
    for number in range(start // each, -(-(start + count) // each)):
        block = survey.words(begin + 8 * number, 1)[0]
        low, high = max(start, number * each), min(start + count, (number + 1) * each)
        survey.elements(path, plan, block + (low - number * each) * size, high - low, depth)


def read_list(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read a list: the node before the first (previous, next), and its size."""
    survey.read_list(path, plan, address, depth, link=8)


def read_tree(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read a map or set: the leftmost node, the root, the size; nodes are left, right, parent, colour, value."""
    leftmost, root, count = survey.words(address, 3)
    header = address + 8
    if count > _MOST_ELEMENTS or (root == 0) != (count == 0) or (not root and leftmost != header):
        raise Unsound
    if root and survey.words(root + 16, 1)[0] != header:
        raise Unsound
    survey.note(path, plan, count, count, count * plan.node_size, 0)
    survey.nodes(path, plan, root, count, depth, children=0)


READERS: dict[str, Reader] = {
    "libcxx_string": read_string,
    "libcxx_other_string": read_other_string,
    "libcxx_bits": read_bits,
    "libcxx_deque": read_deque,
    "libcxx_list": read_list,
    "libcxx_tree": read_tree,
}


# Smart pointers in raw memory: std::unique_ptr, of one object or of an array, and libstdc++'s std::shared_ptr.
#
# Source of the layouts: libstdc++ unique_ptr.h, shared_ptr_base.h; of arrays the Itanium C++ ABI, 2.7 (array
# cookies).


_LEFT_OVER = 40  # bound on the excess of a glibc malloc block, with header, over the requested size


def read_unique(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read a unique_ptr: a pointer."""
    _owned(survey, path, plan, survey.words(address, 1)[0], 0, depth)


def _owned(survey: Surveyor, path: str, plan: TypePlan, target: int, control: int, depth: int) -> None:
    """Add the object at *target* that a smart pointer owns, and its contents; *control*: address of its counts."""
    if not target:
        return
    size, found = plan.element_size, None
    if plan.element is not None:
        found = survey.object_at(f"*{path}", plan.element, target)
        if found is None:
            return
        _, whole, target = found
        size = whole.size if plan.element.kind == "struct" else size
    if not survey.readable(target, max(size, 1)):
        raise Unsound
    if control:
        # make_shared puts the object after the counts; otherwise they have a separate block and pointer.
        inside = target - control
        size += plan.count if plan.count <= inside < plan.count + 64 else plan.count + 8
    survey.note(path, plan, 1, 1, size, 0)
    if found is not None:
        survey.later(survey.visit_inside, *found, depth + 1)


def read_owned_array(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read the array of a unique_ptr<T[]>: the number of elements precedes elements with destructors.

    It is not recorded elsewhere: if the malloc block does not have the matching size, it is unknown.
    """
    target, before, size = survey.words(address, 1)[0], plan.element_offset, plan.element_size
    if not target:
        return
    if plan.element is None or not plan.element.holds():
        survey.unread_object(path, plan)  # elements without destructors have no count
        return
    chunk = survey.words(target - before - 8, 1)[0] & -8
    count = survey.words(target - 8, 1)[0]
    held = before + count * size
    if not chunk - _LEFT_OVER < held <= chunk - 8:
        survey.unread_object(path, plan)
        return
    survey.note(path, plan, count, count, held, 0)
    survey.elements(path, plan, target, count, depth)


def read_shared(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read a shared_ptr: a pointer, and the address of the counts."""
    target, control = survey.words(address, 2)
    if not target or not control:
        return
    if not survey.readable(control, 16):
        raise Unsound
    if not survey.is_new(target, "shared"):
        return  # many may share it: it is counted once
    _owned(survey, path, plan, target, control, depth)


OWNER_READERS: dict[str, Reader] = {
    "unique": read_unique,
    "owned_array": read_owned_array,
    "shared": read_shared,
}


# Objects that hold one of several types: std::variant by its index, std::any by its manager.
#
# Source of the layouts: libstdc++ variant, any; libc++ variant, any.


def read_variant(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Visit the active alternative of a variant; one without a value has an invalid index."""
    held = survey.number(address + plan.element_offset, plan.element_size)
    for index, _, inner in plan.fields:
        if index == held:
            survey.visit_inside(inside(path, inner), inner, address, depth)


def read_any(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Add the content of an any, and visit it: in place if it is small, else in a block."""
    manager = survey.words(address, 1)[0]
    if not manager or plan.resolve is None:
        return
    if manager not in plan.resolved:
        plan.resolved[manager] = plan.resolve(manager, address)
    found = plan.resolved[manager]
    if found is None:
        return
    target = address + plan.element_offset
    if found.is_outside:
        target = survey.words(target, 1)[0]
        if not target or not survey.readable(target, max(found.plan.size, 1)):
            return
        survey.note(path, plan, 1, 1, found.plan.size, 0)
        path = f"*{path}"
    survey.later(survey.visit_inside, inside(path, found.plan), found.plan, target, depth + 1)


def inside(path: str, plan: TypePlan) -> str:
    """Return the path of the content of an object at *path*: fields of several types may share a name."""
    return f"{path}.({plan.type_name})" if plan.kind == "struct" else path


ONE_OF_READERS: dict[str, Reader] = {"variant": read_variant, "any": read_any}
