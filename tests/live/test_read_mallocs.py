"""The heaps of other mallocs, read from outside: the bytes that the allocators themselves count, without symbols."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from ctypes.util import find_library
from pathlib import Path
from typing import Callable, Optional

import pytest

from gdbmem.allocators import gperftools, mimalloc, musl, tbbmalloc
from gdbmem.allocators.live_blocks import Blocks
from gdbmem.allocators.malloc_heap import (
    CACHED,
    CHANGING,
    FREE,
    LARGE,
    METADATA,
    RETURNED,
    SLAB,
    MallocHeap,
    SearchedMemory,
)
from gdbmem.linux.elf.objects import Image, images
from gdbmem.linux.holding.ptrace import Freeze
from gdbmem.linux.memory.maps import Ranges, page_kinds, read_smaps
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.model.memory import words_at
from tests.conftest import Program
from tests.libraries import needs_library, skip_without_library
from tests.live.explaining import Running, running

Reader = Callable[[SearchedMemory, Image], Optional[MallocHeap]]
STOPS = 4  # of the process with busy threads


def heaps_of(
    pid: int, reader: Reader, look: Optional[Callable[[MallocHeap], object]] = None
) -> tuple[list[MallocHeap], SearchedMemory]:
    """Return what *reader* finds in all objects of process *pid*, which is stopped meanwhile, and seen by *look*."""
    with ProcMemory(pid) as memory, Freeze(pid):
        mappings = [m for m in read_smaps(pid) if "w" in m.permissions and m.permissions.endswith("p")]
        anonymous = Ranges(
            (m.start, m.end) for m in mappings if m.is_anonymous and not m.name.startswith("[stack")
        )
        areas = [(m.start, m.end) for m in mappings]
        kinds = page_kinds(pid, areas)
        view = SearchedMemory(memory, anonymous, Ranges([*kinds.anonymous.items, *kinds.files.items]))
        found = (reader(view, image) for image in images(memory, read_smaps(pid)))
        heaps = [heap for heap in found if heap is not None]
        if look is not None:
            for heap in heaps:
                look(heap)
        assert page_kinds(pid, areas).zero.size_bytes == kinds.zero.size_bytes, (
            "reading has mapped pages of zeros"
        )
        return heaps, view


def heap_of(pid: int, reader: Reader) -> MallocHeap:
    """Return the heap; its blocks are listed, too, which maps no page of zeros either."""
    (heap,), view = heaps_of(pid, reader, lambda one: one.live_blocks())
    spans = heap.spans
    assert (spans.starts[1:] >= spans.ends[:-1]).all()
    assert (spans.ends > spans.starts).all()
    for start, end, kind in zip(spans.starts.tolist(), spans.ends.tolist(), spans.kinds.tolist()):
        assert kind == RETURNED or view.anonymous.within(start, end) == end - start
    return heap


def check_listed_blocks(target: Running, reader: Reader) -> None:
    """Compare the blocks in use, one by one, with the pointers that the program keeps."""
    listed: list[Blocks] = []

    def look(heap: MallocHeap) -> None:
        blocks = heap.live_blocks()
        assert blocks is not None
        listed.append(blocks)

    (heap,), _ = heaps_of(target.pid, reader, look)
    (blocks,) = listed
    with ProcMemory(target.pid) as memory:
        tables = re.findall(r"^table (\d+) (\d+)$", target.output, re.M)
        words = [word for at, count in tables for word in words_at(memory, int(at), int(count)) if word]
    sizes = dict(zip(blocks.starts.tolist(), blocks.sizes.tolist()))
    assert not set(words) - sizes.keys()
    requested = kept(target)[0][0]
    size = live_by_size(heap, requested)[0]
    beside = [at for at, one in sizes.items() if requested <= one <= size and at not in words]
    assert not beside, "freed blocks are listed"
    assert (blocks.unlisted, blocks.doubtful) == (0, 0)
    assert len(sizes) == int(heap.spans.live_blocks.sum()) - sum(heap.cached.values())


def bytes_of(heap: MallocHeap, *kinds: int) -> int:
    spans = heap.spans
    return sum(int((spans.ends - spans.starts)[spans.kinds == kind].sum()) for kind in kinds)


def live_bytes(heap: MallocHeap) -> int:
    cached = sum(size * count for size, count in heap.cached.items())
    return int((heap.spans.block_bytes * heap.spans.live_blocks).sum()) - cached


def live_by_size(heap: MallocHeap, requested: int, room: int = 8) -> tuple[int, int]:
    """Return the size of the smallest blocks for *requested* bytes and a header in *room*, and how many live."""
    spans = heap.spans
    sizes = spans.block_bytes[
        (spans.block_bytes >= requested) & (spans.block_bytes <= requested * 1.25 + room)
    ]
    size = int(sizes.min())
    return size, int(spans.live_blocks[spans.block_bytes == size].sum()) - heap.cached.get(size, 0)


def figures(target: Running) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"^([a-z_.]+) (\d+)$", target.output, re.M)}


def kept(target: Running) -> list[tuple[int, int]]:
    found = re.findall(r"^(?:blocks|larges) (\d+) (\d+)$", target.output, re.M)
    return [(int(size), int(count)) for size, count in found]


def check_kept_blocks(heap: MallocHeap, target: Running, reader: Reader) -> None:
    check_listed_blocks(target, reader)
    for requested, count in kept(target):
        assert live_by_size(heap, requested)[1] == count, requested


def check_busy(target: Running, reader: Reader) -> None:
    """Read while eight threads allocate and free: what the main thread keeps is there each time."""
    assert target.type("go on\n").readline() == "busy\n"
    for _ in range(STOPS):
        heap = heap_of(target.pid, reader)
        assert (heap.spans.kinds == CHANGING).sum() <= 2
        assert heap.is_complete
        assert live_by_size(heap, kept(target)[0][0])[1] == kept(target)[0][1]
        time.sleep(0.01)


def check_gperftools(target: Running) -> None:
    heap = heap_of(target.pid, gperftools.read_heap)
    own = figures(target)
    cached = sum(size * count for size, count in heap.cached.items())
    assert live_bytes(heap) == own["generic.current_allocated_bytes"]
    assert bytes_of(heap, SLAB, LARGE, FREE, RETURNED) == own["generic.heap_size"]
    assert bytes_of(heap, FREE) == own["tcmalloc.pageheap_free_bytes"]
    assert bytes_of(heap, RETURNED) == own["tcmalloc.pageheap_unmapped_bytes"]
    assert cached == own["tcmalloc.transfer_cache_free_bytes"] + own["tcmalloc.thread_cache_free_bytes"]
    assert bytes_of(heap, METADATA) > 0
    check_kept_blocks(heap, target, gperftools.read_heap)
    check_busy(target, gperftools.read_heap)


def test_tcmalloc_of_gperftools_is_read_to_the_byte_while_threads_allocate(program: Program) -> None:
    needs_library("gperftools")
    library = find_library("tcmalloc")
    with running([program("keeps_known_blocks")], {"LD_PRELOAD": str(library)}) as target:
        check_gperftools(target)


def test_memory_that_tcmalloc_has_returned_is_told_from_free_memory(program: Program) -> None:
    needs_library("gperftools")
    environment = {"LD_PRELOAD": str(find_library("tcmalloc")), "TCMALLOC_AGGRESSIVE_DECOMMIT": "1"}
    with running([program("keeps_known_blocks")], environment) as target:
        assert figures(target)["tcmalloc.pageheap_unmapped_bytes"] > 0
        check_gperftools(target)


def test_tcmalloc_inside_a_stripped_static_program_is_read_too(program: Program) -> None:
    asked = ["gcc", "-print-file-name=libtcmalloc_minimal.a"]
    archive = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    if not archive.is_absolute():
        pytest.skip("there is no libtcmalloc_minimal.a")
    whole = ["-Wl,--whole-archive", str(archive), "-Wl,--no-whole-archive"]
    path = program("keeps_known_blocks", "-static", "-s", *whole, "-lstdc++", "-lm")
    with running([path]) as target:
        check_gperftools(target)


def test_mimallocs_blocks_are_counted_with_those_that_another_thread_has_freed(program: Program) -> None:
    skip_without_library("mimalloc")
    library = find_library("mimalloc")
    with running([program("keeps_known_blocks")], {"LD_PRELOAD": str(library)}) as target:
        heap = heap_of(target.pid, mimalloc.read_heap)
        check_kept_blocks(heap, target, mimalloc.read_heap)
        check_busy(target, mimalloc.read_heap)


def test_tbbmallocs_blocks_are_counted_with_those_that_another_thread_has_freed(program: Program) -> None:
    skip_without_library("tbbmalloc_proxy")
    library = find_library("tbbmalloc_proxy")
    with running([program("keeps_known_blocks")], {"LD_PRELOAD": str(library)}) as target:
        heap = heap_of(target.pid, tbbmalloc.read_heap)
        assert bytes_of(heap, CACHED) > 0 and bytes_of(heap, FREE) > 0
        check_kept_blocks(heap, target, tbbmalloc.read_heap)
        check_busy(target, tbbmalloc.read_heap)


@pytest.mark.parametrize("flags", [(), ("-static", "-s")], ids=["shared", "static"])
def test_musls_blocks_are_counted_where_musl_is_the_c_library(
    program: Program, flags: tuple[str, ...]
) -> None:
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-gcc is not installed")
    with running([program("keeps_known_blocks", *flags, compiler="musl-gcc")]) as target:
        heap = heap_of(target.pid, musl.read_heap)
        check_kept_blocks(heap, target, musl.read_heap)
        check_busy(target, musl.read_heap)
