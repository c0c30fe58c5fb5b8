"""Bytes per user's line, read from a snapshot without building its tree."""

from __future__ import annotations

from collections import Counter

import pytest

from gdbmem.errors import InputError
from gdbmem.formats.valgrind.massif import UNKNOWN_SITE, FrameKey, read_massif, read_sites, read_totals
from gdbmem.model.calltree import PRUNED, CallTree, Frame, Snapshot
from gdbmem.profiles.diff import as_growth
from gdbmem.profiles.own_code import OTHER, OWN, is_wrapper_name, own_frame, own_rank
from gdbmem.profiles.paths import Query, find_wrappers
from gdbmem.profiles.ranking import rank
from tests.unit.massif_files import HEADER, NAMES, TREE, capture, snapshot


def one_snapshot(name: str) -> tuple[bytes, CallTree]:
    """Return a file with the largest tree of a capture as its only snapshot, and that tree."""
    data = capture(name)
    profile = read_massif(data, name)
    index = profile.peak_tree_index
    assert index is not None
    tree = profile.tree(index)
    assert tree is not None
    head, *parts = data.split(b"#-----------\nsnapshot=")
    return head + b"#-----------\nsnapshot=" + parts[index], tree


def slow_sites(tree: CallTree) -> dict[FrameKey, int]:
    """Say the same as read_sites, from the whole tree, by the rule that reports follow."""
    sites: Counter[FrameKey] = Counter()
    for node, own in enumerate(tree.self_bytes()):
        frames = [frame for step in tree.path(node) if (frame := tree.frame_of(step)) is not None]
        site = frames[own_frame(frames)] if frames else None
        if site is not None and tree.frame[node] == PRUNED and own_rank(site) == OTHER:
            site = None
        sites[site.key if site is not None else UNKNOWN_SITE] += own
    return {key: size for key, size in sites.items() if size}


def place(key: FrameKey) -> object:
    """Return the key of the rows of a table by line."""
    function, file, line, object_file = key
    return (file, line) if file is not None else (object_file, function)


@pytest.mark.parametrize("name", NAMES)
def test_sites_are_what_the_whole_tree_states_and_add_up_to_it(name: str) -> None:
    data, tree = one_snapshot(name)
    sites = read_sites(data, own_rank, own=OWN)
    assert {key: size for key, size in sites.items() if size} == slow_sites(tree)
    assert sum(sites.values()) == tree.bytes[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_line_that_massif_snap_names_is_the_one_that_the_table_names(name: str) -> None:
    data, tree = one_snapshot(name)
    sites: Counter[object] = Counter()
    for key, size in read_sites(data, own_rank, own=OWN).items():
        sites[place(key)] += size
    whole = as_growth(Snapshot(name, name, read_totals(data, name), tree))
    rows = rank(whole, Query(by="line", min_bytes=0)).rows
    if any(not is_wrapper_name(name) for name in find_wrappers(whole)):
        pytest.skip("the table passes over functions that only allocate, whatever they are called")
    listed = {place(row.site.key if row.site else UNKNOWN_SITE): row.amount.after_bytes for row in rows}
    assert listed == {key: size for key, size in sites.items() if size}


def test_a_nameless_frame_of_the_user_yields_to_a_named_one_and_beats_the_libraries() -> None:
    tree = (
        "n2: 100 (heap allocation functions)\n"
        " n2: 90 0x1: ??? (in /lib/libsqlite3.so)\n"
        "  n1: 60 0x2: ??? (in /lib/libsqlite3.so)\n"
        "   n1: 60 0x3: sqlite3Malloc (in /lib/libsqlite3.so)\n"
        "    n0: 60 0x4: (below main) (libc_start_call_main.h:58)\n"
        "  n0: 30 0x4: (below main) (libc_start_call_main.h:58)\n"
        " n1: 10 0x5: ??? (in /lib/libstdc++.so.6)\n"
        "  n0: 10 0x6: call_init (dl-init.c:74)\n"
    )
    assert read_sites((HEADER + snapshot(tree=tree)).encode(), own_rank, own=OWN) == {
        ("sqlite3Malloc", None, None, "/lib/libsqlite3.so"): 60,
        ("0x1", None, None, "/lib/libsqlite3.so"): 30,
        ("0x5", None, None, "/lib/libstdc++.so.6"): 10,
    }


def test_the_user_s_line_is_named_not_the_allocator_s() -> None:
    data = (HEADER + snapshot()).encode()
    sites = read_sites(data, lambda frame: OTHER if frame.file == "new_allocator.h" else OWN, own=OWN)
    assert sites == {("main", "shop.cpp", 36, None): 60, ("fill(int)", "shop.cpp", 7, None): 40}


def test_a_path_of_libraries_only_counts_for_its_first_frame() -> None:
    sites = read_sites((HEADER + snapshot()).encode(), lambda frame: OTHER, own=OWN)
    assert sites == {("allocate", "new_allocator.h", 137, None): 60, ("fill(int)", "shop.cpp", 7, None): 40}


def test_merged_places_and_unlisted_bytes_belong_to_no_line() -> None:
    tree = TREE.replace(
        "n0: 40 0x3: fill(int) (shop.cpp:7)", "n0: 30 in 9 places, all below massif's threshold (50.00%)"
    )
    sites = read_sites((HEADER + snapshot(tree=tree)).encode(), lambda frame: OWN, own=OWN)
    assert sites == {("allocate", "new_allocator.h", 137, None): 60, UNKNOWN_SITE: 40}


def test_what_lies_below_a_user_s_line_is_not_even_looked_at() -> None:
    seen: list[Frame] = []

    def look(frame: Frame) -> int:
        seen.append(frame)
        return OTHER if frame.file == "new_allocator.h" else OWN

    deep = "n1: 100 (heap allocation functions)\n" + "".join(
        f"{' ' * depth}n1: 100 0x{depth}: f{depth} (a.c:{depth})\n" for depth in range(1, 500)
    )
    tree = deep + " " * 500 + "n0: 100 0x500: main (a.c:1)\n"
    assert read_sites((HEADER + snapshot(tree=tree)).encode(), look, own=OWN) == {("f1", "a.c", 1, None): 100}
    assert len(seen) == 1


def test_windows_line_ends_change_nothing() -> None:
    data, _ = one_snapshot("shop")
    assert read_sites(data.replace(b"\n", b"\r\n"), own_rank, own=OWN) == read_sites(data, own_rank, own=OWN)


def test_a_snapshot_that_was_cut_is_an_error_not_a_smaller_number() -> None:
    data = (HEADER + snapshot()).encode()
    for end in range(data.index(b"heap_tree"), len(data)):
        with pytest.raises(InputError) as caught:
            read_sites(data[:end], lambda frame: OTHER, own=OWN)
        assert caught.value.slug == "massif-truncated"


@pytest.mark.parametrize("text", ["main (a.c:3)", "0x1:", "in several places"])
def test_a_node_that_is_none_of_massif_s_is_an_error(text: str) -> None:
    data = (HEADER + snapshot()).replace("0x3: fill(int) (shop.cpp:7)", text).encode()
    with pytest.raises(InputError) as caught:
        read_sites(data, lambda frame: OWN, own=OWN)
    assert caught.value.slug in ("massif-unknown-line", "massif-truncated")


def test_numbers_of_the_tree_that_do_not_add_up_are_an_error() -> None:
    data = (HEADER + snapshot()).replace("n0: 40", "n0: 41").encode()
    with pytest.raises(InputError):
        read_sites(data, lambda frame: OWN, own=OWN)


def test_a_snapshot_without_a_tree_has_no_sites() -> None:
    with pytest.raises(InputError, match="holds no tree"):
        read_sites((HEADER + snapshot(tree="")).encode(), lambda frame: OWN, own=OWN)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_totals_are_read_without_the_rest(name: str) -> None:
    data = capture(name)
    totals = read_totals(data, name)
    assert totals == read_massif(data, name).snapshots[0]


def test_a_file_without_a_whole_snapshot_has_no_totals() -> None:
    data = (HEADER + snapshot()).encode()
    for end in range(data.index(b"heap_tree=") + len("heap_tree=detaile")):
        with pytest.raises(InputError, match="has no complete snapshot"):
            read_totals(data[:end])
