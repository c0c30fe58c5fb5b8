"""CPython's garbage collector in an interpreter's state, at whatever alignment the compiler gave it."""

from __future__ import annotations

import struct

import pytest

from gdbmem.allocators.cpython.collector import CollectorState, find_collector
from gdbmem.model.memory import BytesMemory

STATE = 0x700000  # of the interpreter
SIZE = 1 << 16
RUNS = (58, 5, 2)  # collections of each generation


@pytest.mark.parametrize(
    ("at", "has_youngest"),
    [(7504, True), (7504, False), (7500, True)],
    ids=["up to 3.13", "3.14", "Debian's 3.13"],
)
def test_full_collections_are_known_at_whatever_alignment_the_generations_are(
    at: int, has_youngest: bool
) -> None:
    state = bytearray(SIZE)

    def put(offset: int, *words: int) -> int:
        struct.pack_into(f"<{len(words)}Q", state, offset, *words)
        return offset + 8 * len(words)

    end = at
    for _ in RUNS:
        end = put(end, STATE + end, STATE + end, 2000 << 32)
    permanent = -(-end // 8) * 8
    if has_youngest:
        permanent = put(permanent, STATE + at)
    end = put(permanent, STATE + permanent, STATE + permanent, 0)
    for runs in RUNS:
        end = put(end, runs, 24, 0)
    memory = BytesMemory([(STATE, bytes(state))])
    found = find_collector(memory, STATE)
    assert found is not None
    assert found.state(memory) == CollectorState(full_collections=RUNS[-1], has_frozen=False)
