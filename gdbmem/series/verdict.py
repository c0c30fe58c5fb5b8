"""From a series to a judgement: growing, plateau, sawtooth, step, shrinking or inconclusive.

A series is cut at its change points, and the last regime is judged: the verdict is about the present, and the part
before is the history. A sawtooth is judged by its troughs, never by a line through its teeth. A claim of growth has
to pass a strict test, to hold in every third of its time, and not to be a flattening curve; a claim of a level must
not be contradicted by the interval of its slope.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple, Optional

from gdbmem.model.series import Mark, Regime, Slope, Verdict
from gdbmem.series import statistics
from gdbmem.series.fitted import PAGES_BYTES
from gdbmem.series.regimes import cut, regimes_of
from gdbmem.series.sawtooth import Teeth, find_teeth
from gdbmem.series.verdict_without_teeth import FEWEST_SAMPLES, judge_course
from gdbmem.text import format_delta, format_duration, format_size, plural

# The floor of a sawtooth: whether its troughs, or the lowest points from mark to mark, rise.


_FEWEST = 5  # troughs: a line through fewer almost always fits
_ENOUGH = 8  # troughs requested if there were too few
_FEWEST_FOR_RANKS = 6  # with fewer not even the best order is significant
_Z_RANKS = 2.75  # Mann and Kendall's test: one in three hundred
_PHASES = 4  # from mark to mark
_EXPLAINED = 0.5  # of the variance between marks remains unexplained by the phases
_Z_ORDER = 1.96  # significance of an order from which troughs are not called flat
_Z_NONE = 1.15  # below this significance the order of the rest is random
_LEAST_GROWTH_BYTES = 64 << 10
_BEARABLE_BYTES = 1 << 20
_WORTH = 0.03  # of the teeth's height
_HIDDEN = 0.3  # of the teeth: a floor that could hide this much growth is not called flat
_WHOLE_TOOTH = 0.8  # of a period: marks at least this far apart have a trough between them


class Floor(NamedTuple):
    """The trend of the troughs."""

    kind: str  # rising, falling, flat or unclear
    words: str
    slope: Optional[Slope]  # bytes per second
    resolution: Optional[float]  # the smallest slope these troughs could have shown, bytes per second
    needs_seconds: Optional[float] = None


def judge_teeth(
    times: Sequence[float], values: Sequence[float], teeth: Teeth, metric: str, marks: Sequence[Mark]
) -> Verdict:
    """Return the verdict on a sawtooth."""
    by_mark = _between_marks(times, values, marks, teeth.period_seconds)
    places = by_mark or list(teeth.troughs)
    # The floor may be between two samples: as far below as one is from the next.
    missed = 0.0 if by_mark else median(abs(b - a) for a, b in zip(values, values[1:]))
    lows = [times[i] for i in places], [values[i] for i in places]
    floor = _floor_now(*lows, teeth.amplitude_bytes, missed, "mark" if by_mark else "")
    each = f"one every {format_duration(teeth.period_seconds)}"
    shape = each if teeth.is_regular else f"irregular, {each} at the median"
    evidence = f"{len(teeth.peaks)} teeth of {format_size(teeth.amplitude_bytes)}, {shape}; {floor.words}"
    if floor.needs_seconds:
        evidence += f"; another {format_duration(floor.needs_seconds)} may settle it"
    return Verdict(
        "sawtooth", metric, evidence, len(times), floor.slope, floor.resolution, floor=floor.kind,
        period_seconds=teeth.period_seconds, amplitude_bytes=teeth.amplitude_bytes,
        needs_seconds=floor.needs_seconds,
    )  # fmt: skip


def _floor_now(
    xs: Sequence[float], ys: Sequence[float], amplitude: float, missed: float, between: str
) -> Floor:
    """Judge the floor; the end of a start-up, one trough or two, is excluded."""
    floor = judge_floor(xs, ys, amplitude, missed, between)
    for skipped in (1, 2):
        if floor.kind != "unclear" or len(xs) - skipped < _ENOUGH - 1:
            break
        later = judge_floor(xs[skipped:], ys[skipped:], amplitude, missed, between)
        if later.kind == "flat" and abs(mann_kendall(ys[skipped:])) < _Z_NONE:
            return later
    return floor


def teeth_of_marks(times: Sequence[float], values: Sequence[float], marks: Sequence[Mark]) -> Optional[Teeth]:
    """Return the teeth from mark to mark, each with its own peak, of any shape; None if there are none."""
    edges = [mark.t for mark in marks if times[0] <= mark.t <= times[-1]]
    troughs = lowest_between(times, values, marks)
    if len(troughs) < _FEWEST or not _follow_marks(times, values, edges):
        return None
    peaks = [max(range(a, b + 1), key=values.__getitem__) for a, b in zip(troughs, troughs[1:])]
    height = median(values[peak] - values[trough] for peak, trough in zip(peaks, troughs[1:]))
    if height < _LEAST_GROWTH_BYTES:
        return None
    period = median(times[b] - times[a] for a, b in zip(troughs, troughs[1:]))
    return Teeth(peaks, troughs, period, height)


def _follow_marks(times: Sequence[float], values: Sequence[float], edges: Sequence[float]) -> bool:
    """Return whether values depend on the time since the last mark; noise does not."""
    phases: list[list[float]] = [[] for _ in range(_PHASES)]
    for begin, end in zip(edges, edges[1:]):
        inside = [(t, v) for t, v in zip(times, values) if begin <= t < end]
        middle = median([v for _, v in inside]) if inside else 0.0
        for t, v in inside:
            phases[int((t - begin) / (end - begin) * _PHASES)].append(v - middle)
    seen = [phase for phase in phases if phase]
    every = [v for phase in seen for v in phase]
    around = [v - sum(phase) / len(phase) for phase in seen for v in phase]
    middle = sum(every) / max(len(every), 1)
    whole = sum((v - middle) ** 2 for v in every)
    return len(every) >= _FEWEST * _PHASES / 2 and sum(v * v for v in around) < _EXPLAINED * whole


def _between_marks(
    times: Sequence[float], values: Sequence[float], marks: Sequence[Mark], period: float
) -> list[int]:
    """Return the lowest point from each mark to the next; none if a tooth has several marks."""
    lows = lowest_between(times, values, marks)
    gaps = [times[b] - times[a] for a, b in zip(lows, lows[1:])]
    return lows if len(lows) >= _FEWEST and median(gaps) >= _WHOLE_TOOTH * period else []


def lowest_between(times: Sequence[float], values: Sequence[float], marks: Sequence[Mark]) -> list[int]:
    """Return the index of the lowest value from each of *marks* to the next."""
    edges = [mark.t for mark in marks if times[0] <= mark.t <= times[-1]]
    lows = []
    for begin, end in zip(edges, edges[1:]):
        inside = [i for i, t in enumerate(times) if begin <= t < end]
        if inside:
            lows.append(min(inside, key=values.__getitem__))
    return lows


def judge_floor(
    xs: Sequence[float], ys: Sequence[float], amplitude: float, missed: float, between: str
) -> Floor:
    """Judge troughs *ys* (bytes, each perhaps *missed* lower) at *xs* (seconds) of teeth *amplitude* bytes high."""
    low, high = format_size(min(ys)), format_size(max(ys))
    extent = f"at {low}" if low == high else f"between {low} and {high}"
    period = (xs[-1] - xs[0]) / max(len(xs) - 1, 1)
    if len(xs) < _FEWEST:
        words = f"only {plural(len(ys), 'trough')}, {extent}: too few to tell whether the floor rises"
        return Floor("unclear", words, None, None, (_ENOUGH - len(xs)) * period)
    span = xs[-1] - xs[0]
    least = max(missed, PAGES_BYTES) / span
    slope, resolution = _interval(xs, ys, least), max(_resolution(xs, ys), least)
    of = f" from {between} to {between}" if between else ""
    course = f"the floor{of} went from {format_size(ys[0])} to {format_size(ys[-1])} over {len(ys)} troughs"
    rise = slope.value * span
    worth = abs(rise) >= max(_LEAST_GROWTH_BYTES, _WORTH * amplitude)
    denies_level = not slope.low <= 0 <= slope.high
    if worth and denies_level and _is_proven(xs, ys) and _goes_on(xs, ys):
        return Floor("rising" if rise > 0 else "falling", course, slope, resolution)
    if denies_level or worth_a_step(ys, amplitude):
        words = (
            f"{course} ({format_delta(ys[-1] - ys[0])}), but not steadily enough to predict that it continues"
        )
        return Floor("unclear", words, slope, resolution, span)
    not_excluded = max(resolution, slope.high, -slope.low)
    hidden = max(slope.value + resolution, slope.high) * span
    bearable = max(_HIDDEN * amplitude, _BEARABLE_BYTES)
    if hidden > bearable:
        words = f"the floor is {extent}: {format_size(hidden)} of growth could hide in that"
        return Floor(
            "unclear", words, slope, not_excluded, max(span * ((hidden / bearable) ** 2 - 1), period)
        )
    words = f"the floor stays {extent}"
    if hidden > _BEARABLE_BYTES:
        words += f"; {format_size(hidden)} of growth could hide in that"
    return Floor("flat", words, slope, not_excluded)


def worth_a_step(ys: Sequence[float], amplitude: float) -> bool:
    """Return whether *ys* are higher at the end than at the start in an order that is rare by chance."""
    half = len(ys) // 2
    rise = median(ys[-half:]) - median(ys[:half])
    return rise >= max(_LEAST_GROWTH_BYTES, _WORTH * amplitude) and mann_kendall(ys) > _Z_ORDER


def mann_kendall(ys: Sequence[float]) -> float:
    """Return Mann and Kendall's statistic of *ys* as a normal z."""
    size = len(ys)
    score = sum((b > a) - (b < a) for i, a in enumerate(ys) for b in ys[i + 1 :])
    ties = sum(n * (n - 1) * (2 * n + 5) for n in Counter(ys).values())
    spread = (size * (size - 1) * (2 * size + 5) - ties) / 18
    return (score - (score > 0) + (score < 0)) / math.sqrt(spread) if spread > 0 else 0.0


def _is_proven(xs: Sequence[float], ys: Sequence[float]) -> bool:
    if len(ys) >= _FEWEST_FOR_RANKS and abs(mann_kendall(ys)) > _Z_RANKS:
        return True
    fit = statistics.fit_line(xs, ys)
    return abs(fit.slope) > statistics.t_critical(fit.dof, statistics.Z_STRICT) * fit.error


def _goes_on(xs: Sequence[float], ys: Sequence[float]) -> bool:
    """Return whether the later half rises, too, at least half as fast as the average."""
    half = len(xs) // 2
    whole, later = statistics.theil_sen(xs, ys), statistics.theil_sen(xs[half:], ys[half:])
    return later > 0.4 * whole if whole > 0 else later < 0.4 * whole


def _interval(xs: Sequence[float], ys: Sequence[float], least: float) -> Slope:
    """Return the median slope of all pairs, with Sen's 95 % interval (of few that of a line), *least* either way."""
    value = statistics.theil_sen(xs, ys)
    if len(xs) < _FEWEST_FOR_RANKS:
        fit = statistics.fit_line(xs, ys)
        low, high = fit.slope - fit.half, fit.slope + fit.half
    else:
        slopes, count = statistics.pair_slopes(xs, ys)
        slopes.sort()
        apart = statistics.Z_95 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
        first = max(math.floor((len(slopes) - apart) / 2), 0)
        low, high = slopes[first], slopes[-1 - first]
    return Slope(value, min(low, value - least), max(high, value + least))


def _resolution(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the smallest slope that troughs with these residuals show with probability 0.8."""
    slope, middle = statistics.theil_sen(xs, ys), sum(xs) / len(xs)
    rest = [y - slope * x for x, y in zip(xs, ys)]
    spread = math.sqrt(sum((x - middle) ** 2 for x in xs))
    return (statistics.t_critical(len(xs) - 2, statistics.Z_95) + 0.84) * statistics.deviation(rest) / spread


_SHARES_OF_START = (0.0, 0.15, 0.3)  # of the time, not searched for teeth
_FIRST_OF_ALL = re.compile(r"^(\S+ \S+ in) the first (.*?)(?: of warm-up)?, then ")
_OF_METRIC = {
    "pss_bytes": " of the total (PSS)",
    "family_bytes": " of its cgroup",
    "gpu_bytes": " of the GPUs",
}
_ENDED = 2.5  # times the longest period without a tooth: the sawtooth has ended


def judge(
    times: Sequence[float], values: Sequence[float], *, metric: str = "rss_bytes", marks: Sequence[Mark] = ()
) -> Verdict:
    """Judge the series of *values* (bytes) at *times* (seconds, rising)."""
    if len(times) > 4000:
        times, values = statistics.thinned(zip(times, values))
    if len(times) < FEWEST_SAMPLES or times[-1] <= times[0]:
        return _too_few(times, metric)
    awake = statistics.without_standstills(times, values)
    verdict = _judge_shape(awake.times, values, metric, () if awake.left_out else marks)
    verdict = verdict._replace(first_bytes=values[0], last_bytes=values[-1])
    if awake.left_out:
        at = None if verdict.step_at is None else awake.original(verdict.step_at)
        regimes = [
            regime._replace(begin=awake.original(regime.begin), end=awake.original(regime.end))
            for regime in verdict.regimes
        ]
        left_out = f"{format_duration(awake.seconds)} without samples and without change are left out"
        verdict = verdict._replace(evidence=f"{verdict.evidence}; {left_out}", step_at=at, regimes=regimes)
    per_mark = _per_mark(times, values, marks, verdict)
    return verdict._replace(per_mark=per_mark) if per_mark else verdict


def _too_few(times: Sequence[float], metric: str) -> Verdict:
    what = "sample" if metric == "rss_bytes" else "reading"
    words = f"only {plural(len(times), what)}{_OF_METRIC.get(metric, '')} to judge" if times else "no samples"
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
        return later._replace(evidence=evidence, samples=len(times), regimes=[*before, had, *later.regimes])
    verdict = judge_teeth(times[begin:], values[begin:], teeth, metric, marks)
    change = values[-1] - values[begin]
    last = Regime(times[begin] if before else times[0], times[-1], "sawtooth", change, verdict.slope)
    return verdict._replace(
        warmup_seconds=times[begin] - times[0], samples=len(times), regimes=[*before, last]
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
    found = statistics.fit_line(numbers, floors).around(statistics.theil_sen(numbers, floors))
    if verdict.kind != "sawtooth" or verdict.slope is None:
        return found
    seconds = median(times[b] - times[a] for a, b in zip(places, places[1:]))
    low, high = verdict.slope.low * seconds, verdict.slope.high * seconds
    return Slope(found.value, min(found.low, low), max(found.high, high))
