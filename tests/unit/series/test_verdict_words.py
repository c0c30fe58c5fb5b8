"""No sentence of a verdict contradicts an interval beside it, for any series."""

from __future__ import annotations

import io
import math
import os
import random
import re

import pytest

from gdbmem.model.series import KINDS, Regime, Slope, Verdict
from gdbmem.series.text import print_verdict
from gdbmem.series.verdict import judge
from gdbmem.terminal.console import Console
from tests.cover import cover
from tests.series_set import KIB, MIB

COUNT = int(os.environ.get("GDBMEM_SERIES", "1000"))
PARTS = 4
_RATE = r"([+-]?[\d,.]+ [KMGT]?i?B/(?:s|min|h|d))"
_FACTORS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def random_series(rng: random.Random) -> tuple[list[float], list[float]]:
    """Return a course of one to four pieces, each level, a ramp, a curve that flattens or teeth, with jumps between."""
    count = rng.randint(13, 150)
    cuts = sorted(rng.uniform(0, count) for _ in range(rng.randint(0, 3)))
    noise = rng.choice((0, 4, 50, 500)) * KIB
    likeness = rng.choice((0.0, 0.0, 0.7, 0.95))
    level, error = rng.uniform(5, 200) * MIB, 0.0
    values: list[float] = []
    for begin, end in zip([0.0, *cuts], [*cuts, float(count)]):
        size, shape = (
            rng.uniform(-5, 20) * MIB,
            rng.choice(("level", "level", "ramp", "ramp", "curve", "teeth")),
        )
        length, period = max(end - begin, 1), rng.uniform(5, 20)
        start = level
        for number in range(round(begin), round(end)):
            part = (number - begin) / length
            error = likeness * error + math.sqrt(1 - likeness**2) * rng.gauss(0, noise)
            course = {
                "level": 0.0,
                "ramp": part,
                "curve": 1 - math.exp(-part * 5),
                "teeth": number % period / period,
            }[shape]
            level = start + size * course
            values.append(max(round((level + error) / 4096), 1) * 4096.0)
        level += rng.choice((0, 0, rng.uniform(-20, 40))) * MIB
    return [0.2 * number for number in range(len(values))], values


@pytest.mark.slow
@pytest.mark.parametrize("part", cover(range(PARTS), lambda part: part == 0))
def test_no_sentence_names_a_kind_that_an_interval_beside_it_excludes(part: int) -> None:
    for number in range(part, COUNT, PARTS):
        times, values = random_series(random.Random(f"words {number}"))
        verdict = judge(times, values)
        try:
            assert verdict.kind in KINDS
            check(verdict.kind, verdict.slope, verdict.floor)
            for regime in verdict.regimes:
                check_regime(regime, verdict)
            check_order(verdict, times)
            check_text(verdict)
            if verdict.kind == "inconclusive" or verdict.floor == "unclear":
                assert verdict.needs_seconds and verdict.needs_seconds > 0
        except AssertionError as error:
            raise AssertionError(f"series {number}: {verdict}") from error


def check(kind: str, slope: Slope | None, floor: str = "") -> None:
    if slope is None:
        assert kind in ("inconclusive", "sawtooth", "step")
        return
    assert slope.low <= slope.value <= slope.high
    rises, falls = slope.low > 0, slope.high < 0
    if kind in ("plateau", "step") or floor == "flat":
        assert not rises and not falls
    if kind == "growing" or floor == "rising":
        assert rises
    if kind == "shrinking" or floor == "falling":
        assert falls


def check_regime(regime: Regime, verdict: Verdict) -> None:
    check(regime.kind, regime.slope, verdict.floor if regime.kind == "sawtooth" else "")
    assert regime.end >= regime.begin
    if regime.kind in ("growing", "shrinking"):
        assert (regime.change_bytes > 0) == (regime.kind == "growing")


def check_order(verdict: Verdict, times: list[float]) -> None:
    if not verdict.regimes:
        return
    assert verdict.regimes[0].begin == times[0] and verdict.regimes[-1].end == times[-1]
    for before, after in zip(verdict.regimes, verdict.regimes[1:]):
        assert before.end == after.begin


def check_text(verdict: Verdict) -> None:
    stream = io.StringIO()
    print_verdict(verdict, Console(file=stream, width=10_000))
    text = stream.getvalue()
    assert text.startswith(verdict.kind)
    check_style(text)
    found = re.search(
        rf"(?:slope|floor): {_RATE} \(95 %: {_RATE} to {_RATE}\)(?:; detectable here: {_RATE})?", text
    )
    if verdict.slope is None or verdict.kind == "inconclusive":
        assert found is None
        return
    assert found is not None, text
    value, low, high, least = (bytes_of(rate or "0 B/s") for rate in found.groups())
    assert low <= value <= high
    level = verdict.kind in ("plateau", "step") or verdict.floor == "flat"
    assert not level or low <= 0 <= high, text
    assert not level or least >= max(-low, high), f"a slope that the interval allows would have shown: {text}"
    assert not (verdict.grows and high <= 0), text
    assert not ("level at" in text.rsplit("then", 1)[-1] and verdict.kind in ("growing", "shrinking")), text


def check_style(text: str) -> None:
    assert not re.search(r"level at (\S+ \S+) for [^,]+, (?:then )?level at \1 for", text), f"doubled: {text}"
    assert not re.search(r"between (\S+ \S+) and \1\b", text), f"between a number and itself: {text}"
    assert not re.search(r"then .* in the first \d", text), f"what comes later is not the first: {text}"


def bytes_of(rate: str) -> float:
    number, unit = rate.split("/")[0].replace(",", "").split()
    return float(number) * _FACTORS[unit]
