"""`gdbmem explain` on processes with BFC pools: what TensorFlow and onnxruntime count is the oracle, and the kernel."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path
from typing import IO

import pytest

from gdbmem.inspection.live_process import explain_process
from gdbmem.inspection.pools import read_pools
from gdbmem.inspection.read_process import explain_core
from gdbmem.linux.memory.maps import Mapping, read_smaps
from gdbmem.model.bfc import Allocator
from gdbmem.model.ledger import BFC, FREE_CHUNKS, HEAP_LIVE, HEAP_MMAPPED, INTERNAL_WASTE, LIVE, Ledger
from tests.conftest import Program
from tests.cover import cover
from tests.live.pools import NEWEST, server
from tests.live.test_bfc_pool import PLAIN, made, pool_program


def allocated(ledger: Ledger, label: str) -> int:
    return sum(e.allocated_bytes or 0 for e in ledger.entries if e.key == (BFC, label))


def check_parts(ledger: Ledger, pool: Allocator) -> None:
    """Compare the ledger with a walk of the same process, which has stood still in between."""
    assert pool.requested_bytes is not None
    in_regions = pool.in_use_bytes - pool.reserved_bytes
    assert allocated(ledger, LIVE) == pool.requested_bytes - pool.reserved_bytes
    assert allocated(ledger, LIVE) + allocated(ledger, INTERNAL_WASTE) == in_regions
    assert allocated(ledger, FREE_CHUNKS) == pool.free_bytes


THRESHOLDS = (1 << 17, 1 << 30)  # regions that malloc maps, and regions in its heap


# The second of these is always run with the example allocator, below.
@pytest.mark.parametrize(
    ("threshold", "fork"),
    cover(
        itertools.product(THRESHOLDS, [True, False]), lambda threshold, fork: threshold == 1 << 17 and fork
    ),
)
def test_a_pool_of_tensorflow_is_live_wasted_and_free_as_tensorflow_counts_it(
    threshold: int, fork: bool
) -> None:
    with server(NEWEST, "tensorflow_server", MALLOC_MMAP_THRESHOLD_=str(threshold)) as one:
        before = explain_process(one.pid, fork=fork)
        for size in (3_000_000, 100, 2_000_001, 5_000_000):
            one.ask("grow", size)
        one.ask("drop", 1)
        ledger = explain_process(one.pid, fork=fork)
        (pool,) = read_pools(one.pid).allocators
        current, _ = map(int, one.ask("info").split())
        smaps = read_smaps(one.pid)
    ledger.check()
    check_parts(ledger, pool)
    assert allocated(ledger, LIVE) + allocated(ledger, INTERNAL_WASTE) == current
    whole = sum(ledger.total_of(BFC, label) for label in (LIVE, INTERNAL_WASTE, FREE_CHUNKS))
    assert whole == ledger.total(BFC)
    _check_kernel(pool, smaps, whole)
    assert pool.pool_bytes > 40 << 20  # and is not growth of malloc's heap:
    for category in (HEAP_LIVE, HEAP_MMAPPED):
        assert ledger.total(category) - before.total(category) < 8 << 20


def _check_kernel(pool: Allocator, smaps: list[Mapping], whole: int) -> None:
    """Compare resident bytes with those of the mappings that malloc made for the regions alone."""
    own = [
        m.rss_bytes
        for m in smaps
        if not m.name
        and any(m.start <= r.address and r.end <= m.end <= r.end + (1 << 13) for r in pool.regions)
    ]
    if len(own) == len(pool.regions):
        assert 0 <= sum(own) - whole <= len(own) << 13


def test_arenas_of_onnxruntime_are_named(scratch: Path) -> None:
    with (scratch / "log").open("w") as log, server(NEWEST, "onnxruntime_server", stderr=log) as one:
        for size in (1000, 400_000, 90_000):
            one.ask("run", size)
        one.ask("drop", 0)
        ledger = explain_process(one.pid)
        (pool,) = read_pools(one.pid).allocators
        text = (scratch / "log").read_text(errors="replace")
    ledger.check()
    check_parts(ledger, pool)
    regions = re.findall(r"Allocated memory at (0x[0-9a-f]+) to (0x[0-9a-f]+)", text)
    parts = sum(allocated(ledger, label) for label in (LIVE, INTERNAL_WASTE, FREE_CHUNKS))
    assert parts == sum(int(end, 16) - int(start, 16) for start, end in regions)


@pytest.mark.parametrize("in_heap", [False, True])
def test_resident_bytes_of_each_part_are_those_of_its_own_pages(
    program: Program, scratch: Path, monkeypatch: pytest.MonkeyPatch, *, in_heap: bool
) -> None:
    if in_heap:
        monkeypatch.setenv("REGIONS_IN_HEAP", "1")
        monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(THRESHOLDS[1]))
    with pool_program(_named(program, scratch), 2024) as one:
        _, rows = made(one, 1 << 26, 1, 0, PLAIN, 80, 5)
        ledger = explain_process(one.pid)
        (pool,) = read_pools(one.pid).allocators
        with Path(f"/proc/{one.pid}/pagemap").open("rb") as pagemap:
            expected = dict.fromkeys((LIVE, INTERNAL_WASTE, FREE_CHUNKS), 0)
            for address, size, asked, in_use, *_ in rows:
                parts = [(LIVE, asked), (INTERNAL_WASTE, size - asked)] if in_use else [(FREE_CHUNKS, size)]
                for label, part in parts:
                    expected[label] += _present(pagemap, address, address + part)
                    address += part
    ledger.check()
    check_parts(ledger, pool)
    assert {label: ledger.total_of(BFC, label) for label in expected} == expected
    assert 0 < expected[FREE_CHUNKS] < pool.free_bytes
    assert ledger.total(HEAP_LIVE) < 8 << 20  # the regions are no growth of malloc's heap


def _present(pagemap: IO[bytes], start: int, end: int) -> int:
    """Return how many bytes of ``[start, end)`` are on pages that are present by the kernel's account."""
    total = 0
    while start < end:
        pagemap.seek(start // 4096 * 8)
        stop = min(end, (start // 4096 + 1) * 4096)
        total += (stop - start) * (int.from_bytes(pagemap.read(8), "little") >> 63)
        start = stop
    return total


def _named(program: Program, scratch: Path) -> Program:
    """Return the example allocator with separate memory, under a name that a ledger looks for."""
    built = program("bfc_pool", "-DLAYOUT=2024", "-DREAL_MEMORY")
    named = Path(shutil.copy(built, scratch / "libtensorflow_pool"))
    return lambda *_: named


def test_a_damaged_pool_is_reported_to_be_one(program: Program, scratch: Path) -> None:
    with pool_program(_named(program, scratch), 2024) as one:
        for damage, slug in (("counter", "bfc-contradiction"), ("cycle", "bfc-layout-unknown")):
            made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
            one.ask("break", damage)
            ledger = explain_process(one.pid)
            ledger.check()
            assert slug in [notice.slug for notice in ledger.notices]
            assert bool(ledger.total(BFC)) == (damage == "counter")


def test_a_process_without_such_a_library_is_not_searched(program: Program) -> None:
    with pool_program(program, 2024) as one:
        made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
        assert not explain_process(one.pid).total(BFC)


def test_a_core_has_the_same_pools(program: Program, scratch: Path) -> None:
    with pool_program(_named(program, scratch), 2024) as one:
        made(one, 1 << 26, 1, 0, PLAIN, 60, 9)
        (pool,) = read_pools(one.pid).allocators
        made_core = ["gcore", "-o", str(scratch / "core"), str(one.pid)]
        subprocess.run(made_core, capture_output=True, check=True)
        ledger = explain_core(scratch / f"core.{one.pid}")
    ledger.check()
    check_parts(ledger, pool)
