"""The functions by which allocators return memory, and the handlers that make one usable after a fork."""

from __future__ import annotations

import struct
from typing import BinaryIO

from gdbmem.allocators.own_functions import OwnFunction, find_functions, handlers_after_fork
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Mapping
from gdbmem.model.memory import BytesMemory

CODE, LIBRARY_DATA, LIBC_DATA = 0x7000_0000, 0x7100_0000, 0x7200_0000
PREPARE, PARENT, CHILD = CODE + 0x100, CODE + 0x200, CODE + 0x300
LIBRARY, LIBC = "/usr/lib/libjemalloc.so.2", "/usr/lib/libc.so.6"


def mapping(start: int, permissions: str, name: str) -> Mapping:
    return Mapping(start, start + 0x1000, permissions, 0, "00:00", 1 if name else 0, name)


MAPPINGS = [
    mapping(CODE, "r-xp", LIBRARY),
    mapping(LIBRARY_DATA, "rw-p", LIBRARY),
    mapping(LIBC_DATA, "rw-p", LIBC),
    mapping(LIBC_DATA + 0x1000, "rw-p", ""),
]


def found(*words: int, behind: bool = False, is_program: bool = False) -> list[int]:
    data = struct.pack(f"<{len(words)}Q", *words)
    rows = (b"".ljust(0x200, b"\0") + data).ljust(0x1000, b"\0")
    empty = bytes(0x1000)
    pieces = [
        (LIBC_DATA, empty if behind else rows),
        (LIBC_DATA + 0x1000, rows if behind else empty),
    ]
    function = OwnFunction("jemalloc", LIBRARY, CODE, (), (), [(CODE, CODE + 0x1000)], is_program)
    return handlers_after_fork(BytesMemory(pieces), MAPPINGS, function, LIBC)


def test_the_child_handler_is_found_in_libcs_variables_and_those_that_are_zero_at_first() -> None:
    assert found(PREPARE, PARENT, CHILD, LIBRARY_DATA + 8) == [CHILD]
    assert found(0, PARENT, CHILD, LIBRARY_DATA + 8, behind=True) == [CHILD]


def test_a_library_may_be_registered_under_libcs_name() -> None:
    assert found(PREPARE, PARENT, CHILD, LIBC_DATA) == [CHILD]


def test_pointers_that_are_no_registration_are_not_called() -> None:
    assert found(PREPARE, PARENT, CHILD, 0x1234) == []
    assert found(LIBRARY_DATA, PARENT, CHILD, LIBRARY_DATA) == []
    assert found(PREPARE, 0, CHILD, LIBRARY_DATA) == []


def test_a_program_registers_without_a_handle() -> None:
    assert found(PREPARE, PARENT, CHILD, 0, is_program=True) == [CHILD]
    assert found(PREPARE, PARENT, CHILD, 0) == []


def test_tables_of_functions_in_a_static_program_are_not_called() -> None:
    table = struct.pack("<8Q", PREPARE, PARENT, CHILD, 0, CODE + 1, CODE + 2, CODE + 3, 0)
    memory = BytesMemory([(LIBRARY_DATA, table.ljust(0x1000, b"\0")), (LIBC_DATA, bytes(0x1000))])
    function = OwnFunction("jemalloc", LIBRARY, CODE, (), (), [(CODE, CODE + 0x1000)], is_program=True)
    assert handlers_after_fork(memory, MAPPINGS, function, LIBRARY) == []


def test_a_process_that_ends_while_it_is_looked_at_has_no_functions() -> None:
    def gone(name: str) -> BinaryIO:
        raise FileNotFoundError(name)

    assert find_functions([], [], gone, Image(LIBC, 0, 0, [], "", False)) == []
