"""Landing pads out of .eh_frame and the tables that compilers write beside it."""

from __future__ import annotations

import struct

import pytest

from gdbmem.symbols.unwind_tables import find_landing_pads

HEADER, FRAMES, TABLE, CODE = 0x1000, 0x2000, 0x3000, 0x4000
PC_RELATIVE_4, UNSIGNED_4, LEB, OMITTED = 0x1B, 0x03, 0x01, 0xFF


def memory_of(pieces: dict[int, bytes]) -> dict[int, int]:
    return {at + n: byte for at, piece in pieces.items() for n, byte in enumerate(piece)}


def sized(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def relative(target: int, here: int) -> bytes:
    return struct.pack("<i", target - here)


def program(*, pads: tuple[int, ...] = (0x20, 0x30)) -> dict[int, int]:
    """Return the memory of one function of 256 bytes at CODE, with landing pads at these distances from it."""
    common = sized(
        b"\0\0\0\0\1zPLR\0" + bytes([1, 0x78, 16, 7, PC_RELATIVE_4, 0, 0, 0, 0, PC_RELATIVE_4, PC_RELATIVE_4])
    )
    entry = FRAMES + len(common)
    body = entry + 4
    function = sized(
        struct.pack("<I", body - FRAMES)
        + relative(CODE, body + 4)
        + struct.pack("<I", 256)
        + bytes([4])
        + relative(TABLE, body + 13)
    )
    sites = b"".join(bytes([site, 8, pad, 0]) for site, pad in zip(range(0, 64, 8), (0, *pads)))
    header = bytes([1, PC_RELATIVE_4, UNSIGNED_4, 0x3B]) + relative(FRAMES, HEADER + 4) + struct.pack("<I", 1)
    return memory_of(
        {
            HEADER: header + relative(CODE, HEADER) + relative(entry, HEADER),
            FRAMES: common + function,
            TABLE: bytes([OMITTED, OMITTED, LEB, len(sites)]) + sites,
        }
    )


def pads_at(memory: dict[int, int], address: int) -> object:
    return find_landing_pads(lambda at, size: bytes(memory[at + n] for n in range(size)), HEADER, address)


def test_an_exception_lands_where_the_table_says() -> None:
    assert pads_at(program(), CODE + 10) == {CODE + 0x20, CODE + 0x30}
    assert pads_at(program(pads=()), CODE) == frozenset()


def test_an_address_outside_every_function_has_none() -> None:
    assert pads_at(program(), CODE + 256) is None
    assert pads_at(program(), CODE - 1) is None


def test_a_table_that_is_not_understood_is_refused() -> None:
    with pytest.raises(ValueError, match="no table"):
        pads_at({**program(), HEADER + 3: OMITTED}, CODE)
    with pytest.raises(KeyError):
        pads_at({at: byte for at, byte in program().items() if at < TABLE}, CODE)
