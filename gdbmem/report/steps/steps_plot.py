"""Memory over the steps as a picture, in SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from gdbmem.analysis.steps import sum_steps
from gdbmem.model.steps.step import SHARED, Step
from gdbmem.report.steps.steps import noun, place
from gdbmem.text import plural
from gdbmem.units import format_delta

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 360, 90, 20, 34, 130
_MARKED = 6
_COLOURS = ("#c0392b", "#2471a3", "#b7950b", "#1e8449", "#7d3c98", "#ca6f1e")
_MOST_BUCKETS = 1500  # of steps drawn as one: the smallest, the largest and the last total
_TICKS = 5
_SIZE_FACTORS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1024)
_Scale = Callable[[float], float]


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
    height = ticks[-1] - ticks[0]

    def x(number: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * number / max(len(steps), 1)

    def y(size_bytes: float) -> float:
        return _TOP + (_HEIGHT - _TOP) * (ticks[-1] - size_bytes) / height

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT + _BOTTOM}" '
        f'width="{_WIDTH}" height="{_HEIGHT + _BOTTOM}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT + _BOTTOM}" fill="white"/>',
        f'<text x="{_LEFT}" y="18">{noun(steps[-1].source)} memory over {plural(len(steps), "step")}</text>',
        *_axes(ticks, count_ticks(len(steps)), x, y),
        f'<path d="{_stairs(course, x, y)}" fill="none" stroke="#34495e" stroke-width="1.5"/>',
        *_marks(steps, course, x, y),
        *_shared(steps, x),
    ]
    return "\n".join([*parts, "</svg>\n"])


def size_ticks(low: int, high: int) -> list[int]:
    """Return round sizes, some five of them, from *low* or less to *high* or more."""
    step = next(
        factor * unit
        for unit in (1 << (10 * power) for power in range(8))
        for factor in _SIZE_FACTORS
        if factor * unit * _TICKS >= high - low
    )
    last = max(-(-high // step), low // step + 1)
    return [number * step for number in range(low // step, last + 1)]


def count_ticks(count: int) -> list[int]:
    """Return round numbers of steps up to *count*, some ten of them at most, and *count* itself."""
    step = next(f * 10**power for power in range(12) for f in (1, 2, 5) if f * 10**power * 10 >= count)
    # A number too near to the last one would overlap it.
    return [*(n for n in range(0, count, step) if n + step * 0.7 <= count), count]


def _axes(sizes: Sequence[int], numbers: Sequence[int], x: _Scale, y: _Scale) -> list[str]:
    parts = []
    for size in sizes:
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(size):.1f}" y2="{y(size):.1f}" '
            f'stroke="{"#ddd" if size else "#999"}"/>'
            f'<text x="{_LEFT - 6}" y="{y(size) + 4:.1f}" text-anchor="end">{format_delta(size)}</text>'
        )
    for number in numbers:
        parts.append(
            f'<line x1="{x(number):.1f}" x2="{x(number):.1f}" y1="{_HEIGHT}" y2="{_HEIGHT + 5}" stroke="#555"/>'
            f'<text x="{x(number):.1f}" y="{_HEIGHT + 19}" text-anchor="middle">{number:,}</text>'
        )
    return parts


def _stairs(course: Sequence[int], x: _Scale, y: _Scale) -> str:
    """Return the path of *course*: it holds its value until a step changes it."""
    words = [f"M{x(0):.1f} {y(course[0]):.1f}"]
    for number in _drawn(course):
        words.append(f"H{x(number):.1f}V{y(course[number]):.1f}")
    return "".join(words)


def _drawn(course: Sequence[int]) -> list[int]:
    """Return the numbers of the totals to draw: all of them, or the extremes if they are many."""
    size = -(-len(course) // _MOST_BUCKETS)
    found = set()
    for first in range(1, len(course), size):
        bucket = range(first, min(first + size, len(course)))
        found |= {min(bucket, key=course.__getitem__), max(bucket, key=course.__getitem__), bucket[-1]}
    return sorted(found)


def _marks(steps: Sequence[Step], course: Sequence[int], x: _Scale, y: _Scale) -> list[str]:
    """Mark the steps of the lines that changed most, and name the lines below."""
    parts = []
    marked = [one for one in sum_steps(steps)[:_MARKED] if one.delta_bytes]
    for rank, one in enumerate(marked):
        colour = _COLOURS[rank]
        at = [n for n, step in enumerate(steps, 1) if step.key == (one.file, one.line) and step.delta_bytes]
        name = place(steps[at[0] - 1]) if at else "?"
        for n in at[:: max(len(at) // 500, 1)]:
            delta = steps[n - 1].delta_bytes or 0
            title = escape(f"{name}: {format_delta(delta)}")
            parts.append(
                f'<circle cx="{x(n):.1f}" cy="{y(course[n]):.1f}" r="3" fill="{colour}"'
                f' data-value="{delta}"><title>{title}</title></circle>'
            )
        row = _HEIGHT + 42 + 14 * rank
        text = escape(f"{name}  {format_delta(one.delta_bytes)} in {plural(one.hits, 'step')}")
        parts.append(f'<circle cx="{_LEFT}" cy="{row - 4}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + 10}" y="{row}" data-value="{one.delta_bytes}">{text}</text>')
    return parts


def _shared(steps: Sequence[Step], x: _Scale) -> list[str]:
    """Mark the steps during which other threads ran."""
    shared = [number for number, step in enumerate(steps, 1) if step.lock == SHARED]
    return [
        f'<rect x="{x(n) - 0.75:.1f}" y="{_HEIGHT + 1}" width="1.5" height="5" fill="#e67e22"/>'
        for n in shared[:: max(len(shared) // 1000, 1)]
    ]
