"""Signal frames that the kernel accepts: what it compares, by its own headers."""

from __future__ import annotations

import struct

from gdbmem.linux.holding.returning_thread import (
    ORIG_RAX,
    RAX,
    RIP,
    RSP,
    frame_below,
    resumable,
    state_in_frame,
)

TILES = 1 << 18


def xsave(size: int, features: int, in_use: int) -> bytes:
    area = bytearray(size)
    area[464:472] = features.to_bytes(8, "little")
    area[512:520] = in_use.to_bytes(8, "little")
    return bytes(area)


def registers(**values: int) -> list[int]:
    words = [0] * 27
    words[RSP], words[ORIG_RAX] = 0x7FFF_0000_1237, (1 << 64) - 1
    for name, value in values.items():
        words[{"rax": RAX, "rip": RIP, "orig": ORIG_RAX}[name]] = value
    return words


def test_matrix_registers_that_are_not_in_use_are_left_out_as_the_kernel_does() -> None:
    for in_use, size in ((0x7, 2816), (0x7 | TILES, 11008)):
        state = state_in_frame(xsave(11008, 0x602E7, in_use))
        first, extended, features, kept = struct.unpack_from("<IIQI", state, 464)
        assert (first, extended, kept) == (0x46505853, size + 4, size)
        assert bool(features & TILES) == (size == 11008)
        assert state[size:] == struct.pack("<I", 0x46505845)


def test_a_frame_leaves_the_red_zone_alone_and_is_aligned_as_the_processor_wants() -> None:
    for size in (832, 2696, 11008):
        frame, state = frame_below(registers(), 0x1000, 0, xsave(size, 7, 7))
        assert frame.state % 64 == 0
        assert frame.state + len(state) <= 0x7FFF_0000_1237 - 128
        assert frame.address % 16 == 8
        assert frame.address + len(frame.encode()) <= frame.state


def test_a_call_that_a_stop_broke_off_is_made_again_and_a_finished_one_is_not() -> None:
    for error in (512, 513, 514, 516):
        again = resumable(registers(rax=(1 << 64) - error, rip=0x5002, orig=35))
        assert (again[RAX], again[RIP]) == (35, 0x5000)
    for done in (
        registers(rax=(1 << 64) - 4, rip=0x5002, orig=35),
        registers(rax=(1 << 64) - 512, rip=0x5002),
    ):
        assert resumable(done) == done
