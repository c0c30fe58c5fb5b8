"""Scattered pieces of memory are the same bytes however far they are from each other; what can't be read is named."""

from __future__ import annotations

import numpy as np
import pytest

from gdbmem.allocators.gather import gather, gather_words
from gdbmem.model.memory import BytesMemory

START, SIZE = 0x7F0000000000, 1 << 20
DATA = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8).tobytes()
MEMORY = BytesMemory([(START, DATA)])
OFFSETS = [5 * 65536, 0, 8, 4096, 3 * 65536 + 3, 9 * 65536, 9 * 65536 + 1, SIZE - 40, 65536, 2**40, -8]


@pytest.mark.parametrize("size", [40, 37])
def test_pieces_near_and_far_are_read_in_the_order_asked_for(size: int) -> None:
    rows, readable = gather(MEMORY, START + np.array(OFFSETS), size)
    assert readable.tolist() == [0 <= offset <= SIZE - size for offset in OFFSETS]
    for row, offset in zip(rows[readable], np.array(OFFSETS)[readable].tolist()):
        assert row.tobytes() == DATA[offset : offset + size]


def test_words_at_odd_addresses_and_beyond_the_address_space_are_not_read() -> None:
    addresses = START + np.array([*OFFSETS, -START, -START - 1])
    (first, third), readable = gather_words(MEMORY, addresses, [0, 2])
    offsets = [*OFFSETS, -START, -START - 1]
    assert readable.tolist() == [offset % 8 == 0 and 0 <= offset <= SIZE - 24 for offset in offsets]
    for one, other, offset in zip(first[readable], third[readable], np.array(offsets)[readable].tolist()):
        assert int(one) == int.from_bytes(DATA[offset : offset + 8], "little", signed=True)
        assert int(other) == int.from_bytes(DATA[offset + 16 : offset + 24], "little", signed=True)


def test_nothing_asked_for_is_nothing_read() -> None:
    rows, readable = gather(MEMORY, np.zeros(0, np.int64), 8)
    assert (len(rows), len(readable)) == (0, 0)
