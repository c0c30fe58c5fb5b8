"""Which readers of heaps a process is shown to."""

from __future__ import annotations

from typing import Optional

import pytest

from gdbmem.allocators.malloc_heap import SLAB, MallocHeap, SearchedMemory, Spans
from gdbmem.allocators.others import Recognised
from gdbmem.inspection import read_process
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.memory import BytesMemory

pytest.importorskip("numpy")
START, SIZE = 0x7F00_0000_0000, 8 << 20


@pytest.mark.parametrize(
    ("explained", "replacement", "asked"),
    [(SIZE, None, 1), (SIZE // 2, None, 2), (SIZE - 4096, "jemalloc", 1)],  # the rest is variables of threads
)
def test_further_readers_are_asked_only_while_memory_is_unexplained(
    monkeypatch: pytest.MonkeyPatch, explained: int, replacement: Optional[str], asked: int
) -> None:
    shown: list[Image] = []

    def read(view: SearchedMemory, image: Image) -> MallocHeap:
        shown.append(image)
        return MallocHeap("a", "1", image.name, Spans.of([[START], [START + explained], [SLAB], [64], [1]]))

    monkeypatch.setattr(read_process, "_readers", lambda images: [(read, one) for one in images] * 2)
    mapping = Mapping(START, START + SIZE, "rw-p", 0, "00:00", 0, "", rss_bytes=SIZE)
    reading = ProcessImage("prog", None, [mapping], Ranges([(START, START + SIZE)]), True, ())
    reading.images = [Image("/usr/lib/a.so", 0, 4096, [(4096, 8192)], "", False)]
    reading.others = Recognised(replacement=replacement)
    found = read_process.find_mallocs(reading, BytesMemory([]))
    assert len(shown) == asked and len(found) >= 1


def test_a_small_heap_is_read_where_a_library_replaces_malloc(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(view: SearchedMemory, image: Image) -> MallocHeap:
        return MallocHeap("a", "1", image.name, Spans.of([[START], [START + 4096], [SLAB], [64], [1]]))

    monkeypatch.setattr(read_process, "_readers", lambda images: [(read, one) for one in images])
    mapping = Mapping(START, START + SIZE, "rw-p", 0, "00:00", 0, "", rss_bytes=4096)
    reading = ProcessImage("prog", None, [mapping], Ranges([(START, START + 4096)]), True, ())
    reading.images = [Image("/usr/lib/libjemalloc.so.2", 0, 4096, [(4096, 8192)], "", False)] * 2
    assert read_process.find_mallocs(reading, BytesMemory([])) == []
    reading.others = Recognised(replacement="jemalloc")
    assert len(read_process.find_mallocs(reading, BytesMemory([]))) == 1


def test_a_plugins_malloc_is_not_said_to_replace_the_programs() -> None:
    spans = Spans.of([[START], [START + 4096], [SLAB], [64], [1]])
    reading = ProcessImage("prog", None, [], Ranges(), True, ())
    files = ("/usr/lib/libjemalloc.so.2", "/opt/libarrow.so", "/opt/polars.so")
    reading.mallocs = [MallocHeap("jemalloc", str(number), file, spans) for number, file in enumerate(files)]
    assert read_process._read_others(reading).message == (
        "malloc is replaced by jemalloc (0; /usr/lib/libjemalloc.so.2); jemalloc (1; /opt/libarrow.so) and jemalloc"
        " (2; /opt/polars.so) allocate beside it: their heaps were read"
    )
