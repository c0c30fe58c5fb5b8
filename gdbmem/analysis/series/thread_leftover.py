"""Memory that ended threads leave behind: it grows while threads are started, and only then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.analysis.series.statistics import fit_line

_FEWEST = 8  # intervals with thread starts, and as many without
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
        len(memory) < 2 * _FEWEST
        or len(started) < 2 * _FEWEST
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
    if min(busy, len(births) - busy) < _FEWEST or during < _LEAST_BYTES or elsewhere > _ELSEWHERE * during:
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
