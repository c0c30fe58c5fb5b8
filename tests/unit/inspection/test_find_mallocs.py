"""Which readers of heaps a process is shown to."""

from __future__ import annotations

import pytest

from gdbmem.allocators.malloc_heap import SLAB, HeapView, MallocHeap, Spans
from gdbmem.inspection import read_process
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.memory import BytesMemory

pytest.importorskip("numpy")
START, SIZE = 0x7F00_0000_0000, 8 << 20


@pytest.mark.parametrize(("explained", "asked"), [(SIZE, 1), (SIZE // 2, 2)])
def test_further_readers_are_asked_only_while_memory_is_unexplained(
    monkeypatch: pytest.MonkeyPatch, explained: int, asked: int
) -> None:
    shown: list[Image] = []

    def read(view: HeapView, image: Image) -> MallocHeap:
        shown.append(image)
        return MallocHeap("a", "1", image.name, Spans.of([[START], [START + explained], [SLAB], [64], [1]]))

    monkeypatch.setattr(read_process, "_READERS", ((read, 0), (read, 0)))
    mapping = Mapping(START, START + SIZE, "rw-p", 0, "00:00", 0, "", rss_bytes=SIZE)
    reading = ProcessImage("prog", None, [mapping], Ranges([(START, START + SIZE)]), True, ())
    reading.images = [Image("/usr/lib/a.so", 0, 4096, [(4096, 8192)], "", False)]
    found = read_process.find_mallocs(reading, BytesMemory([]))
    assert len(shown) == asked and len(found) >= 1
