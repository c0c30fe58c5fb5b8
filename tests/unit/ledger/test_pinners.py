"""Call paths of pinning blocks: joined by size, and claiming no more than the sizes prove."""

from __future__ import annotations

import io

import pytest

from gdbmem.errors import InputError
from gdbmem.ledger.pinners import PinnerPaths, join_paths
from gdbmem.model.calltree import CallTree, Frame, Snapshot, Totals
from gdbmem.model.ledger import BlockSize, Heap, Ledger, OtherMalloc, SizeClass
from gdbmem.profiles.sized_paths import chunk_bytes
from gdbmem.terminal.console import make_console


def ledger(*sizes: SizeClass) -> Ledger:
    heap = Heap((), sizes, 0, 0, 0, 0, 0, 0, True, "layouts")
    return Ledger("prog", 1, 0, (), (), 0, heap=heap)


def snapshot(*paths: tuple[str, int, int]) -> Snapshot:
    """Return a snapshot with a call path for each (function, bytes, blocks)."""
    total = sum(size for _, size, _ in paths)
    tree = CallTree(
        frames=[Frame(name, "a.c", 1) for name, _, _ in paths],
        parent=[-1, *(0 for _ in paths)],
        frame=[-1, *range(len(paths))],
        bytes=[total, *(size for _, size, _ in paths)],
        blocks=[sum(n for _, _, n in paths), *(n for _, _, n in paths)],
    )
    return Snapshot("run:a", "a", Totals(0, 0.0, total, 0, 0, has_tree=True), tree)


@pytest.mark.parametrize(("request_bytes", "chunk"), [(0, 32), (24, 32), (25, 48), (248, 256), (249, 272)])
def test_a_request_is_a_chunk_as_glibc_makes_it(request_bytes: int, chunk: int) -> None:
    assert chunk_bytes(request_bytes) == chunk


def test_only_paths_whose_blocks_are_of_the_pinning_size_are_named_most_blocks_first() -> None:
    sizes = (
        SizeClass(256, 10, 0, 0, 0, 5000.0),
        SizeClass(64, 9, 0, 0, 0, 9000.0),
        SizeClass(32, 5, 0, 0, 0),
    )
    taken = snapshot(("small", 56 * 3, 3), ("few", 240 * 2, 2), ("many", 248 * 7, 7), ("mixed", 1001, 4))
    joined = join_paths(ledger(*sizes), taken, source_format="gperftools")
    assert [one.size.size_bytes for one in joined.sizes] == [64, 256]
    names = [[path.row.frames[0].function for path in one.paths] for one in joined.sizes]
    assert names == [["small"], ["many", "few"]]
    assert [path.blocks for path in joined.mixed] == [4]


def test_a_block_with_a_remainder_that_is_too_small_is_still_of_its_path() -> None:
    joined = join_paths(
        ledger(SizeClass(272, 6, 0, 0, 0, 100.0)), snapshot(("main", 248 * 7, 7)), source_format="gperftools"
    )
    assert [path.block_bytes for path in joined.sizes[0].paths] == [248]


def test_snapshots_that_cannot_tell_sizes_are_refused() -> None:
    taken = snapshot(("main", 248, 1))
    without = taken._replace(tree=taken.tree.with_columns(blocks=None))
    with pytest.raises(InputError, match="massif counts bytes only"):
        join_paths(ledger(), without, source_format="massif")
    with pytest.raises(InputError, match="jemalloc rounds them up to its own"):
        join_paths(ledger(), taken, source_format="jemalloc")


def of_jemalloc(*sizes: BlockSize) -> Ledger:
    malloc = OtherMalloc("allocator.jemalloc", "", "5.3", "prog", 0, 0, 0, 1, 0, 0, 0, 0, 0, sizes)
    return Ledger("prog", 1, 0, (), (), 0, mallocs=(malloc,))


def test_blocks_in_slabs_are_of_the_paths_whose_requests_have_a_block_of_that_size() -> None:
    sizes = (
        BlockSize(64, 5, 0, 3, 1, 192),
        BlockSize(224, 9, 1, 30, 4, 6720),
        BlockSize(256, 9, 0, 0, 1, 0),
    )
    paths = (("small", 50 * 3, 3), ("few", 224 * 2, 2), ("many", 200 * 7, 7), ("other", 230 * 9, 9))
    joined = join_paths(of_jemalloc(*sizes), snapshot(*paths), source_format="gperftools")
    assert [(one.size.size_bytes, one.size.live, one.size.pinned_bytes) for one in joined.sizes] == [
        (224, 9, 6720),
        (64, 5, 192),
    ]
    names = [[path.row.frames[0].function for path in one.paths] for one in joined.sizes]
    assert names == [["many", "few"], ["small"]]


def test_sizes_that_jemalloc_rounds_up_are_those_of_its_own_blocks() -> None:
    ledger = of_jemalloc(BlockSize(224, 9, 1, 30, 4, 6720))
    joined = join_paths(ledger, snapshot(("main", 224 * 7, 7)), source_format="jemalloc")
    assert [path.blocks for path in joined.sizes[0].paths] == [7]


def test_paths_of_samples_have_one_size_though_what_they_stand_for_is_rounded() -> None:
    ledger = of_jemalloc(BlockSize(64, 7000, 0, 30, 4, 6720))
    taken = snapshot(("one", 458_928, 7171), ("several", 459_400, 7171))
    sampled = taken._replace(tree=taken.tree.with_columns(variance=[0.0, 1.0, 1.0]))
    joined = join_paths(ledger, sampled, source_format="jemalloc")
    assert [(path.block_bytes, path.row.frames[0].function) for path in joined.sizes[0].paths] == [
        (64, "one")
    ]
    assert [path.row.frames[0].function for path in joined.mixed] == ["several"]
    assert "estimates" in _printed(joined) and "64  a.c:1 (several)" in _printed(joined)
    assert joined.likely_site(64) == "a.c:1 (one)"
    one_sample = taken._replace(tree=taken.tree.with_columns(variance=[0.0, 458_928.0**2, 1.0]))
    unsure = join_paths(ledger, one_sample, source_format="jemalloc")
    assert unsure.likely_site(64) == "" and "too few samples" in unsure.why_unknown()
    counted = join_paths(ledger, taken, source_format="jemalloc")
    assert len(counted.mixed) == 2 and "estimates" not in _printed(counted)


def _printed(paths: PinnerPaths) -> str:
    stream = io.StringIO()
    paths.print(make_console(stream))
    return stream.getvalue()
