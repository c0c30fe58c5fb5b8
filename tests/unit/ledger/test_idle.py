"""Memory that was not touched: the conclusions from the kernel's counts by mapping on the ledger's entries."""

from __future__ import annotations

import io
from array import array

from gdbmem.allocators.glibc.blocks import ChunkTable
from gdbmem.inspection.idle import live_sizes
from gdbmem.ledger.idle import idle_memory, idle_sizes, idle_types, print_idle
from gdbmem.linux.memory.maps import Accessed, parse_accessed
from gdbmem.model.heap_blocks import CLASS, UNKNOWN
from gdbmem.model.ledger import HEAP_LIVE, HEAP_PINNED, OTHER, BlockGroup, BlockSum, Ledger, Share
from gdbmem.terminal.console import make_console

SMAPS = b"""\
1000-3000 rw-p 00000000 00:00 0                          [heap]
Size:                  8 kB
Rss:                   8 kB
Referenced:            4 kB
VmFlags: rd wr
5000-6000 r--p 00000000 00:01 7                          /tmp/Rss: 9 kB
Rss:                   4 kB
Referenced:            0 kB
"""


def test_what_was_touched_is_counted_by_mapping() -> None:
    assert parse_accessed(SMAPS) == [Accessed(0x1000, 0x3000, 8192, 4096), Accessed(0x5000, 0x6000, 4096, 0)]
    assert parse_accessed(b"") == []


def ledger(*shares: Share) -> Ledger:
    return Ledger("x", 1, sum(one.rss_bytes for one in shares), [], shares, None, [], None, {}, None, [])


def test_entries_that_share_a_mapping_have_bounds_and_no_invented_numbers() -> None:
    heap = Share(0x1000, 0x9000, "[heap]", 1000, {(HEAP_LIVE, ""): 700, (HEAP_PINNED, ""): 300})
    alone = Share(0x10000, 0x20000, "", 500, {(OTHER, ""): 500})
    fresh = Share(0x30000, 0x40000, "", 50, {(OTHER, ""): 50})
    found = idle_memory(
        ledger(heap, alone, fresh),
        [Accessed(0x1000, 0x9000, 1000, 400), Accessed(0x10000, 0x20000, 500, 0)],
        60.0,
    )
    assert (found.rss_bytes, found.idle_bytes) == (1500, 1100)
    bounds = {one.category: (one.least_idle_bytes, one.most_idle_bytes) for one in found.entries}
    assert bounds == {HEAP_LIVE: (300, 600), HEAP_PINNED: (0, 300), OTHER: (500, 500)}


def test_a_process_that_grows_while_it_is_read_has_no_entry_larger_than_all_of_it_without_a_word() -> None:
    grown = ledger(Share(0x1000, 0x9000, "[heap]", 3 << 20, {(HEAP_LIVE, ""): 3 << 20}))
    shown = {}
    for rss in (2 << 20, 3 << 20):
        stream = io.StringIO()
        print_idle(
            idle_memory(grown, [Accessed(0x1000, 0x9000, rss, 0)], 60.0),
            "process 1",
            make_console(stream),
            {},
        )
        shown[rss] = " ".join(stream.getvalue().split())
    assert "2.0 MiB of 2.0 MiB resident in process 1 were not touched" in shown[2 << 20]
    assert "were read later, when 3.0 MiB were resident" in shown[2 << 20]
    assert "were read later" not in shown[3 << 20]


def test_blocks_that_share_a_mapping_with_used_ones_have_bounds_and_those_that_fill_one_alone_are_known() -> (
    None
):
    task, other = (CLASS, "4Task"), (UNKNOWN, "")
    groups = [
        BlockGroup(0x1000, 1000, {task: BlockSum(7, 700), other: BlockSum(1, 200)}, {100: BlockSum(7, 700)}),
        BlockGroup(0x10000, 500, {task: BlockSum(1, 480)}, {480: BlockSum(1, 480)}),
    ]
    accessed = [Accessed(0x1000, 0x9000, 1000, 400), Accessed(0x10000, 0x20000, 500, 0)]
    found = {(one.kind, one.name): one for one in idle_types(groups, accessed)}
    assert (found[task].blocks, found[task].bytes) == (8, 1180)
    assert (found[task].least_idle_bytes, found[task].most_idle_bytes) == (300 + 480, 600 + 480)
    assert (found[other].least_idle_bytes, found[other].most_idle_bytes) == (0, 200)
    sizes = [
        (one.size_bytes, one.least_idle_bytes, one.most_idle_bytes) for one in idle_sizes(groups, accessed)
    ]
    assert sizes == [(100, 300, 600), (480, 480, 480)]


def test_parts_of_one_mapping_share_its_touched_bytes() -> None:
    # Two regions of malloc's in one mapping: what is touched may all be in either.
    halves = [BlockGroup(0x1000, 1000, {(UNKNOWN, ""): BlockSum(1, 400)}, {}) for _ in range(2)]
    (found,) = idle_types(halves, [Accessed(0x1000, 0x9000, 1000, 300)])
    assert (found.least_idle_bytes, found.most_idle_bytes) == (500, 700)


def test_live_blocks_are_counted_by_their_usable_size() -> None:
    table = ChunkTable(0x1000, 0x1000 + 16 * 20, array("I", [0, 2, 5, 7, 12]), bytearray([1, 0, 1, 1, 1]))
    assert live_sizes(table) == {24: BlockSum(2, 48), 72: BlockSum(1, 72), 120: BlockSum(1, 120)}
