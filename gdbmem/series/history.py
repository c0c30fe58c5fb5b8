"""The history before the last regime of a series, as text and as regimes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from gdbmem.model.series import Regime, Slope
from gdbmem.series.fitted import PAGES_BYTES
from gdbmem.series.regimes import Stretch
from gdbmem.series.statistics import fit_line
from gdbmem.text import format_delta, format_duration, format_size

_START = 0.1  # of the time: an earlier step is part of the start-up
# The same for a program with less than this of its later level until then.
_LATE_START, _NEXT_TO_NOTHING = 1 / 3, 1 / 8
_MOST_TOLD = 3  # stretches that are described individually
_LEVEL_BYTES = 64 << 10  # a change below this, or below
_LEVEL_SHARE = 0.02  # this fraction of the largest change, is not a change


class LastStep(NamedTuple):
    """One step between two levels, or the last of several."""

    words: str
    size_bytes: float
    at: float  # in the series' own time


def before_now(
    stretches: Sequence[Stretch], times: Sequence[float], values: Sequence[float], until: float
) -> str:
    """Describe the history before *until*, where the last regime begins; "" if it is the only one."""
    before = [s for s in stretches if s.xs[0] < until and s is not stretches[-1]]
    last = stretches[-1]
    begin = times[0]
    if not before:
        head = last.xs[0] < until - 0.3 * last.seconds
        return _grown(last.ys[-1] - last.ys[0], until - begin, "the first ") if head else ""
    # A step has its own time, however much later the judged part begins.
    end = times[last.begin] if last.jump else max(until, times[last.begin])
    ends = [*(times[s.begin] for s in before[1:]), end]
    following = [*before[1:], last]
    if len(before) > _MOST_TOLD:
        level = _is_level(before[0], before) and not before[1].jump
        start = ends[0] if level else begin
        change = last.at(ends[-1]) - (before[0].level if level else values[0])
        grown = _grown(change, ends[-1] - start, "" if level else "the first ")
        return f"{_level_words(before[0], start - begin)}, {grown}" if level else grown
    words: list[str] = []
    told, since = "", begin  # the last described level, and its begin
    for stretch, after, end in zip(before, following, ends):
        start = times[stretch.begin]
        if _is_level(stretch, before):
            if format_size(stretch.level) == told:
                words.pop()
            else:
                told, since = format_size(stretch.level), start
            words.append(_level_words(stretch, end - since))
        else:
            told = ""
            first = stretch is before[0]
            change = after.at(end) - after.jump - (values[0] if first else stretch.at(start))
            words.append(_grown(change, end - start, "the first " if first else ""))
        if after.jump:
            words.append(f"{format_delta(after.jump)} at once")
            told = ""
    return ", ".join(words)


def _grown(change: float, seconds: float, first: str) -> str:
    return f"{format_delta(change)} in {first}{format_duration(seconds)}"


def _level_words(stretch: Stretch, seconds: float) -> str:
    return f"level at {format_size(stretch.level)} for {format_duration(seconds)}"


def _is_level(stretch: Stretch, among: Sequence[Stretch]) -> bool:
    largest = max(abs(s.change) for s in among)
    return abs(stretch.change) <= max(_LEVEL_BYTES, _LEVEL_SHARE * largest, 2 * stretch.scatter)


def tell_step(stretches: Sequence[Stretch], times: Sequence[float]) -> Optional[LastStep]:
    """Return the last step between levels; None if the series began with it, or there was another change."""
    steps = [(a, b) for a, b in zip(stretches, stretches[1:]) if b.jump]
    if not steps or len(steps) < len(stretches) - 1:
        return None
    biggest = max(abs(b.jump) for _, b in steps)
    if any(abs(s.change) > 0.25 * biggest for s in stretches):
        return None
    before, after = steps[-1]
    begin = times[0]
    at = (times[after.begin - 1] + times[after.begin]) / 2
    start = _LATE_START if before.level <= _NEXT_TO_NOTHING * after.level else _START
    if at - begin < start * (times[-1] - begin):
        return None
    size = after.level - before.level
    levels = f"level before ({format_size(before.level)}) and after ({format_size(after.level)})"
    one = "one step" if len(steps) == 1 else f"{len(steps)} steps, the last"
    return LastStep(f"{one} of {format_delta(size)} after {format_duration(at - begin)}, {levels}", size, at)


def regimes_of(stretches: Sequence[Stretch], times: Sequence[float], until: Optional[float]) -> list[Regime]:
    """Return *stretches* as regimes, with steps at jumps between them; the last one ends at *until*."""
    found: list[Regime] = []
    for number, stretch in enumerate(stretches):
        begin = times[stretch.begin]
        if stretch.jump and number:
            found.append(Regime(times[stretch.begin - 1], begin, "step", stretch.jump))
        following = stretches[number + 1] if number + 1 < len(stretches) else None
        if following is not None:
            end = times[following.begin - 1] if following.jump else times[following.begin]
        else:
            end = until if until is not None else times[min(stretch.end, len(times) - 1)]
        slope = _slope(stretch)
        kind = "growing" if slope.low > 0 else "shrinking" if slope.high < 0 else "plateau"
        found.append(Regime(begin, end, kind, stretch.change, slope))
    return found


def _slope(stretch: Stretch) -> Slope:
    least = PAGES_BYTES / stretch.seconds if stretch.seconds > 0 else 0.0
    return fit_line(stretch.xs, stretch.ys).around(stretch.slope, least)
