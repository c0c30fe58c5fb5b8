"""The ledger: it adds up, or reports that it doesn't; one sentence recommends what to do."""

from __future__ import annotations

import io
from typing import Optional

import pytest

from gdbmem.allocators.glibc.layout import PARAMETERS, STATES, parse_ptype
from gdbmem.errors import InputError
from gdbmem.formats.documents import read_ledger
from gdbmem.ledger.answer import answer_ledger
from gdbmem.ledger.division import Division
from gdbmem.ledger.document import ledger_json, returned_bytes
from gdbmem.ledger.ledger import ProcessImage, build_ledger
from gdbmem.ledger.pinners import join_paths
from gdbmem.ledger.text import LedgerOptions, beside, print_growth, print_ledger
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Mapping, Ranges, parse_smaps
from gdbmem.model import ledger as names
from gdbmem.model.ledger import (
    TRIM,
    Arena,
    Entry,
    Heap,
    Ledger,
    Remedy,
    Share,
    SizeClass,
    best_remedy,
    in_order,
)
from gdbmem.terminal.console import make_console
from tests.unit.ledger.test_pinners import snapshot

MIB = 1 << 20
SMAPS = b"""\
55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
Rss:                 100 kB
Anonymous:           100 kB
Swap:                  8 kB
VmFlags: rd wr mr mw me ac
7f0000000000-7f0000200000 r-xp 00001000 fe:01 1234                       /usr/lib/a b.so (deleted)
Size:               2048 kB
Rss:                  40 kB
Anonymous:             4 kB
AnonHugePages:      2048 kB
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0
Rss:                   0 kB
VmFlags: rd wr gd
"""


def make_ledger(**sizes: int) -> Ledger:
    entries = [Entry(name.replace("_", "."), "", size) for name, size in sizes.items()]
    total = sum(sizes.values())
    share = Share(0x1000, 0x1000 + total, "[heap]", total, {e.key: e.resident_bytes for e in entries})
    return Ledger("program", 1, total, entries, [share], None)


BESIDE = b"""\
555500000000-555500001000 r-xp 00000000 fe:01 12                         /opt/app
Rss:                   4 kB
555500001000-555500002000 rw-p 00001000 fe:01 12                         /opt/app
Rss:                   4 kB
Anonymous:             4 kB
555500002000-555503002000 rw-p 00000000 00:00 0
Rss:               49152 kB
Anonymous:         49152 kB
555600000000-555600001000 r-xp 00001000 fe:01 14                         /lib/a.so
Rss:                   4 kB
555600001000-555600002000 rw-p 00000000 fe:01 14                         /lib/a.so
Rss:                   4 kB
555700000000-555700001000 r-xp 00001000 fe:01 15                         /lib/b.so
Rss:                   4 kB
555700001000-555700002000 rw-p 00000000 fe:01 15                         /lib/b.so
Rss:                   4 kB
7f0000000000-7f0000800000 rw-p 00000000 00:19 5                          /dev/shm/cache (deleted)
Rss:                8192 kB
Anonymous:          4096 kB
7f0001000000-7f0001400000 rw-p 00000000 00:01 9                          /memfd:JSGCHeap (deleted)
Rss:                4096 kB
Anonymous:          4096 kB
7f0002000000-7f0002400000 rw-p 00000000 00:06 4                          /dev/zero
Rss:                4096 kB
Anonymous:          4096 kB
7f0003000000-7f0003400000 rw-s 00000000 00:08 15                         socket:[15614346]
Rss:                4096 kB
7f0004000000-7f0004400000 rw-s 00000000 00:0e 1                          anon_inode:[io_uring]
Rss:                4096 kB
"""


def ledger_beside() -> Ledger:
    mappings = parse_smaps(BESIDE)
    image = Image("/opt/app", 0, mappings[0].start, [(mappings[1].start, mappings[2].end)], "", True)
    resident = Ranges((m.start, m.end) for m in mappings)
    reading = ProcessImage("app", 1, mappings, resident, True, [])
    reading.images = [image]
    return build_ledger(reading)


def test_private_memory_is_not_called_named_by_the_program_for_the_file_behind_it() -> None:
    told = {(entry.category, entry.label): entry.resident_bytes >> 20 for entry in ledger_beside().entries}
    assert told[names.FILE_COPIED, ""] == 4  # of /dev/shm/cache
    assert told[names.SHARED, ""] == 4
    assert told[names.NAMED, "memfd:JSGCHeap"] == told[names.OTHER, ""] == 4
    assert [key for key in told if key[0] == names.NAMED] == [(names.NAMED, "memfd:JSGCHeap")]


def test_memory_that_the_program_has_named_is_not_said_to_be_of_unknown_use() -> None:
    ledger = ledger_beside()
    named = [entry for entry in ledger.entries if entry.category == names.NAMED]
    rest = [entry._replace(resident_bytes=entry.resident_bytes // 20) for entry in ledger.entries]
    named.append(named[0]._replace(label="audio", resident_bytes=MIB))
    answer = answer_ledger(
        ledger._replace(entries=[*named, *(one for one in rest if one.category != names.NAMED)])
    )
    assert answer.endswith(
        "is anonymous memory that the program has named: 4.0 MiB of memfd:JSGCHeap and 1 more"
    )


def test_rings_of_sockets_are_not_called_shared_memory_nor_io_uring_a_device() -> None:
    ledger = ledger_beside()
    stream = io.StringIO()
    print_ledger(ledger, make_console(stream, width=200), LedgerOptions())
    rows = [row for row in stream.getvalue().splitlines() if "  device  " in row]
    assert [entry.label for entry in ledger.entries if entry.category == names.DEVICE] == [
        "anon_inode:[io_uring]",
        "socket:[15614346]",
    ]
    assert len(rows) == 2
    assert all("driver or the kernel" in row for row in rows), rows


def test_zeroed_variables_are_called_variables_and_not_files_and_have_their_programs_name() -> None:
    answer = answer_ledger(ledger_beside())
    assert "48.0 MiB of it (" in answer
    assert answer.endswith("variables of programs and libraries: 48.0 MiB of /opt/app and 2 more")


def test_smaps_of_names_with_blanks_and_of_none() -> None:
    heap, library, stack = parse_smaps(SMAPS)
    assert (heap.name, heap.rss_bytes, heap.swap_bytes, heap.is_anonymous) == (
        "[heap]",
        100 << 10,
        8 << 10,
        True,
    )
    assert library.name == "/usr/lib/a b.so (deleted)"
    assert (library.is_file, library.huge_bytes) == (True, 2 * MIB)
    assert stack.grows_down
    assert not stack.name


@pytest.mark.parametrize(
    ("runtime", "step"),
    [
        (None, "'massif-diff'"),
        ("python", "'gdbmem python objects'"),
        ("v8", "process.memoryUsage()"),
        ("jvm", "VM.native_memory"),
        ("ruby", "ObjectSpace.memsize_of_all"),
        ("luajit", "'gdbmem grow'"),
        ("static", "'gdbmem grow'"),
    ],
)
def test_the_next_step_for_a_live_heap_suits_the_runtime(runtime: Optional[str], step: str) -> None:
    ledger = make_ledger(heap_mmapped=200 * MIB, file_code=20 * MIB)._replace(runtime=runtime)
    answer = answer_ledger(ledger)
    assert step in answer
    assert ("massif-diff" in answer) == (runtime is None)
    read = read_ledger(ledger_json(ledger), "file")
    assert answer_ledger(read) == answer


def test_details_of_the_resident_set_are_not_called_additional() -> None:
    sizes = {
        "huge_pages": 2 * MIB,
        "merged_by_ksm": MIB,
        "shared_by_fork": 3 * MIB,
        "swap": 4 * MIB,
        "hugetlb": 5 * MIB,
    }
    ledger = make_ledger(heap_live=10 * MIB)._replace(beside=sizes)
    assert beside(ledger) == [
        "Of the total: shared with other processes since a fork 3.0 MiB, in huge pages 2.0 MiB, merged by KSM 1.0 MiB",
        "In addition: swapped out 4.0 MiB, hugetlbfs, which Rss leaves out, 5.0 MiB",
    ]
    assert answer_ledger(ledger).startswith(
        "10.0 MiB resident, and 5.0 MiB of hugetlbfs, which Rss leaves out; "
    )


def test_a_ledger_that_does_not_add_up_is_refused() -> None:
    ledger = make_ledger(heap_live=100, file_code=50)
    ledger.check()
    with pytest.raises(ValueError, match="resident set"):
        ledger._replace(rss_bytes=151).check()
    with pytest.raises(ValueError, match="shares"):
        ledger._replace(entries=ledger.entries[:1]).check()


def test_a_mapping_gets_exactly_its_rss_also_when_claims_exceed_it() -> None:
    mapping = Mapping(0x1000, 0x5000, "rw-p", 0, "00:00", 0, "", rss_bytes=0x2000)
    division = Division([mapping], Ranges([(0x1000, 0x4000)]))
    division.claim(0x1000, 0x3000, ("heap.live", ""))
    division.claim(0x2000, 0x4000, ("stack.thread", ""))  # what is claimed already stays claimed
    assert division.parts[0] == {("heap.live", ""): 0x2000, ("stack.thread", ""): 0x1000}
    assert division.settle(0, ("anonymous.other", "")) == 0x1000
    assert sum(division.shares()[0].parts.values()) == 0x2000


def test_what_another_allocator_freed_lazily_is_distinguished_from_what_it_holds() -> None:
    mapping = Mapping(0x1000, 0x5000, "rw-p", 0, "00:00", 0, "", rss_bytes=0x3000, lazily_freed_bytes=0x1000)
    division = Division([mapping], Ranges([(0x1000, 0x4000)]))
    division.settle(0, ("allocator.jemalloc", ""))
    assert division.parts[0] == {(names.LAZILY_FREED, "jemalloc"): 0x1000, ("allocator.jemalloc", ""): 0x2000}


def test_pieces_of_a_pool_take_resident_bytes_from_their_previous_owners_and_never_more() -> None:
    mappings = [
        Mapping(start, start + 0x2000, "rw-p", 0, "00:00", 0, "", rss_bytes=0x2000)
        for start in (0x1000, 0x3000)
    ]
    division = Division(mappings, Ranges([(0x1000, 0x5000)]))
    live, free, block = ("allocator.bfc", "live"), ("allocator.bfc", "free chunks"), ("heap.live", "")
    assert division.claim_pieces(
        0x2800, [(0x2900, live), (0x3100, free), (0x3200, live)]
    )  # across two mappings
    assert division.parts == [{live: 0x100, free: 0x700}, {free: 0x100, live: 0x100}]
    assert not division.claim_pieces(0x3000, [(0x4000, live)])  # another pool claims the same place
    division.claim(0x4000, 0x4100, block)
    division.move_pieces(0x4000, [(0x5000, live)], block)  # more than malloc has in that block
    assert division.parts[1] == {free: 0x100, live: 0x200, block: 0}


def test_ranges_count_overlaps_by_the_byte() -> None:
    ranges = Ranges([(10, 20), (30, 40), (20, 25)])
    assert ranges.items == [(10, 25), (30, 40)]
    assert [ranges.within(0, 100), ranges.within(12, 31), ranges.within(25, 30)] == [25, 14, 0]
    assert list(ranges.overlaps(24, 35)) == [(24, 25), (30, 35)]


def remedy(setting: str, predicted: Optional[int], low: int, high: int) -> Remedy:
    return Remedy(setting, predicted, low, high, "a price")


def test_of_settings_that_may_return_as_much_the_cheapest_is_advised() -> None:
    pad = remedy("glibc.malloc.top_pad=0", 41 * MIB, 37 * MIB, 45 * MIB)
    trim = remedy("glibc.malloc.trim_threshold=131072", 40 * MIB, 36 * MIB, 44 * MIB)
    caches = remedy("glibc.malloc.tcache_count=0", 20 * MIB, 18 * MIB, 22 * MIB)
    call = remedy(TRIM, 19 * MIB, 19 * MIB, 19 * MIB)
    none = remedy("glibc.malloc.mmap_threshold=131072", None, 0, 3 * MIB)
    assert in_order([none, caches, pad, call, trim]) == (trim, pad, call, caches, none)
    assert best_remedy((pad, trim)) == trim


def test_where_most_of_the_freed_memory_is_pinned_the_pinning_blocks_come_first() -> None:
    arena = Arena(0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    heap = Heap([arena], [SizeClass(1008, 5000, 5000, 0, 0, 30.0 * MIB)], 0, 0, 0, 0, 0, 0, True, "layouts")
    ledger = make_ledger(heap_live=10 * MIB, heap_free_pinned=32 * MIB, heap_free_releasable=8 * MIB)
    trim = remedy(TRIM, 8 * MIB, 8 * MIB, 8 * MIB)
    answer = answer_ledger(ledger._replace(heap=heap, remedies=(trim,), releasable_bytes=8 * MIB))
    assert "80 % of that can't be returned: 5,000 live blocks of 1,000 bytes" in answer
    assert "--pinners" in answer
    assert answer.endswith("malloc_trim(0) would return 8.0 MiB (a price)")


@pytest.mark.parametrize(
    ("mapped", "trim"), [(12 * MIB, 24 * MIB), (128 << 10, 24 * MIB), (12 * MIB, 30 * MIB)]
)
def test_the_answer_says_why_malloc_did_not_trim_only_where_its_thresholds_have_risen(
    mapped: int, trim: int
) -> None:
    arena = Arena(0, 1, 0, 0, 20 * MIB, 1, 0, 0, 20 * MIB, 0, 0)
    heap = Heap([arena], [], 0, 0, 0, 0, 0, 0, True, "layouts", trim, mapped)
    ledger = make_ledger(heap_live=10 * MIB, heap_free_releasable=20 * MIB)
    best = remedy(TRIM, 20 * MIB, 20 * MIB, 20 * MIB)
    answer = answer_ledger(ledger._replace(heap=heap, remedies=(best,), releasable_bytes=20 * MIB))
    reason = (
        "because it raised its trim threshold to 24.0 MiB when a block of 12.0 MiB was freed: malloc_trim(0)"
    )
    assert (reason in answer) == (trim == 2 * mapped)


def test_the_answer_names_malloc_trim_where_it_would_help() -> None:
    ledger = make_ledger(heap_live=4 * MIB, heap_free_releasable=142 * MIB)
    trim = remedy(TRIM, 141 * MIB, 141 * MIB, 141 * MIB)
    assert answer_ledger(ledger._replace(releasable_bytes=141 * MIB, remedies=(trim,))) == (
        "146.0 MiB resident; 142.0 MiB of it is freed memory that glibc keeps:"
        " malloc_trim(0) would return 141.0 MiB (a price)"
    )


def test_the_answer_names_the_remedy_that_gives_back_most_with_its_interval_and_its_cost() -> None:
    ledger = make_ledger(heap_live=4 * MIB, arena_free_cached=90 * MIB)
    remedies = (remedy("glibc.a=0", 80 * MIB, 70 * MIB, 90 * MIB), remedy(TRIM, 2 * MIB, 2 * MIB, 2 * MIB))
    assert answer_ledger(ledger._replace(releasable_bytes=2 * MIB, remedies=remedies)).endswith(
        "; 90.0 MiB of it is freed memory that glibc keeps: GLIBC_TUNABLES=glibc.a=0 would save about 80.0 MiB"
        " (70.0 MiB to 90.0 MiB; a price)"
    )


def test_what_nobody_simulated_is_not_promised() -> None:
    ledger = make_ledger(heap_live=4 * MIB, heap_free_releasable=142 * MIB)
    doubtful = ledger._replace(releasable_bytes=141 * MIB, remedies=(remedy(TRIM, None, 0, 142 * MIB),))
    assert answer_ledger(doubtful).endswith("keeps: malloc_trim(0) may return up to 141.0 MiB")
    arenas = ledger._replace(releasable_bytes=0, remedies=(remedy("glibc.b=2", None, 0, 100 * MIB),))
    assert "measures whether glibc.b=2 returns it" in answer_ledger(arenas)


def test_live_memory_in_many_arenas_is_no_reason_to_have_fewer() -> None:
    ledger = make_ledger(arena_live=90 * MIB, heap_live=2 * MIB)._replace(heap=make_heap(arenas=64))
    assert "live heap" in answer_ledger(ledger._replace(remedies=(remedy("glibc.b=2", None, 0, 9000),)))


def test_freed_blocks_in_a_threads_caches_are_no_live_heap() -> None:
    ledger = make_ledger(
        arena_live=57 * MIB, arena_metadata=11 * MIB, arena_free_cached=69 * MIB, heap_live=1
    )
    assert "69.0 MiB of it (50 %) is freed memory that glibc keeps" in answer_ledger(ledger)
    more = make_ledger(arena_live=67 * MIB, arena_metadata=11 * MIB, arena_free_cached=69 * MIB, heap_live=1)
    assert "78.0 MiB of it (53 %) is live heap" in answer_ledger(more)


def make_heap(*sizes: SizeClass, arenas: int = 1) -> Heap:
    one = Arena(0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    return Heap([one._replace(number=n) for n in range(arenas)], sizes, 0, 0, 0, 0, 0, 0, True, "layouts")


def test_the_answer_names_the_live_blocks_that_pin_freed_memory() -> None:
    ledger = make_ledger(heap_live=10 * MIB, heap_free_pinned=90 * MIB)
    ledger = ledger._replace(releasable_bytes=0, heap=make_heap(SizeClass(40, 512_000, 0, 0, 0, 80.0 * MIB)))
    assert "100 % of that can't be returned: 512,000 live blocks of 32 bytes" in answer_ledger(ledger)


def test_the_answer_names_two_sizes_that_pin_alike() -> None:
    heap = make_heap(*(SizeClass(size, 10, 0, 0, 0, 4 * MIB) for size in (48, 112, 208)))
    pinned = make_ledger(heap_live=10 * MIB, heap_free_pinned=12 * MIB)._replace(heap=heap)
    assert "20 live blocks of 40 and 104 bytes lie on its pages" in answer_ledger(pinned)


def test_the_answer_states_who_allocates_what_pins_only_as_far_as_the_sizes_tell() -> None:
    ledger = make_ledger(heap_live=10 * MIB, heap_free_pinned=90 * MIB)._replace(releasable_bytes=0)
    ledger = ledger._replace(heap=make_heap(SizeClass(48, 512_000, 0, 0, 0, 80.0 * MIB)))

    def answer(*paths: tuple[str, int, int]) -> str:
        joined = join_paths(ledger, snapshot(*paths), source_format="gperftools")
        return answer_ledger(ledger, joined).partition("lie on its pages")[2]

    assert answer(("keep", 32 * 9, 9), ("big", 1024, 2)) == ", likely allocated at a.c:1 (keep)"
    assert (
        answer(("few", 40, 1), ("keep", 32 * 9, 9)) == ", likely allocated at a.c:1 (keep) and 1 other place"
    )
    mixed = "; by run:a 1 path with several sizes may allocate them, most of all a.c:1 ({}) (see below)"
    assert answer(("big", 1024, 2)) == "; run:a has no path that allocates such blocks (see below)"
    assert answer(("keep", 32 * 9, 9), ("mixed", 1001, 10)) == mixed.format("mixed"), (
        "these may be of any size"
    )
    all_of_them = ("keep", 32 * 511_995, 511_995)
    assert answer(all_of_them, ("mixed", 10**8 + 1, 600_000)) == ", likely allocated at a.c:1 (keep)"


def test_the_answer_names_capacity_that_vectors_do_not_use_where_it_matters() -> None:
    ledger = make_ledger(heap_live=40 * MIB)._replace(releasable_bytes=0)
    large, small = (ledger._replace(beside={names.UNUSED_IN_VECTORS: size * MIB}) for size in (30, 3))
    assert (
        "; 30.0 MiB of it is capacity that vectors, or buffers kept like them, hold and don't use: 'memcontainers'"
        in answer_ledger(large)
    )
    assert "live heap" in answer_ledger(small)
    assert "vectors' unused capacity 3.0 MiB" in printed(small)


def printed(ledger: Ledger, view: Optional[LedgerOptions] = None) -> str:
    stream = io.StringIO()
    print_ledger(ledger, make_console(stream), view or LedgerOptions())
    return stream.getvalue()


def test_an_arena_that_is_not_there_is_an_error_with_those_that_are() -> None:
    ledger = make_ledger(heap_live=MIB)._replace(heap=make_heap(SizeClass(32, 1, 0, 0, 0), arenas=3))
    assert "Arena 2 at" in printed(ledger, LedgerOptions(arena=2))
    with pytest.raises(InputError, match="has no arena 3") as caught:
        printed(ledger, LedgerOptions(arena=3))
    assert caught.value.hint == "there are arenas 0 to 2"


def test_where_another_malloc_is_at_work_nothing_is_reported_of_pinned_pages() -> None:
    ledger = make_ledger(heap_live=MIB)._replace(heap=make_heap())
    text = printed(ledger, LedgerOptions(pinners=True, sizes=True))
    assert "no blocks of glibc's malloc" in text
    assert "No live block pins" not in text


def test_sizes_say_what_each_keeps_from_being_returned() -> None:
    heap = make_heap(SizeClass(48, 100, 0, 0, 0, 3 * MIB))
    row = next(
        line
        for line in printed(
            make_ledger(heap_live=MIB)._replace(heap=heap), LedgerOptions(sizes=True)
        ).splitlines()
        if line.lstrip().startswith("40 ")
    )
    assert row.endswith("3.0 MiB")


def test_free_pages_that_no_block_keeps_are_named_beside_those_that_blocks_keep() -> None:
    heap = make_heap(SizeClass(48, 100, 0, 0, 0, 3 * MIB))
    ledger = make_ledger(heap_live=MIB, heap_free_pinned=5 * MIB)
    assert "A further 2.0 MiB are on pages without a live block" in printed(
        ledger._replace(heap=heap), LedgerOptions(pinners=True)
    )


def test_of_many_sizes_the_heading_states_that_not_all_are_listed() -> None:
    heap = make_heap(*(SizeClass(16 * n, 1, 0, 0, 0, 99) for n in range(2, 42)))
    assert "the 20 of 40 that keep most" in printed(
        make_ledger(heap_live=MIB)._replace(heap=heap), LedgerOptions(pinners=True)
    )


def test_the_names_of_entries_stay_whole_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = printed(make_ledger(heap_free_releasable=MIB)).splitlines()
    assert "heap.free.releasable  free: malloc_trim(0)" in "\n".join(lines)


def test_growth_states_what_its_entries_are_and_when_nothing_changed() -> None:
    before, after = make_ledger(heap_live=MIB), make_ledger(heap_live=3 * MIB)
    stream = io.StringIO()
    print_growth(before, after, make_console(stream), ("then", "now"))
    assert "live blocks" in stream.getvalue()
    stream = io.StringIO()
    print_growth(before, before, make_console(stream), ("then", "now"))
    assert stream.getvalue() == "resident set unchanged from then to now\n"


def test_what_trimming_returned_is_not_blurred_by_files_that_looking_brought_in() -> None:
    before = make_ledger(heap_free_releasable=MIB, file_code=MIB)
    assert returned_bytes(before, make_ledger(file_code=2 * MIB)) == MIB


def test_a_ledger_survives_json() -> None:
    ledger = make_ledger(heap_live=100)._replace(heap=make_heap(SizeClass(40, 1, 2, 3, 4)))
    again = read_ledger(ledger_json(ledger), "x")
    again.check()
    assert [entry.key for entry in again.entries] == [(names.HEAP_LIVE, "")]
    assert again.heap is not None
    assert again.heap.sizes[0] == SizeClass(40, 1, 2, 3, 4)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"kind": "diff", "format_version": 1}'])
def test_what_is_no_ledger_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match="holds no ledger"):
        read_ledger(text, "x.json")


def test_gdbs_ptype_gives_the_offsets() -> None:
    text = (
        "/* offset      |    size */  type = struct malloc_state {\n"
        "/*      0      |       4 */    __libc_lock_t mutex;\n"
        "/* XXX  4-byte hole      */\n"
        "/*     16      |      80 */    mfastbinptr fastbinsY[10];\n"
        "/*   2160      |       8 */    struct malloc_state *next;\n"
        "\n                               /* total size (bytes): 2200 */\n"
        "                             }\n"
    )
    struct = parse_ptype(text)
    assert struct is not None
    assert dict(struct.offsets) == {"mutex": 0, "fastbinsY": 16, "next": 2160}
    assert struct.size == 2200
    assert parse_ptype("No struct type named malloc_state.\n") is None


def test_the_table_of_layouts_has_the_offsets_that_debug_information_gives() -> None:
    (_, old), (_, new) = STATES
    assert [old[name] for name in ("fastbinsY", "top", "bins", "next", "system_mem")] == [
        16,
        96,
        112,
        2160,
        2184,
    ]
    assert [new[name] for name in ("top", "bins", "next", "system_mem")] == [8, 24, 2072, 2096]
    assert (old.size, new.size) == (2200, 2112)
    found = {(p["n_mmaps"], p["mmapped_mem"], p["sbrk_base"]) for _, p in PARAMETERS}
    assert found == {(60, 80, 96), (40, 56, 72), (68, 88, 104)}
