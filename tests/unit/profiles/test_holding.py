"""A line's growth is found again in a container only if the bytes and the types prove it."""

from __future__ import annotations

from typing import Any

import pytest

from gdbmem.model.containers import Container, Survey
from gdbmem.model.diff import Diff
from gdbmem.profiles.containers_behind_growth import find_holdings, holding_sentence
from gdbmem.profiles.diff import diff_snapshots
from gdbmem.profiles.own_code import OWN, WRAPPER, own_rank
from gdbmem.profiles.paths import Query
from tests.unit.trees import at, snapshot, tree

MAP = "std::map<int, Hypothesis, std::less<int>, std::allocator<std::pair<int const, Hypothesis> > >"
DECODE = at("Recognizer::Decode(Utterance const&)", "/home/u/decode.cc:79")
NODES = at(f"{MAP}::operator[](int const&)", "/usr/include/c++/12/bits/stl_map.h:511")
COPY = at("Hypothesis::operator=(Hypothesis const&)", "/home/u/decode.cc:18")
STRINGS = at("std::string::_M_assign(std::string const&)", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6")


def grown(nodes: int, strings: int) -> Diff:
    def heap(n: int, s: int) -> Any:
        return tree(n + s, (NODES, n, (DECODE, n)), (STRINGS, s, (COPY, s, (DECODE, s))))

    return diff_snapshots(snapshot(heap(2400, 3098), "a"), snapshot(heap(2400 + nodes, 3098 + strings), "b"))


def survey(elements: int, **others: int) -> Survey:
    rows = [Container("rec.history_", MAP, 1, elements, elements, 80 * elements, 0)]
    rows += [Container(path, "std::string", 1, size, size, size, 0) for path, size in others.items()]
    return Survey(rows)


def test_a_lines_growth_is_reported_as_the_containers_that_hold_it() -> None:
    surveys = [survey(30, words=3098), survey(60, words=5000), survey(120, words=12392)]
    nodes, strings = sorted(find_holdings(grown(7200, 9294), Query(), surveys), key=lambda h: h.delta_bytes)
    assert holding_sentence(nodes) == (
        "decode.cc:79 (Recognizer::Decode) +7.0 KiB = rec.history_ (std::map<int, Hypothesis>),"
        " +90 elements (30 to 120); none of 3 surveys found fewer than the one before"
    )
    assert (strings.container, strings.delta_bytes) == ("words", 9294)


def test_a_container_that_shrank_in_between_is_not_reported_to_only_grow() -> None:
    (found,) = find_holdings(grown(7200, 0), Query(), [survey(30), survey(10), survey(120)])
    assert not found.never_shrank
    assert "surveys" not in holding_sentence(found)


@pytest.mark.parametrize("nodes", [7199, 7280])
def test_a_container_that_grew_by_other_bytes_is_not_named(nodes: int) -> None:
    assert find_holdings(grown(nodes, 0), Query(), [survey(30), survey(120)]) == []


def test_of_two_containers_that_fit_as_well_none_is_named() -> None:
    before, after = survey(30, x=10, y=10), survey(30, x=1010, y=1010)
    assert find_holdings(grown(0, 1000), Query(), [before, after]) == []


def test_a_copy_is_its_callers() -> None:
    assert own_rank(COPY) == WRAPPER
    assert own_rank(at("Table<int>::Table(Table<int> const&)", "t.h:3")) == WRAPPER
    assert own_rank(at("ns::Table::Table(ns::Table&&)", "t.h:3")) == WRAPPER
    assert own_rank(at("Table::Table(int)", "t.h:3")) == OWN
    assert own_rank(at("Table::Table(Other const&)", "t.h:3")) == OWN
    assert own_rank(at("bool operator==(A const&, A const&)", "t.h:3")) == OWN
