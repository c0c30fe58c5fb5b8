"""An expectation is met only if the data prove it; the sentence states by how much it failed."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any, Optional

import pytest

from gdbmem.model.calltree import PAGE_BYTES
from gdbmem.model.diff import Diff, Expectation, ExpectationVerdict, Position
from gdbmem.model.judgement import Unseen
from gdbmem.profiles.diff import diff_snapshots
from gdbmem.profiles.paths import Query, parse_known
from gdbmem.profiles.ranking import rank
from gdbmem.recipes.verdicts import judge, unjudged
from tests.unit.trees import PRUNED_NODE, at, snapshot, tree

KIB = 1024


def expect(
    *,
    at_most: Optional[int] = None,
    at_least: Optional[int] = None,
    path: str = "",
    before: str = "a",
    metric: str = "heap",
) -> Expectation:
    return Expectation(before, "b", Position(9, 5), metric, at_most, at_least, path)


def diff_of(before: Any, after: Any) -> Diff:
    diff = diff_snapshots(snapshot(before), snapshot(after))
    diff.check()
    return diff


def growing() -> Diff:
    main = at("main", "main.cpp:9")
    insert = at("Tasks::insert", "tasks.cpp:40")
    load = at("load", "graph.cpp:7")
    return diff_of(
        tree(10 * KIB, (insert, 1 * KIB, (main, 1 * KIB)), (load, 9 * KIB, (main, 9 * KIB))),
        tree(20 * KIB, (insert, 15 * KIB, (main, 15 * KIB)), (load, 5 * KIB, (main, 5 * KIB))),
    )


@pytest.mark.parametrize(
    ("expectation", "met"),
    [
        (expect(at_most=10 * KIB), True),
        (expect(at_most=10 * KIB - 1), False),
        (expect(at_least=10 * KIB), True),
        (expect(at_least=10 * KIB + 1), False),
        (expect(at_most=14 * KIB, path="insert"), True),
        (expect(at_most=14 * KIB - 1, path="insert"), False),
        (expect(at_most=-4 * KIB, path="^load$"), True),
        (expect(at_most=-4 * KIB - 1, path="^load$"), False),
        (expect(at_least=-4 * KIB, path="graph[.]cpp"), True),
        (expect(at_most=10 * KIB - 1, path="main"), False),
    ],
)
def test_the_limit_itself_is_met_and_a_byte_beyond_is_not(expectation: Expectation, met: bool) -> None:
    assert judge(expectation, growing()).met is met


def test_the_sentence_states_which_expectation_failed_and_by_how_much() -> None:
    verdict = judge(expect(at_most=4 * KIB, path="insert"), growing())
    assert (verdict.measured, verdict.limit) == (14 * KIB, 4 * KIB)
    assert (
        verdict.text
        == "paths through 'insert' from a to b: +14.0 KiB, 10.0 KiB more than expected (at most +4.0 KiB)"
    )
    verdict = judge(expect(at_least=1024 * KIB), growing())
    assert verdict.text == "heap from a to b: +10.0 KiB, 1,014.0 KiB less than expected (at least +1.0 MiB)"


@pytest.mark.parametrize(("at_most", "at_least"), [(0, None), (-1, None), (None, 0), (None, 1)])
def test_a_misspelt_path_never_passes_nor_fails_but_states_that_nothing_matches(
    at_most: Optional[int], at_least: Optional[int]
) -> None:
    verdict = judge(expect(at_most=at_most, at_least=at_least, path="Pol"), growing())
    assert (verdict.met, verdict.measured) == (None, None)
    assert verdict.text == (
        "paths through 'Pol' from a to b: could not be judged, no path in either snapshot matches 'Pol';"
        " see the names with  gdbmem show RUN --by path"
    )


def test_a_path_that_may_be_under_the_threshold_is_not_called_misspelt() -> None:
    diff = diff_of(tree(0), tree(70, (PRUNED_NODE, 70), threshold_bytes=60))
    verdict = judge(expect(at_most=100, path="insert"), diff)
    assert verdict.met is None
    assert verdict.text.endswith(
        "no path in either snapshot matches 'insert', but up to 70 B may hide under the threshold of the"
        " snapshots; take them with threshold: 0"
    )


def test_pages_are_not_called_heap_beside_a_diff_that_calls_them_mapped_memory() -> None:
    pages = [snapshot(tree(size))._replace(unit=PAGE_BYTES) for size in (0, 100)]
    assert judge(expect(at_most=0), diff_snapshots(*pages)).text.startswith(
        "mapped memory from a to b: +100 B"
    )


def test_a_recursive_function_is_counted_once() -> None:
    walk = at("walk", "w.cpp:1")
    diff = diff_of(tree(0), tree(100, (walk, 100, (walk, 60, (walk, 60)))))
    assert judge(expect(at_most=100, path="walk"), diff).measured == 100


def test_what_hides_under_the_threshold_counts_against_the_expectation() -> None:
    insert = at("insert", "t.cpp:1")
    other = at("load", "g.cpp:1")
    diff = diff_of(
        tree(1000, (other, 950), (PRUNED_NODE, 50), threshold_bytes=60),
        tree(1100, (other, 950), (insert, 80), (PRUNED_NODE, 70), threshold_bytes=60),
    )
    below = judge(expect(at_most=100, path="insert"), diff)
    assert (below.met, below.measured, below.judgement.high) == (None, 80, 150)
    assert "+80 B (at most +100 B), but up to 70 B may hide under the threshold" in below.text
    assert judge(expect(at_most=150, path="insert"), diff).met is True
    # In the other direction: all 50 bytes of the first side may have been insert's.
    assert judge(expect(at_least=31, path="insert"), diff).met is None
    assert judge(expect(at_least=30, path="insert"), diff).met is True
    # The total is exact even if paths are hidden in it.
    assert judge(expect(at_most=100), diff).met is True


@pytest.mark.slow
def test_no_way_to_fill_in_the_hidden_bytes_contradicts_a_verdict_of_met() -> None:
    chance = random.Random(5)
    for _ in range(300):
        # The truth: bytes per call site on both sides; massif shows those from the threshold up.
        truths = [{name: chance.choice((0, 3, 8, 20)) for name in "pqrs"} for _ in range(2)]
        trees = [_as_massif_would(truth, threshold_bytes=9) for truth in truths]
        diff = diff_of(*trees)
        for names in itertools.combinations("pqrs", 2):
            true_delta = sum(truths[1][name] - truths[0][name] for name in names)
            for limit in (-20, -4, 0, 4, 20):
                pattern = f"^[{''.join(names)}]$"
                if judge(expect(at_most=limit, path=pattern), diff).met:
                    assert true_delta <= limit
                if judge(expect(at_least=limit, path=pattern), diff).met:
                    assert true_delta >= limit


def _as_massif_would(truth: dict[str, int], *, threshold_bytes: int) -> Any:
    shown = [(at(name, f"{name}.c:1"), size) for name, size in truth.items() if size >= threshold_bytes]
    hidden = sum(size for size in truth.values() if 0 < size < threshold_bytes)
    pruned = [(PRUNED_NODE, hidden)] if hidden else []
    return tree(sum(truth.values()), *shown, *pruned, threshold_bytes=threshold_bytes)


def test_what_cannot_be_judged_states_why_and_is_neither_met_nor_failed() -> None:
    verdict = unjudged(expect(at_most=5), Unseen("expectation-unjudged", "point 'b' was never hit"))
    assert (verdict.met, verdict.measured, verdict.limit) == (None, None, 5)
    assert verdict.text == "heap from a to b: could not be judged, point 'b' was never hit"


def test_strangers_names_in_a_verdict_cannot_drive_the_terminal() -> None:
    verdict: ExpectationVerdict = judge(expect(at_most=0, path="\x1b", before="\x1b[2J"), growing())
    assert "\x1b" not in verdict.text
    assert r"from \x1b[2J to b" in verdict.text


def test_growth_in_known_paths_does_not_fail_a_leak_test_and_other_growth_still_does() -> None:
    known = parse_known("Tasks::insert [(]tasks\\.cpp\n", "known.txt")
    verdict = judge(expect(at_most=0), growing(), known)
    assert (verdict.met, verdict.measured) == (True, -4 * KIB)
    assert "-4.0 KiB beside +14.0 KiB in known paths" in verdict.text
    assert judge(expect(at_most=0, path="main"), growing(), known).measured == -4 * KIB
    assert judge(expect(at_most=0, path="insert"), growing(), known).measured == 0
    other = parse_known("^load ", "known.txt")
    assert judge(expect(at_most=0), growing(), other).met is False


def blocks_of(before: list[int], after: list[int]) -> Diff:
    """Return a diff of two trees with two paths, whose root and nodes hold so many blocks."""
    insert, load = at("insert", "t.cpp:1"), at("load", "g.cpp:1")
    sides = [tree(100, (insert, 60), (load, 40), blocks=blocks) for blocks in (before, after)]
    return diff_of(*sides)


@pytest.mark.parametrize(
    ("expectation", "met", "text"),
    [
        (expect(at_most=5, metric="blocks"), True, "blocks from a to b: +5 blocks, as expected (at most +5 blocks)"),
        (expect(at_most=4, metric="blocks"), False, "+5 blocks, 1 block more than expected (at most +4 blocks)"),
        (expect(at_least=7, path="insert", metric="blocks"), True,
         "blocks of paths through 'insert' from a to b: +7 blocks, as expected (at least +7 blocks)"),
        (expect(at_most=-3, path="load", metric="blocks"), False,
         "-2 blocks, 1 block more than expected (at most -3 blocks)"),
    ],
)  # fmt: skip
def test_blocks_are_counted_where_bytes_stay_the_same(expectation: Expectation, met: bool, text: str) -> None:
    verdict = judge(expectation, blocks_of([10, 6, 4], [15, 13, 2]))
    assert verdict.met is met
    assert text in verdict.text


def test_blocks_that_nobody_counted_are_not_judged() -> None:
    verdict = judge(expect(at_most=5, metric="blocks"), growing())
    assert verdict.met is None and "don't count blocks" in verdict.text
    sampled = blocks_of([10, 6, 4], [15, 13, 2]).with_columns(variance=[0.0, 4.0, 0.0])
    assert "are sampled" in judge(expect(at_most=5, metric="blocks"), sampled).text


def test_of_one_program_a_path_whose_samples_stay_the_same_adds_no_doubt() -> None:
    steady = growing().with_columns(before=[11 * KIB, 9 * KIB, 9 * KIB, 2 * KIB, 2 * KIB],
                     after=[11 * KIB, 9 * KIB, 9 * KIB, 2 * KIB, 2 * KIB])  # fmt: skip
    sampled = steady.with_columns(variance=[0.0, 0.0, (90.0 * KIB) ** 2, 0.0, 0.0])
    assert judge(expect(at_most=0), sampled).met is True


def test_what_samples_cannot_tell_is_neither_met_nor_broken() -> None:
    # Standard errors of 3 and 4 KiB, of the two paths: of 5 KiB together. It grew by 10 KiB.
    diff = growing().with_columns(variance=[0.0, 0.0, (3.0 * KIB) ** 2, 0.0, (4.0 * KIB) ** 2])
    assert judge(expect(at_most=25 * KIB), diff).met is True
    verdict = judge(expect(at_most=25 * KIB - 1), diff)
    assert (verdict.met, verdict.judgement.high) == (None, 25 * KIB)
    assert "samples may be 15.0 KiB off (3 standard errors), too much to decide" in verdict.text
    assert judge(expect(at_most=-5 * KIB), diff).met is None
    broken = judge(expect(at_most=-5 * KIB - 1), diff)
    assert broken.met is False and "more than expected" in broken.text
    assert judge(expect(at_most=23 * KIB, path="insert"), diff).met is True
    assert judge(expect(at_most=23 * KIB - 1, path="insert"), diff).met is None
    assert judge(expect(at_least=4 * KIB, path="load"), diff).met is None


@pytest.mark.parametrize(
    "pattern", ["decode.cc:79", "^Recognizer::Decode", r"decode\.cc$", r"Decode.*decode\.cc:79\)$"]
)
def test_a_path_is_found_by_what_the_table_prints_as_by_focus_and_known(pattern: str) -> None:
    frame = at("Recognizer::Decode(Utterance const&)", "/home/u/decode.cc:79")
    diff = diff_of(tree(100, (frame, 100)), tree(7300, (frame, 7300)))
    assert judge(expect(at_most=1000, path=pattern), diff).measured == 7200
    assert rank(diff, Query(focus=re.compile(pattern))).delta_matched_bytes == 7200
    assert rank(diff, Query(known=[re.compile(pattern)])).known.delta_bytes == 7200


def test_a_path_is_not_judged_by_names_that_nobody_knows() -> None:
    main, nameless = at("main", "main.cpp:9"), at("0x109435")
    insert = at("insert", "t.cpp:1")
    diff = diff_of(
        tree(10 * KIB, (insert, 10 * KIB, (main, 10 * KIB))),
        tree(900 * KIB, (insert, 10 * KIB, (main, 10 * KIB)), (nameless, 890 * KIB, (main, 890 * KIB))),
    )
    verdict = judge(expect(at_most=64 * KIB, path="insert"), diff)
    assert verdict.met is None
    assert verdict.text.endswith(
        "890.0 KiB grew in paths through functions without names; build with -g, not -gsplit-dwarf"
    )
    assert judge(expect(at_most=1024 * KIB, path="insert"), diff).met is True
    assert judge(expect(at_most=64 * KIB, path="main"), diff).met is False
