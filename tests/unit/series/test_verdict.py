"""The verdict on series whose truth is known."""

from __future__ import annotations

import json
import math
import random
import re
import time
from pathlib import Path
from statistics import median

import pytest

from gdbmem.model.series import Mark, Verdict
from gdbmem.series.fitted import find_pauses
from gdbmem.series.statistics import thinned
from gdbmem.series.verdict import judge
from gdbmem.text import format_duration
from tests.bar_series import make_bar
from tests.series_set import KIB, MIB, Course, Labelled, make_set

RECORDED = sorted((Path(__file__).parents[2] / "captures" / "series").glob("*.json"))


def words_of(verdict: Verdict) -> str:
    return f"sawtooth/{verdict.floor}" if verdict.kind == "sawtooth" else verdict.kind


def named(name: str, seed: int = 0) -> Labelled:
    return next(series for series in make_set(seed) if series.name == name)


@pytest.mark.slow
def test_nineteen_verdicts_in_twenty_are_right_and_none_calls_a_flat_series_growing() -> None:
    labelled = [series for seed in range(3) for series in make_set(seed)]
    assert len(labelled) >= 120
    verdicts = [(series, judge(series.times, series.values)) for series in labelled]
    assert not [series.name for series, verdict in verdicts if verdict.grows and not series.grows]
    others = [(s, verdict) for s, verdict in verdicts if words_of(verdict) not in s.right]
    assert len(others) <= 0.05 * len(labelled)
    assert not [
        s.name for s, verdict in others if words_of(verdict) not in ("inconclusive", "sawtooth/unclear")
    ]


@pytest.mark.slow
def test_no_leak_of_any_kind_passes_as_a_level_and_no_level_as_a_leak() -> None:
    labelled = make_bar(0)
    verdicts = [(series, judge(series.times, series.values)) for series in labelled]
    passes = {"plateau", "step", "sawtooth/flat", "shrinking"}
    assert not [s.name for s, verdict in verdicts if s.grows and words_of(verdict) in passes]
    assert not [s.name for s, verdict in verdicts if not s.grows and verdict.grows]
    undecided = [(s, v) for s, v in verdicts if words_of(v) in ("inconclusive", "sawtooth/unclear")]
    assert all(verdict.needs_seconds for _, verdict in undecided)
    open_ones = [verdict for series, verdict in undecided if words_of(verdict) not in series.right]
    right = sum(words_of(verdict) in series.right for series, verdict in verdicts)
    assert right + len(open_ones) >= 0.97 * len(labelled) and len(open_ones) <= 0.1 * len(labelled)


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recordings_of_real_programs_are_judged_right(path: Path) -> None:
    recorded = json.loads(path.read_text())
    verdict = judge(recorded["times"], recorded["values"])
    assert words_of(verdict) in recorded["right"], verdict.evidence


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_trend_is_never_told_of_a_stretch_that_moved_by_much_more(path: Path) -> None:
    recorded = json.loads(path.read_text())
    times, values = recorded["times"], recorded["values"]
    verdict = judge(times, values)
    if verdict.kind != "growing" or "accelerating" in verdict.evidence:
        return
    last = verdict.regimes[-1]
    inside = [value for t, value in zip(times, values) if last.begin <= t <= last.end]
    assert median(inside[-5:]) - median(inside[:5]) < 1.6 * last.change_bytes, verdict.evidence


def test_a_level_is_no_warm_up() -> None:
    recorded = json.loads((RECORDED[0].parent / "node_level.json").read_text())
    for share in range(5, 11):
        count = len(recorded["times"]) * share // 10
        assert not re.search(
            r"level at [^,]* of warm-up",
            judge(recorded["times"][:count], recorded["values"][:count]).evidence,
        )


@pytest.mark.slow
def test_a_slow_leak_is_found_with_its_rate_inside_the_interval() -> None:
    verdict = judge(*series("slow leak"))
    assert verdict.kind == "growing"
    assert verdict.slope is not None
    truth = 0.5 * MIB / 3600
    assert verdict.slope.low < truth < verdict.slope.high
    assert verdict.resolution is not None
    assert verdict.resolution < truth


def series(name: str) -> tuple[list[float], list[float]]:
    found = named(name)
    return found.times, found.values


def test_a_plateau_states_how_small_a_slope_it_would_have_shown() -> None:
    verdict = judge(*series("quiet"))
    assert verdict.kind == "plateau"
    assert verdict.resolution is not None
    assert 0 < verdict.resolution * 1200 < 64 * KIB
    assert "would have shown" in verdict.evidence


def loading_and_leak(t: float) -> float:
    return (10 + 100 * min(t / 4.8, 1) + 6 * max(t - 4.8, 0) / 55.2) * MIB


def step_and_leak(t: float) -> float:
    return (20 + (30 if t > 18 else 0) + 10 * max(t - 18, 0) / 42) * MIB


def jvm_and_leak(t: float) -> float:
    return (120 * min(0.2 + t / 1.5, 1) + 20 * (1 - math.exp(-t / 5)) + 11 * t / 60) * MIB


@pytest.mark.parametrize(
    ("course", "per_minute", "history"),
    [
        (
            loading_and_leak,
            6.5,
            r"\+\d+\.\d MiB in the first [45]\.\d s of warm-up, then \+\d\.\d MiB in the last 5\d\.\d s",
        ),
        (
            step_and_leak,
            14.3,
            r"level at 20\.0 MiB for 18\.\d s, \+30\.\d MiB at once, then \+\d+\.\d MiB in the last",
        ),
        (jvm_and_leak, 11.0, r"\+1\d\d\.\d MiB in the first .* of warm-up, then"),
    ],
)
def test_a_leak_after_a_start_or_a_step_is_growing_now_and_its_history_is_told(
    course: Course, per_minute: float, history: str
) -> None:
    rng = random.Random(1)
    times = [0.2 * number for number in range(300)]
    values = [round((course(t) + rng.gauss(0, 20 * KIB)) / 4096) * 4096.0 for t in times]
    verdict = judge(times, values)
    assert verdict.kind == "growing", verdict.evidence
    assert verdict.slope is not None
    assert verdict.slope.value * 60 == pytest.approx(per_minute * MIB, rel=0.1)
    assert re.match(history, verdict.evidence), verdict.evidence
    assert verdict.regimes[-1].kind == "growing" and len(verdict.regimes) > 1


def test_a_step_at_half_time_is_a_step_and_no_warm_up() -> None:
    times = [0.2 * number for number in range(600)]
    verdict = judge(times, [(100 + (30 if t > 60 else 0)) * float(MIB) for t in times])
    assert (verdict.kind, verdict.step_bytes) == ("step", 30 * MIB)


def test_a_cache_that_has_been_level_for_a_third_of_the_time_is_a_plateau() -> None:
    times = [0.2 * number for number in range(600)]
    verdict = judge(times, [(30 + min(t, 80)) * float(MIB) for t in times])
    assert verdict.kind == "plateau"
    assert verdict.evidence.startswith(
        "+80.0 MiB in the first 1 min 20 s of warm-up, then level at 110.0 MiB"
    )


def test_a_page_more_makes_no_new_level() -> None:
    times = [0.2 * number for number in range(300)]
    verdict = judge(times, [88 * MIB if t < 3 else 58 * MIB + 4096.0 * (t > 51) for t in times])
    assert re.search(r"then level at 58.0 MiB for 5\d\.\d s", verdict.evidence), verdict.evidence


def test_a_curve_before_a_level_is_no_noise_that_may_hide_a_slope_in_it() -> None:
    times = [0.2 * number for number in range(600)]
    verdict = judge(times, [(20 + 60 * math.sqrt(min(t / 80, 1))) * MIB for t in times])
    assert verdict.kind == "plateau"
    assert verdict.resolution is not None
    assert verdict.resolution < 1 * MIB / 60, "level to the byte for 40 s"


@pytest.mark.parametrize("share", [0.3, 0.43, 0.48])
def test_a_curve_that_flattens_slowly_and_without_noise_is_no_leak(share: float) -> None:
    times = [0.1 * number for number in range(600)]
    verdict = judge(
        times, [30 * MIB + 80 * MIB * (1 - math.exp(-t / (share * 60))) // 4096 * 4096 for t in times]
    )
    assert verdict.kind == "inconclusive", verdict.evidence
    assert verdict.needs_seconds


@pytest.mark.slow  # a whole set is made for each
@pytest.mark.parametrize(
    ("seed", "name"),
    [
        (101, "JVM with a leak, 30 s"),
        (103, "JVM with a leak, 60 s"),
        (1002, "leak in jumps, 120 s"),
        (1013, "JVM with a leak, 30 s"),
        (1020, "leak in jumps, 60 s"),
        (12015, "JVM with a leak, 60 s"),
    ],
)
def test_a_leak_in_jumps_that_stands_still_as_it_did_before_is_no_level(seed: int, name: str) -> None:
    found = next(series for series in make_bar(seed) if series.name == name)
    verdict = judge(found.times, found.values)
    assert words_of(verdict) == "inconclusive"
    assert verdict.needs_seconds is not None and verdict.needs_seconds > 0


@pytest.mark.parametrize("count", range(1, 8))
def test_too_few_samples_to_see_a_pause_in_have_none(count: int) -> None:
    pauses = find_pauses([float(n) for n in range(count)], [(n + 1.0) * MIB for n in range(count)])
    assert pauses.longest == 0.0 and pauses.now >= 0.0


def test_a_level_much_longer_than_the_pauses_of_the_growth_before_it_is_a_plateau() -> None:
    values = [(20.0 + 2 * min(number // 20, 10)) * MIB for number in range(300)]
    assert judge([0.2 * number for number in range(300)], values).kind == "plateau"
    early = judge([0.2 * number for number in range(240)], values[:240])
    assert early.kind == "inconclusive"
    assert "no rise in the last 7.8 s, too short after pauses of up to 4.0 s" in early.evidence
    assert early.needs_seconds == pytest.approx(2.2, abs=0.3)


def test_a_leak_that_has_stopped_is_not_growing_now() -> None:
    times = [0.2 * number for number in range(600)]
    verdict = judge(times, [(30 + min(t, 60) / 10) * float(MIB) for t in times])
    assert verdict.kind == "plateau", verdict.evidence
    assert [regime.kind for regime in verdict.regimes] == ["growing", "plateau"]


def test_seven_troughs_each_higher_than_the_one_before_are_a_rising_floor() -> None:
    floors = [12.8, 13.1, 17.9, 18.2, 22.5, 26.0, 26.9, 27.5]
    times = [0.2 * number for number in range(320)]
    verdict = judge(times, [(floors[int(t // 8)] + 5 * (t % 8)) * MIB for t in times])
    assert (verdict.kind, verdict.floor) == ("sawtooth", "rising"), verdict.evidence


def test_the_floor_from_mark_to_mark_is_judged_where_there_are_marks() -> None:
    times = [1.3 * number for number in range(31)]  # three to a tooth: no shape to be seen
    values = [(100 + 2 * (t // 4) + (30 if t % 4 > 1.4 else 0)) * MIB for t in times]
    verdict = judge(times, values, marks=[Mark(4.0 * n, f"epoch {n}") for n in range(11)])
    assert verdict.floor == "rising" and "from mark to mark" in verdict.evidence


def test_teeth_that_have_ended_are_history() -> None:
    times = [0.2 * number for number in range(600)]
    verdict = judge(times, [(50 + (t % 6) * 5 if t < 60 else 50 + (t - 60) / 4) * MIB for t in times])
    assert verdict.kind == "growing", verdict.evidence
    assert verdict.regimes[0].kind == "sawtooth"
    assert " teeth in " in verdict.evidence


@pytest.mark.parametrize("teeth", [1.6, 1.8, 1.95, 2.6, 2.8, 2.95])
def test_a_rise_like_the_one_before_the_last_fall_is_no_leak_yet(teeth: float) -> None:
    # A DataLoader's first epochs of 4.3 s: each ends with its workers.
    times = [0.2 * number for number in range(int((1.3 + 4.3 * teeth) / 0.2))]
    chance = random.Random(1)
    epochs = [127 * t / 1.3 if t < 1.3 else 115 + 66 * ((t - 1.3) % 4.3) / 4.3 for t in times]
    verdict = judge(times, [(value + chance.gauss(0, 0.2)) * MIB for value in epochs])
    assert verdict.kind == "inconclusive", verdict.evidence
    assert verdict.needs_seconds is not None
    assert verdict.needs_seconds <= 10, "it is known when another fall is due"


@pytest.mark.parametrize(
    ("samples", "falls"), [(17, 0.0), (17, 0.1), (30, 0.1), (50, 0.0)], ids=lambda number: str(number)
)
@pytest.mark.parametrize("attached", [0.0, 0.6])
def test_first_teeth_of_few_samples_are_no_leak(samples: int, falls: float, attached: float) -> None:
    chance = random.Random(samples)
    for teeth in (1.5, 1.7, 1.9, 2.5, 2.7, 2.9):
        times = [float(number) for number in range(int(samples * teeth))]
        parts = [(t / samples + attached) % 1 for t in times]
        shape = [p / (1 - falls) if p < 1 - falls else 1 - (p - 1 + falls) / falls for p in parts]
        verdict = judge(times, [(200 + 80 * part + chance.gauss(0, 0.5)) * MIB for part in shape])
        assert not verdict.grows, (teeth, verdict.evidence)


@pytest.mark.parametrize("attached", [0.7, 0.8, 0.85])
def test_a_recording_that_begins_late_in_a_tooth_sees_no_leak_in_the_next_one(attached: float) -> None:
    chance = random.Random(1)
    times = [0.5 * number for number in range(110)]
    teeth = [(t / 50 + attached) % 1 for t in times]
    verdict = judge(times, [(200 + 130 * tooth + chance.gauss(0, 0.5)) * MIB for tooth in teeth])
    assert verdict.kind == "inconclusive", verdict.evidence


def test_a_leak_that_began_with_a_fall_is_growing() -> None:
    times = [0.5 * number for number in range(150)]
    chance = random.Random(4)
    course = [(200 if t < 20 else 120 + (t - 20)) + chance.gauss(0, 0.3) for t in times]
    assert judge(times, [value * MIB for value in course]).kind == "growing"


def test_a_leak_that_fell_once_is_growing_once_it_outlasts_the_rise_before() -> None:
    for seconds, kind in ((60, "inconclusive"), (110, "growing")):
        times = [0.5 * number for number in range(2 * seconds)]
        verdict = judge(times, [(100 + t - (30 if t > 40 else 0)) * MIB for t in times])
        assert verdict.kind == kind, verdict.evidence


def test_a_rise_that_outlasts_the_one_before_the_last_fall_is_growing() -> None:
    times = [0.2 * number for number in range(100)]
    values = [(115 + 15.4 * (t if t < 4.3 else t - 4.3)) * MIB for t in times]
    assert judge(times, values).kind == "growing"


def test_what_cannot_be_told_yet_states_how_much_longer_to_watch() -> None:
    rng = random.Random(2)
    verdict = judge([0.2 * n for n in range(60)], [(100 + rng.gauss(0, 12)) * MIB for _ in range(60)])
    assert verdict.kind == "inconclusive"
    assert (
        verdict.needs_seconds
        and f"another {format_duration(verdict.needs_seconds)} may settle it" in verdict.evidence
    )


@pytest.mark.slow
def test_a_hundred_thousand_samples_are_judged_in_a_second() -> None:
    rng = random.Random(4)
    times = [0.2 * number for number in range(100_000)]
    values = [(100 + t / 5000 + rng.gauss(0, 1)) * MIB for t in times]
    begin = time.process_time()
    assert judge(times, values).kind == "growing"
    assert time.process_time() - begin < 5  # 0.5 s when nothing else runs


def test_warm_up_is_left_out_and_reported() -> None:
    verdict = judge(*series("slow leak after warm-up"))
    assert verdict.kind == "growing"
    assert verdict.warmup_seconds > 60
    assert "warm-up" in verdict.evidence


def test_a_sawtooth_is_given_its_period_and_height() -> None:
    verdict = judge(*series("sawtooth"))
    assert verdict.period_seconds == pytest.approx(60, rel=0.1)
    assert verdict.amplitude_bytes == pytest.approx(100 * MIB, rel=0.1)
    assert not verdict.grows


@pytest.mark.parametrize("is_top_flat", [True, False])
def test_the_period_of_flat_teeth_is_not_that_of_the_chance_highest_samples_on_them(
    is_top_flat: bool,
) -> None:
    rng = random.Random(17)
    times = [0.1 * number for number in range(1500)]
    flat = [60 * MIB * (1 - math.exp(-(t % 17) / 1.5)) + rng.gauss(0, 2 * KIB) for t in times]
    verdict = judge(times, [200 * MIB + (value if is_top_flat else -value) for value in flat])
    assert verdict.kind == "sawtooth"
    assert verdict.period_seconds == pytest.approx(17, rel=0.02)


def test_a_rising_floor_is_measured_on_the_troughs_not_through_the_teeth() -> None:
    verdict = judge(*series("rising floor"))
    assert verdict.grows
    assert verdict.slope is not None
    assert verdict.slope.value == pytest.approx(30 * KIB, rel=0.15)


@pytest.mark.slow
def test_irregular_teeth_over_a_leak_show_it_and_never_level_off() -> None:
    for seed in range(10):
        found = named("irregular teeth, rising floor", seed)
        verdict = judge(found.times, found.values)
        assert (verdict.kind, verdict.floor) == ("sawtooth", "rising"), verdict.evidence
        assert verdict.slope is not None
        assert verdict.slope.value == pytest.approx(60 * KIB, rel=0.3)


@pytest.mark.slow
def test_noise_that_wanders_is_no_sawtooth_with_a_rising_floor() -> None:
    rng = random.Random(5)
    for _ in range(15):
        level, values = 0.0, []
        for _ in range(1200):
            level = 0.98 * level + rng.gauss(0, MIB)
            values.append(200.0 * MIB + level)
        verdict = judge([float(t) for t in range(1200)], values)
        assert verdict.floor != "rising", verdict.evidence


def test_the_floor_in_the_evidence_is_what_the_plot_shows_to_the_byte() -> None:
    times = [float(t) for t in range(600)]
    deep = {149: 31, 299: 33, 449: 32, 599: 34}  # one sample long
    values = [float(deep.get(int(t), 40 + 2 * (t % 50)) * MIB) for t in times]
    verdict = judge(times, values)
    assert verdict.kind == "sawtooth"
    assert "the floor stays between 31.0 MiB and " in verdict.evidence


def test_a_floor_under_which_a_leak_could_hide_is_not_called_flat() -> None:
    times = [0.2 * number for number in range(200)]
    floors = [110, 72, 107, 190, 150]  # of five goes of a compiler: 32 s are too short for such a floor
    values = [(floors[int(t // 8)] + 25 * (t % 8)) * float(MIB) for t in times]
    verdict = judge(times, values)
    assert (verdict.kind, verdict.floor) == ("sawtooth", "unclear"), verdict.evidence


def test_a_floor_that_rose_and_then_stayed_is_neither_rising_nor_flat() -> None:
    times = [float(t) for t in range(900)]
    values = [(100 + min(t, 400) / 8 + (t % 60)) * float(MIB) for t in times]
    verdict = judge(times, values)
    assert (verdict.kind, verdict.floor) == ("sawtooth", "unclear"), verdict.evidence


def test_two_troughs_are_no_floor_that_rises() -> None:
    times = [0.5 * number for number in range(240)]
    verdict = judge(times, [(40 + 3 * (t % 36) + 5 * (t // 36)) * MIB for t in times])
    assert (verdict.kind, verdict.floor) == ("sawtooth", "unclear")


def test_what_rose_a_lot_is_not_called_level_because_it_rose_in_few_steps() -> None:
    times = [float(t) for t in range(1200)]
    verdict = judge(times, [(50 + 4 * sum(t > at for at in (100, 150, 640, 700, 1000))) * MIB for t in times])
    assert verdict.kind != "plateau" and "level at" not in verdict.evidence


def test_a_sawtooth_of_three_teeth_states_that_it_is_too_short_to_judge_its_floor() -> None:
    times = [0.5 * number for number in range(240)]
    verdict = judge(times, [(40 + 3 * (t % 36)) * MIB for t in times])
    assert (verdict.kind, verdict.floor) == ("sawtooth", "unclear")
    assert "too few to tell" in verdict.evidence and "stays" not in verdict.evidence


def test_a_step_is_given_its_height_and_its_moment() -> None:
    verdict = judge(*series("one step"))
    assert verdict.step_bytes == pytest.approx(30 * MIB, rel=0.05)
    assert verdict.step_at == pytest.approx(500, abs=25)


@pytest.mark.parametrize("doubling", [60, 90, 180])
def test_what_grows_faster_and_faster_is_growing_however_quiet_its_beginning(doubling: float) -> None:
    times = [float(t) for t in range(1200)]
    verdict = judge(times, [(30 + 2 ** ((t - 1200) / doubling) * 2000) * MIB for t in times])
    assert verdict.kind == "growing", verdict.evidence
    assert "accelerating" in verdict.evidence


def test_a_leak_that_begins_half_way_is_growing_and_states_since_when() -> None:
    times = [float(t) for t in range(1200)]
    verdict = judge(times, [(50 + max(0, t - 600) / 10) * MIB for t in times])
    assert verdict.kind == "growing"
    assert verdict.evidence.startswith("level at 50.0 MiB for 10 min ")
    assert verdict.slope is not None
    assert verdict.slope.value == pytest.approx(0.1 * MIB, rel=0.05)


def test_what_rose_half_way_and_is_level_since_is_not_growing() -> None:
    times = [float(t) for t in range(1200)]
    verdict = judge(times, [(50 + min(max(0, t - 500), 300) / 10) * MIB for t in times])
    assert not verdict.grows, verdict.evidence


def test_a_short_ramp_before_a_long_level_is_a_warm_up_and_no_step() -> None:
    times = [0.2 * number for number in range(70)]
    verdict = judge(times, [(15 + 45 * min(t / 1.4, 1)) * MIB for t in times])
    assert verdict.kind == "plateau", verdict.evidence


@pytest.mark.parametrize("count", [0, 1, 2, 11])
def test_too_few_samples_are_inconclusive_not_a_crash(count: int) -> None:
    assert (
        judge([float(n) for n in range(count)], [float(n * MIB) for n in range(count)]).kind == "inconclusive"
    )


def test_samples_that_all_have_one_time_are_inconclusive() -> None:
    assert judge([1.0] * 50, [float(n * MIB) for n in range(50)]).kind == "inconclusive"


def test_a_gap_of_a_suspended_machine_makes_no_step_and_no_growth() -> None:
    found = named("quiet")
    times = [t if t < 600 else t + 7200 for t in found.times]
    assert judge(times, found.values).kind == "plateau"


def test_a_leak_is_a_leak_with_the_same_rate_when_the_machine_slept_through_the_night() -> None:
    found = named("leak")
    awake = judge(found.times, found.values)
    verdict = judge([t if t < 600 else t + 40_000 for t in found.times], found.values)
    assert verdict.kind == awake.kind == "growing"
    assert verdict.slope is not None and awake.slope is not None
    assert verdict.slope.value == pytest.approx(awake.slope.value, rel=0.05)
    assert "11 h 6 min without samples and without change are left out" in verdict.evidence


def test_a_leak_that_went_on_while_the_monitor_was_away_keeps_its_rate() -> None:
    times = [float(t) for t in (*range(300), *range(9000, 9300))]
    verdict = judge(times, [50.0 * MIB + 10 * KIB * t for t in times])
    assert verdict.kind == "growing"
    assert verdict.slope is not None
    assert verdict.slope.value == pytest.approx(10 * KIB, rel=0.02)
    assert "left out" not in verdict.evidence


def test_a_step_before_a_long_sleep_and_one_after_it_stand_where_they_were() -> None:
    times = [float(t) for t in (*range(600), *range(9000, 9600))]
    verdict = judge(times, [(50 if t < 9300 else 80) * float(MIB) for t in times])
    assert verdict.kind == "step"
    assert verdict.step_at == pytest.approx(9300, abs=25)


def test_a_level_after_a_start_up_that_got_faster_is_not_left_open_for_its_last_sample() -> None:
    # A Python program that fills 50 MB, on a busy machine: MiB every 0.2 s.
    start = [7.94, 9.59, 10.5, 11.62, 13.0, 19.16, 42.24]
    values = [size * MIB for size in [*start, *[60.98] * 61]]
    verdict = judge([0.46 + 0.2 * n for n in range(len(values))], values)
    assert verdict.kind == "plateau", verdict.evidence


def test_a_floor_that_rises_in_two_steps_is_not_called_flat_by_leaving_out_its_start() -> None:
    found = next(series for series in make_bar(8016) if series.name == "teeth, rising floor, 30 s")
    verdict = judge(found.times, found.values)
    assert (verdict.kind, verdict.floor) == ("sawtooth", "unclear"), verdict.evidence


def test_growth_per_mark_is_no_surer_than_the_floor_that_it_is_of() -> None:
    # The floor of half of the teeth lies between two samples.
    unsure = 0
    for seed in range(100, 190):
        chance, times, values, marks = random.Random(seed), [], [], []
        for tooth in range(7):
            marks.append(Mark(6.8 * tooth, f"epoch {tooth}"))
            is_seen = chance.random() < 0.5
            for at in range(68):
                copied = (45 if at or not is_seen else 0) + min(at / 4, 5) + at * 25 / 68
                times.append(6.8 * tooth + at / 10)
                values.append((170 + 2 * tooth + copied + chance.gauss(0, 0.2)) * MIB)
        verdict = judge(times, values, marks=marks)
        if verdict.slope is not None and verdict.slope.low <= 0 <= verdict.slope.high:
            unsure += 1
            assert verdict.per_mark is not None
            assert verdict.per_mark.low <= 0 <= verdict.per_mark.high, (seed, verdict)
    assert unsure > 5


def test_growth_is_also_given_per_mark_when_there_are_marks() -> None:
    found = named("leak")
    marks = [Mark(100.0 * number, f"epoch {number}") for number in range(11)]
    verdict = judge(found.times, found.values, marks=marks)
    assert verdict.per_mark is not None
    assert verdict.per_mark.value == pytest.approx(100 * 100 * KIB, rel=0.05)


@pytest.mark.slow
def test_thinning_a_million_points_keeps_few_of_them_and_the_extremes() -> None:
    points = (
        (float(n), 1e9 if n == 654_321 else -5.0 if n == 123_456 else float(n % 1000))
        for n in range(1_000_000)
    )
    times, values = thinned(points)
    assert len(times) == len(values) <= 4100
    assert times == sorted(times)
    assert max(values) == 1e9
    assert min(values) == -5.0
    assert times[-1] == 999_999.0
