"""From a series to a judgement: growing, plateau, sawtooth, step, shrinking or inconclusive.

A series is cut at its change points, and the last regime is judged: the verdict is about the present, and the part
before is the history. A sawtooth is judged by its troughs, never by a line through its teeth. A claim of growth has
to pass a strict test, to hold in every third of its time, and not to be a flattening curve; a claim of a level must
not be contradicted by the interval of its slope.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from statistics import median
from typing import Optional

from gdbmem.model.series import Mark, Regime, Slope, Verdict
from gdbmem.patterns import lazy_pattern
from gdbmem.records import replace
from gdbmem.series.floors import judge_teeth, lowest_between, teeth_of_marks
from gdbmem.series.gaps import without_standstills
from gdbmem.series.history import regimes_of
from gdbmem.series.regimes import cut
from gdbmem.series.sawtooth import Teeth, find_teeth
from gdbmem.series.statistics import fit_line, theil_sen, thinned
from gdbmem.series.verdict_without_teeth import FEWEST_SAMPLES, judge_course
from gdbmem.text import format_duration, plural

_SHARES_OF_START = (0.0, 0.15, 0.3)  # of the time, not searched for teeth
_FIRST_OF_ALL = lazy_pattern(r"^(\S+ \S+ in) the first (.*?)(?: of warm-up)?, then ")
_OF_METRIC = {
    "pss_bytes": " of the total (PSS)",
    "family_bytes": " of its cgroup",
    "gpu_bytes": " of the GPUs",
}
_ENDED = 2.5  # times the longest period without a tooth: the sawtooth has ended


def judge(
    times: Sequence[float],
    values: Sequence[float],
    *,
    metric: str = "rss_bytes",
    marks: Sequence[Mark] = (),
) -> Verdict:
    """Judge the series of *values* (bytes) at *times* (seconds, rising)."""
    if len(times) > 4000:
        times, values = thinned(zip(times, values))
    if len(times) < FEWEST_SAMPLES or times[-1] <= times[0]:
        return _too_few(times, metric)
    awake = without_standstills(times, values)
    verdict = _judge_shape(awake.times, values, metric, () if awake.left_out else marks)
    verdict = replace(verdict, first_bytes=values[0], last_bytes=values[-1])
    if awake.left_out:
        at = None if verdict.step_at is None else awake.original(verdict.step_at)
        regimes = [
            replace(regime, begin=awake.original(regime.begin), end=awake.original(regime.end))
            for regime in verdict.regimes
        ]
        left_out = f"{format_duration(awake.seconds)} without samples and without change are left out"
        verdict = replace(verdict, evidence=f"{verdict.evidence}; {left_out}", step_at=at, regimes=regimes)
    per_mark = _per_mark(times, values, marks, verdict)
    return replace(verdict, per_mark=per_mark) if per_mark else verdict


def _too_few(times: Sequence[float], metric: str) -> Verdict:
    what = "sample" if metric == "rss_bytes" else "reading"
    words = f"only {plural(len(times), what)}{_OF_METRIC.get(metric, '')}" if times else "no samples"
    span = times[-1] - times[0] if times else 0.0
    missing = span / max(len(times) - 1, 1) * (FEWEST_SAMPLES - len(times))
    if missing:
        words += f"; another {format_duration(missing)} may settle it"
    return Verdict("inconclusive", metric, words, len(times), needs_seconds=missing or None)


def _judge_shape(
    times: Sequence[float], values: Sequence[float], metric: str, marks: Sequence[Mark]
) -> Verdict:
    # A program that loads more than the height of its teeth hides them, so the start is also excluded.
    for share, regular in (*((share, True) for share in _SHARES_OF_START), (0.0, False)):
        begin = bisect_left(times, times[0] + share * (times[-1] - times[0]))
        teeth = find_teeth(times[begin:], values[begin:], regular=regular)
        if teeth is not None:
            return _judge_teeth(times, values, begin, teeth, metric, marks)
    by_mark = teeth_of_marks(times, values, marks)
    if by_mark is not None:
        return _judge_teeth(times, values, 0, by_mark, metric, marks)
    return judge_course(times, values, metric)


def _judge_teeth(
    times: Sequence[float],
    values: Sequence[float],
    begin: int,
    teeth: Teeth,
    metric: str,
    marks: Sequence[Mark],
) -> Verdict:
    """Return the verdict on *teeth*, whose indices count from *begin*, or on the part after them if they have ended."""
    early = cut(times[: begin + 1], values[: begin + 1]) if begin >= FEWEST_SAMPLES else []
    before = regimes_of(early, times, until=times[begin]) if early else []
    end = begin + max([*teeth.peaks, *teeth.troughs])
    pauses = [times[begin + b] - times[begin + a] for a, b in zip(teeth.peaks, teeth.peaks[1:])]
    if times[-1] - times[end] > _ENDED * max(pauses) and len(times) - end >= FEWEST_SAMPLES:
        later = judge_course(times[end:], values[end:], metric)
        lasted = format_duration(times[end] - times[begin])
        had = Regime(
            times[begin] if before else times[0], times[end], "sawtooth", values[end] - values[begin]
        )
        then = _FIRST_OF_ALL.sub(r"\1 \2, then ", later.evidence)
        evidence = f"{len(teeth.peaks)} teeth in {lasted}, then {then}"
        return replace(later, evidence=evidence, samples=len(times), regimes=[*before, had, *later.regimes])
    verdict = judge_teeth(times[begin:], values[begin:], teeth, metric, marks)
    change = values[-1] - values[begin]
    last = Regime(times[begin] if before else times[0], times[-1], "sawtooth", change, verdict.slope)
    return replace(
        verdict, warmup_seconds=times[begin] - times[0], samples=len(times), regimes=[*before, last]
    )


def _per_mark(
    times: Sequence[float], values: Sequence[float], marks: Sequence[Mark], verdict: Verdict
) -> Optional[Slope]:
    """Return the growth of the floor from mark to mark; None with fewer than five stretches.

    It is no surer than the slope of the floor in *verdict*, which knows what may lie between two samples.
    """
    places = lowest_between(times, values, marks)
    floors = [values[i] for i in places]
    if len(floors) < 5:
        return None
    numbers = [float(number) for number in range(len(floors))]
    found = fit_line(numbers, floors).around(theil_sen(numbers, floors))
    if verdict.kind != "sawtooth" or verdict.slope is None:
        return found
    seconds = median(times[b] - times[a] for a, b in zip(places, places[1:]))
    low, high = verdict.slope.low * seconds, verdict.slope.high * seconds
    return Slope(found.value, min(found.low, low), max(found.high, high))
