"""A series without teeth: its last regime is judged, and the history before it is described in the same sentence."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple, Optional

from gdbmem.model.series import Regime, Verdict
from gdbmem.series.fitted import MOST_BINS, PAGES_BYTES, FittedLine, find_onset, find_pauses, fitted, worth_of
from gdbmem.series.levelling import find_ending, slows_down
from gdbmem.series.regimes import (
    Stretch,
    Wandering,
    before_now,
    cut,
    merged,
    regimes_of,
    tell_step,
    wandering_of,
)
from gdbmem.series.sawtooth import repeated_rise
from gdbmem.series.statistics import bins, theil_sen
from gdbmem.text import format_delta, format_duration, format_rate, format_size

FEWEST_SAMPLES = 12
_SHORTEST_ADVICE_SECONDS = 1.0  # of the further recording time
_SHORTEST = 0.12  # of the time: a shorter regime is too young to be judged
_ENDS = (1.0, 0.85, 0.7, 0.5, 0.35)  # of the last regime: the parts that are judged, until one is conclusive
_BORROWED = 3  # times its own length: for so long a level has to exclude growth that matters
_STOPPED = 0.35  # of the rate before: growth that may still be as fast is not shown to have stopped
_SLOWER, _FEWEST_BEFORE = 0.5, 5  # of the rate before: a series that levels off rises no faster
_WIDE = 0.5  # of the time: growth in jumps has to go on for so long
# Residuals this alike may be a walk, if they are further off than this share of the change.
_ALIKE, _NEAR = 0.5, 0.04
_YOUNG = 0.005  # the least change, of the level, that counts after a cut
_YOUNG_BYTES = 256 << 10  # and at least this
_WANDERING = 3  # times the scatter of wandering noise: as much may occur by chance
_RAMP = 0.4  # scatter as a fraction of its change: a straighter line is a ramp
_SAME = 0.65  # of a slope: within this fraction another one is not different
_WAITS = 2.5  # a level this much longer than any before it is not a step of a staircase
_LAST_BINS = 5  # samples whose median is the level: the last one may be a spike, or the end of the program


class Course(NamedTuple):
    """A series without teeth, cut into stretches."""

    times: Sequence[float]
    values: Sequence[float]
    metric: str
    stretches: Sequence[Stretch]
    wandering: Wandering

    @property
    def seconds(self) -> float:
        """The duration, seconds."""
        return self.times[-1] - self.times[0]

    def since(self, begin: int) -> FittedLine:
        """Return the line from sample *begin* on; its interval allows for noise that wanders."""
        line = fitted(self.times[begin:], self.values[begin:])
        return line._replace(drift=self.wandering.half(self.times[begin]))

    def warmup(self, line: FittedLine) -> float:
        """Return the seconds of an initial phase much steeper than *line*, if there was one."""
        before = [s for s in self.stretches if s.xs[0] < line.xs[0]]
        if not before or any(s.jump for s in self.stretches):
            return 0.0
        steeper = max(s.slope for s in before) > 2 * abs(line.robust)
        return line.xs[0] - self.times[0] if steeper and before[0].slope > abs(line.robust) else 0.0

    def history(self, line: FittedLine) -> str:
        """Describe the history before *line*."""
        words = before_now(self.stretches, self.times, self.values, line.xs[0])
        moved = words.rsplit(", ", 1)[-1].startswith(("+", "-"))
        return f"{words} of warm-up" if moved and self.warmup(line) else words

    def verdict(
        self, kind: str, evidence: str, line: FittedLine, *, needs: Optional[float] = None
    ) -> Verdict:
        """Return the verdict of *kind*, of which *line* is the last regime."""
        begin = bisect_left(self.times, line.xs[0])
        before = [s for s in self.stretches if s.begin < begin]
        regimes = regimes_of(before, self.times, until=line.xs[0])
        last = kind if kind != "step" else "plateau"
        if regimes and begin > self.stretches[-1].begin and regimes[-1].kind == last:
            regimes = regimes[:-1]  # the same, except its beginning
        start = regimes[-1].end if regimes else self.times[0]
        regimes = [*regimes, Regime(start, self.times[-1], last, line.change, line.stated)]
        warmup = self.warmup(line)
        if needs is not None:
            needs = max(needs, _SHORTEST_ADVICE_SECONDS)
            evidence += f"; another {format_duration(needs)} may settle it"
        return Verdict(
            kind, self.metric, evidence, len(self.times), line.stated,
            line.resolution if kind in ("growing", "shrinking") else line.not_excluded,
            warmup_seconds=warmup, regimes=regimes, needs_seconds=needs,
        )  # fmt: skip


def judge_course(times: Sequence[float], values: Sequence[float], metric: str) -> Verdict:
    """Judge a series without teeth: by its last regime, with the history before it."""
    pieces = cut(times, values)
    stretches = _old_enough(times, values, pieces)
    course = Course(times, values, metric, stretches, wandering_of(times, values, pieces))
    last = course.stretches[-1]
    now = course.since(last.begin)
    chain = _chain(course.stretches)
    # The end of a start-up may still be in the last regime: then a later part of it is judged.
    level: Optional[FittedLine] = None
    for line in _ends(course, last):
        if line.is_trend and line.proves_change and _stands_out(course, line, course.stretches[:-1]):
            if slows_down(times, values, chain):
                return _decelerating_verdict(course, chain, now)
            return _trend(course, line)
        if line.is_level and _is_flatter(line, now):
            level = level or line
            if _hidden(course, line) <= line.worth:
                return _growth_in_jumps(course, line) or _level(course, line)
    if level is not None:
        return _growth_in_jumps(course, level) or _level(course, level)
    slows = slows_down(times, values, chain)
    alike = _alike(course.stretches)
    if alike is not None and not slows:
        line = course.since(alike.begin)
        before = [s for s in course.stretches if s.begin < alike.begin]
        if line.is_trend and line.proves_change and _stands_out(course, line, before):
            return _trend(course._replace(stretches=[*before, alike._replace(end=len(times))]), line)
    if slows:
        return _decelerating_verdict(course, chain, now)
    return _growth_in_jumps(course, now) or _growth_with_onset(course) or _level(course, now)


def _old_enough(
    times: Sequence[float], values: Sequence[float], stretches: Sequence[Stretch]
) -> Sequence[Stretch]:
    """Return *stretches*, the last one merged with those before it if it is too short to be judged by itself."""
    first = len(stretches) - 1
    while first and (
        not _is_old(times, stretches[first].begin) or len(times) - stretches[first].begin < FEWEST_SAMPLES
    ):
        first -= 1
    if first == len(stretches) - 1:
        return stretches
    return [*stretches[:first], merged(times, values, stretches[first:])]


def _is_old(times: Sequence[float], begin: int) -> bool:
    """Return whether the part from sample *begin* on is long enough in time, or in samples if there were gaps."""
    return times[-1] - times[begin] >= _SHORTEST * (times[-1] - times[0]) or len(
        times
    ) - begin >= _SHORTEST * len(times)


def _ends(course: Course, last: Stretch) -> Iterator[FittedLine]:
    for share in _ENDS:
        begin = last.end - round(share * (last.end - last.begin))
        if last.end - begin < FEWEST_SAMPLES or not _is_old(course.times, begin):
            return
        yield course.since(begin)


def _is_flatter(part: FittedLine, whole: FittedLine) -> bool:
    """Return whether *part*, a later one of *whole*, is shown to be flatter, not only too short."""
    if not whole.proves_change:
        return True
    half = 0.5 * whole.robust
    return part.slope.high < half if half > 0 else part.slope.low > half


def _alike(stretches: Sequence[Stretch]) -> Optional[Stretch]:
    """Return the first of several continuous stretches at the end with about the same slope, if any."""
    first = len(stretches) - 1
    while first and not stretches[first].jump:
        slopes = sorted((stretches[first - 1].slope, stretches[-1].slope), key=abs)
        if slopes[0] * slopes[1] <= 0 or abs(slopes[0]) < _SAME * abs(slopes[1]):
            break
        first -= 1
    return stretches[first] if first < len(stretches) - 1 else None


def _chain(stretches: Sequence[Stretch]) -> Sequence[Stretch]:
    """Return the continuous stretches at the end in one direction, each slower than the one before.

    A short one may be an exception: in so little time noise makes a slope.
    """
    first = number = len(stretches) - 1
    short = _SHORTEST * (stretches[-1].xs[-1] - stretches[0].xs[0])
    while number and not stretches[number].jump:
        number -= 1
        before, after = stretches[number].slope, stretches[first].slope
        if before * after > 0 and abs(before) >= 0.7 * abs(after):
            first = number
        elif stretches[number].seconds > short:
            break
    return stretches[first:]


def _stands_out(course: Course, now: FittedLine, before: Sequence[Stretch]) -> bool:
    """Return whether the last regime changes more than the scatter before it: otherwise it may be wandering noise."""
    if now.span >= 0.9 * course.seconds:
        return True
    if now.fit.likeness > _ALIKE and now.fit.residual > len(now.xs) * (_NEAR * now.change) ** 2:
        return False
    least = max(_YOUNG_BYTES, _YOUNG * median(now.ys))
    # A ramp has corners, which are not noise.
    noisy = [s for s in before if s.scatter > _RAMP * abs(s.change)]
    scatter = max((s.scatter * (_WANDERING if s.wanders else 1) for s in noisy), default=0.0)
    return abs(now.change) > max(least, scatter)


def _trend(course: Course, line: FittedLine) -> Verdict:
    history = course.history(line)
    change, span, rate = format_delta(line.change), format_duration(line.span), format_rate(line.robust)
    if len(course.stretches) > 2 and _is_faster(course.stretches):
        total = f"{format_delta(course.values[-1] - course.values[0])} in {format_duration(course.seconds)}"
        over = f"{total}, accelerating: {rate} in the last {span}"
    elif history:
        over = f"{history}, then {change} in the last {span}, up to the end ({rate})"
    else:
        over = f"{change} in {span} ({rate}), in every third of that time"
    again = repeated_rise(course.times, course.values, line)
    if again is not None:
        over = f"{over}, but earlier it rose at this rate and then fell by {format_size(again.fall_bytes)}"
        return course.verdict("inconclusive", over, line, needs=again.needs_seconds)
    return course.verdict("growing" if line.robust > 0 else "shrinking", over, line)


def _is_faster(stretches: Sequence[Stretch]) -> bool:
    slopes = [s.slope for s in stretches]
    return all(a < b for a, b in zip(slopes, slopes[1:])) and slopes[-1] > 1.5 * max(slopes[0], 0.0)


def _growth_in_jumps(course: Course, now: FittedLine) -> Optional[Verdict]:
    """Return the verdict on growth in jumps through half of the time or more; None if there is none."""
    stretches = course.stretches
    last = stretches[-1]
    if len(stretches) > 1 and last.seconds > _WAITS * _longest_wait(stretches) and now.is_level:
        return None
    for number, stretch in enumerate(stretches):
        if course.times[-1] - course.times[stretch.begin] < _WIDE * course.seconds:
            break
        line = course.since(stretch.begin)
        if (
            line.is_trend
            and line.proves_change
            and _stands_out(course, line, stretches[:number])
            and not slows_down(course.times, course.values, _rest(course, line))
        ):
            kept = course._replace(stretches=[*stretches[:number], stretch._replace(end=len(course.times))])
            return _trend(kept, line)
    return None


def _rest(course: Course, line: FittedLine) -> Sequence[Stretch]:
    begin = bisect_left(course.times, line.xs[0])
    return [Stretch(begin, len(course.times), line.xs, line.ys, line.robust, 0.0)]


def _growth_with_onset(course: Course) -> Optional[Verdict]:
    xs, ys = bins(course.times, course.values, MOST_BINS)
    start = find_onset(xs, ys, worth_of(ys))
    if start is None:
        return None
    begin = bisect_left(course.times, xs[start])
    total, quiet = ys[-1] - ys[start], xs[start] - xs[0]
    for share in (1.0, 0.5, 0.35):
        line = course.since(begin + round((1 - share) * (len(course.times) - begin)))
        faster = line.robust > total / (xs[-1] - xs[start])
        if line.stated.low > 0 and (faster if share < 1 else line.explains_change):
            lead = f"level at {format_size(ys[0])} for {format_duration(quiet)}, then " if start else ""
            last = format_duration(xs[-1] - xs[start])
            pace = "accelerating: " if share < 1 else ""
            text = f"{lead}{format_delta(total)} in the last {last}, up to the end ({pace}{format_rate(line.robust)})"
            return course.verdict("growing", text, line)
    return None


# -- a level, or inconclusive ---------------------------------------------------------------------------------


def _hidden(course: Course, line: FittedLine) -> float:
    """Return the growth, bytes, that *line* could hide: a short level proves little about the time around it."""
    return line.resolution * min(course.seconds, _BORROWED * line.span)


def _level(course: Course, now: FittedLine) -> Verdict:
    span = format_duration(now.span)
    jumps = [number for number, s in enumerate(course.stretches) if s.jump]
    history = course.history(now)
    lead = f"{history}, then " if history else ""
    if now.proves_change:
        return _unproven(course, lead, now)
    hidden = _hidden(course, now)
    if hidden > now.worth:
        noise = f"{format_size(now.hidden)} of growth could hide in the noise of {span}"
        needs = now.span * ((hidden / now.worth) ** 2 - 1)
        return course.verdict("inconclusive", f"{lead}no clear trend, but {noise}", now, needs=needs)
    longest = _longest_wait(course.stretches)
    rise = sum(max(course.stretches[number].jump, 0.0) for number in jumps)
    if rise > now.worth and now.span < 1.5 * longest:
        text = f"{lead}level for {span}, but it was level before for up to {format_duration(longest)}"
        return course.verdict("inconclusive", text, now, needs=_WAITS * longest - now.span)
    pauses = find_pauses(course.times, course.values)
    if pauses.hide_an_end(_WAITS):
        quiet, usual = format_duration(pauses.now), format_duration(pauses.longest)
        text = f"{lead}no rise in the last {quiet}, too short after pauses of up to {usual}"
        return course.verdict("inconclusive", text, now, needs=_WAITS * pauses.longest - pauses.now)
    rate = _rate_before(course, now)
    if now.slope.high > _STOPPED * rate and rate * now.span > _YOUNG_BYTES:
        text = f"{lead}level for {span}, too short to exclude {format_rate(rate)} as before"
        return course.verdict("inconclusive", text, now, needs=now.span)
    shown = f"a slope above {format_rate(now.not_excluded).lstrip('+')} would have shown"
    step = tell_step(course.stretches, course.times)
    if step is not None:
        verdict = course.verdict("step", f"{step.words}; since then {shown}", now)
        return verdict._replace(step_bytes=step.size_bytes, step_at=step.at - course.times[0])
    return _plateau(course, now, history, shown)


def _plateau(course: Course, now: FittedLine, history: str, shown: str) -> Verdict:
    size = format_size(median(now.ys[-_LAST_BINS:]))
    *earlier, latest = history.split(", ")
    since = now.xs[0]
    if latest.startswith(f"level at {size} for "):  # a page or two less
        history = ", ".join(earlier)
        since = _level_since(course, since, size)
    lead = f"{history}, then " if history else ""
    text = f"{lead}level at {size} for {format_duration(now.xs[-1] - since)}: {shown}"
    return course.verdict("plateau", text, now)


def _level_since(course: Course, begin: float, size: str) -> float:
    """Return since when, seconds, a level that is *size* from *begin* on is the same by that name."""
    for stretch in reversed([stretch for stretch in course.stretches if stretch.xs[0] < begin]):
        if format_size(stretch.level) != size:
            break
        begin = stretch.xs[0]
        if stretch.jump:
            break
    return begin


def _decelerating_verdict(course: Course, chain: Sequence[Stretch], now: FittedLine) -> Verdict:
    """Return the verdict on decelerating growth: a plateau if its end level is known."""
    ending = find_ending(course.times, course.values, chain)
    if ending is None:
        return _level(course, now)
    line = now._replace(
        slope=ending.beside, resolution=ending.resolution, robust=ending.beside.value, drift=0.0
    )
    if abs(ending.to_come) > line.worth or line.hidden > line.worth:
        return _level(course, now)
    first = chain[0].begin
    if first and (_is_young(course, first) or _rises_as_before(course, first)):
        return _level(course, now)
    since = format_duration(course.times[first] - course.times[0])
    when = f"after the first {since}" if first else f"in {format_duration(course.seconds)}"
    grown = format_delta(ending.level - course.values[first])
    to_come = f"{format_delta(ending.to_come)} to come" if abs(ending.to_come) > PAGES_BYTES else "reached"
    text = f"levels off at {format_size(ending.level)} ({to_come}): {grown} {when}, decelerating"
    return course.verdict("plateau", text, line)


def _is_young(course: Course, begin: int) -> bool:
    """Return whether the part since sample *begin* is not much longer than the pauses before it."""
    before = find_pauses(course.times[:begin], course.values[:begin])
    return course.times[-1] - course.times[begin] < _WAITS * before.longest


def _rises_as_before(course: Course, begin: int) -> bool:
    """Return whether the growth since sample *begin* is about as fast as before: the last of many jumps looks bent."""
    first, end = course.times[begin], course.times[-1]
    before = bisect_left(course.times, first - (end - first))
    if begin - before < _FEWEST_BEFORE:
        return False
    middle = median(course.values[begin : begin + 5])
    risen = median(course.values[-5:]) - middle
    earlier = middle - median(course.values[before : before + 5])
    return risen / (end - first) > _SLOWER * earlier / (first - course.times[before]) > 0


def _rate_before(course: Course, now: FittedLine) -> float:
    """Return the rate, bytes per second, over at least the same time before *now* (a single step has none)."""
    if len(course.stretches) < 3:
        return 0.0
    end, first = bisect_left(course.times, now.xs[0]), course.times[0]
    rates = [0.0]
    for spans in (1, 2, 3):
        begin = bisect_left(course.times, max(now.xs[0] - spans * now.span, first))
        if end - begin >= 2:
            rise = median(now.ys[:5]) - median(course.values[begin : begin + 3])
            rates.append(rise / (now.xs[0] - course.times[begin]))
    return max(rates)


def _longest_wait(stretches: Sequence[Stretch]) -> float:
    """Return the longest time, seconds, between two jumps up."""
    ups = [s for s in stretches if s.jump > 0]
    return max((s.seconds for s in stretches[:-1] if s.jump > 0), default=0.0) if len(ups) > 1 else 0.0


def _unproven(course: Course, lead: str, now: FittedLine) -> Verdict:
    over = f"{lead}{format_delta(now.change)} in {format_duration(now.span)}"
    third = len(now.xs) // 3
    first, last = (theil_sen(now.xs[part], now.ys[part]) for part in (slice(third), slice(-third, None)))
    if third >= 4 and abs(last) < 0.5 * abs(first):
        rates = f"{format_rate(first)} in the first third, {format_rate(last)} in the last"
        return course.verdict("inconclusive", f"{over}, decelerating ({rates})", now, needs=now.span)
    text = f"{over}, but not steadily enough to predict that it continues"
    return course.verdict("inconclusive", text, now, needs=now.span)
