"""Runs of one program, which differ by chance only: noise that wanders or not, teeth, steps, leaks, a cache."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

from gdbmem.model.series import Verdict
from gdbmem.series.comparison import Figures, compare, levels_of
from gdbmem.series.verdict import judge
from tests.series_set import MIB

SECONDS = 60.0
Values = list[float]
Course = Callable[[random.Random, int], Values]


def autoregression(likeness: float) -> Course:
    """Return noise of 2 MiB in which neighbours have the correlation *likeness*."""

    def course(rng: random.Random, count: int) -> Values:
        now, found = rng.gauss(0, 2), []
        for _ in range(count):
            found.append((100 + now) * MIB)
            now = likeness * now + rng.gauss(0, 2 * math.sqrt(1 - likeness**2))
        return found

    return course


def summed(step: Callable[[random.Random, int], float], noise: float = 0.0) -> Course:
    """Return the sums of what *step* returns, MiB, with *noise*."""

    def course(rng: random.Random, count: int) -> Values:
        now, found = 100.0, []
        for _ in range(count):
            found.append((now + rng.gauss(0, noise)) * MIB)
            now += step(rng, count)
        return found

    return course


def teeth(rng: random.Random, count: int) -> Values:
    """Return sawteeth of random period and phase on one floor."""
    period = rng.uniform(18, 26)
    phase = rng.uniform(0, period)
    return [(100 + 30 * ((i + phase) % period) / period + rng.gauss(0, 0.5)) * MIB for i in range(count)]


def one_step(rng: random.Random, count: int) -> Values:
    """Return a step at a random time."""
    at = rng.uniform(0.1, 0.9) * count
    return [(100 + 20 * (i > at) + rng.gauss(0, 0.2)) * MIB for i in range(count)]


def busy_leak(rng: random.Random, count: int) -> Values:
    """Return a leak whose rate varies by 5 % from run to run, as on a machine with other work."""
    rate = rng.gauss(30, 1.5) / count
    return [(100 + rate * i + rng.gauss(0, 1)) * MIB for i in range(count)]


def cache(rng: random.Random, count: int) -> Values:
    """Return a cache that fills."""
    scale = rng.gauss(0.2, 0.01) * count
    return [(100 + 50 * (1 - math.exp(-i / scale)) + rng.gauss(0, 0.5)) * MIB for i in range(count)]


KINDS: dict[str, Course] = {
    "independent noise": autoregression(0),
    "AR(1) 0.5": autoregression(0.5),
    "AR(1) 0.9": autoregression(0.9),
    "AR(1) 0.99": autoregression(0.99),
    "AR(1) 0.999": autoregression(0.999),
    "random walk": summed(lambda rng, count: rng.gauss(0, 0.25)),
    "teeth": teeth,
    "steps up and down": summed(
        lambda rng, count: rng.gauss(0, 10) if rng.random() < 4 / count else 0.0, 0.2
    ),
    "one step": one_step,
    "leak, uneven": summed(lambda rng, count: max(0.0, rng.gauss(30, 30)) / count),
    "leak, of other speed": busy_leak,
    "leak in jumps": summed(lambda rng, count: 2.0 if rng.random() < 18 / count else 0.0),
    "cache": cache,
}


def figures(values: Sequence[float]) -> tuple[Verdict, Figures]:
    """Judge *values*, recorded evenly over a minute."""
    step = SECONDS / len(values)
    verdict = judge([i * step for i in range(len(values))], values)
    threads = {"most_threads": 1.0, "threads_started": 0.0, "threads_per_second": 0.0}
    return verdict, Figures(*levels_of(values), verdict.slope, is_settled=verdict.is_conclusive, **threads)


def compare_pairs(
    kind: str, pairs: int, *, count: int = 300, runs: int = 1, more: float = 0.0
) -> Counter[str]:
    """Compare *pairs* of groups of *runs* series of *count* samples; the second ones grow by *more* MiB a minute more.

    Returns how many comparisons differ, and of the first series' slopes how many are known and hold 0.
    """
    rng = random.Random(f"{kind} {count} {runs} {more}")
    found: Counter[str] = Counter()
    for _ in range(pairs):
        groups: list[list[Figures]] = [[], []]
        for number, group in enumerate(groups):
            for _ in range(runs):
                values = KINDS[kind](rng, count)
                grown = [value + number * more * MIB * i / count for i, value in enumerate(values)]
                verdict, its = figures(grown)
                group.append(its)
                if verdict.slope is not None and not number:
                    found["slopes"] += 1
                    found["hold 0"] += verdict.slope.low <= 0 <= verdict.slope.high
        found["differ"] += any(row.is_shown for row in compare(*groups))
    return found
