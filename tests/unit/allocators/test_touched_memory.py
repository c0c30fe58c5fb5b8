"""Reservations of terabytes: only memory that the program has touched is read."""

from __future__ import annotations

from gdbmem.allocators.cpython.arenas import find_arenas
from gdbmem.allocators.glibc.arenas import find_mmapped
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.memory import BytesMemory

START, SIZE = 1 << 40, 1 << 42
BLOCK = START + (1 << 41)


class Touched(BytesMemory):
    """Memory whose untouched part is zeros, and may hardly be read."""

    spare = 1 << 24

    def read(self, address: int, size: int) -> bytes:
        if address >= BLOCK and address + size <= BLOCK + 4096:
            return super().read(address, size)
        self.spare -= size
        assert self.spare > 0, "untouched memory was read"
        return bytes(size)


def test_a_block_amid_a_reservation_is_found_by_the_memory_that_was_touched() -> None:
    # A chunk that was mapped individually: of 1 GiB, of which the first page was written.
    header = bytes(8) + ((1 << 30) | 2).to_bytes(8, "little")
    memory = Touched([(BLOCK, header.ljust(4096, b"\0"))])
    touched = Ranges([(START, START + 4096), (BLOCK, BLOCK + 4096)])
    (found,) = find_mmapped(memory, [(START, START + SIZE)], 1, 1 << 30, touched)
    assert (found.start, found.end) == (BLOCK, BLOCK + (1 << 30))


def test_arenas_are_searched_in_touched_memory_only() -> None:
    mapping = Mapping(START, START + SIZE, "rw-p", 0, "00:00", 0, "", rss_bytes=4096)
    memory = Touched([(BLOCK, bytes(4096))])
    assert not find_arenas(memory, [mapping], Ranges([(BLOCK, BLOCK + 4096)])).arenas
