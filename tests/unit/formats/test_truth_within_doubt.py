"""Effects of a threshold: the truth is within ± in every row of valgrind's files of threshold 0, cut again."""

from __future__ import annotations

import pytest

from gdbmem.formats.valgrind.massif import read_massif
from tests.unit.massif_files import capture
from tests.unit.recutting import cut_again, judge


@pytest.mark.slow
@pytest.mark.parametrize("by", ["path", "line", "function"])
@pytest.mark.parametrize("percent", [1.0, 5.0])
@pytest.mark.parametrize("name", ["fine", "shop"])
def test_the_truth_is_within_doubt_in_every_row(name: str, percent: float, by: str) -> None:
    judged = judge(capture(name), percent, by)
    assert judged.rows > 20, "there is something to judge"
    assert judged.outside == []
    assert judged.wrong == [], "nothing appeared or vanished that only slid under the threshold"


def test_a_file_cut_again_holds_what_it_held() -> None:
    whole, cut = capture("shop"), cut_again(capture("shop"), 5.0)
    ours, theirs = read_massif(whole, "whole"), read_massif(cut, "cut")
    assert [t.total_bytes for t in ours.snapshots] == [t.total_bytes for t in theirs.snapshots]
    for totals in theirs.snapshots:
        if totals.has_tree:
            tree = theirs.tree(totals.index)
            assert tree is not None
            tree.check()
