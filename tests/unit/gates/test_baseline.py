"""Baselines: more than main by more than noise fails, nothing else; what can't be compared is not judged."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any, Callable

import pytest

from gdbmem.errors import InputError
from gdbmem.gates.baseline import (
    CHANCE,
    Entry,
    Measure,
    RunMeasures,
    baselines_json,
    judge_baseline,
    lowest_rank,
    measures_of,
    read_baselines,
    runs_needed,
    sides_between,
    together,
)
from gdbmem.launch.job import surroundings
from gdbmem.model.judgement import BYTES, MET, NOT_JUDGED, NOT_MET, Unseen
from gdbmem.runs.run import Run

HERE = {
    "libc": "glibc 2.36",
    "page_bytes": "4096",
    "processors": "2",
    "machine": "x86_64",
    "engine": "massif",
}


def entry(*measures: Measure, **changes: str) -> Entry:
    return Entry("abc", "2026-01-01", {**HERE, **changes}, measures)


def heap(*values: float) -> Measure:
    return Measure("heap at reset", BYTES, values)


def outcomes(before: Entry, now: Entry, **more: Any) -> list[str]:
    return [one.judged for one in judge_baseline(before, now, branch="main", **more)]


def test_growth_that_the_engine_does_not_see_fails_although_the_baseline_has_none() -> None:
    outside = Measure("outside, heap from a to b", BYTES, (5 << 20,) * 12)
    steady = heap(*(1000,) * 12)
    assert outcomes(entry(steady), entry(steady, outside)) == [MET, NOT_MET]
    assert outcomes(entry(steady, outside), entry(steady)) == [MET, MET], "what has gone is no failure"
    assert sides_between(entry(steady), entry(steady, outside)).name == outside.name, "for a bisection, too"


@pytest.mark.parametrize(("first", "second"), [(3, 2), (4, 4), (5, 3)])
@pytest.mark.parametrize("chance", [0.002, 0.05, 0.2])
def test_the_rank_is_that_of_all_orders_of_two_groups(first: int, second: int, chance: float) -> None:
    orders = list(itertools.combinations(range(first + second), first))
    counts = [sum(b < a for a in those for b in range(first + second) if b not in those) for those in orders]
    rank = lowest_rank(first, second, chance)
    assert (
        sum(count < rank for count in counts) <= chance * len(orders) < sum(count <= rank for count in counts)
    )


def test_equal_programs_fail_no_more_often_than_designed_whatever_the_noise_is_like() -> None:
    random.seed(1)
    noises: list[Callable[[], float]] = [
        lambda: random.gauss(0, 5),
        lambda: random.choice([0, 0, 0, 0, 0, 0, 0, 4096]),  # an arena more, at times
        lambda: random.expovariate(0.1) ** 2,
        lambda: 0,
    ]
    for noise in noises:
        failed = 0
        for _ in range(500):
            before, after = ([1000 + noise() for _ in range(count)] for count in (12, 5))
            failed += outcomes(entry(heap(*before)), entry(heap(*after))) == [NOT_MET]
        assert failed <= 6, "1 expected of 500; more than 6 in one of 10,000"


def test_two_percent_more_in_half_a_percent_of_noise_fails() -> None:
    random.seed(2)
    failed = 0
    for _ in range(200):
        before, after = (
            [mean * random.gauss(1, 0.005) for _ in range(n)] for mean, n in ((1000, 12), (1020, 5))
        )
        failed += outcomes(entry(heap(*before)), entry(heap(*after))) == [NOT_MET]
    assert failed >= 190


def test_what_is_exact_fails_by_one_byte_more_and_passes_equal_less_or_allowed() -> None:
    before = entry(heap(*[1000.0] * 12))
    assert outcomes(before, entry(heap(*[1001.0] * 5))) == [NOT_MET]
    assert outcomes(before, entry(heap(*[1000.0] * 5))) == [MET]
    assert outcomes(before, entry(heap(*[10.0] * 5))) == [MET]
    assert outcomes(before, entry(heap(*[1016.0] * 5)), allowed_bytes=16) == [MET]
    (judged,) = judge_baseline(before, entry(heap(*[2048.0] * 5)), branch="main")
    assert (
        judged.sentence == "heap at reset: 2.0 KiB, +1.0 KiB (+105 %) more than on main, more than by noise"
    )
    assert (judged.measured, judged.low, judged.high) == (1048, 1048, 1048)


def test_several_measures_share_the_chance_and_too_few_runs_are_not_judged() -> None:
    names = [Measure(f"heap at {n}", BYTES, tuple(range(12))) for n in range(13)]
    now = [one._replace(values=tuple(v + 1000 for v in range(5))) for one in names]
    assert outcomes(entry(*names[:12]), entry(*now)) == [NOT_MET] * 12
    assert outcomes(entry(*names), entry(*now)) == [NOT_JUDGED] * 13
    (judged,) = judge_baseline(entry(heap(1, 1, 1)), entry(heap(9, 9)), branch="main")
    assert judged.judged == NOT_JUDGED and "with 3 runs of main 13 runs are needed" in judged.sentence
    assert math.comb(3 + 13, 13) * CHANCE >= 1 > math.comb(3 + 12, 12) * CHANCE
    assert runs_needed(0, CHANCE) is None


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("libc", "glibc 2.41", "another C library (glibc 2.41, not glibc 2.36)"),
        ("page_bytes", "16384", "another page size"),
        ("processors", "8", "another number of processors"),
        ("engine", "jemalloc", "another engine"),
        ("machine", "aarch64", "another machine"),
    ],
)
def test_runs_in_other_surroundings_are_not_comparable(name: str, value: str, word: str) -> None:
    (judged,) = judge_baseline(entry(heap(*[1] * 12)), entry(heap(*[9] * 5), **{name: value}), branch="main")
    assert judged.judged == NOT_JUDGED and word in judged.sentence


def test_what_was_not_measured_or_ended_early_does_not_pass_but_more_still_fails() -> None:
    before = entry(heap(*[1000] * 12), Measure("blocks", "blocks", (3,) * 12))
    assert outcomes(before, entry(heap(*[1000] * 5))) == [MET, NOT_JUDGED]
    killed = Unseen("program-failed", "the program was ended by SIGKILL")
    assert outcomes(entry(heap(*[1000] * 12)), entry(heap(*[1000] * 5)), unseen=[killed]) == [NOT_JUDGED]
    assert outcomes(entry(heap(*[1000] * 12)), entry(heap(*[2000] * 5)), unseen=[killed]) == [NOT_MET]
    assert outcomes(entry(), entry(heap(1))) == [NOT_JUDGED]


def test_a_file_of_baselines_is_read_back_and_a_damaged_one_refused() -> None:
    branches = {"main": {"leak": entry(heap(*range(12)), Measure("b", "blocks", (1, 2)))}}
    text = baselines_json(branches)
    assert read_baselines(text, "b.json") == branches
    assert '"low": 2' in text and '"high": 9' in text and '"runs": 12' in text
    for damaged in (
        text[:-30],
        "[]",
        "{}",
        text.replace("[\n", '["x",', 1),
        text.replace('"unit"', '"u"'),
        "NaN",
    ):
        with pytest.raises(InputError, match=r"b\.json can't be read as baselines"):
            read_baselines(damaged, "b.json")


def test_a_run_gives_the_heap_at_its_last_snapshots_and_its_expectations(tmp_path: Path) -> None:
    run = Run.create("decoder", parent=tmp_path, pid=1, folder=tmp_path / "run")
    judged = {
        "name": "heap from a to b",
        "text": "",
        "measured": 7,
        "low": 7,
        "high": 7,
        "limit": 9,
        "unit": "bytes",
    }
    hidden = {"slug": "outside-growth", "message": "it grew", "could_hide_bytes": 4096}
    run.update(
        engine="massif",
        surroundings=surroundings(),
        recipe={"source": "ci/leak.yaml"},
        expectations=[{**judged, "unseen": [hidden]}],
    )
    for name, size in (("a", 10), ("b", 20), ("b", 17)):
        run.append(name, file=run.next_file("massif"), engine="massif", heap_bytes=size)
    found = measures_of(run)
    assert found.suite == "leak" and not found.unseen and found.surroundings["engine"] == "massif"
    assert {name: value for name, (value, _) in found.measures.items()} == {
        "heap at a": 10,
        "heap at b": 17,
        "heap from a to b": 7,
        "outside, heap from a to b": 4096,
    }
    without = found._replace(measures={k: v for k, v in found.measures.items() if "outside" not in k})
    values = {one.name: one.values for one in together([found, without], commit=None, saved="").measures}
    assert values["outside, heap from a to b"] == (4096, 0) and values["heap at a"] == (10, 10)
    run.update(end={"status": 139, "meant": 0})
    assert "SIGSEGV" in measures_of(run).unseen[0].message
    with pytest.raises(InputError, match="not comparable: another engine"):
        together(
            [found, RunMeasures("leak", {**found.surroundings, "engine": "x"}, {}, ())], commit=None, saved=""
        )
    other = Run.create("decoder", parent=tmp_path, pid=2, folder=tmp_path / "other")
    other.update(engine="massif")
    with pytest.raises(InputError, match="is no run of a recipe"):
        measures_of(other)
