"""Growth of memory over repeated calls, judged with its interval; where it grows, the paths that allocated it."""

from __future__ import annotations

import gc
import math
import tracemalloc
from array import array
from collections.abc import Sequence
from itertools import takewhile
from typing import Callable, Optional

from gdbmem.line_recorder import Meter
from gdbmem.records import dataclass
from gdbmem.text import plural, printable
from gdbmem.units import format_delta, format_size

_FRAMES, _PATHS = 8, 3
_WARM_UP, _MORE = 2, 4
# Two-sided 95 % quantiles of Student's t, by degrees of freedom.
_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip


@dataclass(frozen=True)
class GrowthOfCalls:
    """The bytes that each of several calls added to memory."""

    changes: Sequence[int]

    @property
    def mean(self) -> float:
        return sum(self.changes) / len(self.changes)

    @property
    def uncertainty(self) -> float:
        """Half of the 95 % confidence interval of the mean."""
        count = len(self.changes)
        if count < 2:
            return math.inf
        variance = sum((one - self.mean) ** 2 for one in self.changes) / (count - 1)
        quantile = _QUANTILES[count - 2] if count - 2 < len(_QUANTILES) else 1.96
        return quantile * math.sqrt(variance / count)


def judge_calls(call: Callable[[], object], at_most: int, *, repeat: int, backend: str) -> Optional[str]:
    """Return the reason, with the paths, if calls of *call* keep more than *at_most* bytes each; else None.

    It is called once to warm up, *repeat* times, and four times as often again if that is inconclusive; uncertainty
    counts against it.
    """
    for _ in range(_WARM_UP):
        call()
    growth = measure_calls(call, repeat=repeat, backend=backend)
    if abs(growth.mean - at_most) <= growth.uncertainty:
        growth = measure_calls(call, repeat=_MORE * repeat, backend=backend)
    return failure(call, growth, at_most, backend)


def measure_calls(call: Callable[[], object], *, repeat: int, backend: str) -> GrowthOfCalls:
    """Return the bytes that each of *repeat* calls adds to the memory of this process."""
    meter = Meter(backend)
    readings = array("q", bytes(8 * (repeat + 1)))  # taken before: the list itself would grow
    try:
        _read_between(call, meter, readings)
    finally:
        meter.close()
    return GrowthOfCalls([after - before for before, after in zip(readings, readings[1:])])


def _read_between(call: Callable[[], object], meter: Meter, readings: array[int]) -> None:
    gc.collect()
    readings[0] = meter.read()  # memory allocated by the first reading is not counted
    readings[0] = meter.read()
    for number in range(1, len(readings)):
        call()
        gc.collect()
        readings[number] = meter.read()


def failure(call: Callable[[], object], growth: GrowthOfCalls, at_most: int, backend: str) -> Optional[str]:
    """Return the reason, with the paths, if *growth* may exceed *at_most* bytes a call; else None.

    Uncertainty counts against. To find the paths *call* is called as often again, under tracemalloc.
    """
    if growth.mean + growth.uncertainty <= at_most:
        return None
    count = len(growth.changes)
    measured = f"{format_delta(growth.mean)} ± {format_size(growth.uncertainty)}" if count > 1 else "one call"
    limit = format_size(at_most)
    if growth.mean - growth.uncertainty > at_most:
        verdict = f"each call adds {measured} ({backend}, {plural(count, 'call')}): more than {limit}"
    else:
        verdict = (
            f"each call adds {measured} ({backend}, {plural(count, 'call')}), not measurably more or less than {limit};"
            " repeat it more often"
        )
    steps = ", ".join(format_delta(one) for one in growth.changes)
    return "\n".join([verdict, f"one by one: {steps}", *_paths(call, count)])


def _paths(call: Callable[[], object], repeat: int) -> list[str]:
    """Return the places where Python allocated the memory that *repeat* calls leave behind."""
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start(_FRAMES)
    try:
        call()
        gc.collect()
        before = tracemalloc.take_snapshot()
        for _ in range(repeat):
            call()
        gc.collect()
        changes = tracemalloc.take_snapshot().compare_to(before, "traceback")
    finally:
        if not was_tracing:
            tracemalloc.stop()
    own = (tracemalloc.__file__, __file__, gc.__name__)
    lines: list[str] = []
    for one in changes:
        # The innermost is last.
        if one.size_diff > 0 and one.traceback[-1].filename not in own and len(lines) < _PATHS:
            inside = takewhile(lambda frame: frame.filename != __file__, reversed(one.traceback))
            places = [f"{printable(frame.filename)}:{frame.lineno}" for frame in inside]
            size = format_delta(one.size_diff / repeat)
            lines.append(f"{size} a call in {plural(one.count_diff, 'block')}: {' ← '.join(places[:4])}")
    return lines or ["Python's own allocator holds none of it: it is in libraries, or freed and not returned"]
