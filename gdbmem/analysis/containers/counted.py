"""Containers of other libraries in raw memory: elements behind a pointer with a count, and open hash tables.

Source of the layouts: Rust's alloc::raw_vec, vec, vec_deque; hashbrown raw.rs; boost/container/vector.hpp; protobuf
repeated_field.h, repeated_ptr_field.h; absl/container/internal/raw_hash_set.h.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbmem.analysis.containers.plans import Reader, Unsound

if TYPE_CHECKING:
    from gdbmem.analysis.containers.plans import TypePlan
    from gdbmem.analysis.containers.survey import Surveyor

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
