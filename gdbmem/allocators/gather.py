"""Reading many short, scattered pieces of memory with few large reads, in numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gdbmem.arrays import import_numpy
from gdbmem.model.memory import Memory, MemoryUnreadable

_APART = 1 << 14  # largest gap, in bytes, between two pieces that are read together
# Bytes read at once, always to the same memory: pages that are new to a process cost it more than what it reads there.
_RUN = 1 << 20
_LAST = (1 << 63) - 1


def gather(memory: Memory, addresses: Any, size: int) -> tuple[Any, Any]:
    """Return *size* bytes from each of *addresses* on as rows of bytes, and which of them could be read."""
    np = import_numpy()
    rows = np.zeros((len(addresses), size), np.uint8)
    readable = np.zeros(len(addresses), bool)
    for data, offsets, places in _runs(memory, addresses, size):
        rows[places] = data[offsets[:, None] + np.arange(size)]
        readable[places] = True
    return rows, readable


def gather_words(memory: Memory, addresses: Any, wanted: Sequence[int]) -> tuple[list[Any], Any]:
    """Return word number N (8 bytes, signed) from all *addresses* for each N in *wanted*, and which could be read.

    Addresses that are not a multiple of 8 are not read.
    """
    np = import_numpy()
    columns = [np.zeros(len(addresses), np.int64) for _ in wanted]
    readable = np.zeros(len(addresses), bool)
    for data, offsets, places in _runs(memory, addresses, (max(wanted) + 1) * 8):
        words = data[: len(data) // 8 * 8].view(np.int64)
        aligned = offsets % 8 == 0
        if not aligned.all():
            offsets, places = offsets[aligned], places[aligned]
        for column, number in zip(columns, wanted):
            column[places] = words[offsets // 8 + number]
        readable[places] = True
    return columns, readable


def _runs(memory: Memory, addresses: Any, size: int) -> Iterator[tuple[Any, Any, Any]]:
    """Yield memory, from a multiple of 8 on, with the offsets of pieces in it and their indexes in *addresses*.

    The memory is overwritten when the next is yielded.
    """
    np = import_numpy()
    addresses = np.asarray(addresses, np.int64)
    order = np.argsort(addresses, kind="stable")  # descriptors are nearly in order, which this uses
    ordered = addresses[order]
    negative = np.searchsorted(ordered, 0, "right")  # beyond 2^63 nothing is mapped
    ordered, order = ordered[negative:], order[negative:]
    if not len(ordered):
        return
    far = np.diff(ordered) > _APART
    alone = np.append(True, far) & np.append(far, True) & ((ordered | size) % 8 == 0)
    if alone.any():
        yield from _one_by_one(memory, ordered[alone], order[alone], size)
        ordered, order = ordered[~alone], order[~alone]
    if not len(ordered):
        return
    buffer = np.empty(min(int(ordered[-1] - ordered[0]), _RUN) + size + 8, np.uint8)
    first = 0
    for last in [*(np.flatnonzero(np.diff(ordered) > _APART) + 1).tolist(), len(ordered)]:
        while first < last:
            end = min(int(ordered[first]) + _RUN, _LAST)
            stop = min(int(np.searchsorted(ordered, end, "right")), last)
            yield from _read(memory, ordered[first:stop], order[first:stop], size, buffer)
            first = stop


def _one_by_one(memory: Memory, addresses: Any, places: Any, size: int) -> Iterator[tuple[Any, Any, Any]]:
    """Read pieces that are far from each other; addresses and *size* are multiples of 8."""
    np = import_numpy()
    most = max(_RUN // size, 1)
    for first in range(0, len(addresses), most):
        pieces, read = [], []
        for place, address in zip(
            places[first : first + most].tolist(), addresses[first : first + most].tolist()
        ):
            try:
                pieces.append(memory.read(address, size))
            except MemoryUnreadable:
                continue
            read.append(place)
        data = np.frombuffer(b"".join(pieces), np.uint8)
        yield data, size * np.arange(len(read)), np.array(read, np.int64)


def _read(
    memory: Memory, addresses: Any, places: Any, size: int, buffer: Any
) -> Iterator[tuple[Any, Any, Any]]:
    """Read nearby pieces at once to *buffer*; in halves if something between them can't be read."""
    begin = int(addresses[0]) // 8 * 8
    data = buffer[: int(addresses[-1]) + size - begin]
    try:
        memory.read_into(begin, data)
    except MemoryUnreadable:
        half = len(addresses) // 2
        if half:
            yield from _read(memory, addresses[:half], places[:half], size, buffer)
            yield from _read(memory, addresses[half:], places[half:], size, buffer)
        return
    yield data, addresses - begin, places
