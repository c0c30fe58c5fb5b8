"""Teeth of a sawtooth: the turning points of a series, and whether they form one."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median, pstdev
from typing import NamedTuple, Optional

from gdbmem.series.fitted import FittedLine
from gdbmem.series.statistics import fit_line, isotonic, noise_of, theil_sen

_FEWEST = 3
_SHARE_OF_RANGE = 0.4  # a turn smaller than this share of the range is not a tooth
_IRREGULAR = 0.5  # standard deviation ÷ mean, of the periods and of the heights
_FEWEST_A_TOOTH = 5  # samples: with fewer the shape is random
_ROUGH = 0.13  # largest distance of a tooth from its line, as a fraction of its height
# Largest distance from the nearest monotonic curve; noise is nearer to such a curve than to a line.
_ROUGH_BOW = 0.03
_FEWEST_IRREGULAR, _FEWEST_SAMPLES_IRREGULAR = 6, 10  # teeth, and samples of each
_EVEN_FLOOR = 0.1  # largest distance of troughs from their line, as a fraction of the teeth's height


class Teeth(NamedTuple):
    """The teeth of a series."""

    peaks: Sequence[int]  # indices
    troughs: Sequence[int]
    period_seconds: float
    amplitude_bytes: float
    is_regular: bool = True


def find_teeth(times: Sequence[float], values: Sequence[float], *, regular: bool) -> Optional[Teeth]:
    """Return the teeth of a sawtooth; None if the series isn't one.

    Teeth that are not *regular* have any periods and heights, but all fall to one line.
    """
    if len(values) < 3 * _FEWEST:
        return None
    smooth = _median_of_three(values)
    slope = theil_sen(times, smooth)
    level = [v - slope * (t - times[0]) for t, v in zip(times, smooth)]
    noise = noise_of(values)
    peaks, troughs = _turns(level, _least_turn(level, noise))
    # The beginning of a program is not a floor: a trough follows a fall.
    troughs = [trough for trough in troughs if peaks and trough > peaks[0]]
    if len(peaks) < _FEWEST or len(troughs) < _FEWEST - 1:
        return None
    heights = [level[p] - level[max((q for q in troughs if q < p), default=troughs[0])] for p in peaks]
    heights = [height for height in heights if height > 0]
    if len(heights) < 2 or not _stand_out(smooth, peaks, troughs, heights, noise):
        return None
    lowest = [_lowest_near(values, trough) for trough in troughs]
    if regular:
        turns = sorted([*peaks, *troughs])
        holds = _are_alike(times, heights, peaks) and _is_clean(level, turns, mean(heights))
    else:
        floor = [times[i] for i in lowest], [values[i] for i in lowest]
        holds = _median_distance(peaks) >= _FEWEST_SAMPLES_IRREGULAR and _have_one_floor(
            *floor, median(heights)
        )
    if not holds:
        return None
    return Teeth(peaks, lowest, _period(times, peaks, lowest), median(heights), regular)


def _period(times: Sequence[float], peaks: Sequence[int], troughs: Sequence[int]) -> float:
    """Return the median time between peaks, or between troughs if these are spaced more evenly.

    The highest sample of a tooth with a flat top, and the lowest of a flat bottom, can be anywhere on it.
    """
    turns = [peaks, troughs] if len(troughs) >= _FEWEST else [peaks]
    spacings = [[times[b] - times[a] for a, b in zip(turn, turn[1:])] for turn in turns]
    return median(min(spacings, key=lambda spacing: pstdev(spacing) / mean(spacing)))


def _least_turn(level: Sequence[float], noise: float) -> float:
    ordered = sorted(level)
    spread = ordered[int(0.98 * (len(ordered) - 1))] - ordered[int(0.02 * (len(ordered) - 1))]
    return max(6 * noise, _SHARE_OF_RANGE * spread)


def turning_points(values: Sequence[float], turn: float) -> tuple[list[int], list[int]]:
    """Return the peaks and the troughs between which *values* move by *turn* or more, single samples left out."""
    return _turns(_median_of_three(values), turn)


def _lowest_near(values: Sequence[float], trough: int) -> int:
    # The median of three has removed minima of a single sample.
    return min(range(max(trough - 1, 0), min(trough + 2, len(values))), key=values.__getitem__)


def _are_alike(times: Sequence[float], heights: Sequence[float], peaks: Sequence[int]) -> bool:
    periods = [times[b] - times[a] for a, b in zip(peaks, peaks[1:])]
    return all(pstdev(sizes) <= _IRREGULAR * mean(sizes) for sizes in (heights, periods))


def _have_one_floor(xs: Sequence[float], ys: Sequence[float], height: float) -> bool:
    """Return whether troughs are on a line: those of wandering noise are as far from it as its peaks."""
    if len(xs) < _FEWEST_IRREGULAR:
        return False
    return fit_line(xs, ys).residual <= len(xs) * (_EVEN_FLOOR * height) ** 2


def _median_distance(peaks: Sequence[int]) -> float:
    return median(b - a for a, b in zip(peaks, peaks[1:]))


def _stand_out(
    values: Sequence[float],
    peaks: Sequence[int],
    troughs: Sequence[int],
    heights: Sequence[float],
    noise: float,
) -> bool:
    drops, rises = _drops(values, peaks, troughs), [-drop for drop in _drops(values, troughs, peaks)]
    return (
        mean(heights) >= 6 * noise
        and min(median(drops), median(rises)) >= 0.5 * mean(heights)
        and _median_distance(peaks) >= _FEWEST_A_TOOTH
    )


def _drops(values: Sequence[float], peaks: Sequence[int], troughs: Sequence[int]) -> list[float]:
    """Return the fall of the values themselves after each peak; rising stairs never fall, for any trend."""
    drops = []
    for peak in peaks:
        after = next((trough for trough in troughs if trough > peak), None)
        if after is not None:
            drops.append(values[peak] - values[after])
    return drops or [0.0]


def _is_clean(level: Sequence[float], turns: Sequence[int], height: float) -> bool:
    """Return whether it goes from turn to turn in a line, a jump or a curve; wandering noise does not."""
    straight = bowed = 0.0
    count = 0
    for begin, end in zip(turns, turns[1:]):
        leg = level[begin : end + 1]
        straight += min(_distance(leg, _line(leg)), _distance(leg, _leap(leg)))
        bowed += _distance(leg, _one_way(leg))
        count += len(leg)
    return straight <= count * (_ROUGH * height) ** 2 or bowed <= count * (_ROUGH_BOW * height) ** 2


def _line(leg: Sequence[float]) -> list[float]:
    last = len(leg) - 1
    return [leg[0] + (leg[-1] - leg[0]) * i / last for i in range(len(leg))]


def _leap(leg: Sequence[float]) -> list[float]:
    low, high = sorted((leg[0], leg[-1]))
    return [high if value > (low + high) / 2 else low for value in leg]


def _one_way(leg: Sequence[float]) -> list[float]:
    """Return the monotonic curve nearest to *leg*."""
    if leg[-1] >= leg[0]:
        return isotonic(leg)
    return [-value for value in isotonic([-value for value in leg])]


def _distance(left: Sequence[float], right: Sequence[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(left, right))


def _turns(level: Sequence[float], turn: float) -> tuple[list[int], list[int]]:
    """Return the peaks and troughs between which the series moved by at least *turn*; none if *turn* is 0."""
    if turn <= 0:
        return [], []
    peaks: list[int] = []
    troughs: list[int] = []
    low = high = 0
    direction = 0
    for index, value in enumerate(level):
        if value > level[high]:
            high = index
        if value < level[low]:
            low = index
        if direction >= 0 and level[high] - value >= turn:
            peaks.append(high)
            direction, low = -1, index
        elif direction <= 0 and value - level[low] >= turn:
            troughs.append(low)
            direction, high = 1, index
    return peaks, troughs


def _median_of_three(values: Sequence[float]) -> list[float]:
    inner = [sorted(three)[1] for three in zip(values, values[1:], values[2:])]
    return [values[0], *inner, values[-1]]


# Growth that only repeats what was lost again at once before: the first teeth of a sawtooth look like a trend.
#
# Three teeth make a sawtooth; with fewer there is a rise, a fall, and a rise that is not yet higher than the first.
# Both are read from the samples: with few samples per tooth, the fall is not a separate stretch.


_ALIKE = 0.4  # of the rate before the fall, and its inverse: within these it rises as it did
_LEAST = 0.5  # of the rise since: a smaller fall is none
_NOISE = 6.0  # times the noise: a fall
_OUTLASTS = 1.3  # times the rise before the fall: what has risen by more is not another tooth
_PART = 0.1  # of the fall: a recording that began within a tooth has seen so much of its rise
_NEAR = 0.1  # of the fall: a level this close is the same


class Repeated(NamedTuple):
    """A rise like the one before the last fall."""

    fall_bytes: float
    needs_seconds: float  # until it has outlasted the rise before


def repeated_rise(times: Sequence[float], values: Sequence[float], line: FittedLine) -> Optional[Repeated]:
    """Return whether *line*, the end of *values*, repeats the rise before the last fall; None if not."""
    if line.robust <= 0:
        return None
    peaks, troughs = turning_points(values, max(_NOISE * noise_of(values), _LEAST * line.change))
    trough = troughs[-1] if troughs else 0
    peak = max((turn for turn in peaks if turn < trough), default=0)
    if not peak or line.xs[0] < times[peak]:
        return None
    peak = max(range(peak, trough), key=values.__getitem__)  # not smoothed
    trough = min(range(peak, trough + 1), key=values.__getitem__)
    fall = values[peak] - values[trough]
    foot = max((turn for turn in troughs if turn < peak), default=0)
    foot = _last_low(values, foot, peak, values[trough] + _NEAR * fall)
    rise = values[peak] - values[foot]
    top = max(range(trough + 1, len(values)), key=values.__getitem__)  # it may have begun to fall again
    since, rate = values[top] - values[trough], rise / (times[peak] - times[foot])
    alike = _ALIKE * rate <= since / (times[top] - times[trough]) <= rate / _ALIKE
    missing = _OUTLASTS * max(rise, fall) - since
    if not alike or missing < 0 or rise < _PART * fall:
        return None
    return Repeated(fall, missing / line.robust)


def _last_low(values: Sequence[float], first: int, end: int, level: float) -> int:
    """Return the last sample of *first* to *end* (exclusive) at *level* or below; the lowest, if none is."""
    low = next((at for at in range(end - 1, first - 1, -1) if values[at] <= level), None)
    return min(range(first, end), key=values.__getitem__) if low is None else low
