"""A recording as text: the history, the processes, the verdict, suggested commands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Optional

from gdbmem.model.series import (
    CgroupSummary,
    FiredTrigger,
    LineSummary,
    Mark,
    Outside,
    SeriesSummary,
    Slope,
    Spike,
    Verdict,
)
from gdbmem.series.fitted import seconds_to_resolve
from gdbmem.terminal import drawing
from gdbmem.terminal.charting import Axis, draw_chart, time_ticks
from gdbmem.terminal.console import (
    ASCII,
    Console,
    columns_that_fit,
    glyphs_for,
    print_notices,
    print_sentence,
)
from gdbmem.text import (
    format_delta,
    format_duration,
    format_rate,
    format_rates,
    format_size,
    plural,
    printable,
)

_MOST_ROWS = 12
_MOST_SPIKES = 3
# Started, and the growth for each, from which threads may be the cause.
_FEWEST_THREADS, _LEAST_LEFT_BYTES = 50, 1024
_STAYING = "threads that stay (a pool, OMP_NUM_THREADS the same throughout), or another runtime for them"
_LEAST_CPU_SECONDS = 0.05  # less would be shown as 0
_LEAST_OWN = 1 << 20  # bytes by which forked processes grew beside what they copied
_LEAST_OUTSIDE = 4 << 20  # bytes that no process shows
_OTHERS = (
    "arenas of malloc, of Python or of another allocator, large blocks, stacks, or freed memory that is kept;"
    " 'gdbmem explain' divides it"
)
_LOWEST, _HIGHEST, _ROWS_OF_REPORT = 12, 30, 14  # rows of the chart, and of the text after it
_ROWS_A_TICK = 3
_PAUSE, _SHARE = 5, 0.02  # a pause: times the usual time between two samples, and fraction of the whole
_LETTERS_A_TICK = 12  # on the time axis of a terminal
_COLORS = {"growing": "bold red", "plateau": "green", "shrinking": "green", "inconclusive": "yellow"}
METRIC_NAMES = {"rss_bytes": "RSS", "pss_bytes": "PSS", "family_bytes": "memory of its cgroup"}


def print_summary(summary: SeriesSummary, console: Console, *, next_commands: Sequence[str] = ()) -> None:
    """Print *summary*; *next_commands* are suggested commands."""
    print_sentence(console, _heading(summary))
    peak = summary.known_peak_bytes
    if summary.first_bytes is not None and summary.last_bytes is not None and peak is not None:
        name = " + ".join([METRIC_NAMES[summary.metric], *summary.beside])
        at_least = "at least " if peak != summary.peak_bytes else ""
        print_sentence(
            console,
            f"{name}: first {format_size(summary.first_bytes)}, last {format_size(summary.last_bytes)}, "
            f"peak {at_least}{format_size(peak)}",
        )
    if len(summary.lines) > 1:
        _print_lines(summary.lines, console)
    for sentence in details(summary):
        print_sentence(console, sentence)
    print_verdict(summary.verdict, console)
    if summary.resolve_bytes_per_second is not None:
        print_sentence(console, _time_to_resolve(summary.verdict, summary.resolve_bytes_per_second))
    for command in next_commands:
        print_sentence(console, f"next: {command}", "bold")
    print_notices(summary.notices, console)


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Print the verdict, its evidence and its numbers."""
    style = "bold red" if verdict.grows else _COLORS.get(verdict.kind, "bold")
    print_sentence(console, f"{headline(verdict)}: {verdict.evidence}", style)
    if verdict.slope is not None and verdict.kind != "inconclusive":
        what = "floor" if verdict.kind == "sawtooth" else "slope"
        print_sentence(console, f"{what}: {slope_text(verdict.slope, verdict.resolution)}")
    if verdict.per_mark is not None:
        each = verdict.per_mark
        print_sentence(
            console,
            f"per mark: {format_delta(each.value)} (95 %: {format_delta(each.low)} to {format_delta(each.high)})",
        )


def _time_to_resolve(verdict: Verdict, slope: float) -> str:
    seconds = seconds_to_resolve(verdict, slope)
    rate = format_rate(slope).lstrip("+")
    if seconds is None:
        return f"to call {rate} growing: the recording is too short to know the noise"
    seen = verdict.regimes[-1].end - verdict.regimes[0].begin
    enough = "this was long enough" if seconds <= seen else f"watch for about {format_duration(seconds)}"
    return f"to call {rate} growing: {enough}, with the noise of this recording"


def headline(verdict: Verdict) -> str:
    """Return the verdict in a word or two."""
    return f"sawtooth, floor {verdict.floor}" if verdict.kind == "sawtooth" else verdict.kind


def slope_text(slope: Slope, resolution: Optional[float]) -> str:
    """Return *slope* with its interval and the smallest detectable one, all in one unit."""
    rates = (slope.value, slope.low, slope.high, resolution or 0.0)
    value, low, high, smallest = format_rates(*rates)
    least = "unknown, too short" if resolution is None else smallest.lstrip("+")
    return f"{value} (95 %: {low} to {high}); detectable here: {least}"


def details(summary: SeriesSummary) -> list[str]:
    """Return further sentences: the components that grew, threads, copies, the limit."""
    found = []
    if len(summary.lines) == 1 and summary.lines[0].line.earlier:
        found.append(
            f"the process was {printable(summary.lines[0].line.names)}: the sizes are those of all of them"
        )
    changed = [c for c in summary.components if abs(c.change_bytes) >= 1 << 20]
    if changed:
        found.append("by kind: " + ", ".join(f"{c.name} {format_delta(c.change_bytes)}" for c in changed))
    found += _beside_the_heap(summary)
    found += _outside(summary.outside)
    if summary.copied_bytes and summary.copied_bytes >= 1 << 20:
        found.append(_copied(summary.copied_bytes, summary.copiers or 1))
        found += _own_growth(summary, summary.copied_bytes)
    found += [_spike(spike) for spike in summary.spikes[:_MOST_SPIKES]]
    found += _work(summary)
    if summary.gpu_peak_bytes is not None:
        change, verdict = summary.outside.gpu_bytes or 0.0, summary.outside.gpu_verdict
        grown = f", {format_delta(change)} since the first sample" if abs(change) >= _LEAST_OUTSIDE else ""
        found.append(f"on GPUs: {format_size(summary.gpu_peak_bytes)} at most{grown}")
        if verdict is not None and verdict.grows:
            found.append(f"on GPUs: {verdict.kind}: {verdict.evidence}")
    if summary.cgroup is not None and (summary.cgroup.limit_bytes is not None or summary.cgroup.limit_hits):
        found.append(_cgroup(summary.cgroup))
    if summary.seconds_to_limit is not None and summary.facts.limit_bytes is not None:
        slope = summary.cgroup.slope if summary.cgroup is not None and not summary.verdict.grows else None
        rate = (
            "at this rate"
            if slope is None
            else f"the cgroup grows by {format_rate(slope).lstrip('+')}; at this rate"
        )
        found.append(
            f"{rate} the limit of {summary.facts.limit_of}, {format_size(summary.facts.limit_bytes)}, is "
            f"reached in {format_duration(summary.seconds_to_limit)}"
        )
    return found


def _copied(copied_bytes: int, copiers: int) -> str:
    each = f" in all, {format_size(copied_bytes / copiers)} each of {copiers:,}" if copiers > 1 else ""
    return (
        f"forked processes have copied {format_size(copied_bytes)}{each} of inherited memory "
        "(copy-on-write: their RSS doesn't show it)"
    )


def _own_growth(summary: SeriesSummary, copied_bytes: int) -> list[str]:
    """Return the sentence on what forked processes have grown by beside what they copied; none if that is unknown."""
    children = [row for row in summary.lines if row.line.parent]
    changes = [
        row.private_dirty_change_bytes for row in children if row.private_dirty_change_bytes is not None
    ]
    if not changes or any(row.line.respawns for row in children):
        return []
    own = sum(changes) - copied_bytes
    if own < _LEAST_OWN:
        return []
    return [
        f"beside that, the forked processes' own memory grew by at least {format_size(own)}: they may leak too"
    ]


def _spike(spike: Spike) -> str:
    whose = (
        "one that had ended by then"
        if spike.line is None
        else f"{printable(spike.line.names)} {spike.line.pid}"
    )
    return f"between two samples the RSS of {whose} was {format_size(spike.rss_bytes)}, by the kernel's own count"


def _beside_the_heap(summary: SeriesSummary) -> list[str]:
    heap = next((c.change_bytes for c in summary.components if c.name == "[heap]"), None)
    anonymous = next((c.change_bytes for c in summary.components if c.name == "anonymous"), 0.0)
    if not summary.verdict.grows or heap is None or anonymous <= 4 * max(abs(heap), 1 << 18):
        return []
    stays = "[heap] does not grow; what grows" if abs(heap) < 1 << 20 else "little of that is [heap], most"
    return [f"{stays} is other anonymous memory: {_OTHERS}"]


def _outside(outside: Outside) -> list[str]:
    """Return the sentences on growth that no process shows."""
    since = "after the first third of the time"
    rows = (
        (outside.cgroup_bytes, f"{since} its cgroup grew by {{}} beside the watched processes: memfds, System V"
         " segments (ipcs -m), files in /dev/shm, or a process that left the tree"),
        (outside.kernel_bytes, f"{since} the kernel's memory for it grew by {{}}: pipes, sockets, page tables"),
    )  # fmt: skip
    return [
        text.format(format_delta(size)) for size, text in rows if size is not None and size >= _LEAST_OUTSIDE
    ]


def _work(summary: SeriesSummary) -> list[str]:
    found = []
    if summary.threads_per_second >= 1:
        least = "" if summary.facts.exact_threads else "at least "
        found.append(
            f"threads started: {least}{summary.threads_started:,} ({summary.threads_per_second:,.0f}/s)"
        )
    found += _leftover(summary)
    if summary.cpu_seconds and summary.cpu_seconds >= _LEAST_CPU_SECONDS and summary.seconds:
        least = "at least " if len(summary.lines) > 1 else ""
        share = 100 * summary.cpu_seconds / summary.seconds
        found.append(f"CPU: {least}{summary.cpu_seconds:,.1f} s ({share:,.0f} % of one CPU)")
    return found


def _leftover(summary: SeriesSummary) -> list[str]:
    """Return what ended threads leave behind: as proven, or, if threads start all the time, as far as they may."""
    if summary.left_by_thread_bytes is not None:
        each = format_delta(summary.left_by_thread_bytes)
        return [
            f"it grows while threads are started, and only then: {each} for each. What may help: {_STAYING}"
        ]
    grown = (summary.last_bytes or 0.0) - (summary.first_bytes or 0.0)
    is_churn = summary.threads_per_second >= 1 and summary.threads_started >= _FEWEST_THREADS
    if not (summary.verdict.grows and is_churn and grown >= _LEAST_LEFT_BYTES * summary.threads_started):
        return []
    return [
        f"it grew by {format_size(grown / summary.threads_started)} for each thread started; that they are the cause "
        f"is not proven. What helps if ended threads leave it behind: {_STAYING}; gdbmem compare shows whether it does"
    ]


def _cgroup(cgroup: CgroupSummary) -> str:
    parts = (
        (cgroup.cache_bytes, "cache that can be dropped"),
        (cgroup.shmem_bytes, "files in memory (/dev/shm, memfds)"),
    )
    named = [f"{format_size(size)} {name}" for size, name in parts if size]
    cache = f", of it {' and '.join(named)}" if named else ""
    limit = f" of {format_size(cgroup.limit_bytes)}" if cgroup.limit_bytes is not None else ""
    text = f"the cgroup holds {format_size(cgroup.last_bytes)}{limit}{cache}; {format_size(cgroup.peak_bytes)} at most"
    if cgroup.limit_hits:
        text += f"; it reached its limit {plural(cgroup.limit_hits, 'time')}"
    if cgroup.kills:
        text += f"; {plural(cgroup.kills, 'process was', 'processes were')} killed for it"
    return text


def _heading(summary: SeriesSummary) -> str:
    text = (
        f"{printable(summary.facts.target)}: {plural(summary.samples, 'sample')} in "
        f"{format_duration(summary.seconds)}, one every {format_duration(summary.facts.interval_seconds)}"
    )
    if summary.reads_of_pss:
        every = summary.seconds / summary.reads_of_pss
        text += (
            f"; PSS and USS read {plural(summary.reads_of_pss, 'time')} (one every {format_duration(every)})"
        )
    if summary.torn_rounds:
        text += (
            f", left out {plural(summary.torn_rounds, 'time')} because processes started or ended meanwhile"
        )
    if summary.looks_by_rss:
        text += (
            f", between them the total follows RSS and page faults ({plural(summary.looks_by_rss, 'sample')})"
        )
    if summary.looks_by_cgroup:
        text += ", between them the total follows the program's own cgroup"
        text += f" ({plural(summary.looks_by_cgroup, 'sample')})"
    return text


def _print_lines(lines: Sequence[LineSummary], console: Console) -> None:
    name = METRIC_NAMES[lines[0].metric]
    headings = [
        "process",
        "pid",
        f"{name} first",
        "last",
        "peak",
        "change",
        "private dirty change",
        "threads",
    ]
    ranked = sorted(
        (row for row in lines if row.peak_bytes is not None), key=lambda row: -(row.peak_bytes or 0)
    )
    rows = [_cells(row) for row in ranked[:_MOST_ROWS]]
    shown = columns_that_fit([headings, *rows], console.width, give_up=(7, 6, 2, 4, 1), shortest=8)
    table = drawing.Table()
    table.add_column(headings[0])  # the only column that may be narrowed: numbers must not be truncated
    table.add_numbers(*(headings[column] for column in shown[1:]))
    for cells in rows:
        first = drawing.Text(cells[0], no_wrap=True, overflow="ellipsis")
        table.add_row(first, *(drawing.Text(cells[column]) for column in shown[1:]))
    console.print()
    console.print(table)
    if len(lines) > len(rows):
        print_sentence(console, f"{glyphs_for(console).ellipsis} and {_left_out(lines, len(rows))}", "dim")
    console.print()


def _left_out(lines: Sequence[LineSummary], shown: int) -> str:
    unread = sum(row.peak_bytes is None for row in lines)
    smaller = len(lines) - unread - shown
    parts = [f"{smaller:,} more"] * bool(smaller)
    if unread:
        name = METRIC_NAMES[lines[0].metric]
        parts.append(f"{plural(unread, 'line')} of processes that had gone before their {name} was read")
    return ", ".join(parts)


def _cells(row: LineSummary) -> list[str]:
    again = f" ({plural(row.line.respawns, 'respawn')})" if row.line.respawns else ""
    change = None if row.last_bytes is None or row.first_bytes is None else row.last_bytes - row.first_bytes
    return [
        f"{printable(row.line.names)}{again}", str(row.line.pid), _size(row.first_bytes), _size(row.last_bytes),
        _size(row.peak_bytes), _delta(change), _delta(row.private_dirty_change_bytes), str(row.most_threads),
    ]  # fmt: skip


def _size(value: Optional[float]) -> str:
    return "" if value is None else format_size(value)


def _delta(value: Optional[float]) -> str:
    return "" if value is None else format_delta(value)


def print_course(
    times: Sequence[float], values: Sequence[float], console: Console, *, marks: Sequence[Mark]
) -> None:
    """Print *values* over *times* as a chart."""
    if len(times) < 2:
        return
    # The whole width of a terminal, and the part of its height that the report doesn't need.
    height = min(max(console.height - _ROWS_OF_REPORT, _LOWEST), _HIGHEST) if console.is_terminal else _LOWEST
    width = console.width if console.is_terminal else min(console.width, 100)
    drawn = draw_course(
        times,
        values,
        width,
        height,
        marks=marks,
        color=console.has_colors,
        in_ascii=glyphs_for(console) is ASCII,
    )
    console.file.write(f"{drawn}\n")


def draw_course(
    times: Sequence[float],
    values: Sequence[float],
    width: int,
    height: int,
    *,
    marks: Sequence[Mark] = (),
    color: bool,
    in_ascii: bool = False,
) -> str:
    """Return a chart of *values* (bytes) over *times*, *width* by *height* characters."""
    unit, factor = _unit(max(values))
    ticks = round_ticks(max(values) / factor, max(height // _ROWS_A_TICK, 2))
    top = max(max(values) / factor * 1.05, ticks[-1]) or 1
    return draw_chart(
        [
            [(t, value / factor) for t, value in zip(times[part], values[part])]
            for part in _without_gaps(times)
        ],
        Axis(times[0], times[-1], time_ticks(times[0], times[-1], width // _LETTERS_A_TICK)),
        Axis(0, top, [(tick, f"{tick:,g}") for tick in ticks]),
        size=(width, height),
        unit=unit,
        marks=[mark.t for mark in list(marks)[-40:] if times[0] <= mark.t <= times[-1]],
        color=color,
        in_ascii=in_ascii,
    )


def round_ticks(top: float, most: int) -> list[float]:
    """Return round numbers from 0 to the first from *top* up, about *most* of them."""
    power = 10.0 ** math.floor(math.log10(top / most)) if top > 0 else 1.0
    step = next((factor * power for factor in (1, 2, 5, 10) if factor * power * most >= top), power)
    count = max(math.ceil(top / step - 1e-9), 1)
    return [round(number * step, 10) for number in range(count + 1)]


def _without_gaps(times: Sequence[float]) -> Iterator[slice]:
    """Yield the parts of *times* between long pauses, in which nothing is drawn."""
    usual = median(b - a for a, b in zip(times, times[1:]))
    longest = max(_PAUSE * usual, _SHARE * (times[-1] - times[0]))
    begin = 0
    for number in range(1, len(times)):
        if times[number] - times[number - 1] > longest:
            yield slice(begin, number)
            begin = number
    yield slice(begin, len(times))


def _unit(size: float) -> tuple[str, int]:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= 2 * factor:
            return unit, factor
    return "B", 1


def trigger_text(trigger: FiredTrigger) -> str:
    """Return a sentence on the action of *trigger*."""
    when = f"after {format_duration(trigger['t'])}, when {trigger['when']} ({trigger['value']})"
    action = f"{trigger['do']} of process {trigger['pid']}"
    failed = trigger.get("failed")
    where = f"{action} failed or is incomplete: see" if failed else f"{action}, in"
    return printable(f"{when}: {where} {trigger['folder']}")
