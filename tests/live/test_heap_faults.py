"""`gdbmem heap` of processes in which something is in the way: integers, filters, swap, namespaces, an interruption."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from gdbmem.api.heaps import heap
from gdbmem.errors import TargetError
from gdbmem.heap import graph as graph_module
from gdbmem.heap import holders
from gdbmem.inspection import heap_graph, live_process, read_process
from gdbmem.linux.holding import copying
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.heap_graph import HeapView
from tests.conftest import Program
from tests.live.explaining import Running, gdbmem, running
from tests.live.test_explain_copy import children
from tests.live.test_explain_pause import BLOCKS, CALLS, assert_unharmed, guarded

pytestmark = pytest.mark.needs("gcc")

_NODE = 208  # what malloc counts for 200 bytes


def held(view: HeapView, name: str) -> int:
    return sum(one.retained_bytes for one in view.holders if one.name == name)


def lost(target: Running) -> tuple[int, ...]:
    return target.figure(r"lost (\d+) (\d+)")


def test_integers_hide_no_lost_block_for_certain_where_the_heap_lies_low(program: Program) -> None:
    for flags in ((), ("-no-pie",)):
        with running([program("heap_integers", *flags), 1000]) as target:
            view = heap(target.pid)
            assert held(view, "kept") > 2000 * 128
            leaks, planted = view.leaks, lost(target)
            assert leaks.most_blocks is not None
            if "low 1\n" in target.output:
                assert leaks.least_bytes <= planted[1]
                # A small number somewhere may be the address of a block by chance: one run of 25.
                assert planted[0] * 0.99 <= leaks.most_blocks <= planted[0] * 1.01
                assert "words that are probably no pointers" in gdbmem("heap", target.pid).stdout
            else:  # numbers of 47 bits, and doubles, are none of its addresses
                assert (leaks.least_blocks, leaks.least_bytes) == planted
                assert (leaks.most_blocks, leaks.most_bytes) == planted


@pytest.mark.parametrize(
    "words",
    [
        ("watched",),
        ("seccomp", "kill", "clone"),
        pytest.param(("seccomp", "trap", "wait4"), marks=pytest.mark.thorough),
        pytest.param(("namespace",), marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root")),
        pytest.param(("children-elsewhere",), marks=pytest.mark.thorough),
    ],
)
def test_a_guarded_process_is_unharmed_and_its_variable_holds_what_it_made(
    program: Program, words: Sequence[str]
) -> None:
    known = [str(CALLS[os.uname().machine].get(word, word)) for word in words]
    with guarded(program, *known) as target:
        view = heap(target.pid)
        assert held(view, "blocks") == BLOCKS * _NODE
        assert view.leaks.least_blocks == 0
        assert_unharmed(target)


def test_blocks_are_not_certainly_lost_while_pages_that_may_lead_to_them_are_swapped_out(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(pid: int, mappings: Sequence[Mapping], *, swapped: bool) -> Ranges:
        """Say that the pages of the program's variables are swapped out."""
        data = [(m.start, m.end) for m in mappings if "guarded" in m.name and m.permissions[1] == "w"]
        after = [(m.start, m.end) for m in mappings if not m.name and m.start in {end for _, end in data}]
        return Ranges([] if swapped else [*data, *after])

    monkeypatch.setattr(live_process, "absent_pages", absent)
    with guarded(program, "seccomp", "kill", CALLS[os.uname().machine]["clone"]) as target:
        view = heap(target.pid, copy=False)
        whole = heap(target.pid, copy=False, swapped=True)
        assert_unharmed(target)
    assert view.leaks.least_blocks == 0
    assert view.leaks.most_blocks is not None
    assert view.leaks.most_blocks >= BLOCKS
    assert "could not be read" in (view.leaks.doubt or "")
    assert held(whole, "blocks") == BLOCKS * _NODE


def swapped_kib(target: Running) -> int:
    return int(re.findall(r"^Swap:\s+(\d+)", Path(f"/proc/{target.pid}/smaps_rollup").read_text(), re.M)[0])


def test_what_only_swapped_pages_lead_to_is_not_lost_and_they_stay_out(program: Program) -> None:
    with guarded(program, "all-swapped") as target:
        before = swapped_kib(target)
        if not before:
            pytest.skip("there is no swap here")
        view = heap(target.pid)
        assert held(view, "blocks") == BLOCKS * _NODE
        assert held(view, "in_page_of_file") == 3008
        assert view.leaks.most_blocks == 0
        with pytest.raises(TargetError, match="swapped out"):
            heap(target.pid, copy=False)
        assert swapped_kib(target) == before
        assert heap(target.pid, copy=False, swapped=True).leaks.most_blocks == 0
        assert swapped_kib(target) < before


PHASES = (
    (copying, "make_copy"),
    (heap_graph, "find_edges"),
    (graph_module, "dominators"),
    (live_process, "read_smaps"),
    (live_process, "find_malloc"),
    (live_process, "fill_reading"),
    (read_process, "look_beside"),
    (heap_graph, "find_places"),
    (holders, "classify"),
    (holders, "search"),
    (graph_module, "retain"),
    (holders.Answers, "given_back"),
)


@pytest.mark.parametrize("fork", [None, False], ids=["copied", "held"])
def test_an_interruption_in_any_phase_leaves_the_process_as_it_was(
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    fork: Optional[bool],
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with guarded(program, "none") as target:
        before = heap(target.pid, copy=fork)
        for where, name in PHASES:
            with monkeypatch.context() as patched:
                patched.setattr(where, name, interrupt)
                if name not in ("make_copy", "look_beside"):  # in another process; not always called
                    with pytest.raises(KeyboardInterrupt):
                        heap(target.pid, copy=fork)
            assert children(target.pid) == "", name
        assert_unharmed(target)
        after = heap(target.pid, copy=fork)
        assert (after.live_bytes, held(after, "blocks")) == (before.live_bytes, held(before, "blocks"))


def test_blocks_that_memory_outside_of_a_copy_holds_are_not_lost(program: Program) -> None:
    count = 2000
    with running([program("heap_left_out"), count]) as target:
        view = heap(target.pid)
        assert view.leaks.most_blocks == 0
        area = [
            one.retained_bytes for one in view.holders if one.name.startswith("memory that is not malloc's")
        ]
        assert sum(area) >= count * _NODE


def test_blocks_that_few_words_in_64_gib_of_untouched_memory_hold_are_found(program: Program) -> None:
    count = 500
    with running([program("heap_left_out"), count, 64]) as target:
        for copy in (None, False):
            view = heap(target.pid, copy=copy)
            assert view.leaks.most_blocks == 0
            held_outside = sum(one.retained_bytes for one in view.holders if one.kind == "memory")
            assert held_outside >= 2 * count * _NODE


@pytest.mark.parametrize(
    "setting",
    ["glibc.malloc.hugetlb=1", pytest.param("glibc.malloc.hugetlb=2", marks=pytest.mark.thorough)],
)
def test_a_heap_of_huge_pages_has_the_same_holders(program: Program, setting: str) -> None:
    with running([program("guarded"), "none"], {"GLIBC_TUNABLES": setting}) as target:
        assert held(heap(target.pid), "blocks") == BLOCKS * _NODE
        assert held(heap(target.pid, copy=False), "blocks") == BLOCKS * _NODE
        assert_unharmed(target)
