from __future__ import annotations

import re
from typing import Any

import pytest

from gdbmem.errors import InputError
from gdbmem.model.calltree import PAGE_BYTES, CallTree, Frame
from gdbmem.profiles.diff import as_growth, diff_snapshots
from gdbmem.profiles.own_code import describe_site
from gdbmem.profiles.paths import Query
from gdbmem.profiles.text import answer_diff, answer_snapshot
from tests.unit.trees import PRUNED_NODE, at, snapshot, tree

LEAK = at("Decoder::remember(long)", "/src/decoder.cpp:120")
LOAD = at("load", "/src/load.cpp:7")
KIB = 1024


def answer(before: CallTree, after: CallTree, **query: Any) -> str:
    return answer_diff(diff_snapshots(snapshot(before, "loaded"), snapshot(after, "reset")), Query(**query))


def test_growth_names_the_line_and_its_share() -> None:
    before, after = tree(KIB, (LOAD, KIB)), tree(101 * KIB, (LOAD, 3 * KIB), (LEAK, 98 * KIB))
    assert answer(before, after) == (
        "heap grew by 100.0 KiB from loaded to reset; 98 % of it from decoder.cpp:120 (Decoder::remember)"
    )


def test_a_single_culprit_is_all_of_it_and_nothing_less() -> None:
    assert answer(tree(0), tree(9, (LEAK, 9))).endswith(
        "; all of it from decoder.cpp:120 (Decoder::remember)"
    )
    almost = answer(tree(0), tree(1000, (LEAK, 999), (LOAD, 1)))
    assert "over 99 % of it" in almost


def test_shrinking_is_not_called_growth() -> None:
    text = answer(tree(100, (LOAD, 80), (LEAK, 20)), tree(30, (LOAD, 10), (LEAK, 20)))
    assert text == "heap shrank by 70 B from loaded to reset; all of it from load.cpp:7 (load)"


def test_a_leak_beside_a_larger_release_is_not_passed_over() -> None:
    text = answer(tree(100, (LOAD, 100)), tree(130, (LEAK, 130)))
    assert text == (
        "heap grew by 30 B from loaded to reset; decoder.cpp:120 (Decoder::remember) grew by 130 B,"
        " the rest shrank by 100 B"
    )


def test_nothing_changed_is_reported_with_the_size() -> None:
    same = tree(100, (LOAD, 100))
    assert answer(same, same) == "heap did not change from loaded to reset (100 B at both)"


def test_an_equal_total_with_other_contents_is_not_nothing() -> None:
    text = answer(tree(100, (LOAD, 100)), tree(100, (LEAK, 100)))
    assert text.startswith("heap is as large at reset as at loaded (100 B), but not in the same places; ")
    assert "100 B" in text


def test_no_line_is_accused_when_the_doubt_is_larger_than_its_change() -> None:
    before = tree(60, (LOAD, 30), (PRUNED_NODE, 30), threshold_bytes=30)
    after = tree(85, (LOAD, 30), (LEAK, 30), (PRUNED_NODE, 25), threshold_bytes=30)
    text = answer(before, after)
    assert "no line can be named" in text
    assert "of it from" not in text


def test_a_line_that_is_sure_goes_before_one_that_is_not() -> None:
    before = tree(90, (LOAD, 30), (PRUNED_NODE, 60), threshold_bytes=61)
    after = tree(140, (LOAD, 80), (LEAK, 60))
    assert "; all of it from load.cpp:7 (load)" in answer(before, after)


def test_a_doubtful_share_states_how_doubtful() -> None:
    before = tree(40, (LOAD, 30), (PRUNED_NODE, 10), threshold_bytes=11)
    after = tree(130, (LOAD, 30), (LEAK, 100))
    assert answer(before, after).endswith("grew by 100 B, give or take 10 B, the rest shrank by 10 B")


def test_growth_spread_thin_names_no_scapegoat() -> None:
    frames = [at(f"f{n}", f"/src/a.cpp:{n}") for n in range(1, 41)]
    text = answer(tree(0), tree(400, *((frame, 10) for frame in frames)))
    assert "; spread over 40 lines, most at a.cpp:1 (f1): 2 %" in text


def test_growth_under_the_threshold_is_not_pinned_on_a_line() -> None:
    text = answer(tree(10, (LOAD, 10)), tree(50, (LOAD, 10), (PRUNED_NODE, 40)))
    assert text.endswith("; all of it from call sites that are under the threshold")


def test_known_growth_is_subtracted_and_reported() -> None:
    text = answer(tree(0), tree(100, (LEAK, 60), (LOAD, 40)), known=[re.compile("remember")])
    assert (
        text
        == "heap grew by 100 B from loaded to reset, +60 B of it known; all of the rest from load.cpp:7 (load)"
    )


def test_focus_speaks_of_what_was_asked_for() -> None:
    text = answer(tree(0), tree(100, (LEAK, 60), (LOAD, 40)), focus=re.compile("load"))
    assert "+40 B of it in the selected paths; all of that from load.cpp:7" in text


def test_the_options_of_the_table_leave_the_answer_alone() -> None:
    sides = tree(0), tree(100, (LEAK, 60), (LOAD, 40))
    assert answer(*sides) == answer(*sides, top=1, min_bytes=70, by="path", all_frames=True, inverted=True)


def test_pages_are_not_called_heap() -> None:
    sides = [snapshot(side, "x")._replace(unit=PAGE_BYTES) for side in (tree(0), tree(9, (LEAK, 9)))]
    assert answer_diff(diff_snapshots(*sides), Query()).startswith("mapped memory grew by 9 B")


def test_pages_and_heap_are_not_compared() -> None:
    pages = snapshot(tree(0), "pages")._replace(unit=PAGE_BYTES)
    with pytest.raises(InputError, match="counts bytes of pages"):
        diff_snapshots(pages, snapshot(tree(0), "heap"))


def test_a_name_full_of_escapes_can_not_drive_the_terminal() -> None:
    evil = at("\x1b]0;gone\x07f", "/src/\x1b[2Jx.cpp:1")
    text = answer(tree(0), tree(9, (evil, 9)))
    assert "\x1b" not in text and "\\x1b" in text


def test_a_snapshot_alone_states_where_its_memory_is() -> None:
    growth = as_growth(snapshot(tree(100, (LEAK, 75), (LOAD, 25))))
    assert answer_snapshot(growth, Query(), moment="snapshot 4") == (
        "heap holds 100 B at snapshot 4; 75 % of it from decoder.cpp:120 (Decoder::remember)"
    )


@pytest.mark.parametrize(
    ("site", "name"),
    [
        (LEAK, "decoder.cpp:120 (Decoder::remember)"),
        (LEAK.key, "decoder.cpp:120 (Decoder::remember)"),
        (at("sqlite3Malloc", "/usr/lib/libsqlite3.so.0"), "sqlite3Malloc (in libsqlite3.so.0)"),
        (at(None, "/usr/bin/python3"), "??? (in python3)"),
        (Frame(), "call sites that are not listed"),
        (at("f", "a.cpp:1")._replace(line=None), "a.cpp (f)"),
        (
            at(
                "std::map<long, std::vector<State>, std::less<long>, std::allocator<int> >::operator[](long)",
                "m.h:1",
            ),
            "m.h:1 (std::map<…>::operator[])",
        ),
        (
            at(
                "f(std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >)::g<int>()",
                "f.h:1",
            ),
            "f.h:1 (f(std::string)::g<int>)",
        ),
        (at("(below main)", "libc_start_call_main.h:58"), "libc_start_call_main.h:58 (below main)"),
        (at("(anonymous namespace)::f(int)", "f.h:1"), "f.h:1 ((anonymous namespace)::f)"),
        (at(None, "/usr/bin/git"), "??? (in git)"),
        (
            at("_Z7leak_itI3BigIJ7WrapperILi0EES1_ILi1EEEEEvi" + "ILi9EE" * 900, "f.h:1"),
            "f.h:1 (_Z7leak_itI3BigIJ7WrapperILi0EES1_ILi1EEEEEviILi9EEILi9EEIL…)",
        ),
    ],
)
def test_a_site_is_named_in_few_words(site: Any, name: str) -> None:
    assert describe_site(site) == name
