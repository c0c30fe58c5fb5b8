"""The search for libc's thread-local variables."""

from __future__ import annotations

import struct

from gdbmem.allocators.glibc.layout import ThreadVariables, static_blocks
from gdbmem.model.memory import BytesMemory

MEBIBYTE = 1 << 20


def thread(pointer: int, distance: int, variable: int, *, to_itself: bool = True) -> list[tuple[int, bytes]]:
    """Return the memory of a thread whose libc keeps *variable* at *distance* from the thread pointer."""
    table = pointer + 0x4000
    head = (pointer, table) if to_itself else (table, 0)
    entries = (17, 0, 1, 0, pointer + distance, 0, pointer + (5 << 30), 0, *[0] * 40)
    return [
        (pointer, struct.pack("<QQ", *head)),
        (table - 16, struct.pack(f"<{len(entries)}Q", *entries)),
        (pointer + distance, struct.pack("<4Q", 0, variable, 0, 0)),
    ]


def test_a_variable_behind_a_megabyte_of_the_programs_own_is_found() -> None:
    for distance, to_itself in ((-MEBIBYTE, True), (MEBIBYTE, False)):  # x86-64, aarch64
        pieces = thread(0x7F0000000000, distance, 0x1000, to_itself=to_itself)
        pieces += thread(0x7E0000000000, distance, 0x2000, to_itself=to_itself)
        pointers = {1: 0x7F0000000000, 2: 0x7E0000000000}
        variables = ThreadVariables.read(BytesMemory(pieces), pointers, 32)
        assert list(variables.columns()) == [{1: 0x1000, 2: 0x2000}]


def test_a_block_that_only_one_thread_has_there_is_not_libcs() -> None:
    pieces = thread(0x7F0000000000, -64, 0x1000) + thread(0x7E0000000000, -128, 0x2000)
    assert static_blocks(BytesMemory(pieces), [0x7F0000000000]) == [(-64, -64 + 1024)]
    assert static_blocks(BytesMemory(pieces), [0x7F0000000000, 0x7E0000000000]) == [(-4096, 4096)]


def test_without_a_readable_table_the_pages_around_the_pointer_are_searched() -> None:
    memory = BytesMemory([(0x7F0000000000, struct.pack("<4Q", 0, 0, 0x1230, 0) + bytes(4064))])
    variables = ThreadVariables.read(memory, {1: 0x7F0000000000}, 32)
    assert {1: 0x1230} in list(variables.columns())
