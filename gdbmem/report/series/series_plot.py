"""Memory over time as one picture, in SVG."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Optional

from gdbmem.model.series.series import Mark
from gdbmem.model.series.verdict import Regime
from gdbmem.records import dataclass
from gdbmem.report.drawing import Text
from gdbmem.report.profiles.timeline_chart import format_time
from gdbmem.text import printable
from gdbmem.units import format_delta, format_duration, format_rate, format_size

_WIDTH, _HEIGHT = 960, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 56, 70
_ROW, _LINE = 18, 130  # pixels from one row of text to the next, characters per row
_PANEL_HEIGHT = 150  # pixels
_LABEL_OF_GROUP = 60  # characters of a command
_LABEL, _LETTER = 24, 6  # a mark's name: characters, and their approximate width
_COLORS = (
    "#1f5fbf", "#c2452d", "#2e8b57", "#8a4fbf", "#b8860b", "#20808d", "#8c564b", "#555555", "#d7609e", "#93a31c",
)  # fmt: skip
_BANDS = {  # distinguishable by colour-blind readers, and named
    "growing": "#e0813a", "shrinking": "#2171b5", "plateau": "#7d8b99", "sawtooth": "#8a4fbf", "step": "#c2452d",
    "inconclusive": "#ffffff",
}  # fmt: skip
_TIME_STEPS = (
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    20,
    30,
    60,
    120,
    300,
    600,
    1200,
    1800,
    3600,
    7200,
    14400,
    21600,
    43200,
    86400,
)


Scale = Callable[[float], float]


@dataclass(frozen=True)
class Curve:
    """One line of the picture, bytes over seconds."""

    name: str
    times: Sequence[float]
    values: Sequence[float]
    is_thin: bool = False  # a process, where the total is the subject
    absences: Sequence[float] = ()  # times of samples without it, in order: no line is drawn across them
    group: Optional[int] = None  # curves of one group have one colour and one name


@dataclass(frozen=True)
class Panel:
    """A smaller plot of counts below the one of memory, over the same time."""

    name: str
    curves: Sequence[Curve]
    gap_seconds: float = math.inf  # a longer stretch without samples is left open


@dataclass(frozen=True)
class Picture:
    """The data of the picture."""

    title: str
    curves: Sequence[Curve]
    marks: Sequence[Mark] = ()
    sentences: Sequence[str] = ()  # the verdicts, below
    gap_seconds: float = math.inf  # a longer stretch without samples is left open
    origin: str = ""  # where and when it was recorded
    panels: Sequence[Panel] = ()
    time_unit: str = "s"  # of the time axis, as a profile has it: s, ms, i (instructions), B (allocated)
    regimes: Sequence[Regime] = ()  # of the verdict, in order of time


def svg(picture: Picture) -> str:
    """Return *picture* as SVG."""
    key, rows = _key(picture.curves)
    down = _ROW * (rows - 1)
    sentences = [
        line.plain for sentence in picture.sentences for line in Text(printable(sentence)).wrapped(_LINE)
    ]
    below = _PANEL_HEIGHT * len(picture.panels)
    height = _HEIGHT + down + below + _ROW * len(sentences)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="20" font-size="15" font-weight="bold">{_text(picture.title)}</text>',
        f'<text x="{_WIDTH - _RIGHT}" y="20" text-anchor="end" fill="#777777">{_text(picture.origin)}</text>',
        *key,
        f'<g class="plot" transform="translate(0,{down})">',
        *_plot(picture),
        *(part for number in range(len(picture.panels)) for part in _panel(picture, number)),
    ]
    for i, line in enumerate(sentences):
        parts.append(f'<text x="{_LEFT}" y="{_HEIGHT + below + 6 + _ROW * i}">{escape(line)}</text>')
    return "\n".join(parts) + "\n</g></svg>\n"


def zoomable(picture: Picture) -> dict[str, Any]:
    """Return *picture*, as `svg` draws it, as ``Course`` of ``web/timeline.js``."""
    lowest = _HEIGHT - _ROW
    panels = [
        {
            "name": printable(panel.name),
            "top": lowest + _PANEL_HEIGHT * number,
            "height": _PANEL_HEIGHT - 2 * _ROW,
            "most": _panel_top(panel)[0],
        }
        for number, panel in enumerate(picture.panels)
    ]
    curves = [
        _zoomable_curve(curve, number, picture.gap_seconds) for number, curve in enumerate(picture.curves)
    ]
    for number, panel in enumerate(picture.panels):
        found = (_zoomable_curve(curve, at, panel.gap_seconds) for at, curve in enumerate(panel.curves))
        curves += [{**curve, "panel": number} for curve in found]
    return {
        "plot": [_LEFT, _TOP, _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM],
        "unit": picture.time_unit,
        "span": [0, _span(picture)],
        "most": _most(picture),
        "stacked": False,
        "curves": curves,
        "panels": panels,
        "moments": [],
        "marks": [[mark.t, printable(mark.text)[:_LABEL]] for mark in _shown_marks(picture)],
        "regimes": [[regime.begin, regime.end, regime.kind] for regime in picture.regimes],
    }


def _zoomable_curve(curve: Curve, number: int, gap: float) -> dict[str, Any]:
    begins = [at for at, is_first in enumerate(_begins(curve, gap)) if is_first and at]
    return {
        "name": printable(curve.name)[:_LABEL_OF_GROUP],
        "color": _color(curve, number),
        "times": [_exact(round(t, 6)) for t in curve.times],  # as --json has them
        "values": [_exact(value) for value in curve.values],
        "begins": begins,
        "panel": -1,
    }


def _exact(value: float) -> float:
    return int(value) if value == int(value) else value


def _most(picture: Picture) -> float:
    return round_up(max((max(c.values) for c in picture.curves if c.values), default=1.0))


def _plot(picture: Picture) -> list[str]:
    span_t = _span(picture)
    top = _most(picture)
    plot_w, plot_h = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(t: float) -> float:
        return _LEFT + t / span_t * plot_w

    def y(v: float) -> float:
        return _TOP + (1 - v / top) * plot_h

    parts = _bands(picture.regimes, x, span_t, plot_h)
    parts += _axes(x, y, span_t, top, picture.time_unit)
    parts += _marks(_shown_marks(picture), x, plot_h)
    return parts + _lines(picture.curves, x, y, picture.gap_seconds)


def _bands(regimes: Sequence[Regime], x: Scale, span_t: float, plot_h: float) -> list[str]:
    """Return the regimes of the series as bands, each with its label at its upper end."""
    parts = []
    for regime in regimes:
        begin, end = (min(max(t, 0.0), span_t) for t in (regime.begin, regime.end))
        left, width = x(begin), max(x(end) - x(begin), 1.0)
        change = round(regime.change_bytes)
        rate = f", {format_rate(regime.slope.value)}" if regime.slope is not None else ""
        title = f"{regime.kind} from {_time(begin)} to {_time(end)}: {format_delta(change)}{rate}"
        label = regime.kind if width > _LETTER * len(regime.kind) + 8 else ""
        parts.append(
            f'<g class="regime"><title>{escape(title)}</title>'
            f'<rect x="{left:.1f}" y="{_TOP}" width="{width:.1f}" height="{plot_h}" '
            f'fill="{_BANDS[regime.kind]}" fill-opacity="0.16" data-value="{change}"/>'
            f'<line x1="{left:.1f}" x2="{left:.1f}" y1="{_TOP}" y2="{_TOP + plot_h}" stroke="#bbbbbb"/>'
            f'<text x="{left + 4:.1f}" y="{_TOP + 24}" fill="#555555" font-size="10">{label}</text></g>'
        )
    return parts


def _span(picture: Picture) -> float:
    curves = [*picture.curves, *(curve for panel in picture.panels for curve in panel.curves)]
    return max((c.times[-1] for c in curves if c.times), default=1.0) or 1.0


def _lines(curves: Sequence[Curve], x: Scale, y: Scale, gap: float) -> list[str]:
    return [
        f'<path d="{_path(curve, x, y, gap)}" fill="none" stroke="{_color(curve, number)}" '
        f'stroke-width="{0.9 if curve.is_thin else 1.8}" class="curve"><title>{_text(curve.name)}</title></path>'
        for number, curve in enumerate(curves)
    ]


def _color(curve: Curve, number: int) -> str:
    return _COLORS[(number if curve.group is None else curve.group) % len(_COLORS)]


def _panel(picture: Picture, number: int) -> list[str]:
    """Return panel *number*, below the axis of time and the panels before it."""
    panel = picture.panels[number]
    span_t = _span(picture)
    top, step = _panel_top(panel)
    first, height = _HEIGHT - _ROW + _PANEL_HEIGHT * number, _PANEL_HEIGHT - 2 * _ROW

    def x(t: float) -> float:
        return _LEFT + t / span_t * (_WIDTH - _LEFT - _RIGHT)

    def y(count: float) -> float:
        return first + (1 - count / top) * height

    parts = [f'<text x="{_LEFT}" y="{first - 6}" fill="#555555">{_text(panel.name)}</text>']
    for count in range(0, top + 1, step):
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(count):.1f}" y2="{y(count):.1f}" stroke="#dddddd"/>'
            f'<text x="{_LEFT - 6}" y="{y(count) + 4:.1f}" text-anchor="end">{count:,}</text>'
        )
    return parts + _lines(panel.curves, x, y, panel.gap_seconds)


def _panel_top(panel: Panel) -> tuple[int, int]:
    """Return the count at the top of *panel*, and the step between lines."""
    most = max((max(c.values) for c in panel.curves if c.values), default=1.0)
    step = max(_whole_step(most / 3), 1)
    return max(math.ceil(most / step), 1) * step, step


def _whole_step(value: float) -> int:
    power: float = 10.0 ** math.floor(math.log10(max(value, 1)))
    return int(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value))


def _shown_marks(picture: Picture) -> list[Mark]:
    span_t = _span(picture)
    return [mark for mark in picture.marks if 0 <= mark.t <= span_t]


def _marks(marks: Sequence[Mark], x: Scale, plot_h: float) -> list[str]:
    parts = []
    free_from = 0.0  # where there is room for the next label; the line's title has every name
    for mark in marks:
        at, label = x(mark.t), printable(mark.text)[:_LABEL]
        shown = at >= free_from and at + _LETTER * len(label) < _WIDTH
        if shown:
            free_from = at + _LETTER * len(label) + 8
        parts.append(
            f'<g class="mark"><title>{_text(mark.text)}</title><line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" '
            f'y2="{_TOP + plot_h}" stroke="#999999" stroke-dasharray="3 3"/>'
            + f'<text x="{at + 3:.1f}" y="{_TOP + 10}" fill="#777777" font-size="10">{escape(label)}</text>'
            * shown
            + "</g>"
        )
    return parts


def _axes(x: Scale, y: Scale, span_t: float, top: float, time_unit: str) -> list[str]:
    parts = ['<g class="levels">']
    bottom = y(0)
    for i in range(6):
        value = top * i / 5
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#dddddd"/>'
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{format_size(value)}</text>'
        )
    parts.append('</g><g class="times">')
    step = _time_step(span_t, time_unit)
    for i in range(int(span_t / step) + 1):
        label = _time(i * step) if time_unit == "s" else format_time(i * step, time_unit)
        parts.append(
            f'<line x1="{x(i * step):.1f}" x2="{x(i * step):.1f}" y1="{bottom:.0f}" '
            f'y2="{bottom + 5:.0f}" stroke="#555"/>'
            f'<text x="{x(i * step):.1f}" y="{bottom + 18:.0f}" text-anchor="middle">{label}</text>'
        )
    return [*parts, "</g>"]


def time_ticks(first: float, last: float, most: int) -> list[tuple[float, str]]:
    """Return round times from *first* to *last*, seconds, with their labels; about *most*, at least one."""
    step = _round_step(last - first, max(most, 1))
    begin = math.ceil(first / step - 0.05)  # a first sample is a few milliseconds late
    numbers = range(begin, int(last / step) + 1)
    return [(max(number * step, first), _time(number * step)) for number in numbers] or [
        (first, _time(first))
    ]


def _round_step(span: float, most: int) -> float:
    return next((s for s in _TIME_STEPS if span / s <= most), math.ceil(span / most / 86400) * 86400)


def _time_step(span: float, time_unit: str) -> float:
    if time_unit == "s":
        return _round_step(span, 10)
    if time_unit == "B":
        return round_up(span / 5)
    power: float = 10.0 ** math.floor(math.log10(max(span / 5, 1)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= span / 5)


def _key(curves: Sequence[Curve]) -> tuple[list[str], int]:
    """Return the names of *curves* with their colours, and the number of rows."""
    parts, at, row = [], _LEFT, 0
    seen: set[int] = set()
    for number, curve in enumerate(curves):
        if curve.group is not None:
            if curve.group in seen:
                continue
            seen.add(curve.group)
        label = printable(curve.name)[: _LABEL_OF_GROUP if curve.group is not None else 28]
        width = 40 + 7 * len(label)
        if at > _LEFT and at + width > _WIDTH:
            at, row = _LEFT, row + 1
        y = 32 + _ROW * row
        parts.append(
            f'<rect x="{at}" y="{y}" width="14" height="4" fill="{_color(curve, number)}"/>'
            f'<text x="{at + 18}" y="{y + 6}">{escape(label)}</text>'
        )
        at += width
    return parts, row + 1


def _path(curve: Curve, x: Scale, y: Scale, gap: float) -> str:
    rows = zip(curve.times, curve.values, _begins(curve, gap))
    return "".join(f"{'M' if begins else 'L'}{x(t):.1f} {y(v):.1f}" for t, v, begins in rows)


def _begins(curve: Curve, gap: float) -> list[bool]:
    """Return for each point whether a line begins there."""
    befores = [None, *curve.times]
    return [
        before is None or t - before > gap or _is_any_between(before, t, curve.absences)
        for before, t in zip(befores, curve.times)
    ]


def _is_any_between(begin: float, end: float, moments: Sequence[float]) -> bool:
    place = bisect_right(moments, begin)
    return place < len(moments) and moments[place] < end


def round_up(value: float) -> float:
    """Return a round number of bytes from *value* up, a multiple of five of something."""
    power: int = 1024 ** int(math.log(max(value, 1), 1024))
    for factor in (1, 2, 2.5, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 1024):
        if factor * power >= value * 1.02:
            return factor * power
    return 2048.0 * power


def _time(seconds: float) -> str:
    if seconds == 0:
        return "0"
    return (
        format_duration(seconds).replace(" min 0 s", " min").replace(" h 0 min", " h").replace(".0 s", " s")
    )


def _text(text: str) -> str:
    return escape(printable(text))
