"""Pools as data, for tests."""

from __future__ import annotations

from array import array

from gdbmem.model.bfc import TENSORFLOW, Allocator, Chunks, Region


def pool(*chunks: tuple[int, int, int]) -> Allocator:
    """Return a pool of one region of (size, requested, state)."""
    addresses, at = array("Q"), 0x10000
    for size, _, _ in chunks:
        addresses.append(at)
        at += size
    columns = Chunks(
        addresses,
        array("Q", [size for size, _, _ in chunks]),
        bytes(state for _, _, state in chunks),
        requested=array("q", [requested for _, requested, _ in chunks]),
    )
    region = Region(0x10000, at - 0x10000, 0, len(chunks))
    return Allocator(
        "pool", "tsl::BFCAllocator", TENSORFLOW, "a test", [region], columns, limit_bytes=1 << 20
    )
