"""Pictures without scripts: an icicle of a call tree, and the largest lines of a series stacked over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gdbmem.profiles.own_code import function_name
from gdbmem.profiles.tree_from_main import Outward
from gdbmem.terminal import charting
from gdbmem.terminal.charting import Plot, Swatch, box, element, group, round_up, shortened, text, time_ticks
from gdbmem.text import format_delta, format_size, format_time, printable

_WIDTH = 960
_ROW, _LETTER, _LABEL_LEAST = 18, 6.7, 30  # pixels
_LEAST = 1.0  # pixels
_DEEPEST = 40
_MOST_BOXES = 1500
_GREW, _SHRANK, _MIXED = "#fd8d3c", "#6baed6", "#c9c9c9"  # distinguishable by colour-blind readers
_PLAIN = ("#f6c177", "#efb266", "#e9a557", "#f2bd86")
_LEFT, _RIGHT, _TOP, _HEIGHT = 90, 20, 12, 260
_KEY_COLUMNS, _KEY_LETTERS = (2, 430), 60
_BAR_LEFT, _BAR_RIGHT = 150, 100
COUNT = "#"  # the unit of numbered moments
_STACK = (
    "#1f5fbf", "#e0813a", "#2e8b57", "#8a4fbf", "#c9a227", "#20808d", "#a0604f", "#d7609e", "#7d8b99",
)  # fmt: skip


class Layer(NamedTuple):
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
    return charting.drawing(
        (_WIDTH, deepest * _ROW),
        boxes,
        class_="icicle",
        role="img",
        aria_label="the call tree, callers above what they call",
        font_family="monospace",
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
    label = "" if width < _LABEL_LEAST or room < 4 else shortened(name, room)
    return group(
        box(x, row * _ROW, max(width - 0.6, 0.4), _ROW - 1, _fill(call, name, is_change=is_change)),
        text(x + 3, row * _ROW + 13, label) if label else "",
        tip=f"{name}: {amount}",
        data_value=call.delta_bytes,
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
    plot = _area(layers, times)
    tops = _tops(layers, len(times))
    rows = -(-len(layers) // _KEY_COLUMNS[0])
    parts = [
        plot.levels(charting.fifths(plot.upward[1]), format_size, stroke="#8884"),
        *(
            _layer(layer, number, plot, times, (tops[number], tops[number + 1]))
            for number, layer in enumerate(layers)
        ),
        plot.moments(_ticks(times, time_unit), stem=0, below=16),
        *_picks(plot, times, names, tops[-1], time_unit),
    ]
    entries = [(shortened(layer.name, _KEY_LETTERS), _color(at)) for at, layer in enumerate(layers)]
    key = charting.key_in_columns(entries, (_LEFT, plot.bottom + 31), _KEY_COLUMNS, Swatch())
    return charting.drawing(
        (_WIDTH, plot.bottom + 34 + _ROW * rows),
        [group(*parts, class_="plot"), *key],
        class_="stack",
        role="group",
        aria_label="the largest lines at each snapshot",
    )


def _area(layers: Sequence[Layer], times: Sequence[float]) -> Plot:
    most = round_up(max(_tops(layers, len(times))[-1]))
    return Plot(_LEFT, _TOP, _WIDTH - _LEFT - _RIGHT, _HEIGHT, (times[0], times[-1]), (0, most))


def _color(number: int) -> str:
    return _STACK[number % len(_STACK)]


def zoomable_stack(
    layers: Sequence[Layer], times: Sequence[float], names: Sequence[str], time_unit: str
) -> charting.ZoomableChart:
    """Return the same, as `stack` draws it, as ``Course`` of ``web/timeline.js``."""
    curves = [
        charting.zoomable_curve(layer.name, _color(number), times, layer.sizes)
        for number, layer in enumerate(layers)
    ]
    moments = [printable(name) for name in names]
    return charting.zoomable(_area(layers, times), curves, time_unit, stacked=True, moments=moments)


def _tops(layers: Sequence[Layer], count: int) -> list[list[int]]:
    tops = [[0] * count]
    for layer in layers:
        tops.append([below + size for below, size in zip(tops[-1], layer.sizes)])
    return tops


def _layer(
    layer: Layer, number: int, plot: Plot, times: Sequence[float], edges: tuple[Sequence[int], Sequence[int]]
) -> str:
    below, above = ([f"{plot.x(t):.1f} {plot.y(size):.1f}" for t, size in zip(times, edge)] for edge in edges)
    path = f"M{'L'.join(above)}L{'L'.join(reversed(below))}Z"
    return element("path", charting.title(layer.name), d=path, fill=_color(number), class_="curve")


def _ticks(times: Sequence[float], time_unit: str) -> list[tuple[float, str]]:
    if time_unit == "s":
        return time_ticks(times[0], times[-1], 8)
    return [
        (t, f"{t:.0f}" if time_unit == COUNT else format_time(t, time_unit)) for t in (times[0], times[-1])
    ]


def _picks(
    plot: Plot, times: Sequence[float], names: Sequence[str], sizes: Sequence[int], time_unit: str
) -> list[str]:
    x = [plot.x(t) for t in times]
    edges = [x[0] - 6, *((a + b) / 2 for a, b in zip(x, x[1:])), x[-1] + 6]
    return [
        group(
            box(begin, plot.top, max(end - begin, 1), plot.height, "#000", fill_opacity=0),
            plot.upright(t, "#0003"),
            tip=f"{printable(name)}: {format_size(size)} at {_moment(t, time_unit)}",
            class_="pick",
            data_snapshot=number,
            data_value=size,
            tabindex=0,
            role="button",
            aria_label=f"{printable(name)}, {format_size(size)}",
        )
        for number, (name, t, size, begin, end) in enumerate(zip(names, times, sizes, edges, edges[1:]))
    ]


def _moment(t: float, time_unit: str) -> str:
    if time_unit == COUNT:
        return f"number {t:.0f}"
    return f"{t:.1f} s" if time_unit == "s" else format_time(t, time_unit)


def histogram(rows: Sequence[tuple[str, int, str]]) -> str:
    """Return a bar for each of *rows*, its label, count and tooltip, as SVG."""
    most = max((count for _, count, _ in rows), default=0) or 1
    width = _WIDTH - _BAR_LEFT - _BAR_RIGHT
    bars = []
    for number, (label, count, tip) in enumerate(rows):
        y, length = number * _ROW, width * count / most
        bars.append(
            group(
                text(_BAR_LEFT - 8, y + 13, label, text_anchor="end"),
                box(_BAR_LEFT, y + 2, max(length, 1.0 if count else 0.0), _ROW - 4, _STACK[0]),
                text(_BAR_LEFT + length + 6, y + 13, f"{count:,}"),
                tip=tip,
                data_value=count,
            )
        )
    return charting.drawing(
        (_WIDTH, _ROW * len(rows) + 4), bars, class_="bars", role="img", aria_label="blocks by size"
    )


def spark(course: Sequence[int]) -> str:
    """Return *course*, the bytes at each snapshot, as a small SVG line on a scale from 0."""
    top, last = max(course) or 1, max(len(course) - 1, 1)
    points = " ".join(f"{100 * at / last:.1f},{19 - 18 * size / top:.1f}" for at, size in enumerate(course))
    line = element(
        "polyline", points=points, fill="none", stroke="currentColor", vector_effect="non-scaling-stroke"
    )
    return element(
        "svg", line, class_="spark", viewBox="0 0 100 20", preserveAspectRatio="none", aria_hidden="true"
    )
