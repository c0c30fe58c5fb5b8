"""The meaning of massif's lines, and lines of other formats."""

from __future__ import annotations

import pytest

from gdbmem.errors import InputError
from gdbmem.formats.valgrind.massif_tree import read_node_text, threshold_bytes
from gdbmem.model.calltree import PRUNED, CallTree, Frame
from tests.unit.massif_files import HEADER, TREE, read, read_tree_of, snapshot


def only_tree(*lines: str, heap: int = 100) -> CallTree:
    tree = read_tree_of(*lines, heap=heap).tree(0)
    assert tree is not None
    tree.check()
    return tree


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("main (a.c:3)", Frame("main", "a.c", 3)),
        ("f(int (*)(char)) (a.c:3)", Frame("f(int (*)(char))", "a.c", 3)),
        ("f(int) (/my (old) files/a.c:3)", Frame("f(int)", "/my (old) files/a.c", 3)),
        ("operator() (a.c:3)", Frame("operator()", "a.c", 3)),
        ("f() (/smile :) here/a.c:3)", Frame("f()", "/smile :) here/a.c", 3)),
        ("f(int) (/c:/d #1/a.c:3)", Frame("f(int)", "/c:/d #1/a.c", 3)),
        ("main::{lambda(int)#3}::operator()(int) const (l.cpp:7)",
         Frame("main::{lambda(int)#3}::operator()(int) const", "l.cpp", 7)),
        ("(anonymous namespace)::f() (a.cpp:9)", Frame("(anonymous namespace)::f()", "a.cpp", 9)),
        ("f() [clone .isra.0] (a.cpp:9)", Frame("f() [clone .isra.0]", "a.cpp", 9)),
        ("malloc (in /usr/lib/libc.so.6)", Frame("malloc", object="/usr/lib/libc.so.6")),
        ("f (in /opt/an (old) lib.so)", Frame("f", object="/opt/an (old) lib.so")),
        ("f (in ???)", Frame("f")),
        ("??? (in /usr/lib/libc.so.6)", Frame("0x4C2FB0", object="/usr/lib/libc.so.6")),
        ("??? (in ???)", Frame("0x4C2FB0")),
        ("???", Frame("0x4C2FB0")),
        ("f (a.c:0)", Frame("f", "a.c")),  # code of no line
        ("f (libfoo.so)", Frame("f", object="libfoo.so")),  # heaptrack
        ("f (???)", Frame("f")),  # heaptrack
    ],
)  # fmt: skip
def test_a_frame_s_text_is_split_into_function_file_and_line(text: str, frame: Frame) -> None:
    assert read_node_text(f"0x4C2FB0: {text}".encode()).frame == frame


def test_bytes_that_are_no_utf8_come_through_unchanged() -> None:
    frame = read_node_text(b"0x1: caf\xe9() (/caf\xe9/a.c:3)").frame
    assert frame is not None and frame.file is not None
    assert frame.file.encode("utf-8", "surrogateescape") == b"/caf\xe9/a.c"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("in 1 place, below massif's threshold (1.00%)", 1),
        ("in 12 places, all below massif's threshold (1.00%)", 12),
        ("in 12 places, all below massif's threshold (01.00%)", 12),  # before valgrind 3.13
        ("in 3 places, all below massif's threshold (1)", 3),  # heaptrack
        ("in 3 places, all below massif's threshold (1e-05)", 3),  # heaptrack
    ],
)
def test_merged_places_are_counted_in_all_the_ways_they_are_written(text: str, places: int) -> None:
    tree = only_tree(" n0: 99 0x1: f (a.c:1)", f" n0: 1 {text}", heap=100)
    assert (tree.frame[2], list(tree.places)) == (PRUNED, [places])


@pytest.mark.parametrize(
    ("total", "percent", "bound"),
    [
        (100_000, 1.0, 1_005),  # printed for all from 0.995 to 1.005
        (100_000, 0.0, 5),
        (100_000, 0.12, 125),  # valgrind prints this for 0.125
        (100_000, 1 / 3, 340),  # heaptrack prints more digits
        (10, 1.0, 1),  # even a place of 0 bytes is below something
        (6 << 40, 0.01, (6 << 40) * 15 // 100_000),
    ],
)
def test_a_hidden_path_is_never_reported_to_be_smaller_than_it_may_be(
    total: int, percent: float, bound: int
) -> None:
    assert threshold_bytes(total, percent) == bound


def test_the_threshold_is_a_share_of_heap_extra_and_stacks() -> None:
    tree_text = TREE.replace(
        "n0: 40 0x3: fill(int) (shop.cpp:7)", "n0: 40 in 9 places, all below massif's threshold (50.00%)"
    )
    tree = read(HEADER + snapshot(tree=tree_text, extra=100)).tree(0)
    assert tree is not None
    assert tree.threshold_bytes == 100  # of 200; 50.005 % rounded down


def inlined(tree: CallTree) -> list[str]:
    frames = [tree.frame_of(node) for node in range(1, len(tree))]
    return [frame.function or "" for frame in frames if frame is not None and frame.inlined]


def test_all_but_the_outermost_of_the_lines_at_one_address_are_inlined() -> None:
    tree = only_tree(
        " n1: 100 0xA: innermost (a.c:1)",
        "  n1: 100 0xA: middle (a.c:2)",
        "   n2: 100 0xA: outer (a.c:3)",
        "    n0: 60 0xB: main (a.c:4)",
        "    n0: 40 0xC: main (a.c:5)",
    )  # fmt: skip
    assert inlined(tree) == ["innermost", "middle"]


def test_a_function_that_calls_itself_is_not_inlined_into_itself() -> None:
    lines = [f"{' ' * depth}n1: 100 0xA: again (a.c:1)" for depth in range(1, 5)]
    assert inlined(only_tree(*lines, "     n0: 100 0xB: main (a.c:2)")) == []


def test_a_recursive_function_with_something_inlined_is_distinguished_call_by_call() -> None:
    lines = [
        f"{' ' * depth}n1: 100 0xA: {'small' if depth % 2 else 'again'} (a.c:{depth % 2})"
        for depth in range(1, 7)
    ]
    assert inlined(only_tree(*lines, "       n0: 100 0xB: main (a.c:2)")) == ["small"] * 3


def test_siblings_at_one_address_are_not_inlined() -> None:
    assert inlined(only_tree(" n0: 60 0xA: f (a.c:1)", " n0: 40 0xA: g (a.c:2)")) == []


def test_a_line_is_one_place_whether_it_was_inlined_or_not() -> None:
    tree = only_tree(
        " n1: 60 0xA: small (a.c:1)",
        "  n0: 60 0xA: main (a.c:2)",
        " n1: 40 0xB: small (a.c:1)",
        "  n0: 40 0xC: main (a.c:3)",
    )  # fmt: skip
    first = tree.frame_of(1)
    assert first is not None and first.inlined
    assert tree.frame[1] == tree.frame[3]


def test_different_addresses_of_one_line_share_a_frame() -> None:
    tree = only_tree(" n0: 60 0xA: f (a.c:1)", " n0: 40 0xB: f (a.c:1)")
    assert tree.frame[1] == tree.frame[2]


@pytest.mark.slow
def test_a_path_ten_thousand_calls_deep_is_read_without_recursion() -> None:
    lines = [f"{' ' * depth}n1: 100 0x{depth:X}: f (a.c:1)" for depth in range(1, 10_000)]
    assert len(only_tree(*lines, f"{' ' * 10_000}n0: 100 0xFFFF: main (a.c:2)")) == 10_001


def test_bytes_that_no_child_accounts_for_stay_with_their_node() -> None:
    assert list(only_tree(" n1: 90 0x1: f (a.c:1)", "  n0: 80 0x2: g (a.c:2)").self_bytes()) == [10, 10, 80]


def test_several_description_lines_are_legal() -> None:
    profile = read(
        "desc: --pages-as-heap=yes\ndesc: more\n" + HEADER[HEADER.index("cmd") :] + snapshot(tree="")
    )
    assert (profile.command, profile.unit) == ("./shop", "bytes of pages")


def test_a_file_may_begin_with_its_command() -> None:
    assert read(HEADER[HEADER.index("cmd") :] + snapshot()).command == "./shop"


def test_empty_lines_at_the_end_are_no_damage() -> None:
    profile = read(HEADER + snapshot() + "\n\r\n\n")
    assert not profile.notices and profile.tree(0) is not None


def test_a_peak_is_the_larger_snapshot_even_if_massif_marked_a_smaller_one() -> None:
    profile = read(HEADER + snapshot(0, 100, kind="peak") + snapshot(1, 131, tree="") + snapshot(2, 100))
    assert (profile.peak_index, profile.marked_peak_index, profile.peak_tree_index) == (1, 0, 0)


def test_of_equal_peaks_the_one_that_can_be_looked_into_is_shown() -> None:
    profile = read(HEADER + snapshot(0, 100, tree="") + snapshot(1, 100) + snapshot(2, 100))
    assert profile.peak_index == 1


def test_no_peak_tree_is_claimed_where_there_is_no_tree() -> None:
    assert read(HEADER + snapshot(tree="")).peak_tree_index is None


WHOLE = HEADER + snapshot(0) + snapshot(1, 100, tree="") + snapshot(2)


@pytest.mark.parametrize(
    ("good", "bad", "line", "expected"),
    [
        ("time_unit: B", "time_unit: parsec", 3, "time_unit: i"),
        ("time_unit: B", "time: B", 4, "time_unit"),
        ("mem_heap_extra_B=0", "mem_heap_extra=0", 9, "mem_heap_extra_B=BYTES"),
        ("mem_heap_B=100", "mem_heap_B=-1", 8, "mem_heap_B=BYTES"),
        ("mem_heap_B=100", "mem_heap_B=" + "9" * 30, 8, "mem_heap_B=BYTES"),
        ("time=0", "time=now", 7, "time=NUMBER"),
        ("heap_tree=detailed", "heap_tree=partial", 11, "heap_tree=empty"),
        ("snapshot=0", "snapshot=zero", 5, "snapshot=NUMBER"),
        ("snapshot=1", "snapshut=1", 17, "snapshot=NUMBER"),
        ("heap_tree=empty\n", "heap_tree=empty\nwhat is this\n", 24, "the next snapshot"),
        ("#-----------\nsnapshot=1", "\nsnapshot=1", 16, "#-----------"),
    ],
)
def test_a_line_that_is_not_massif_s_is_named_with_its_number(
    good: str, bad: str, line: int, expected: str
) -> None:
    assert good in WHOLE
    complaint = complaint_about(WHOLE.replace(good, bad, 1))
    assert f"a.massif, line {line}: expected" in complaint
    assert expected in complaint


def complaint_about(text: str) -> str:
    """Return the error of a file that is refused, the notice of one of which the rest is read."""
    try:
        (notice,) = read(text).notices
    except InputError as error:
        return str(error)
    assert notice.slug == "massif-damaged" and "left out" in notice.message
    return notice.message


@pytest.mark.parametrize(
    ("good", "bad", "line", "expected"),
    [
        ("  n0: 60", "  nobody: 60", 14, "a node of the tree"),
        ("  n0: 60 0x2: main (shop.cpp:36)", "", 14, "a node of the tree"),
        ("0x2: main (shop.cpp:36)", "main (shop.cpp:36)", 14, "a frame"),
        ("0x3: fill(int) (shop.cpp:7)", "in some places", 15, "a frame"),
        ("n1: 60", "n2: 60", 13, "a node with 1 children"),
        ("  n0: 60", "   n0: 60", 14, "1 to 2 blanks"),
        ("  n0: 60", "n0: 60", 14, "1 to 2 blanks"),
        ("n2: 100 (", "n2: 101 (", 12, "a tree of 100 bytes"),
        ("n0: 40", "n0: 41", 12, "at least the 101 bytes below"),
        ("n0: 40", "n0: " + "9" * 25, 15, "a number below 2^63"),
        ("n0: 40", "n0: " + "9" * 5000, 15, "a number below 2^63"),
        ("n0: 40", "n" + "9" * 5000 + ": 40", 15, "a number below 2^63"),
    ],
)
def test_a_damaged_tree_is_an_error_and_costs_only_itself(
    good: str, bad: str, line: int, expected: str
) -> None:
    assert good in WHOLE
    profile = read(WHOLE.replace(good, bad, 1))
    with pytest.raises(InputError) as caught:
        profile.tree(0)
    assert f"a.massif, line {line}: expected" in str(caught.value)
    assert expected in str(caught.value)
    assert [totals.total_bytes for totals in profile.snapshots] == [100, 100, 100]
    assert profile.tree(2) is not None


def test_a_line_that_would_command_the_terminal_is_shown_escaped() -> None:
    assert "\\x1b[2Jtime=0" in complaint_about(WHOLE.replace("time=0", "\x1b[2Jtime=0", 1))


def test_calls_without_a_name_are_distinguished_by_where_they_are() -> None:
    tree = only_tree(" n0: 60 0x39161B: ??? (in /usr/bin/git)", " n0: 40 0x391700: ??? (in /usr/bin/git)")
    assert [tree.frame_of(node) for node in (1, 2)] == [
        Frame("0x39161B", object="/usr/bin/git"),
        Frame("0x391700", object="/usr/bin/git"),
    ]
    assert all(frame.is_nameless for frame in tree.frames)
    assert list(tree.address or ()) == [0, 0x39161B, 0x391700]
