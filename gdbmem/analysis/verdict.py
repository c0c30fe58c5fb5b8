"""From a series to a judgement: growing, plateau, sawtooth, step, shrinking or inconclusive.

A sawtooth is judged by its troughs, never by a line through its teeth. A claim of growth has to pass a
strict test, to hold in every third of the window, and not to be the end of a warm-up.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Optional

from gdbmem.analysis.onset import find_onset
from gdbmem.analysis.robust import (
    Z_95,
    Z_STRICT,
    Fit,
    bins,
    fit_line,
    noise_of,
    t_critical,
    theil_sen,
    thinned,
)
from gdbmem.analysis.standstill import without_standstills
from gdbmem.analysis.teeth import Teeth, find_teeth
from gdbmem.model.series import Mark
from gdbmem.model.verdict import Slope, Verdict
from gdbmem.text import plural
from gdbmem.units import format_delta, format_duration, format_rate, format_size

_PAGE = 4096
_FEWEST_SAMPLES = 12
_FEWEST_TROUGHS = 4  # through two of them a line always fits
_BINS = 60
_LEAST_GROWTH_BYTES = 64 << 10  # over the whole window: less is nothing to act upon
_WALKS = 0.75  # residuals this alike may be a random walk, through which a line means nothing
_STRAIGHT = 0.01  # no random walk keeps this near to its line, as a share of the change
_TELLING = 6.0  # difference in log likelihood (twice) from which one curve is better than another
_WORTH = 0.05  # growth of this share of the level must not hide in the noise of a plateau
_WORTH_BYTES = 1 << 20
_HIDDEN = 0.3  # of the teeth: a floor under which so much growth could hide is not called flat
_SHARES_OF_START = (0.0, 0.15, 0.3)  # of the time, in which teeth aren't looked for


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
    if len(times) < _FEWEST_SAMPLES or times[-1] <= times[0]:
        return Verdict(
            "inconclusive",
            metric,
            f"only {plural(len(times), 'sample')}" if times else "no samples",
            len(times),
        )
    awake = without_standstills(times, values)
    verdict = _judge_shape(awake.times, values, metric)
    verdict = replace(verdict, first_bytes=values[0], last_bytes=values[-1])
    if awake.left_out:
        at = None if verdict.step_at is None else awake.original(verdict.step_at)
        left_out = (
            f"{format_duration(awake.seconds)} in which nothing was recorded and nothing moved are left out"
        )
        verdict = replace(verdict, evidence=f"{verdict.evidence}; {left_out}", step_at=at)
    per_mark = _per_mark(times, values, marks)
    return replace(verdict, per_mark=per_mark) if per_mark else verdict


def _judge_shape(times: Sequence[float], values: Sequence[float], metric: str) -> Verdict:
    # A program that loads more than its teeth are high hides them, so the start is left out too.
    for share, regular in (*((share, True) for share in _SHARES_OF_START), (0.0, False)):
        begin = bisect_left(times, times[0] + share * (times[-1] - times[0]))
        teeth = find_teeth(times[begin:], values[begin:], regular=regular)
        if teeth is not None:
            verdict = _judge_teeth(times[begin:], values[begin:], teeth, metric)
            return replace(verdict, warmup_seconds=times[begin] - times[0], samples=len(times))
    count = min(_BINS, len(times) // 2)
    xs, ys = bins(times, values, count)
    step = _find_step(xs, ys, noise_of(values))
    if step is not None:
        return _judge_step(xs, ys, step, metric, len(times))
    return _judge_trend(xs, ys, metric, len(times))


# -- sawtooth -------------------------------------------------------------------------------------------------


def _judge_teeth(times: Sequence[float], values: Sequence[float], teeth: Teeth, metric: str) -> Verdict:
    xs = [times[i] for i in teeth.troughs]
    ys = [values[i] for i in teeth.troughs]
    fit = fit_line(xs, ys)
    floor, said = _judge_floor(xs, ys, fit, teeth)
    each = f"one each {format_duration(teeth.period_seconds)}"
    shape = each if teeth.is_regular else f"irregular, {each} at the median"
    evidence = f"{len(teeth.peaks)} teeth of {format_size(teeth.amplitude_bytes)}, {shape}; {said}"
    has_slope = len(xs) >= _FEWEST_TROUGHS
    return Verdict(
        "sawtooth", metric, evidence, len(times), _interval(theil_sen(xs, ys), fit) if has_slope else None,
        max(_resolution(fit), _PAGE / (xs[-1] - xs[0])) if has_slope else None, floor=floor,
        period_seconds=teeth.period_seconds, amplitude_bytes=teeth.amplitude_bytes,
    )  # fmt: skip


def _judge_floor(xs: Sequence[float], ys: Sequence[float], fit: Fit, teeth: Teeth) -> tuple[str, str]:
    """Return "rising", "falling", "flat" or "unclear", and what to say of it."""
    between = f"between {format_size(min(ys))} and {format_size(max(ys))}"
    if len(xs) < _FEWEST_TROUGHS:
        return "unclear", f"its floor was seen {len(ys)} times, {between}: too few to tell whether it rises"
    span = xs[-1] - xs[0]
    rise = fit.slope * span
    course = f"the floor went from {format_size(ys[0])} to {format_size(ys[-1])} over {len(ys)} troughs"
    worth = abs(rise) >= max(_LEAST_GROWTH_BYTES, 0.03 * teeth.amplitude_bytes)
    if worth and abs(fit.slope) > t_critical(fit.dof, Z_STRICT) * fit.error and _goes_on(xs, ys):
        return "rising" if rise > 0 else "falling", course
    if worth and fit.slope > t_critical(fit.dof, Z_95) * fit.error:
        return "unclear", f"{course}, but not steadily enough to say that it goes on"
    hidden = (theil_sen(xs, ys) + _usual_resolution(xs, ys)) * span
    if hidden > max(_HIDDEN * teeth.amplitude_bytes, _LEAST_GROWTH_BYTES):
        return "unclear", f"its floor is {between}: {format_size(hidden)} of growth could hide in that"
    return "flat", f"the floor stays {between}"


def _usual_resolution(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the resolution of a line through *ys*, a few wild ones left out of account."""
    slope, middle = theil_sen(xs, ys), sum(xs) / len(xs)
    rest = [y - slope * x for x, y in zip(xs, ys)]
    level = median(rest)
    noise = 1.4826 * median(abs(y - level) for y in rest)
    spread = math.sqrt(sum((x - middle) ** 2 for x in xs))
    return (t_critical(len(xs) - 2, Z_95) + 0.84) * noise / spread


# -- one step -------------------------------------------------------------------------------------------------


def _find_step(xs: Sequence[float], ys: Sequence[float], noise: float) -> Optional[int]:
    """Return where the one step is that explains the series better than any slope; None where none does."""
    size = len(ys)
    best, best_squares = 0, math.inf
    for cut in range(3, size - 2):
        squares = _squares(ys[:cut]) + _squares(ys[cut:])
        if squares < best_squares:
            best, best_squares = cut, squares
    if not best:
        return None
    height = abs(median(ys[best:]) - median(ys[:best]))
    # Each side for itself: a short ramp is no level, however long the other side is one.
    typical = max(_usual_distance(ys[:best]), _usual_distance(ys[best:]))
    line = fit_line(xs, ys).residual
    if height < max(6 * noise, 8 * typical, _LEAST_GROWTH_BYTES) or best_squares > 0.3 * line:
        return None
    return best


def _usual_distance(ys: Sequence[float]) -> float:
    middle = median(ys)
    return sorted(abs(y - middle) for y in ys)[int(0.9 * (len(ys) - 1))]


def _squares(ys: Sequence[float]) -> float:
    middle = sum(ys) / len(ys)
    return sum((y - middle) ** 2 for y in ys)


def _judge_step(xs: Sequence[float], ys: Sequence[float], cut: int, metric: str, samples: int) -> Verdict:
    before, after = median(ys[:cut]), median(ys[cut:])
    begin = xs[0]
    part = (xs[cut:], ys[cut:]) if len(xs) - cut >= cut else (xs[:cut], ys[:cut])
    fit = fit_line(*part)
    at = (xs[cut - 1] + xs[cut]) / 2
    evidence = (
        f"one step of {format_delta(after - before)} after {format_duration(at - begin)}, "
        f"level before ({format_size(before)}) and after ({format_size(after)})"
    )
    return Verdict(
        "step", metric, evidence, samples, _interval(fit.slope, fit), max(_resolution(fit), _PAGE / (xs[-1] - xs[0])),
        step_bytes=after - before, step_at=at,
    )  # fmt: skip


# -- a trend, or none -----------------------------------------------------------------------------------------


def _judge_trend(xs: Sequence[float], ys: Sequence[float], metric: str, samples: int) -> Verdict:
    start = _end_of_warmup(xs, ys)
    late_x, late_y = xs[start:], ys[start:]
    warmup = late_x[0] - xs[0] if start else 0.0
    fit = fit_line(late_x, late_y)
    robust = theil_sen(late_x, late_y)
    slope = _interval(robust, fit)
    span = late_x[-1] - late_x[0]
    change = robust * span
    resolution = max(_resolution(fit), _PAGE / span)
    facts: dict[str, Any] = {"metric": metric, "samples": samples, "slope": slope}
    facts |= {"resolution": resolution, "warmup_seconds": warmup}
    lead = f"after {format_duration(warmup)} of warm-up, " if start else ""
    worth = max(_WORTH * median(late_y), _WORTH_BYTES)
    much = abs(change) > max(resolution * span, worth)
    is_trend = _is_trend(late_x, late_y, fit, robust)
    # Where a trend is proven the doubt is in favour of levelling off; where none is, that has to be proven.
    if (is_trend or much) and _levels_off(xs, ys, _TELLING if is_trend else -_TELLING):
        return Verdict("plateau", evidence=_levelling(xs, ys), **facts)
    over = f"{lead}{format_delta(change)} in {format_duration(span)}"
    if is_trend:
        evidence = f"{over} ({format_rate(robust)}), in every third of that time"
        return Verdict("growing" if robust > 0 else "shrinking", evidence=evidence, **facts)
    onset = find_onset(xs, ys, worth)
    if onset is not None:
        return _judge_onset(xs, ys, onset, metric, samples)
    if much:
        evidence = f"{over}, but not steadily enough to say that it goes on"
        return Verdict("inconclusive", evidence=evidence, **facts)
    kind, evidence = _without_trend(median(late_y), resolution, span, worth)
    return Verdict(kind, evidence=lead + evidence, **facts)


def _judge_onset(xs: Sequence[float], ys: Sequence[float], start: int, metric: str, samples: int) -> Verdict:
    late_x, late_y = xs[start:], ys[start:]
    fit, robust, span = fit_line(late_x, late_y), theil_sen(late_x, late_y), late_x[-1] - late_x[0]
    quiet = f"level at {format_size(ys[0])} for {format_duration(late_x[0] - xs[0])}, then " if start else ""
    change = format_delta(late_y[-1] - late_y[0])
    faster = theil_sen(late_x[-len(late_x) // 3 :], late_y[-len(late_y) // 3 :]) > 1.5 * robust
    pace = "faster and faster" if faster else format_rate(robust)
    evidence = f"{quiet}{change} in the last {format_duration(span)}, up to the end ({pace})"
    return Verdict("growing", metric, evidence, samples, _interval(robust, fit), _resolution(fit))


def _without_trend(level: float, resolution: float, span: float, worth: float) -> tuple[str, str]:
    hidden, time = format_size(resolution * span), format_duration(span)
    if resolution * span > worth:
        noise = f"{hidden} of growth could hide in the noise of this window of {time}"
        return "inconclusive", f"no trend that holds, but {noise}"
    rate = format_rate(resolution)
    return "plateau", f"level at {format_size(level)} for {time}: more than {rate} would have shown"


def _end_of_warmup(xs: Sequence[float], ys: Sequence[float]) -> int:
    """Return the first index after the warm-up: a start that is much steeper than what follows."""
    size = len(xs)
    if size < 12:
        return 0
    straight = fit_line(xs, ys).residual
    best, best_score = 0, size * math.log(straight + 1)
    for start in range(1, int(0.6 * size)):
        late = fit_line(xs[start:], ys[start:])
        # What is left out must lie off the line of the rest, or there is nothing to leave out.
        score = (size - start) * math.log(late.residual * size / (size - start) + 1) + start * math.log(
            straight + 1
        )
        if score < best_score - 12:
            best, best_score = start, score
    return best if best and _is_warmup(xs, ys, best) else 0


def _is_warmup(xs: Sequence[float], ys: Sequence[float], start: int) -> bool:
    # Otherwise a walk could choose the part of itself that looks like a trend.
    early = (ys[start] - ys[0]) / (xs[start] - xs[0])
    late = theil_sen(xs[start:], ys[start:])
    return early > 2 * abs(late)


def _levelling(xs: Sequence[float], ys: Sequence[float]) -> str:
    third = len(xs) // 3
    first = theil_sen(xs[:third], ys[:third])
    last = theil_sen(xs[-third:], ys[-third:])
    return (
        f"levels off: {format_rate(first)} in the first third of {format_duration(xs[-1] - xs[0])}, "
        f"{format_rate(last)} in the last"
    )


def _levels_off(xs: Sequence[float], ys: Sequence[float], doubt: float) -> bool:
    """Tell whether a curve that flattens says as much as a straight line after a warm-up does, but for *doubt*."""
    span = xs[-1] - xs[0]
    places = [(x - xs[0]) / span for x in xs]

    def saturating(scale: float) -> Callable[[float], float]:
        return lambda x: 1 - math.exp(-x / scale)

    def logarithmic(scale: float) -> Callable[[float], float]:
        return lambda x: math.log1p(x / scale)

    exponentials = [saturating(scale) for scale in (0.01, 0.02, 0.04, 0.08, 0.15, 0.3)]
    curves = exponentials + [logarithmic(scale) for scale in (0.0005, 0.002, 0.006, 0.02, 0.05, 0.1)]
    flattening = [fit_line([curve(x) for x in places], ys) for curve in curves]
    with_line = [fit_line(places, ys), *(fit_line(places, ys, curve) for curve in exponentials)]
    rising = ys[-1] > ys[0]
    best_flat = min((fit.residual for fit in flattening if (fit.slope > 0) == rising), default=math.inf)
    best_line = min(fit.residual for fit in with_line)
    return len(xs) * math.log((best_flat + 1) / (best_line + 1)) < doubt


def _is_trend(xs: Sequence[float], ys: Sequence[float], fit: Fit, robust: float) -> bool:
    span = xs[-1] - xs[0]
    if abs(robust * span) < max(_LEAST_GROWTH_BYTES, 2 * _PAGE) or fit.slope * robust <= 0:
        return False
    strict = t_critical(fit.dof, Z_STRICT)
    straight = fit.residual < len(xs) * (_STRAIGHT * robust * span) ** 2
    proven = abs(fit.slope) > strict * fit.error and (fit.likeness < _WALKS or straight)
    if not proven and not _drifts(ys):
        return False
    return _goes_on(xs, ys)


def _drifts(ys: Sequence[float]) -> bool:
    """Tell whether the increments have a mean: holds for what creeps up in jumps, and for no random walk."""
    stride = max(len(ys) // 20, 1)
    picked = ys[::stride]
    steps = [b - a for a, b in zip(picked, picked[1:])]
    count = len(steps)
    middle = sum(steps) / count
    spread = math.sqrt(sum((step - middle) ** 2 for step in steps) / max(count - 1, 1))
    return abs(middle) > t_critical(count - 1, Z_STRICT) * spread / math.sqrt(count)


def _goes_on(xs: Sequence[float], ys: Sequence[float]) -> bool:
    """Tell whether each third takes its share of the change, and the last one no less than a fair one."""
    size = len(xs)
    if size < 6:
        return True
    thirds = [slice(0, size // 3 + 1), slice(size // 3, 2 * size // 3 + 1), slice(2 * size // 3, size)]
    whole = theil_sen(xs, ys)
    slopes = [theil_sen(xs[part], ys[part]) / whole for part in thirds]
    return min(slopes) > 0.2 and slopes[2] > 0.45 * slopes[0]


# -- errors and units -----------------------------------------------------------------------------------------


def _interval(value: float, fit: Fit) -> Slope:
    half = t_critical(fit.dof, Z_95) * fit.error
    return Slope(value, min(fit.slope - half, value), max(fit.slope + half, value))


def _resolution(fit: Fit) -> float:
    # What is found four times in five: the bound of the claim and one standard error and a bit.
    return (t_critical(fit.dof, Z_95) + 0.84) * fit.error


def _per_mark(times: Sequence[float], values: Sequence[float], marks: Sequence[Mark]) -> Optional[Slope]:
    """Return the growth of the floor from mark to mark; None with fewer than five stretches."""
    edges = [mark.t for mark in marks if times[0] <= mark.t <= times[-1]]
    floors = []
    for begin, end in zip(edges, edges[1:]):
        inside = [v for t, v in zip(times, values) if begin <= t < end]
        if inside:
            floors.append(min(inside))
    if len(floors) < 5:
        return None
    numbers = [float(number) for number in range(len(floors))]
    return _interval(theil_sen(numbers, floors), fit_line(numbers, floors))
