"""`gdbmem explain` on real processes: its ledger adds up, and its figures are the program's own."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from ctypes.util import find_library
from pathlib import Path

import pytest

from gdbmem.allocators.glibc import heap as glibc_heap
from gdbmem.errors import TargetError
from gdbmem.ledger.answer import answer_ledger
from gdbmem.model.ledger import Heap, Ledger
from tests.conftest import Program
from tests.cover import cover, diagonals
from tests.libraries import skip_without_library
from tests.live.explaining import Running, explain, gdbmem, heap_of, huge_pages, running, slugs
from tests.live.python_programs import every_third

TCACHES = {16: (0x290,), 24: (0x300, 0x310)}  # by what malloc keeps of a block that it mapped
ANY_TCACHE = (0x290, 0x300, 0x310)


def own_blocks(heap: Heap, threads: int, header: int) -> tuple[int, int]:
    """Return usable bytes and number of live blocks without what libc allocates for threads.

    *header* is what malloc keeps of a block that it mapped: 24 bytes since glibc 2.43, 16 before.
    """
    arenas = [arena for arena in heap.arenas if arena.number or not threads]
    size = sum(arena.live_bytes - 8 * arena.live_chunks for arena in arenas)
    count = sum(arena.live_chunks for arena in arenas)
    tcaches = [s.size_bytes for s in heap.sizes if s.size_bytes in TCACHES.get(header, ANY_TCACHE) and s.live]
    caches = max(threads, 1) if tcaches else 0  # each is a block too
    size -= caches * (tcaches[0] - 8) if caches else 0
    return size + heap.mmapped_bytes - header * heap.mmapped_chunks, count - caches + heap.mmapped_chunks


def assert_agrees_with_the_program(target: Running, ledger: Ledger, threads: int = 0) -> None:
    heap = heap_of(ledger)
    assert heap.is_exact, ledger.notices
    header = 16 if 'type="fast"' in target.output else 24
    assert own_blocks(heap, threads, header) == target.figure(r"live (\d+) (\d+)")
    fast = target.figure(r'<total type="fast" count="(\d+)" size="(\d+)"')
    assert (heap.fastbin_chunks, heap.fastbin_bytes) == fast
    chunks, size = target.figure(r'<total type="rest" count="(\d+)" size="(\d+)"')
    # malloc_info adds flag bits (1 or 5) to the sizes of chunks in bins, but not to top's.
    assert heap.free_chunks == chunks
    assert heap.free_bytes == size // 16 * 16 - (size - heap.free_bytes) // 16 * 16
    assert 0 <= size - heap.free_bytes <= 5 * chunks
    assert (heap.mmapped_chunks, heap.mmapped_bytes) == target.figure(
        r'<total type="mmap" count="(\d+)" size="(\d+)"'
    )


KNOWN = ("debug information", "layouts")


@pytest.fixture(params=KNOWN)
def known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return where the layout of malloc's structures is known from."""
    if request.param == "layouts":
        monkeypatch.setenv("GDBMEM_NO_DEBUG_INFO", "1")
    return str(request.param)


def assert_source(ledger: Ledger, known: str) -> None:
    source = heap_of(ledger).source
    if (source, known) == ("layouts", "debug information") and not os.environ.get("CI"):
        pytest.skip("libc's debug information missing: scripts/setup installs it")
    assert source == known


@pytest.mark.parametrize("mode", ["none", "tenth", "all", "half", "pairs"])
def test_live_and_free_blocks_are_those_the_program_and_malloc_info_count(
    program: Program, known: str, mode: str
) -> None:
    with running([program("heap_known"), mode]) as target:
        ledger = explain(target.pid)
        assert_agrees_with_the_program(target, ledger)
        assert_source(ledger, known)


SETTINGS = [
    {},
    {"MALLOC_PERTURB_": "165"},
    {"MALLOC_MMAP_THRESHOLD_": "4096"},
    {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"},
    {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=1000"},
    {"MALLOC_TOP_PAD_": "0"},
]


def _usually(known: str, settings: dict[str, str], threads: int) -> bool:
    """Choose each setting once, with both sources of the layout and both numbers of threads in turn."""
    number = SETTINGS.index(settings)
    return known == KNOWN[number // 2 % 2] and (threads == 0) == bool(number % 2)


@pytest.mark.parametrize(
    ("known", "settings", "threads"),
    cover(itertools.product(KNOWN, SETTINGS, (0, 20)), _usually),
    ids=str,
    indirect=["known"],
)
def test_mallocs_settings_and_twenty_arenas_change_nothing_in_that(
    program: Program, known: str, settings: dict[str, str], threads: int
) -> None:
    environment = {"MALLOC_ARENA_MAX": "64", **settings}
    with running([program("heap_known"), "pairs", threads], environment) as target:
        ledger = explain(target.pid)
        heap = heap_of(ledger)
        assert len(heap.arenas) == 1 + threads
        assert_agrees_with_the_program(target, ledger, threads)
        assert_source(ledger, known)
        assert sorted(tid for arena in heap.arenas for tid in arena.threads) == sorted(
            int(entry.name) for entry in Path(f"/proc/{target.pid}/task").iterdir()
        )


@pytest.mark.parametrize(("mode", "threads"), diagonals(["tenth", "pairs"], [4, 0], (0,)))
@pytest.mark.parametrize("largest", cover([1500, 6000], lambda largest: largest == 6000))
def test_a_fragmented_heap_whose_bins_all_hold_something_is_read_without_debug_information(
    program: Program, monkeypatch: pytest.MonkeyPatch, threads: int, mode: str, largest: int
) -> None:
    monkeypatch.setenv("GDBMEM_NO_DEBUG_INFO", "1")
    settings = {"MALLOC_ARENA_MAX": "64"}
    with running([program("heap_known", f"-DLARGEST={largest}"), mode, threads], settings) as target:
        ledger = explain(target.pid)
        assert heap_of(ledger).source == "layouts"
        assert_agrees_with_the_program(target, ledger, threads)


@pytest.mark.parametrize(
    ("size", "threads", "flags"),
    cover(
        [(size, *more) for size in (8 << 10, 1 << 20) for more in ((0, ()), (20, ()), (20, ("-static",)))],
        lambda size, threads, flags: size == 1 << 20 and threads > 0,
    ),
)
def test_a_megabyte_of_thread_local_variables_hides_no_threads_cache(
    program: Program, threads: int, flags: tuple[str, ...], size: int
) -> None:
    target_program = program("heap_known", f"-DTHREAD_LOCAL_BYTES={size}", *flags)
    with running([target_program, "tenth", threads], {"MALLOC_ARENA_MAX": "64"}) as target:
        ledger = explain(target.pid)
        assert heap_of(ledger).tcache_chunks
        assert_agrees_with_the_program(target, ledger, threads)


def test_a_forked_childs_blocks_are_those_that_it_counts(program: Program, known: str) -> None:
    with running([program("heap_known"), "pairs"], {"FORKED": "1"}) as target:
        assert target.pid != target.process.pid
        try:
            ledger = explain(target.pid)
            assert_agrees_with_the_program(target, ledger)
            assert_source(ledger, known)
        finally:
            os.kill(target.pid, signal.SIGKILL)


def test_the_plain_walk_gives_the_same_ledger(program: Program) -> None:
    with running([program("heap_known"), "pairs", 2]) as target:
        quick, plain = explain(target.pid), explain(target.pid, walker=glibc_heap.walk)
        heaps = [
            [e for e in ledger.entries if e.category.startswith(("heap", "arena"))]
            for ledger in (quick, plain)
        ]
        assert heaps[0] == heaps[1]
        assert heap_of(quick).arenas == heap_of(plain).arenas


@pytest.mark.parametrize(("mode", "threads"), diagonals(["none", "tenth", "pairs"], [0, 3], (0,)))
def test_what_sizes_and_types_keep_back_adds_up_to_the_pinned_entry(
    program: Program, mode: str, threads: int
) -> None:
    with running([program("heap_known"), mode, threads]) as target:
        document = json.loads(gdbmem("explain", target.pid, "--types", "--json").stdout)
    pinned = sum(e["resident_bytes"] for e in document["entries"] if "pinned" in e["category"])
    for rows in (document["heap"]["sizes"], document["types"]):
        further = pinned - sum(row["pinned_bytes"] for row in rows)
        # Free pages that malloc_trim leaves because malloc's own record of a free stretch begins there.
        assert further == pytest.approx(4096 * round(further / 4096), abs=1)
        assert 0 <= round(further / 4096) <= 16


def test_the_figures_of_mallinfo_are_those_of_a_heap_whose_mapped_blocks_were_resized(
    program: Program, known: str
) -> None:
    with running([program("resizes_mapped")]) as target:
        heap = heap_of(explain(target.pid))
    assert heap.is_exact
    assert (heap.live_bytes + heap.tcache_bytes, heap.free_bytes + heap.fastbin_bytes) == target.figure(
        r"in use (\d+) free (\d+)"
    )
    blocks, size = target.figure(r"mapped (\d+) (\d+)")
    assert heap.mmapped_chunks == blocks
    # Since glibc 2.43 the count drifts by 16 bytes with each resizing.
    assert size - heap.mmapped_bytes in (0, 16 * 3 * 300)


def resident_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.findall(r"^Rss:\s+(\d+)", text, re.M)[0]) << 10


@pytest.mark.parametrize(
    ("mode", "threads"), diagonals(["none", "tenth", "half", "middle", "pairs", "all"], [0, 3], (1,))
)
def test_malloc_trim_returns_what_was_predicted(program: Program, mode: str, threads: int) -> None:
    with running([program("heap_known"), mode, threads]) as target:
        predicted = explain(target.pid).releasable_bytes
        assert predicted is not None
        before = resident_bytes(target.pid)
        target.trim()
        returned = before - resident_bytes(target.pid)
        assert abs(predicted - returned) <= max(64 << 12, 0.01 * max(predicted, returned))


# -- strange memory ---------------------------------------------------------------------------------------


def faulty(program: Program, mode: str) -> contextlib.AbstractContextManager[Running]:
    return running([program("heap_faults"), mode])


def test_a_corrupt_size_is_named_and_the_ledger_still_adds_up(program: Program) -> None:
    with faulty(program, "corrupt-size") as target:
        ledger = explain(target.pid)
        assert "heap-corrupt" in slugs(ledger)
        assert not heap_of(ledger).is_exact
        assert ledger.total("anonymous.other") > 0


def test_a_list_that_leads_back_to_itself_is_named(program: Program) -> None:
    with faulty(program, "cycle") as target:
        assert "heap-corrupt" in slugs(explain(target.pid))


@pytest.mark.parametrize("tcache", [7, 0])  # what is left of the first piece goes there, or to a bin
def test_the_programs_own_sbrk_between_two_pieces_of_heap(program: Program, tcache: int) -> None:
    settings = {"GLIBC_TUNABLES": f"glibc.malloc.tcache_count={tcache}"}
    with running([program("heap_faults"), "sbrk"], settings) as target:
        ledger = explain(target.pid)
        assert heap_of(ledger).is_exact, ledger.notices
        assert own_blocks(heap_of(ledger), 0, 0) == (5000 * 504, 5000)
        own = [e for e in ledger.entries if e.label == "sbrk by the program itself"]
        assert sum(entry.resident_bytes for entry in own) >= 120_000


def test_an_arena_of_several_heaps_is_counted_to_its_end(program: Program) -> None:
    with faulty(program, "heaps") as target:
        ledger = explain(target.pid)
        heap = heap_of(ledger)
        assert heap.is_exact, ledger.notices
        assert own_blocks(heap, 1, 0) == target.figure(r"live (\d+) (\d+)")


@pytest.mark.parametrize(("kind", "arena"), [("sbrk", 0), ("heaps", 1), ("blocked", 0), ("mapped", 0)])
def test_a_heap_in_pieces_that_end_with_free_memory_is_read_to_its_end(
    program: Program, kind: str, arena: int
) -> None:
    settings = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2"} if kind == "mapped" else {}
    with running([program("heap_pieces", "-pthread"), kind], settings) as target:
        heap = heap_of(explain(target.pid))
        size, count = target.figure(r"live (\d+) (\d+)")
    assert heap.is_exact
    found = heap.arenas[arena]
    own = (
        found.live_chunks - count
    )  # the tcache, if a thread has one, and in the main arena what starts a process
    assert own in range(4)
    assert 0x18 * own <= found.live_bytes - 8 * found.live_chunks - size <= 0x318 * own


@pytest.mark.parametrize("fork", [False, True])
@pytest.mark.parametrize("threads", [0, 3])
def test_a_heap_in_pages_of_hugetlbfs_is_not_passed_over(program: Program, threads: int, fork: bool) -> None:
    settings = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2", "MALLOC_ARENA_MAX": "64"}
    with huge_pages(16), running([program("heap_known"), "pairs", threads], settings) as target:
        if "HugetlbPages:\t       0 kB" in Path(f"/proc/{target.pid}/status").read_text():
            pytest.skip("this malloc takes no pages of hugetlbfs: glibc 2.35 is the first that does")
        ledger = explain(target.pid, fork=fork)
        assert_agrees_with_the_program(target, ledger, threads)
        assert ledger.beside["hugetlb"]
        assert "residency-uncertain" not in slugs(ledger)


@pytest.mark.parametrize("fork", [False, True])
@pytest.mark.parametrize("sharing", ["SHARED", "PRIVATE"])
def test_shared_memory_in_pages_of_hugetlbfs_is_told_beside_the_resident_set(
    sharing: str, fork: bool
) -> None:
    # As PostgreSQL has its buffers. A copy of the process has no page tables of what is shared.
    code = (
        "import mmap, os, sys; hugetlb = 0x40000\n"
        f"pool = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_{sharing} | mmap.MAP_ANONYMOUS | hugetlb)\n"
        "pool[0] = pool[2 << 20] = 1\n"
        "os.write(1, b'pid %d\\nready\\n' % os.getpid()); os.read(0, 1)"
    )
    with huge_pages(4), running([sys.executable, "-c", code]) as target:
        assert explain(target.pid, fork=fork).beside["hugetlb"] == 4 << 20


def test_top_below_another_users_break_is_not_promised(program: Program) -> None:
    with faulty(program, "sbrk-last") as target:
        predicted = explain(target.pid).releasable_bytes or 0
        before = resident_bytes(target.pid)
        target.trim()
        assert abs(predicted - (before - resident_bytes(target.pid))) <= 64 << 12


@pytest.mark.parametrize(
    ("mode", "category", "least"),
    [
        ("growsdown", "stack.thread", 1 << 20),
        ("own-allocator", "anonymous.other", 8 << 20),
        ("named", "anonymous.named", 4 << 20),
        ("huge-pages", "heap.mmapped", 32 << 20),
        ("aligned", "heap.mmapped", 20 * 300_000),
    ],
)
def test_memory_of_each_kind_is_in_its_entry(program: Program, mode: str, category: str, least: int) -> None:
    with faulty(program, mode) as target:
        ledger = explain(target.pid)
        if mode == "named" and "my pool" not in Path(f"/proc/{target.pid}/maps").read_text():
            pytest.skip("this kernel keeps no names of anonymous mappings")
        assert least <= ledger.total(category) < least + (2 << 20)
        assert ledger.heap is None or ledger.heap.is_exact


MAPS_ITSELF = """
import mmap
held = mmap.mmap(-1, 48 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held[:] = bytes(len(held))
print("ready", flush=True)
input()
"""


@every_third(0)
def test_what_a_python_program_maps_is_not_called_the_memory_of_an_allocator_that_python_leaves_unused(
    python: str,
) -> None:
    with running([python, "-c", MAPS_ITSELF]) as target:
        ledger = explain(target.pid)
    assert ledger.total("anonymous.other") >= 48 << 20
    assert not [entry for entry in ledger.entries if "mimalloc" in entry.label]


def test_pages_that_were_only_read_are_not_resident(program: Program) -> None:
    with faulty(program, "zero-pages") as target:
        ledger = explain(target.pid)
        entry = next(entry for entry in ledger.entries if entry.category == "heap.mmapped")
        assert entry.allocated_bytes is not None
        assert entry.allocated_bytes > 64 << 20
        assert entry.resident_bytes < 1 << 20


def test_stacks_of_ended_threads_are_distinguished_from_those_of_live_ones(program: Program) -> None:
    with faulty(program, "threads") as target:
        counts = {e.category: e.detail.get("stacks") for e in explain(target.pid).entries}
        assert counts["stack.thread"] == 6
        assert counts["stack.cached"] in (4, 5)  # 40 MiB of them are kept, 8 MiB and a guard each


@pytest.mark.parametrize("flags", [(), ("-static",)], ids=["dynamic", "static"])
@pytest.mark.parametrize(
    ("joined", "unjoined", "alive"),
    [(4, 0, 0), (0, 60, 0), (3, 5, 2), (2, 3, 0)],
    ids=["joined", "unjoined", "all", "ended"],
)
def test_threads_that_nobody_joined_are_not_called_a_cache(
    program: Program, flags: tuple[str, ...], joined: int, unjoined: int, alive: int
) -> None:
    with running([program("ends_threads", *flags), joined, unjoined, alive]) as target:
        ledger = explain(target.pid)
    stacks = {e.category: e.detail["stacks"] for e in ledger.entries if "stacks" in e.detail}
    told = {"stack.cached": joined, "stack.unjoined": unjoined, "stack.thread": alive}
    assert stacks == {category: count for category, count in told.items() if count}
    if unjoined == 60:
        assert "60 threads that ended and that no thread has joined: pthread_join()" in answer_ledger(ledger)


def test_stacks_that_a_forked_child_cannot_join_are_those_that_libc_caches(program: Program) -> None:
    with running([program("ends_threads"), 2, 3, 2], {"FORKED": "1"}) as target:
        ledger = explain(target.pid)
    assert {e.category: e.detail["stacks"] for e in ledger.entries if "stacks" in e.detail} == {
        "stack.cached": 7
    }


MAPPED = {
    "shared": ({"file.mapped": 24}, "24.0 MiB of {}"),
    "read": ({"file.mapped": 24}, "24.0 MiB of {}"),
    "private": ({"file.mapped": 16, "file.copied": 8}, "16.0 MiB of {}"),
    "memfd": ({"shared": 16, "anonymous.named": 8}, "shared memory"),
    "memfd-shared": ({"shared": 24}, "shared memory"),
    "zero": ({"anonymous.other": 8}, "anonymous memory"),
}


@pytest.mark.parametrize("mode", MAPPED)
def test_mapped_files_and_memfds_are_divided_by_what_their_pages_are(
    program: Program, tmp_path: Path, mode: str
) -> None:
    file = tmp_path / "weights.bin"
    expected, text = MAPPED[mode]
    with running([program("maps_files"), file, mode]) as target:
        kernel = {
            name: int(kib) << 10
            for name, kib in re.findall(
                r"^Rss(\w+):\s+(\d+) kB", Path(f"/proc/{target.pid}/status").read_text(), re.M
            )
        }
        ledger = explain(target.pid)
    told = {category: ledger.total(category) >> 20 for category in {*expected, "file.mapped", "file.copied"}}
    assert {category: size for category, size in told.items() if size} == expected
    assert ledger.total("shared") == kernel["Shmem"]
    assert abs(ledger.total("file.mapped", "file.code") - kernel["File"]) < 1 << 20  # and unwritten variables
    assert text.format(file) in answer_ledger(ledger)


@pytest.mark.parametrize(("fork", "written"), [(True, 0), (False, 0), (True, 20)])
def test_a_forked_workers_memory_is_told_to_be_its_parents(
    program: Program, fork: bool, written: int
) -> None:
    with running([program("inherits"), written]) as target:
        rollup = Path(f"/proc/{target.pid}/smaps_rollup").read_text()
        parent = int(re.findall(r"^parent (\d+)", target.output, re.M)[0])
        ledger, of_parent = explain(target.pid, fork=fork), explain(parent)
        later = Path(f"/proc/{target.pid}/smaps_rollup").read_text()
    shared, kept = (
        int(re.findall(r"^Shared_Dirty:\s+(\d+) kB", text, re.M)[0]) << 10 for text in (rollup, later)
    )
    assert abs(kept - shared) < 256 << 10, "reading has made copies of shared pages"
    told = ledger.beside["shared_by_fork"]
    assert abs(told - shared) < 256 << 10  # variables of libraries
    assert (24 - written - 1) << 20 < told < (24 - written + 2) << 20
    assert (ledger.forked_from, of_parent.forked_from) == (parent, None)
    text = f"is memory that it has had from its parent since the fork and has not written: 'gdbmem explain {parent}'"
    assert (text in answer_ledger(ledger)) == (not written)
    assert "massif-diff" in answer_ledger(of_parent)
    assert ("massif-diff" in answer_ledger(ledger)) == bool(written)


DROPPABLE = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
place = libc.mmap(None, ctypes.c_size_t(8 << 20), 3, 0x28, -1, ctypes.c_size_t(0))  # MAP_DROPPABLE | MAP_ANONYMOUS
if place and place < 1 << 63:
    ctypes.memset(place, 1, 8 << 20)
os.write(1, b"pid %d\\nmapped %d\\nready\\n" % (os.getpid(), place < 1 << 63))
os.read(0, 1)
"""


@pytest.mark.parametrize("fork", [True, False])
def test_droppable_memory_is_told_apart_from_that_of_unknown_use(fork: bool) -> None:
    with running([sys.executable, "-c", DROPPABLE]) as target:
        if "mapped 1" not in target.output:
            pytest.skip("this kernel has no MAP_DROPPABLE")
        smaps = Path(f"/proc/{target.pid}/smaps").read_text()
        told = explain(target.pid, fork=fork).total("anonymous.droppable")
    # A page more where the C library keeps the state of getrandom() in such memory (glibc 2.41).
    kernel = re.findall(r"^Rss:\s+(\d+) kB(?=(?:\n(?!VmFlags).*)*\nVmFlags:.* dp\b)", smaps, re.M)
    assert told == sum(map(int, kernel)) << 10 >= 8 << 20


@pytest.mark.parametrize("count", cover([10_000, 100_000], lambda count: count == 10_000))
def test_as_many_mappings_as_the_kernel_allows_are_all_in_the_ledger(program: Program, count: int) -> None:
    most = min(int(Path("/proc/sys/vm/max_map_count").read_text()) - 500, count)
    with running([program("heap_faults"), "mappings", most]) as target:
        ledger = explain(target.pid)
        assert len(ledger.shares) >= most
        assert ledger.total("anonymous.other") >= most // 2 << 12


def test_memory_that_was_swapped_out_stands_beside_the_ledger(program: Program) -> None:
    with faulty(program, "swap") as target:
        swapped = sum(map(int, re.findall(r"^Swap:\s+(\d+)", smaps(target.pid), re.M))) << 10
        if not swapped:
            pytest.skip("this machine has no swap space")
        ledger = explain(target.pid)
        assert heap_of(ledger).live_chunks > 4000
        assert ledger.beside["swap"] == swapped
        live = next(entry for entry in ledger.entries if entry.category == "heap.live")
        assert live.allocated_bytes is not None
        assert live.resident_bytes < live.allocated_bytes


def test_pages_that_ksm_has_merged_are_a_figure_beside_the_ledger(program: Program) -> None:
    switch = Path("/sys/kernel/mm/ksm/run")
    if not switch.exists() or switch.read_text() != "1\n":
        pytest.skip("ksm is off on this machine")
    with faulty(program, "ksm") as target:
        deadline = time.monotonic() + 10
        while not re.search(r"^KSM:\s+[1-9]", smaps(target.pid), re.M):
            if time.monotonic() > deadline:
                pytest.skip("ksm did not come by")
            time.sleep(0.1)
        ledger = explain(target.pid)
        assert ledger.beside["merged_by_ksm"] > 0
        assert ledger.total("anonymous.other") >= 8 << 20


def smaps(pid: int) -> str:
    return Path(f"/proc/{pid}/smaps").read_text()


def test_a_thread_on_a_stack_of_its_own_making_is_held_and_never_made_to_call(
    program: Program,
) -> None:
    with faulty(program, "coroutine") as target:
        with pytest.raises(TargetError, match="has room for its registers") as caught:
            explain(target.pid, fork=True)  # memory below that stack may have any use
        assert caught.value.slug == "copy-refused"
        ledger = explain(target.pid)
        assert heap_of(ledger).is_exact
        assert heap_of(ledger).live_chunks >= 100
        own = ledger.total("anonymous.other", "stack.thread")
        assert 2 << 20 <= own < 3 << 20
        assert ledger.total("stack.main") > 0


def test_an_arena_that_was_being_changed_is_reported(program: Program) -> None:
    with faulty(program, "locked") as target:
        ledger = explain(target.pid)
        assert "arena-locked" in slugs(ledger)
        assert not heap_of(ledger).is_exact


def test_a_program_that_allocates_all_the_time_never_yields_a_wrong_sum(program: Program) -> None:
    with faulty(program, "busy") as target:
        for _ in range(10):
            explain(target.pid)
        assert target.process.poll() is None


def test_a_static_program(program: Program) -> None:
    with running([program("heap_known", "-static"), "pairs"]) as target:
        ledger = explain(target.pid)
        assert heap_of(ledger).is_exact
        assert heap_of(ledger).live_chunks > 9000
        assert ledger.runtime == "static"


@pytest.mark.needs("musl-gcc")
def test_musl_gets_the_kernels_view_and_a_sentence(tmp_path: Path) -> None:
    source = tmp_path / "waits.c"
    source.write_text(
        '#include <unistd.h>\n#include <stdio.h>\nint main(){puts("ready");fflush(stdout);pause();}\n'
    )
    subprocess.run(["musl-gcc", source, "-o", tmp_path / "waits"], check=True)
    with running([tmp_path / "waits"]) as target:
        ledger = explain(target.pid)
        assert "other-libc" in slugs(ledger)
        assert ledger.heap is None


@pytest.mark.parametrize(
    ("check", "said"), [("0", "glibc's malloc also allocates blocks"), ("3", "malloc is")]
)
def test_what_a_checking_malloc_passes_on_to_glibcs_is_not_denied(
    program: Program, check: str, said: str
) -> None:
    skip_without_library("c_malloc_debug")  # before glibc 2.34 libc's own malloc checks
    settings = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": check}
    with running([program("heap_faults"), "aligned"], settings) as target:
        ledger = explain(target.pid)
    (notice,) = (one for one in ledger.notices if one.slug == "malloc-replaced")
    assert said in notice.message
    assert (ledger.total("heap.live") > 0) == (check == "0")


@pytest.mark.parametrize(
    ("library", "name"),
    [("jemalloc", "jemalloc"), ("tcmalloc_minimal", "tcmalloc"), ("mimalloc", "mimalloc")],
)
def test_an_allocator_in_mallocs_place_is_named(program: Program, library: str, name: str) -> None:
    skip_without_library(library)
    with running([program("heap_faults"), "aligned"], {"LD_PRELOAD": str(find_library(library))}) as target:
        ledger = explain(target.pid)
        assert "malloc-replaced" in slugs(ledger)
        assert ledger.total(f"allocator.{name}") >= 20 * 300_000
        assert name in answer_ledger(ledger)
        refused = gdbmem("explain", target.pid, "--bins")
    assert refused.returncode == 1
    assert (
        f"--bins lists the free blocks of glibc's malloc by its bins, which {name} doesn't have"
        in refused.stderr
    )
