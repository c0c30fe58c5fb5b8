"""libc++'s containers in raw memory, if they differ from libstdc++'s; read by `analysis.containers.survey.Surveyor`.

Source of the layouts: libc++ include/string, deque, list, __tree, __hash_table, __memory/shared_ptr.h; the members
read here are the same from LLVM 7 to 21. Strings have two layouts, chosen when libc++ is configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbmem.analysis.containers.plans import Reader, Unsound

if TYPE_CHECKING:
    from gdbmem.analysis.containers.plans import TypePlan
    from gdbmem.analysis.containers.survey import Surveyor

_MOST_BYTES = 1 << 46
_MOST = 1 << 40
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
    if count > _MOST or (root == 0) != (count == 0) or (not root and leftmost != header):
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
