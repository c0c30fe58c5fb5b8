"""Series whose verdict is known, with the noise of real programs; each random seed gives another set."""

from __future__ import annotations

import bisect
import functools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Callable

KIB, MIB = 1 << 10, 1 << 20
HOUR = 3600.0

Course = Callable[[float], float]  # seconds → bytes


@dataclass(frozen=True)
class Labelled:
    """A series with the verdicts that are right for it: a kind, or for a sawtooth kind/floor."""

    name: str
    right: frozenset[str]
    times: list[float]
    values: list[float]

    @property
    def grows(self) -> bool:
        """True if 'growing' or a rising floor is right."""
        return bool(self.right & {"growing", "sawtooth/rising"})


@functools.cache
def make_set(seed: int) -> list[Labelled]:
    """Return the labelled set that belongs to *seed*."""
    rng = random.Random(seed)
    return [*_flat(rng), *_growing(rng), *_sawtooth(rng), *_other(rng), *_irregular(rng)]


def sampled(
    rng: random.Random,
    name: str,
    right: str,
    course: Course,
    *,
    seconds: float = 1200.0,
    interval: float = 1.0,
    noise: float = 16 * KIB,
    likeness: float = 0.0,
) -> Labelled:
    """Sample *course*; *noise* is the standard deviation, *likeness* how alike neighbours' noise is."""
    times, values = [], []
    error = rng.gauss(0, noise)
    for number in range(int(seconds / interval)):
        t = number * interval + rng.uniform(0, 0.05) * interval
        times.append(t)
        values.append(float(max(round((course(t) + error) / 4096), 1) * 4096))
        error = likeness * error + math.sqrt(1 - likeness**2) * rng.gauss(0, noise)
    return Labelled(name, frozenset(right.split()), times, values)


def _flat(rng: random.Random) -> Iterator[Labelled]:
    yield sampled(rng, "constant", "plateau", lambda t: 50 * MIB, noise=0)
    yield sampled(rng, "quiet", "plateau", lambda t: 50 * MIB)
    yield sampled(rng, "noisy", "plateau", lambda t: 200 * MIB, noise=2 * MIB)
    yield sampled(rng, "wandering noise", "plateau", lambda t: 200 * MIB, noise=MIB, likeness=0.9)
    yield sampled(
        rng, "slow wandering noise", "plateau inconclusive", lambda t: 200 * MIB, noise=MIB, likeness=0.98
    )
    yield sampled(rng, "short and quiet", "plateau", lambda t: 30 * MIB, seconds=30, interval=0.2)
    yield sampled(rng, "warm-up", "plateau", lambda t: (80 - 60 * math.exp(-t / 20)) * MIB, noise=64 * KIB)
    yield sampled(
        rng, "slow warm-up", "plateau", lambda t: (80 - 60 * math.exp(-t / 120)) * MIB, noise=64 * KIB
    )
    yield sampled(rng, "ramp, then level", "plateau", lambda t: min(20 + t / 2, 120) * MIB, noise=64 * KIB)
    yield sampled(rng, "bounded cache", "plateau", lambda t: (30 + 100 * (1 - math.exp(-t / 150))) * MIB)
    yield sampled(
        rng,
        "like a logarithm",
        "plateau inconclusive",
        lambda t: (40 + 5 * math.log1p(t / 2)) * MIB,
        noise=32 * KIB,
    )
    yield sampled(
        rng,
        "like a logarithm, noisy",
        "plateau inconclusive",
        lambda t: (40 + 3 * math.log1p(t / 5)) * MIB,
        noise=256 * KIB,
    )
    spikes = {rng.randrange(1200) for _ in range(12)}
    yield sampled(rng, "spikes", "plateau", lambda t: (60 + (40 if int(t) in spikes else 0)) * MIB)
    yield sampled(rng, "two levels", "plateau", lambda t: (60 + 4 * rng.randrange(2)) * MIB)
    yield sampled(rng, "hours", "plateau", lambda t: 27 * MIB, seconds=4 * HOUR, interval=10, noise=40 * KIB)
    walk = _walk(rng, 1200, 8 * KIB, 0)
    yield sampled(
        rng, "random walk", "plateau inconclusive step", lambda t: 90 * MIB + walk[int(t)], noise=8 * KIB
    )


def _growing(rng: random.Random) -> Iterator[Labelled]:
    yield sampled(rng, "leak", "growing", lambda t: 50 * MIB + t * 100 * KIB)
    yield sampled(rng, "leak, noisy", "growing", lambda t: 200 * MIB + t * 40 * KIB, noise=2 * MIB)
    slow = 0.5 * MIB / HOUR
    yield sampled(
        rng,
        "slow leak",
        "growing",
        lambda t: 27 * MIB + t * slow,
        seconds=2 * HOUR,
        interval=5,
        noise=24 * KIB,
    )
    yield sampled(
        rng,
        "slow leak, quiet",
        "growing",
        lambda t: 27 * MIB + t * slow,
        seconds=HOUR,
        interval=2,
        noise=8 * KIB,
    )
    yield sampled(
        rng, "slow leak after warm-up", "growing", lambda t: (27 - 12 * math.exp(-t / 200)) * MIB + t * slow,
        seconds=3 * HOUR, interval=10, noise=24 * KIB,
    )  # fmt: skip
    yield sampled(
        rng,
        "leak after warm-up",
        "growing",
        lambda t: (80 - 60 * math.exp(-t / 20)) * MIB + t * 30 * KIB,
        noise=64 * KIB,
    )
    yield sampled(
        rng,
        "leak, wandering noise",
        "growing",
        lambda t: 100 * MIB + t * 60 * KIB,
        noise=512 * KIB,
        likeness=0.8,
    )
    yield sampled(rng, "short leak", "growing", lambda t: 20 * MIB + t * 200 * KIB, seconds=30, interval=0.2)
    yield sampled(
        rng, "accelerating", "growing", lambda t: 30 * MIB + (t * t) * 40 + t * 10 * KIB, noise=64 * KIB
    )
    doubling = rng.uniform(70, 200)
    yield sampled(
        rng, "doubling", "growing", lambda t: (30 + 1000 * 2 ** ((t - 1200) / doubling)) * MIB, noise=64 * KIB
    )
    begin = rng.uniform(400, 700)
    yield sampled(rng, "late leak", "growing", lambda t: (50 + max(t - begin, 0) / 10) * MIB, noise=64 * KIB)
    creep = _walk(rng, 1200, 0, 0.06, jump=600 * KIB)
    yield sampled(rng, "fragmentation creep", "growing", lambda t: 60 * MIB + creep[int(t)])
    yield sampled(rng, "staircase", "growing", lambda t: (40 + 4 * (t // 60)) * MIB)
    yield sampled(
        rng,
        "leak with spikes",
        "growing",
        lambda t: (60 + (30 if rng.random() < 0.02 else 0)) * MIB + t * 50 * KIB,
    )


def _sawtooth(rng: random.Random) -> Iterator[Labelled]:
    def saw(t: float, period: float, height: float) -> float:
        return t % period / period * height * MIB

    flat, rising = "sawtooth/flat", "sawtooth/rising"
    yield sampled(rng, "sawtooth", flat, lambda t: 40 * MIB + saw(t, 60, 100), noise=256 * KIB)
    yield sampled(rng, "short teeth", flat, lambda t: 40 * MIB + saw(t, 12, 30), noise=128 * KIB)
    yield sampled(rng, "few teeth", flat, lambda t: 40 * MIB + saw(t, 220, 100), noise=256 * KIB)
    yield sampled(rng, "sawtooth, noisy", flat, lambda t: 90 * MIB + saw(t, 80, 60), noise=2 * MIB)
    yield sampled(
        rng,
        "sawtooth after warm-up",
        flat,
        lambda t: (60 - 30 * math.exp(-t / 30)) * MIB + saw(t, 60, 50),
        noise=256 * KIB,
    )
    loading = rng.uniform(60, 150)
    yield sampled(
        rng,
        "sawtooth after a long start",
        flat,
        lambda t: min(t / loading, 1) * 600 * MIB + (saw(t, 60, 150) if t > loading else 0.0),
        noise=256 * KIB,
    )
    yield sampled(
        rng,
        "rising floor after a long start",
        rising,
        lambda t: min(t / loading, 1) * 600 * MIB + (saw(t, 60, 150) + t * 40 * KIB if t > loading else 0.0),
        noise=256 * KIB,
    )
    edges = [0.0]
    while edges[-1] < 1300:
        edges.append(edges[-1] + rng.uniform(30, 60))

    def collected(t: float) -> float:
        begin = max(edge for edge in edges if edge <= t)
        return (t - begin) * MIB

    yield sampled(rng, "periodic collection", flat, lambda t: 120 * MIB + collected(t), noise=512 * KIB)
    yield sampled(rng, "waves", flat, lambda t: (200 + 50 * math.sin(t / 20)) * MIB, noise=MIB)
    epochs = _epochs(rng, 10)
    yield sampled(
        rng,
        "epochs",
        flat,
        lambda t: (60 + 110 * epochs(t)) * MIB,
        seconds=100,
        interval=0.4,
        noise=128 * KIB,
    )
    yield sampled(
        rng,
        "epochs, rising floor",
        rising,
        lambda t: (60 + 110 * epochs(t) + t / 4) * MIB,
        seconds=100,
        interval=0.4,
        noise=128 * KIB,
    )
    yield sampled(
        rng, "square wave", flat, lambda t: (50 + (80 if t % 100 > 60 else 0)) * MIB, noise=256 * KIB
    )
    yield sampled(
        rng, "rising floor", rising, lambda t: 40 * MIB + saw(t, 60, 100) + t * 30 * KIB, noise=256 * KIB
    )
    yield sampled(
        rng,
        "rising floor, few teeth",
        rising,
        lambda t: 40 * MIB + saw(t, 150, 100) + t * 60 * KIB,
        noise=256 * KIB,
    )
    yield sampled(
        rng, "slowly rising floor", rising, lambda t: 40 * MIB + saw(t, 30, 40) + t * 6 * KIB, noise=128 * KIB
    )
    yield sampled(
        rng,
        "collection, rising floor",
        rising,
        lambda t: 120 * MIB + collected(t) + t * 40 * KIB,
        noise=512 * KIB,
    )
    yield sampled(
        rng,
        "falling floor",
        "sawtooth/falling",
        lambda t: 140 * MIB + saw(t, 60, 100) - t * 40 * KIB,
        noise=256 * KIB,
    )


def _irregular(rng: random.Random) -> Iterator[Labelled]:
    """Yield teeth of no one height that come when they like, as a collector's do; one with a leak below them."""
    for name, right, leak in (
        ("irregular teeth", "sawtooth/flat", 0),
        ("irregular teeth, rising floor", "sawtooth/rising", 60 * KIB),
    ):
        edges, heights = [-60 * rng.random()], [0.0]
        while edges[-1] < 1200:
            edges.append(edges[-1] + 60 * rng.lognormvariate(0, 0.5))
            heights.append(60 * rng.lognormvariate(0, 0.4) * MIB)

        def teeth(t: float, edges: list[float] = edges, heights: list[float] = heights) -> float:
            number = bisect.bisect_right(edges, t)
            return (t - edges[number - 1]) / (edges[number] - edges[number - 1]) * heights[number]

        yield sampled(
            rng, name, right, lambda t, leak=leak, teeth=teeth: 100 * MIB + teeth(t) + t * leak,  # type: ignore[misc]
            noise=256 * KIB,
        )  # fmt: skip


def _epochs(rng: random.Random, seconds: float) -> Course:
    """Return the course, 0 to 1, of workers that are forked, copy what they read, and end in two goes."""
    edges = [0.0]
    while edges[-1] < 1300:
        edges.append(edges[-1] + seconds * rng.uniform(0.9, 1.1))

    def share(t: float) -> float:
        number = bisect.bisect_right(edges, t)
        part = (t - edges[number - 1]) / (edges[number] - edges[number - 1])
        if part < 0.3:
            return 0.0 if part < 0.17 else 0.2
        return 0.5 if part > 0.96 else 1 - 0.8 * math.exp(-(part - 0.3) / 0.08)

    return share


def _other(rng: random.Random) -> Iterator[Labelled]:
    yield sampled(rng, "one step", "step", lambda t: (50 + (30 if t > 500 else 0)) * MIB)
    yield sampled(rng, "one small step", "step", lambda t: (50 + (2 if t > 800 else 0)) * MIB, noise=64 * KIB)
    yield sampled(rng, "one step down", "step", lambda t: (50 - (20 if t > 600 else 0)) * MIB)
    yield sampled(rng, "early step", "step plateau", lambda t: (50 + (20 if t > 200 else 0)) * MIB)
    yield sampled(rng, "shrinking", "shrinking", lambda t: 150 * MIB - t * 60 * KIB)
    yield sampled(rng, "stairs down", "shrinking", lambda t: (200 - 8 * (t // 60)) * MIB)
    yield sampled(rng, "shrinking, noisy", "shrinking", lambda t: 150 * MIB - t * 60 * KIB, noise=MIB)
    yield sampled(rng, "ten samples", "inconclusive", lambda t: 50 * MIB, seconds=10)
    yield sampled(rng, "too noisy to tell", "inconclusive", lambda t: 100 * MIB, seconds=20, noise=30 * MIB)


def _walk(rng: random.Random, count: int, step: float, chance: float, *, jump: float = 0.0) -> list[float]:
    level, levels = 0.0, []
    for _ in range(count + 1):
        level += rng.gauss(0, step) if step else 0.0
        if rng.random() < chance:
            level += rng.uniform(0.2, 1) * jump
        levels.append(level)
    return levels
