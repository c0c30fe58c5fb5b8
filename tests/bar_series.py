"""Series of programs over 30, 60 and 120 s: leaks, caches that fill, runtimes, steps, teeth; by seed."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Iterator

from tests.series_set import KIB, MIB, Course, Labelled, sampled

LENGTHS = (30.0, 60.0, 120.0)  # seconds
NOT_YET = "inconclusive sawtooth/unclear"
LEAK = frozenset({"growing", "sawtooth/rising"})


def make_bar(seed: int) -> list[Labelled]:
    """Return the set that belongs to *seed*: each kind at each length."""
    rng = random.Random(f"bar {seed}")
    usual = [series for seconds in LENGTHS for series in _kinds(rng, seconds)]
    rng = random.Random(f"first teeth {seed}")
    return [*usual, *(series for seconds in LENGTHS for series in _first_teeth(rng, seconds))]


def _kinds(rng: random.Random, seconds: float) -> Iterator[Labelled]:
    courses = [*_leaks(rng, seconds), *_caches(rng, seconds), *_runtimes(rng, seconds)]
    courses += [*_steps(rng, seconds), *_teeth(rng, seconds)]
    for name, right, course, noise in courses:
        yield sampled(
            rng, f"{name}, {seconds:.0f} s", right, course, seconds=seconds, interval=0.2, noise=noise
        )


Kind = tuple[str, str, Course, float]  # name, verdicts that are right, seconds → bytes, noise in bytes


def _noise(rng: random.Random) -> float:
    return rng.choice((0.0, 8.0, 30.0, 100.0)) * KIB


def _leaks(rng: random.Random, span: float) -> Iterator[Kind]:
    base = rng.uniform(10, 80)
    leaked = rng.uniform(5, 15)  # MiB by the end
    noise = _noise(rng)

    def leak(t: float, begin: float = 0.0, size: float = leaked) -> float:
        return size * max(t / span - begin, 0) / (1 - begin)

    yield "leak", "growing", lambda t: (base + leak(t)) * MIB, noise
    fast = rng.uniform(0.02, 0.06) * span
    load = rng.uniform(30, 120)
    yield (
        "leak after warm-up", "growing",
        lambda t: (base + load * (1 - math.exp(-t / fast)) + leak(t)) * MIB, noise,
    )  # fmt: skip
    ramp = rng.uniform(0.04, 0.15)
    yield (
        "leak after loading", "growing",
        lambda t: (base + load * min(t / span / ramp, 1) + leak(t, ramp)) * MIB, noise,
    )  # fmt: skip
    at = rng.uniform(0.15, 0.45)
    height = rng.uniform(10, 60)
    yield (
        "leak after a step",
        "growing",
        lambda t: (base + height * (t > at * span) + leak(t, at)) * MIB,
        noise,
    )
    both = rng.uniform(0.2, 0.5)
    yield "leak with a step", "growing", lambda t: (base + height * (t > both * span) + leak(t)) * MIB, noise
    late = rng.uniform(0.4, 0.65)
    yield "late leak", "growing", lambda t: (base + leak(t, late)) * MIB, noise
    yield (
        "spike, level, late leak", "growing",
        lambda t: (base + (30 if t < 0.05 * span else 0) + 20 + leak(t, late)) * MIB, noise,
    )  # fmt: skip
    power = rng.uniform(1.6, 3)
    yield "accelerating leak", "growing", lambda t: (base + 3 * leaked * (t / span) ** power) * MIB, noise
    jumps = sorted(rng.uniform(0, span) for _ in range(rng.randint(25, 60)))
    yield (
        "leak in jumps", "growing",
        lambda t: (base + 0.5 * bisect.bisect_right(jumps, t)) * MIB, min(noise, 30 * KIB),
    )  # fmt: skip


def _caches(rng: random.Random, span: float) -> Iterator[Kind]:
    base, size, noise = rng.uniform(10, 80), rng.uniform(20, 150), _noise(rng)
    full = rng.uniform(0.15, 0.6) * span

    def part(t: float) -> float:
        return min(t / full, 1)

    scale = rng.uniform(0.03, 0.14) * span
    doublings = rng.randint(4, 8)
    middle, steep = rng.uniform(0.2, 0.45) * span, rng.uniform(0.015, 0.045) * span
    for name, course in (
        ("cache, even", lambda t: part(t)),
        ("cache, ever slower", lambda t: 1 - math.exp(-t / scale)),
        ("cache, root", lambda t: math.sqrt(part(t))),
        ("cache, doubling", lambda t: 2.0 ** math.floor(doublings * (part(t) - 1))),
        ("cache, S", lambda t: 1 / (1 + math.exp(-(t - middle) / steep))),
        ("cache, logarithm until full", lambda t: math.log1p(20 * part(t)) / math.log(21)),
    ):
        right = "plateau step" if name == "cache, doubling" else "plateau"
        yield name, right, lambda t, course=course: (base + size * course(t)) * MIB, noise  # type: ignore[misc]


def _runtimes(rng: random.Random, span: float) -> Iterator[Kind]:
    base, start = rng.uniform(90, 160), rng.uniform(1.0, 2.5)
    compiled, slow = rng.uniform(8, 25), rng.uniform(0.04, 0.1) * span
    leaked = rng.uniform(8, 20)
    heap = _stairs(rng, span, rng.randint(20, 50))

    def jvm(t: float) -> float:
        return base * min(0.2 + t / start, 1) + compiled * (1 - math.exp(-t / slow))

    noise = rng.uniform(20, 200) * KIB
    yield "JVM", "plateau", lambda t: jvm(t) * MIB, noise
    yield "JVM with a leak", "growing", lambda t: (jvm(t) + leaked * heap(t)) * MIB, noise
    scavenge = _collections(rng, span, rng.uniform(0.8, 2.0), rng.uniform(2, 6))
    young = rng.uniform(30, 50)

    def node(t: float) -> float:
        return young * min(0.4 + t, 1) + scavenge(t)

    yield "node", "plateau sawtooth/flat", lambda t: node(t) * MIB, 50 * KIB
    yield (
        "node with a leak", "growing sawtooth/rising",
        lambda t: (node(t) + 1.5 * leaked * t / span) * MIB, 50 * KIB,
    )  # fmt: skip


def _steps(rng: random.Random, span: float) -> Iterator[Kind]:
    base, noise = rng.uniform(50, 120), _noise(rng)
    at, up, down = rng.uniform(0.25, 0.7) * span, rng.uniform(5, 40), rng.uniform(10, 40)
    yield "step up", "step", lambda t: (base + up * (t > at)) * MIB, noise
    yield "step down", "step", lambda t: (base - down * (t > at)) * MIB, noise
    half = rng.uniform(0.46, 0.54) * span
    yield "step at half time", "step", lambda t: (base + 30 * (t > half)) * MIB, noise
    first, second = rng.uniform(0.1, 0.2) * span, rng.uniform(0.25, 0.4) * span
    yield "two steps", "step plateau", lambda t: (base + up * (t > first) + down * (t > second)) * MIB, noise
    yield "level", "plateau", lambda t: base * MIB, noise


def _teeth(rng: random.Random, span: float) -> Iterator[Kind]:
    base, height = rng.uniform(30, 100), rng.uniform(20, 100)
    period = rng.uniform(0.05, 0.12) * span
    rise = rng.uniform(0.2, 0.6) * height
    noise = _noise(rng)
    epochs = _epochs(rng, span, period)
    collected = _collections(rng, span, period, height)
    for name, teeth in (
        ("teeth", lambda t: t % period / period * height),
        ("square teeth", lambda t: height * (t % period > 0.5 * period)),
        ("teeth of a collector", collected),
        ("epochs", lambda t: height * epochs(t)),
    ):
        yield name, "sawtooth/flat", lambda t, teeth=teeth: (base + teeth(t)) * MIB, noise  # type: ignore[misc]
        yield (
            f"{name}, rising floor", "sawtooth/rising",
            lambda t, teeth=teeth: (base + teeth(t) + rise * t / span) * MIB, noise,  # type: ignore[misc]
        )  # fmt: skip


def _first_teeth(rng: random.Random, span: float) -> Iterator[Labelled]:
    """Yield teeth too few for a sawtooth, of few samples or many, and leaks that one fall interrupts or begins."""
    base = rng.uniform(30, 400)
    height = base * rng.uniform(0.2, 1)
    noise = base * rng.uniform(0.0005, 0.005) * MIB

    def series(name: str, right: str, course: Course, interval: float) -> Labelled:
        name = f"{name}, {span:.0f} s"
        return sampled(rng, name, right, course, seconds=span, interval=interval, noise=noise)

    for name, least in (("second tooth", 1.3), ("third tooth", 2.3)):
        started = span * rng.uniform(0.03, 0.15)
        period = (span - started) / (least + rng.uniform(0, 0.65))
        tooth = _tooth(period, rng.choice((0, 0, 0.05, 0.12)), rng.choice((1, 1, 0.6, 1.5)))
        interval = max(period * rng.uniform(0.02, 0.06), 0.2)

        def begun(t: float, started: float = started, tooth: Course = tooth) -> float:
            return (base * t / started if t < started else base + height * tooth(t - started)) * MIB

        def attached(t: float, late: float = 0.6 * period, tooth: Course = tooth) -> float:
            return (base + height * tooth(t + late)) * MIB

        yield series(f"begun, {name}", NOT_YET, begun, interval)
        yield series(f"attached, {name}", NOT_YET, attached, interval)
    at, drop = span * rng.uniform(0.15, 0.5), base * rng.uniform(0.05, 0.5)
    yield series(
        "leak after a fall", "growing",
        lambda t: (base - drop * (t > at) + height * max(t - at, 0) / span) * MIB, span / 150,
    )  # fmt: skip
    yield series(
        "leak with a fall", "growing",
        lambda t: (base - drop * (t > at) + height * t / span) * MIB, span / 150,
    )  # fmt: skip


def _tooth(period: float, falls: float, shape: float) -> Course:
    """Return teeth from 0 to 1 that fall during the last *falls* of each *period*."""

    def tooth(t: float) -> float:
        part = t / period % 1
        return (part / (1 - falls)) ** shape if part < 1 - falls else 1 - (part - 1 + falls) / falls

    return tooth


def _stairs(rng: random.Random, span: float, count: int) -> Course:
    """Return a course from 0 to 1 in *count* uneven steps."""
    times = sorted(rng.uniform(0, span) for _ in range(count))
    return lambda t: bisect.bisect_right(times, t) / count


def _collections(rng: random.Random, span: float, period: float, height: float) -> Course:
    """Return uneven teeth that all fall to nought."""
    edges, heights = [-rng.random() * period], [0.0]
    while edges[-1] < span:
        edges.append(edges[-1] + period * rng.uniform(0.7, 1.3))
        heights.append(height * rng.uniform(0.8, 1.2))

    def teeth(t: float) -> float:
        number = bisect.bisect_right(edges, t)
        return (t - edges[number - 1]) / (edges[number] - edges[number - 1]) * heights[number]

    return teeth


def _epochs(rng: random.Random, span: float, period: float) -> Course:
    """Return the share, 0 to 1, of workers that are forked, copy what they read, and end."""
    edges = [0.0]
    while edges[-1] < span:
        edges.append(edges[-1] + period * rng.uniform(0.93, 1.07))

    def share(t: float) -> float:
        number = bisect.bisect_right(edges, t)
        part = (t - edges[number - 1]) / (edges[number] - edges[number - 1])
        return 0.0 if part < 0.15 else 1 - 0.8 * math.exp(-(part - 0.15) / 0.2)

    return share
