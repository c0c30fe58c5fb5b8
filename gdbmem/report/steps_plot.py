"""Memory over the steps as a picture: SVG alone, or in an HTML page that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gdbmem.analysis.steps import sum_steps
from gdbmem.model.step import SHARED, Step
from gdbmem.report.steps import noun, place
from gdbmem.text import plural
from gdbmem.units import format_delta, format_size

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 960, 360, 90, 28, 120
_MARKED = 6
_COLOURS = ("#c0392b", "#2471a3", "#b7950b", "#1e8449", "#7d3c98", "#ca6f1e")
_MOST_POINTS = 4000


def totals(steps: Sequence[Step]) -> list[int]:
    """Return the running total after each of *steps*, 0 before the first."""
    found = [0]
    for step in steps:
        found.append(found[-1] + (step.delta_bytes or 0))
    return found


def steps_svg(steps: Sequence[Step]) -> str:
    """Return a drawing of *steps*: the total over the steps, the lines that changed most marked."""
    course = totals(steps)
    low, high = min(course), max(course)
    height = max(high - low, 1)

    def x(number: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - 20) * number / max(len(course) - 1, 1)

    def y(size_bytes: int) -> float:
        return _TOP + (_HEIGHT - _TOP) * (high - size_bytes) / height

    stride = max(len(course) // _MOST_POINTS, 1)
    numbers = sorted({*range(0, len(course), stride), len(course) - 1})
    points = " ".join(f"{x(n):.1f},{y(course[n]):.1f}" for n in numbers)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT + _BOTTOM}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT + _BOTTOM}" fill="white"/>',
        *_axes(low, high, len(steps), noun(steps[-1].source)),
        f'<polyline points="{points}" fill="none" stroke="#34495e" stroke-width="1.5"/>',
    ]
    marked = [one for one in sum_steps(steps)[:_MARKED] if one.delta_bytes]
    for rank, one in enumerate(marked):
        colour = _COLOURS[rank]
        at = [n for n, step in enumerate(steps, 1) if step.key == (one.file, one.line) and step.delta_bytes]
        name = place(steps[at[0] - 1]) if at else "?"
        for n in at[:: max(len(at) // 500, 1)]:
            title = escape(f"{name}: {format_delta(steps[n - 1].delta_bytes or 0)}")
            parts.append(
                f'<circle cx="{x(n):.1f}" cy="{y(course[n]):.1f}" r="3" fill="{colour}"><title>{title}</title></circle>'
            )
        row = _HEIGHT + 36 + 14 * rank
        text = escape(f"{name}  {format_delta(one.delta_bytes)} in {plural(one.hits, 'step')}")
        parts.append(f'<circle cx="{_LEFT}" cy="{row - 4}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + 10}" y="{row}">{text}</text>')
    parts += _shared(steps, x)
    return "\n".join([*parts, "</svg>\n"])


def _axes(low: int, high: int, count: int, what: str) -> list[str]:
    right = _WIDTH - 20
    return [
        f'<text x="{_LEFT}" y="16">{what} memory over {plural(count, "step")}</text>',
        f'<line x1="{_LEFT}" y1="{_HEIGHT}" x2="{right}" y2="{_HEIGHT}" stroke="#999"/>',
        f'<line x1="{_LEFT}" y1="{_TOP}" x2="{_LEFT}" y2="{_HEIGHT}" stroke="#999"/>',
        f'<text x="{_LEFT - 6}" y="{_TOP + 4}" text-anchor="end">{format_delta(high)}</text>',
        f'<text x="{_LEFT - 6}" y="{_HEIGHT}" text-anchor="end">{format_delta(low)}</text>',
        f'<text x="{right}" y="{_HEIGHT + 16}" text-anchor="end">step {count:,}</text>',
    ]


def _shared(steps: Sequence[Step], x) -> list[str]:  # type: ignore[no-untyped-def]  # a local function
    """Mark the steps during which other threads ran."""
    shared = [number for number, step in enumerate(steps, 1) if step.lock == SHARED]
    return [
        f'<rect x="{x(n) - 0.75:.1f}" y="{_HEIGHT + 1}" width="1.5" height="5" fill="#e67e22"/>'
        for n in shared[:: max(len(shared) // 1000, 1)]
    ]


def steps_html(steps: Sequence[Step], title: str) -> str:
    """Return a page with the drawing and a table of the lines; no script, nothing from elsewhere."""
    rows = "".join(
        f"<tr><td>{format_delta(one.delta_bytes)}</td><td>{format_delta(one.shared_bytes)}</td>"
        f"<td>{one.hits:,}</td><td>{escape(one.file or '')}:{one.line or ''}</td>"
        f"<td>{escape(one.function or '')}</td></tr>"
        for one in sum_steps(steps)
    )
    peak = format_size(max(totals(steps)))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>body{{font-family:sans-serif;margin:2em auto;max-width:60em}}"
        "td,th{padding:.1em .8em .1em 0;text-align:left}td:nth-child(-n+3){text-align:right}</style></head><body>"
        f"<h1>{escape(title)}</h1><p>{plural(len(steps), 'step')}, at most {peak} above the start.</p>"
        f"{steps_svg(steps)}<table><tr><th>change</th><th>shared</th><th>steps</th><th>line</th>"
        f"<th>function</th></tr>{rows}</table></body></html>\n"
    )
