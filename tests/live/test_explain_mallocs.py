"""The ledger of programs whose malloc is not glibc's, beside that allocator's own figures."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gdbmem.inspection.live_process import explain_process
from gdbmem.ledger.answer import answer_ledger, retained_bytes
from gdbmem.model.ledger import IN_SLABS, OtherMalloc
from tests.conftest import Program
from tests.libraries import needs_library
from tests.live.explaining import running
from tests.live.test_memexplain import document, gdb
from tests.live.user import GDBMEM

PAGE = 4096


def _malloc(pid: int) -> OtherMalloc:
    ledger = explain_process(pid)
    ledger.check()
    (malloc,) = ledger.mallocs
    return malloc


def _linked(program: Program, how: str) -> Path:
    if how == "library":
        return program("knows_jemalloc", "-ljemalloc")
    archive = next(iter(Path("/usr/lib").glob("*/libjemalloc.a")), None)
    if archive is None:
        pytest.skip("no libjemalloc.a: apt install libjemalloc-dev")
    whole = f"-Wl,--whole-archive,{archive},--no-whole-archive"
    return program("knows_jemalloc", "-s", whole, "-ldl", "-lm", "-lstdc++")


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("how", ["library", "stripped program"])
def test_what_jemalloc_keeps_is_what_it_counts_itself_and_busy_threads_hide_no_block(
    program: Program, how: str
) -> None:
    needs_library("jemalloc")
    with running([_linked(program, how)]) as target:
        malloc = _malloc(target.pid)
        allocated, cached, returned = target.figure(r"allocated (\d+) cached (\d+) returned (\d+)")
        free, lazy = target.figure(r"free (\d+) lazy (\d+)")
        assert (malloc.live_bytes + (malloc.cached_bytes or 0), malloc.cached_bytes) == (allocated, cached)
        assert malloc.returned_page_bytes == returned
        assert (malloc.free_page_bytes, malloc.lazy_page_bytes) == (free * PAGE, lazy * PAGE)
        assert malloc.caches == 4  # of the first thread, too

        assert target.type("\n").readline() == "goes on\n"
        for _ in range(3):
            sizes = {size.block_bytes: size for size in _malloc(target.pid).sizes}
            assert sizes[5120].live + sizes[5120].cached == 400


@pytest.mark.needs("gcc")
def test_blocks_that_pin_slabs_of_jemalloc_are_named_with_their_size(program: Program) -> None:
    needs_library("jemalloc")
    with running([_linked(program, "library")]) as target:
        ledger = explain_process(target.pid)
        said = subprocess.run(
            [GDBMEM, "explain", "--sizes", str(target.pid)], capture_output=True, text=True, check=True
        ).stdout
    (malloc,) = ledger.mallocs
    slabs = ledger.total_of(malloc.category, IN_SLABS)
    # 99,000 blocks in the class of 224 bytes were freed, beside a thousand that live.
    holes = next(size for size in malloc.sizes if size.block_bytes == 224)
    assert holes.live + holes.cached >= 1000 and holes.free_resident_bytes > 1 << 20
    assert slabs == sum(size.free_resident_bytes for size in malloc.sizes)
    assert retained_bytes(ledger) == ledger.freed_in(malloc)
    assert "most of them of 224 bytes" in answer_ledger(ledger)
    assert answer_ledger(ledger) in said and "Blocks of jemalloc in slabs, by size" in said


@pytest.mark.needs("gdb", "gcc")
def test_memtrim_makes_jemalloc_return_what_was_predicted_and_the_program_goes_on(
    program: Program, tmp_path: Path
) -> None:
    needs_library("jemalloc")
    path = _linked(program, "library")
    with running([path], {"MALLOC_CONF": "dirty_decay_ms:-1"}) as target:
        done = gdb(tmp_path, path, f"attach {target.pid}", "memtrim --json -o trim.json", "detach")
        assert (tmp_path / "trim.json").exists(), done.stderr
        trimmed = document(tmp_path / "trim.json")
        after = _malloc(target.pid)
        assert target.type("\n").readline() == "goes on\n"
        busy = gdb(tmp_path, path, f"attach {target.pid}", "memtrim", "detach")
        assert "is inside jemalloc" in busy.stderr or "returned" in busy.stdout
        assert target.process.poll() is None
    # Its first mallctl allocates some tables for itself.
    assert trimmed["predicted_bytes"] > 8 << 20
    assert abs(trimmed["predicted_bytes"] - trimmed["returned_bytes"]) <= 1 << 20
    assert after.free_page_bytes == 0
