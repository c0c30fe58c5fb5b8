"""massif files that end early: their content is read, nothing is made up."""

from __future__ import annotations

import random

import pytest

from gdbmem.errors import InputError
from gdbmem.formats.valgrind.massif import MassifProfile, read_massif
from gdbmem.model.calltree import CallTree, Totals
from tests.unit.massif_files import HEADER, NAMES, capture, line_starts, read, snapshot


class Whole:
    """A whole file, to compare what is left of it with."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        profile = read_massif(data, "whole")
        self.totals = [self._bare(totals) for totals in profile.snapshots]
        self.trees = [profile.tree(index) for index in range(len(self.totals))]
        self.command = profile.command

    @staticmethod
    def _bare(totals: Totals) -> tuple[float, int, int, int]:
        return totals.time, totals.heap_bytes, totals.extra_bytes, totals.stacks_bytes

    def check(self, end: int) -> None:
        """Compare the reading of the first *end* bytes with that of the whole file."""
        try:
            profile = read_massif(self.data[:end], "cut")
        except InputError as error:
            assert error.slug == "massif-truncated", str(error)
            assert f"line {self.data[: max(end, 1) - 1].count(10) + 1}" in str(error)
            return
        known = len(profile.snapshots)
        assert [self._bare(totals) for totals in profile.snapshots] == self.totals[:known]
        assert profile.command in (self.command, "")
        self._check_trees(profile, end)

    def _check_trees(self, profile: MassifProfile, end: int) -> None:
        lost = 0
        # Those before were compared when the file was cut there.
        for index in range(max(0, len(profile.snapshots) - 2), len(profile.snapshots)):
            tree: CallTree | None = profile.tree(index)
            assert tree is None or tree == self.trees[index]
            lost += tree is None and self.trees[index] is not None
        is_whole = self.data[:end].endswith(b"\n") and self.data[end : end + 1] in (b"#", b"")
        if lost or not (is_whole or self.data[:end].endswith(b"heap_tree=empty")):
            assert [notice.slug for notice in profile.notices] == ["massif-truncated"]
            assert "line " in profile.notices[0].message


@pytest.mark.slow
@pytest.mark.parametrize("name", ["threshold", "newline", "huge", "odd"])
def test_a_file_cut_after_any_line_gives_what_is_whole_and_reports_it(name: str) -> None:
    whole = Whole(capture(name))
    for end in line_starts(whole.data):
        whole.check(end)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("python", "sqlite", "heaptrack")])
def test_a_file_cut_at_any_byte_gives_no_wrong_number(name: str) -> None:
    whole = Whole(capture(name))
    random_ends = random.Random(name)
    for _ in range(150):
        whole.check(random_ends.randrange(1, len(whole.data)))


@pytest.mark.slow
def test_a_heaptrack_file_cut_anywhere_gives_what_is_whole_and_states_what_it_lost() -> None:
    data = capture("heaptrack")
    whole = read_massif(data, "whole")
    for end in line_starts(data[:-1]):
        try:
            profile = read_massif(data[:end], "cut")
        except InputError as error:
            assert error.slug == "massif-truncated"
            continue
        assert profile.notices and {notice.slug for notice in profile.notices} == {"massif-truncated"}
        for totals in profile.snapshots:
            assert totals.heap_bytes == whole.snapshots[totals.index].heap_bytes
            tree = profile.tree(totals.index)
            assert tree is None or tree == whole.tree(totals.index)


def test_the_notice_names_the_line_and_what_is_missing() -> None:
    text = HEADER + snapshot(0) + snapshot(1)
    profile = read(text[: text.rindex(" n0: 40")])
    assert [totals.total_bytes for totals in profile.snapshots] == [100, 100]
    assert profile.tree(0) is not None
    assert profile.tree(1) is None
    assert [notice.message for notice in profile.notices] == [
        "a.massif was truncated at line 26, in the tree of snapshot 1: its totals are complete, its tree is left out"
    ]


def test_a_last_line_without_its_end_is_not_trusted() -> None:
    text = HEADER + snapshot(0) + snapshot(1)
    profile = read(text[:-3])  # "… (shop.cpp:" and a digit that may not be all of it
    assert profile.tree(1) is None and profile.notices
    profile = read(HEADER + snapshot(0) + "#-----------\nsnapshot=1\n#-----------\ntime=1\nmem_heap_B=12")
    assert len(profile.snapshots) == 1
    assert "in the totals of snapshot 1, which is left out" in profile.notices[0].message


@pytest.mark.slow
def test_random_damage_ends_in_an_error_or_in_a_tree_that_adds_up() -> None:
    data = capture("threshold")
    dice = random.Random(7)
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(len(damaged))
            damaged[at : at + dice.randrange(3)] = dice.choice([b"", b"\n", b" ", b"0", b"n", b"#", b"\xff"])
        try:
            profile = read_massif(bytes(damaged), "damaged")
        except InputError:
            continue
        for totals in profile.snapshots:
            try:
                tree = profile.tree(totals.index)
            except InputError:
                continue
            if tree is not None:
                tree.check()
                assert tree.bytes[0] == totals.heap_bytes
