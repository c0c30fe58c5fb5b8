"""Memory over the steps, drawn with characters: a chart, and one line of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.model.steps import SHARED, Step
from gdbmem.steps.steps import noun, place, sum_steps
from gdbmem.terminal import charting
from gdbmem.terminal.charting import Plot, count_ticks, element, size_ticks, text
from gdbmem.terminal.console import Console, glyphs_for
from gdbmem.terminal.drawing import thinned
from gdbmem.text import format_delta, plural

# Memory over the steps as a picture, in SVG.


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 360, 90, 20, 34, 130
_MARKED = 6
_COLOURS = ("#c0392b", "#2471a3", "#b7950b", "#1e8449", "#7d3c98", "#ca6f1e")
_MOST_BUCKETS = 1500  # of steps drawn as one: the smallest, the largest and the last total


def totals(steps: Sequence[Step]) -> list[int]:
    """Return the running total after each of *steps*, 0 before the first."""
    found = [0]
    for step in steps:
        found.append(found[-1] + (step.delta_bytes or 0))
    return found


def steps_svg(steps: Sequence[Step]) -> str:
    """Return a drawing of *steps*: the total over the steps, the lines that changed most marked."""
    course = totals(steps)
    ticks = size_ticks(min(course), max(course))
    size = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP
    plot = Plot(_LEFT, _TOP, *size, (0, len(steps)), (ticks[0], ticks[-1]))
    numbers = [(number, f"{number:,}") for number in count_ticks(len(steps))]
    parts = [
        text(_LEFT, 18, f"{noun(steps[-1].source)} memory over {plural(len(steps), 'step')}"),
        plot.levels(ticks, format_delta, stroke="#ddd", zero="#999"),
        plot.moments(numbers, below=19),
        element("path", d=_stairs(course, plot), fill="none", stroke="#34495e", stroke_width=1.5),
        *_marks(steps, course, plot),
        *_shared(steps, plot),
    ]
    return charting.sheet((_WIDTH, _HEIGHT + _BOTTOM), parts)


def _stairs(course: Sequence[int], plot: Plot) -> str:
    """Return the path of *course*: it holds its value until a step changes it."""
    words = [f"M{plot.x(0):.1f} {plot.y(course[0]):.1f}"]
    for number in _drawn(course):
        words.append(f"H{plot.x(number):.1f}V{plot.y(course[number]):.1f}")
    return "".join(words)


def _drawn(course: Sequence[int]) -> list[int]:
    """Return the numbers of the totals to draw: all of them, or the extremes if they are many."""
    size = -(-len(course) // _MOST_BUCKETS)
    found = set()
    for first in range(1, len(course), size):
        bucket = range(first, min(first + size, len(course)))
        found |= {min(bucket, key=course.__getitem__), max(bucket, key=course.__getitem__), bucket[-1]}
    return sorted(found)


def _marks(steps: Sequence[Step], course: Sequence[int], plot: Plot) -> list[str]:
    """Mark the steps of the lines that changed most, and name the lines below."""
    parts = []
    marked = [one for one in sum_steps(steps)[:_MARKED] if one.delta_bytes]
    for rank, one in enumerate(marked):
        colour = _COLOURS[rank]
        at = [n for n, step in enumerate(steps, 1) if step.key == (one.file, one.line) and step.delta_bytes]
        name = place(steps[at[0] - 1]) if at else "?"
        for n in at[:: max(len(at) // 500, 1)]:
            delta = steps[n - 1].delta_bytes or 0
            tip = charting.title(f"{name}: {format_delta(delta)}")
            at_step = plot.x(n), plot.y(course[n])
            parts.append(_dot(at_step, 3, colour, tip, data_value=delta))
        row = _HEIGHT + 42 + 14 * rank
        words = f"{name}  {format_delta(one.delta_bytes)} in {plural(one.hits, 'step')}"
        parts.append(_dot((_LEFT, row - 4), 4, colour))
        parts.append(text(_LEFT + 10, row, words, data_value=one.delta_bytes))
    return parts


def _dot(
    at: tuple[float, float], radius: int, fill: str, *inside: str, data_value: Optional[int] = None
) -> str:
    return element("circle", *inside, cx=at[0], cy=at[1], r=radius, fill=fill, data_value=data_value)


def _shared(steps: Sequence[Step], plot: Plot) -> list[str]:
    """Mark the steps during which other threads ran."""
    shared = [number for number, step in enumerate(steps, 1) if step.lock == SHARED]
    return [
        charting.box(plot.x(n) - 0.75, _HEIGHT + 1, 1.5, 5, "#e67e22")
        for n in shared[:: max(len(shared) // 1000, 1)]
    ]


_ROWS, _WIDEST = 8, 100


def print_chart(steps: Sequence[Step], console: Console) -> None:
    """Print the running total over *steps*."""
    glyphs = glyphs_for(console)
    course = totals(steps)
    low, high = min(course), max(course)
    height = max(high - low, 1)
    # The upper edge of every other row, and the lower edge of the last one.
    labels = {row: format_delta(round(low + height * row / _ROWS)) for row in range(0, _ROWS + 1, 2)}
    margin = max(map(len, labels.values()))
    columns = thinned(course, min(console.width - margin - 3, _WIDEST))
    for row in range(_ROWS, 0, -1):
        marks = []
        for size_bytes in columns:
            level = 8 * ((size_bytes - low) * _ROWS / height - (row - 1))
            marks.append(glyphs.levels[min(max(round(level), 0), 8)])
        console.print(f"{labels.get(row, ''):>{margin}} {glyphs.bar}{''.join(marks).rstrip()}")
    console.print(f"{labels[0]:>{margin}} {glyphs.corner}{glyphs.rule * len(columns)}")
    what = noun(steps[-1].source)
    console.print(f"{'':>{margin}}  {what} memory over {plural(len(steps), 'step')}", style="dim")
