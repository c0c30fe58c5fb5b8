"""Other data that looks like a table of tracemalloc."""

from __future__ import annotations

import pytest

from gdbmem.allocators.cpython import traces
from gdbmem.linux.memory.maps import Mapping
from gdbmem.model.memory import BytesMemory


def test_data_that_look_like_a_table_of_terabytes_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sparing(BytesMemory):
        def read(self, address: int, size: int) -> bytes:
            assert size <= 1 << 20
            return super().read(address, size)

    table = traces._Table(5, 1 << 38, 0x1000)
    monkeypatch.setattr(traces, "find_tables", lambda *_: [table])
    mappings = [Mapping(0x1000, 0x2000, "rw-p", 0, "00:00", 0, "", rss_bytes=4096)]
    assert traces.read_traces(Sparing([(0x1000, bytes(4096))]), mappings).tables == 0
