"""Queries about single blocks where malloc is not glibc's: as many objects as the program made, the blocks it keeps."""

from __future__ import annotations

import re
from ctypes.util import find_library
from pathlib import Path

import pytest

from gdbmem.errors import TargetError
from gdbmem.inspection.block_queries import BlockQueries
from gdbmem.inspection.live_process import explain_process
from gdbmem.ledger.output import chunk_document
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.model import ledger as names
from gdbmem.model.memory import words_at
from tests.conftest import Program
from tests.libraries import skip_without_library
from tests.live.explaining import running
from tests.live.test_block_types import COUNTS
from tests.live.test_memexplain import gdb

ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")
pytestmark = pytest.mark.needs("g++")


def preloaded(allocator: str) -> dict[str, str]:
    skip_without_library(allocator)
    return {"LD_PRELOAD": str(find_library(allocator))}


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_each_class_has_as_many_blocks_as_the_program_made_objects_in_any_malloc(
    allocator: str, program: Program
) -> None:
    with running([program("block_types"), "waits"], preloaded(allocator)) as target:
        queries = BlockQueries.asked(types=True, vectors=True)
        assert queries is not None
        ledger = explain_process(target.pid, look=queries)
    assert queries.types is not None and queries.vectors is not None and not queries.types.notices
    counts = {(one.kind, one.name): one.blocks for one in queries.types.types}
    kinds = {kind: count for (kind, name), count in COUNTS.items() if name is None}
    assert {kind: counts[kind, ""] for kind in kinds} == kinds
    classes = [count for (_, name), count in COUNTS.items() if name is not None]
    assert set(classes) <= set(counts.values())
    (malloc,) = ledger.mallocs
    assert sum(counts.values()) == malloc.live_blocks
    assert sum(one.bytes for one in queries.types.types) == malloc.live_bytes
    assert (queries.vectors.vectors, queries.vectors.capacity_bytes) == (1, 80000)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_a_block_is_shown_with_what_points_to_it_and_the_picture_has_the_bytes_of_the_ledger(
    allocator: str, program: Program
) -> None:
    with running([program("keeps_known_blocks")], preloaded(allocator)) as target:
        at, count = (int(word) for word in re.findall(r"^table (\d+) (\d+)$", target.output, re.M)[0])
        with ProcMemory(target.pid) as memory:
            blocks = words_at(memory, at, count)
        queries = BlockQueries.asked(blocks[0] + 100, map=True)
        assert queries is not None
        ledger = explain_process(target.pid, look=queries)
        with pytest.raises(TargetError, match=f"free block.*{allocator}|has no memory there"):
            explain_process(target.pid, look=BlockQueries.asked(blocks[0] + 8000))
        with pytest.raises(TargetError, match=f"{allocator} doesn't have"):
            explain_process(target.pid, look=BlockQueries.asked(bins=True))
    assert queries.chunk is not None and queries.map is not None
    shown = chunk_document(queries.chunk, {})
    assert shown["chunk"]["memory"] == blocks[0]  # type: ignore[index]
    assert (queries.chunk.chunk.address, queries.chunk.pointer_count) == (blocks[0], 1)
    assert queries.chunk.pointers[0].address == at
    (malloc,) = ledger.mallocs
    live, cached, pinned, free, _ = queries.map.totals()
    cells = sum(len(region.cells) for region in queries.map.regions)
    for part, labels in (
        (live, (names.LIVE,)),
        (cached, (names.IN_CACHES,)),
        (pinned, (names.IN_SLABS,)),
        (free, (names.FREE_PAGES, names.LAZY_PAGES, names.RETURNED_PAGES)),
    ):
        assert abs(part - ledger.total_of(malloc.category, *labels)) <= cells


@pytest.mark.needs("gdb")
def test_gdbs_commands_about_single_blocks_work_where_jemalloc_is_malloc(
    program: Program, tmp_path: Path
) -> None:
    preload = preloaded("jemalloc")["LD_PRELOAD"]
    done = gdb(
        tmp_path, program("block_types"), "set startup-with-shell off", f"set environment LD_PRELOAD {preload}",
        "break ready", "run", "memcontainers --everywhere", "memexplain --types --pinners",
    )  # fmt: skip
    assert "1 vector holds 78.1 KiB" in done.stdout, done.stderr
    assert "3,000 of shapes::Circle" in done.stdout
    assert "Live blocks of jemalloc in slabs that are otherwise free" in done.stdout
