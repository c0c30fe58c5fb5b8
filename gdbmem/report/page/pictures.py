"""Pictures without scripts: an icicle of a call tree, and the largest lines of a series stacked over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from gdbmem.analysis.profiles.outward import Outward
from gdbmem.analysis.profiles.sites import function_name
from gdbmem.records import dataclass
from gdbmem.report.profiles.timeline_chart import format_time
from gdbmem.report.series.series_plot import round_up, time_ticks
from gdbmem.text import printable
from gdbmem.units import format_delta, format_size

_WIDTH = 960
_ROW, _LETTER, _LABEL_LEAST = 18, 6.7, 30  # pixels
_LEAST = 1.0  # pixels
_DEEPEST = 40
_MOST_BOXES = 1500
_GREW, _SHRANK, _MIXED = "#fd8d3c", "#6baed6", "#c9c9c9"  # distinguishable by colour-blind readers
_PLAIN = ("#f6c177", "#efb266", "#e9a557", "#f2bd86")
_LEFT, _RIGHT, _TOP, _HEIGHT = 90, 20, 12, 260
COUNT = "#"  # the unit of numbered moments
_STACK = (
    "#1f5fbf", "#e0813a", "#2e8b57", "#8a4fbf", "#c9a227", "#20808d", "#a0604f", "#d7609e", "#7d8b99",
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """One line's bytes at each moment of a stacked picture."""

    name: str
    sizes: Sequence[int]


def icicle(root: Outward, *, is_change: bool) -> str:
    """Return the calls of *root* as SVG, callers above callees; "" if nothing is listed.

    The width is the bytes through a call; for a change the sum of added and removed bytes.
    """
    boxes: list[str] = []
    deepest = 0
    waiting = [(child, 1, offset) for child, offset in _placed(root.children, 0.0)]
    scale = _WIDTH / (root.weight or 1)
    while waiting and len(boxes) < _MOST_BOXES:
        call, depth, offset = waiting.pop()
        if call.weight * scale < _LEAST:
            continue
        deepest = max(deepest, depth)
        boxes.append(_box(call, depth - 1, offset * scale, call.weight * scale, is_change=is_change))
        if depth < _DEEPEST:
            waiting += [(child, depth + 1, place) for child, place in _placed(call.children, offset)]
    if not boxes:
        return ""
    height = deepest * _ROW
    return (
        f'<svg class="icicle" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'aria-label="the call tree, callers above what they call" font-family="monospace" font-size="12">'
        f"{''.join(boxes)}</svg>"
    )


def _placed(calls: Sequence[Outward], start: float) -> list[tuple[Outward, float]]:
    placed = []
    for call in calls:
        placed.append((call, start))
        start += call.weight
    return placed


def _box(call: Outward, row: int, x: float, width: float, *, is_change: bool) -> str:
    name = "places that are not listed" if call.frame is None else function_name(call.frame)
    amount = format_delta(call.delta_bytes) if is_change else format_size(call.delta_bytes)
    room = int((width - 6) / _LETTER)
    label = "" if width < _LABEL_LEAST or room < 4 else name if len(name) <= room else f"{name[: room - 1]}…"
    text = f'<text x="{x + 3:.1f}" y="{row * _ROW + 13}">{escape(label)}</text>' if label else ""
    return (
        f'<g data-value="{call.delta_bytes}"><title>{escape(f"{name}: {amount}")}</title>'
        f'<rect x="{x:.1f}" y="{row * _ROW}" width="{max(width - 0.6, 0.4):.1f}" height="{_ROW - 1}" '
        f'fill="{_fill(call, name, is_change=is_change)}"/>{text}</g>'
    )


def _fill(call: Outward, name: str, *, is_change: bool) -> str:
    if not is_change:
        return _PLAIN[sum(name.encode()) % len(_PLAIN)]
    if abs(call.delta_bytes) < 0.02 * call.weight:
        return _MIXED
    return _GREW if call.delta_bytes > 0 else _SHRANK


def stack(layers: Sequence[Layer], times: Sequence[float], names: Sequence[str], time_unit: str) -> str:
    """Return *layers* stacked over *times* as SVG, the first lowest; each moment can be chosen.

    *names* are those of the moments; a moment's number is in ``data-snapshot``. Times are in *time_unit*, COUNT for
    numbered moments.
    """
    tops = _tops(layers, len(times))
    most = round_up(max(tops[-1]))
    first, span = times[0], (times[-1] - times[0]) or 1.0
    x = [_LEFT + (t - first) / span * (_WIDTH - _LEFT - _RIGHT) for t in times]
    y = [[_TOP + (1 - size / most) * _HEIGHT for size in row] for row in tops]
    rows = math.ceil(len(layers) / 2)
    height = _TOP + _HEIGHT + 34 + _ROW * rows
    parts = [
        f'<svg class="stack" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'role="group" aria-label="the largest lines at each snapshot" font-family="sans-serif" font-size="12">'
        '<g class="plot"><g class="levels">',
        *_levels(most),
        "</g>",
        *(
            _area(layer, number, x, y[number], y[number + 1])
            for number, layer in enumerate(layers)
        ),
        '<g class="times">',
        *_time_axis(times, x, time_unit),
        "</g>",
        *_picks(x, times, names, tops[-1], time_unit),
        "</g>",
        *(_key(layer, number) for number, layer in enumerate(layers)),
    ]  # fmt: skip
    return "".join(parts) + "</svg>"


def zoomable_stack(
    layers: Sequence[Layer], times: Sequence[float], names: Sequence[str], time_unit: str
) -> dict[str, Any]:
    """Return the same, as `stack` draws it, as ``Course`` of ``web/timeline.js``."""
    curves = [
        {"name": layer.name, "color": _STACK[number % len(_STACK)], "times": list(times),
         "values": list(layer.sizes), "begins": [], "panel": -1}
        for number, layer in enumerate(layers)
    ]  # fmt: skip
    return {
        "plot": [_LEFT, _TOP, _WIDTH - _LEFT - _RIGHT, _HEIGHT],
        "unit": time_unit,
        "span": [times[0], times[-1]],
        "most": round_up(max(_tops(layers, len(times))[-1])),
        "stacked": True,
        "curves": curves,
        "panels": [],
        "moments": [printable(name) for name in names],
        "marks": [],
        "regimes": [],
    }


def _tops(layers: Sequence[Layer], count: int) -> list[list[int]]:
    tops = [[0] * count]
    for layer in layers:
        tops.append([below + size for below, size in zip(tops[-1], layer.sizes)])
    return tops


def _levels(most: float) -> list[str]:
    found = []
    for fifth in range(6):
        at = _TOP + (1 - fifth / 5) * _HEIGHT
        found.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#8884"/>'
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{format_size(most * fifth / 5)}</text>'
        )
    return found


def _area(layer: Layer, number: int, x: Sequence[float], below: Sequence[float], top: Sequence[float]) -> str:
    upper = "L".join(f"{at:.1f} {level:.1f}" for at, level in zip(x, top))
    lower = "L".join(f"{at:.1f} {level:.1f}" for at, level in zip(reversed(x), reversed(below)))
    fill = _STACK[number % len(_STACK)]
    return (
        f'<path d="M{upper}L{lower}Z" fill="{fill}" class="curve"><title>{escape(layer.name)}</title></path>'
    )


def _time_axis(times: Sequence[float], x: Sequence[float], time_unit: str) -> list[str]:
    bottom = _TOP + _HEIGHT
    if time_unit == COUNT:
        marks = [(x[0], f"{times[0]:.0f}"), (x[-1], f"{times[-1]:.0f}")]
    elif time_unit == "s":
        scale = (x[-1] - x[0]) / ((times[-1] - times[0]) or 1.0)
        marks = [(x[0] + (t - times[0]) * scale, text) for t, text in time_ticks(times[0], times[-1], 8)]
    else:
        marks = [(at, format_time(t, time_unit)) for t, at in ((times[0], x[0]), (times[-1], x[-1]))]
    return [
        f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="{_anchor(at)}">{escape(text)}</text>'
        for at, text in marks
    ]


def _anchor(x: float) -> str:
    return "end" if x > _WIDTH - 60 else "middle"


def _picks(
    x: Sequence[float], times: Sequence[float], names: Sequence[str], sizes: Sequence[int], time_unit: str
) -> list[str]:
    edges = [x[0] - 6, *((a + b) / 2 for a, b in zip(x, x[1:])), x[-1] + 6]
    return [
        f'<g class="pick" data-snapshot="{number}" data-value="{size}" tabindex="0" role="button" '
        f'aria-label="{escape(printable(name))}, {format_size(size)}">'
        f"<title>{escape(f'{printable(name)}: {format_size(size)} at {_moment(t, time_unit)}')}</title>"
        f'<rect x="{edges[number]:.1f}" y="{_TOP}" width="{max(edges[number + 1] - edges[number], 1):.1f}" '
        f'height="{_HEIGHT}" fill="#000" fill-opacity="0"/>'
        f'<line x1="{x[number]:.1f}" x2="{x[number]:.1f}" y1="{_TOP}" y2="{_TOP + _HEIGHT}" stroke="#0003"/></g>'
        for number, (name, t, size) in enumerate(zip(names, times, sizes))
    ]


def _moment(t: float, time_unit: str) -> str:
    if time_unit == COUNT:
        return f"number {t:.0f}"
    return f"{t:.1f} s" if time_unit == "s" else format_time(t, time_unit)


def spark(course: Sequence[int]) -> str:
    """Return *course*, the bytes at each snapshot, as a small SVG line on a scale from 0."""
    top, last = max(course) or 1, max(len(course) - 1, 1)
    points = " ".join(f"{100 * at / last:.1f},{19 - 18 * size / top:.1f}" for at, size in enumerate(course))
    return (
        '<svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" vector-effect="non-scaling-stroke"/></svg>'
    )


def _key(layer: Layer, number: int) -> str:
    column, row = number % 2, number // 2
    x, y = _LEFT + column * 430, _TOP + _HEIGHT + 40 + row * _ROW
    name = layer.name if len(layer.name) <= 60 else f"{layer.name[:59]}…"
    return (
        f'<rect x="{x}" y="{y - 9}" width="11" height="11" fill="{_STACK[number % len(_STACK)]}"/>'
        f'<text x="{x + 17}" y="{y}">{escape(name)}</text>'
    )
