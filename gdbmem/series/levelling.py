"""Decelerating growth: a flattening curve explains it as well as lines do."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional

from gdbmem.model.series import Slope, Verdict
from gdbmem.series.regimes import QUANTUM_BYTES, Stretch
from gdbmem.series.statistics import Z_95, bins, fit_line, t_critical, theil_sen
from gdbmem.text import format_duration, format_rate, format_size, printable

_TELLING = 6.0  # difference in log likelihood (twice) from which one curve is better than another
_PROVEN = 10.0  # the same, for preferring lines to a curve
_BENT = 5.0  # the same, if a stretch before it was steeper
_SLOWER = 0.85  # the last third than the one before it
_SCALES = 9  # number of time scales tried for a flattening curve; the best is refined
_SLOWEST = 0.8  # of the time: the longest scale of such a curve
_BINS, _FEWEST = 50, 8
_SOON_ENOUGH = 0.25  # of the time: an exponential of that scale has come within 2 % of its limit

Curve = Callable[[float], float]


def slows_down(times: Sequence[float], values: Sequence[float], chain: Sequence[Stretch]) -> bool:
    """Return whether a rise (or fall) to the end of *chain* may be levelling off.

    This is so if a flattening curve is clearly better than one line, and no worse than lines with corners or than a
    flattening curve plus a line. Any end of the chain may be such a curve.
    """
    if len(chain) > 1 and _bends(chain[-1]):
        return True
    return any(_flattens(times, values, chain[start:]) for start in range(len(chain)))


def _bends(last: Stretch) -> bool:
    """Return whether the last stretch itself becomes flatter: after a steeper one that is not chance."""
    size, middle = len(last.xs), last.xs[len(last.xs) // 2]
    if size < _FEWEST:
        return False
    line, bow = fit_line(last.xs, last.ys), fit_line(last.xs, last.ys, lambda x: (x - middle) ** 2)
    quantum = size * QUANTUM_BYTES**2
    gain = size * math.log((line.residual + quantum) / (bow.residual + quantum))
    if gain <= _BENT or bow.curve * last.slope >= 0:
        return False
    # A bend only at the beginning is the end of a start-up on top of a continuing line.
    third = size // 3
    middle_slope = theil_sen(last.xs[third : 2 * third], last.ys[third : 2 * third])
    return abs(theil_sen(last.xs[2 * third :], last.ys[2 * third :])) < _SLOWER * abs(middle_slope)


def _flattens(times: Sequence[float], values: Sequence[float], chain: Sequence[Stretch]) -> bool:
    begin, end = chain[0].begin, chain[-1].end
    xs, ys = bins(times[begin:end], values[begin:end], _BINS)
    size, span = len(xs), xs[-1] - xs[0]
    if size < _FEWEST or span <= 0:
        return False
    places = [(x - xs[0]) / span for x in xs]
    rising = ys[-1] > ys[0]

    def flattened(curve: Callable[[float], Curve], scale: float) -> float:
        shape = curve(scale)
        fit = fit_line([shape(x) for x in places], ys)
        return fit.residual if (fit.slope > 0) == rising else math.inf

    flat = min(
        _least(lambda scale: flattened(_saturating_curve, scale), 0.01, _SLOWEST),
        _least(lambda scale: flattened(_logarithmic, scale), 0.0005, 0.15),
    )
    over_line = _least(lambda scale: fit_line(places, ys, _saturating_curve(scale)).residual, 0.01, _SLOWEST)
    corners = sum((y - _on(chain, x)) ** 2 for x, y in zip(xs, ys))

    def score(squares: float, parameters: int) -> float:
        return size * math.log(squares / size + QUANTUM_BYTES**2) + parameters * math.log(size)

    flattening = score(flat, 3)
    others = [score(over_line, 4)] + [score(corners, 3 * len(chain) - 1)] * (len(chain) > 1)
    return (
        flattening < score(fit_line(places, ys).residual, 2) - _TELLING and flattening < min(others) + _PROVEN
    )


class SeriesEnd(NamedTuple):
    """The end of an exponential course."""

    level: float  # bytes
    to_come: float  # bytes that it is still away from it
    beside: Slope  # slope besides the exponential, bytes per second
    resolution: float


def find_ending(
    times: Sequence[float], values: Sequence[float], chain: Sequence[Stretch]
) -> Optional[SeriesEnd]:
    """Return the limit of *chain* if an exponential without a further slope explains it, or an end of it."""
    for start in range(len(chain)):
        ending = _series_end(times, values, chain[start:])
        if ending is not None:
            return ending
    return None


def _series_end(
    times: Sequence[float], values: Sequence[float], chain: Sequence[Stretch]
) -> Optional[SeriesEnd]:
    begin, end = chain[0].begin, chain[-1].end
    xs, ys = bins(times[begin:end], values[begin:end], 2 * _BINS)
    size, span = len(xs), xs[-1] - xs[0]
    if size < 2 * _FEWEST or span <= 0:
        return None
    places = [(x - xs[0]) / span for x in xs]

    def alone(logarithm: float) -> float:
        shape = _saturating_curve(math.exp(logarithm))
        return fit_line([shape(x) for x in places], ys).residual

    scale = math.exp(_golden(alone, math.log(0.02), math.log(_SOON_ENOUGH)))
    if scale > 0.95 * _SOON_ENOUGH:
        return None
    shape = _saturating_curve(scale)
    fit = fit_line([shape(x) for x in places], ys)
    both = fit_line(places, ys, shape)
    error = max(both.error, QUANTUM_BYTES)
    half = t_critical(both.dof, Z_95) * error
    quantum = size * QUANTUM_BYTES**2
    better = size * math.log((fit.residual + quantum) / (both.residual + quantum))
    if abs(both.slope) > half or better > _TELLING:
        return None
    to_come = fit.slope * math.exp(-1 / scale)
    beside = Slope(both.slope / span, (both.slope - half) / span, (both.slope + half) / span)
    resolution = (half + 0.84 * error) / span
    return SeriesEnd(ys[-1] + to_come, to_come, beside, resolution)


def _golden(of: Callable[[float], float], low: float, high: float) -> float:
    """Return the minimum of *of*, which is unimodal, by golden-section search."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = of(left), of(right)
    for _ in range(24):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = of(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = of(right)
    return (low + high) / 2


def _on(chain: Sequence[Stretch], t: float) -> float:
    return next((s for s in reversed(chain) if s.xs[0] <= t), chain[0]).at(t)


def _least(of: Callable[[float], float], low: float, high: float) -> float:
    """Return the smallest value of *of* for scales from *low* to *high*."""
    count = _SCALES
    scales = [low * (high / low) ** (i / (count - 1)) for i in range(count)]
    found = [of(scale) for scale in scales]
    best = min(range(count), key=found.__getitem__)
    near = [math.log(scales[at]) for at in (max(best - 1, 0), min(best + 1, count - 1))]
    return min(found[best], of(math.exp(_golden(lambda logarithm: of(math.exp(logarithm)), *near))))


def _saturating_curve(scale: float) -> Curve:
    return lambda x: 1 - math.exp(-x / scale)


def _logarithmic(scale: float) -> Curve:
    return lambda x: math.log1p(x / scale)


# Memory that ended threads leave behind: it grows while threads are started, and only then.


_FEWEST_BIRTHS = 8  # intervals with thread starts, and as many without
_FEWEST_THREADS = 50
_STRETCHES = 60
_ELSEWHERE = 0.1  # fraction of the growth that may occur while no thread is started
_LEAST_BYTES = 1 << 20
_CLOSE = 0.2  # error of the memory per thread, as a fraction of it

Points = Sequence[tuple[float, float]]


def left_by_each(memory: Points, started: Points) -> Optional[float]:
    """Return the bytes that each started thread leaves behind; None if the data does not prove this.

    *started* counts the threads so far. If threads are started all the time, growth may have another cause.
    """
    if (
        len(memory) < 2 * _FEWEST_BIRTHS
        or len(started) < 2 * _FEWEST_BIRTHS
        or started[-1][1] - started[0][1] < _FEWEST_THREADS
    ):
        return None
    # Threads are counted in fewer samples than memory is: only there both are known.
    places = [number * (len(started) - 1) // _STRETCHES for number in range(_STRETCHES + 1)]
    counts = [started[place] for place in sorted(set(places))]
    sizes = _sizes_at([t for t, _ in counts], memory)
    births = [b - a for (_, a), (_, b) in zip(counts, counts[1:])]
    growth = [b - a for a, b in zip(sizes, sizes[1:])]
    during = sum(change for change, born in zip(growth, births) if born)
    elsewhere = sum(abs(change) for change, born in zip(growth, births) if not born)
    busy = sum(born > 0 for born in births)
    if (
        min(busy, len(births) - busy) < _FEWEST_BIRTHS
        or during < _LEAST_BYTES
        or elsewhere > _ELSEWHERE * during
    ):
        return None
    fit = fit_line([count for _, count in counts], sizes)
    return fit.slope if fit.slope > 0 and fit.error < _CLOSE * fit.slope else None


def _sizes_at(times: Sequence[float], memory: Points) -> list[float]:
    sizes, place = [], 0
    for t in times:
        while place + 1 < len(memory) and memory[place + 1][0] <= t:
            place += 1
        sizes.append(memory[place][1])
    return sizes


# Growth of a JVM below the size of its heap, which it touches for the first time until it is full, leak or not.


_JVM = re.compile(r"(?:\S*/)?java(?: .*)?", re.DOTALL)
# Source: the manual of java: a size in bytes, or with k, m, g, t; the last one counts; without one a quarter of memory.
_HEAP_SIZE = re.compile(r"(?:^| )(?:-Xmx|-XX:MaxHeapSize=)(\d{1,15})([kmgtKMGT]?)(?= |$)")
_HEAP_SHARE = re.compile(r"(?:^| )-XX:MaxRAMPercentage=(\d{1,3}(?:\.\d+)?)(?= |$)")
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_BESIDE_BYTES = 64 << 20  # resident memory of a JVM besides its heap: itself, classes, compiled code, stacks
_LEAST_SHARE = 0.5  # of the growth that is the JVM's


def heap_bytes(command: str, memory_bytes: Optional[int]) -> Optional[int]:
    """Return the largest heap of the JVM with *command* in *memory_bytes*; None: unknown, or not a JVM."""
    if not _JVM.fullmatch(command):
        return None
    sizes = _HEAP_SIZE.findall(command)
    if sizes:
        number, unit = sizes[-1]
        return int(number) << _UNITS[unit.lower()]
    if not memory_bytes:
        return None
    shares = _HEAP_SHARE.findall(command)
    return int(memory_bytes * min(float(shares[-1]) if shares else 25.0, 100.0) / 100)


def beside_heap(
    verdict: Verdict, *, name: str, heap: Optional[int], change_bytes: float, last_bytes: float
) -> Verdict:
    """Return *verdict*, made inconclusive if the growth may be that of a JVM that fills its *heap*.

    *change_bytes* and *last_bytes* are of the process *name*, which *heap* is the largest heap of; None for no JVM.
    """
    grown = (verdict.last_bytes or 0.0) - (verdict.first_bytes or 0.0)
    room = 0.0 if heap is None else heap + _BESIDE_BYTES - last_bytes
    slope = verdict.slope
    if (
        not verdict.grows
        or slope is None
        or slope.value <= 0
        or room <= 0
        or change_bytes < _LEAST_SHARE * grown
    ):
        return verdict
    needs = room / slope.value
    evidence = (
        f"{format_rate(slope.value)}, but a JVM fills its heap, of {format_size(heap or 0)} at most, leak or not, and"
        f" {printable(name)} holds {format_size(last_bytes)}: in another {format_duration(needs)} it would be full"
    )
    regimes = [*verdict.regimes[:-1], *(last._replace(kind="inconclusive") for last in verdict.regimes[-1:])]
    floor = "unclear" if verdict.floor else ""
    return verdict._replace(
        kind="inconclusive", floor=floor, evidence=evidence, regimes=regimes, needs_seconds=needs
    )
