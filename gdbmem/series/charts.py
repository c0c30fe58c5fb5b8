"""Memory over time as one picture, in SVG."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional

from gdbmem.terminal import charting
from gdbmem.terminal.charting import (
    Plot,
    Swatch,
    ZoomableChart,
    ZoomableCurve,
    ZoomablePanel,
    element,
    group,
    round_step,
    round_up,
    text,
    time_label,
)
from gdbmem.terminal.drawing import Text
from gdbmem.text import format_delta, format_rate, format_size, format_time, printable

if TYPE_CHECKING:
    from gdbmem.model.series import Mark, Regime

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
_SWATCH = Swatch(14, 4, 18, 6)


class Curve(NamedTuple):
    """One line of the picture, bytes over seconds."""

    name: str
    times: Sequence[float]
    values: Sequence[float]
    is_thin: bool = False  # a process, where the total is the subject
    absences: Sequence[float] = ()  # times of samples without it, in order: no line is drawn across them
    group: Optional[int] = None  # curves of one group have one colour and one name


class Panel(NamedTuple):
    """A smaller plot of counts below the one of memory, over the same time."""

    name: str
    curves: Sequence[Curve]
    gap_seconds: float = math.inf  # a longer stretch without samples is left open


class Picture(NamedTuple):
    """The data of the picture."""

    title: str
    curves: Sequence[Curve]
    marks: "Sequence[Mark]" = ()
    sentences: Sequence[str] = ()  # the verdicts, below
    gap_seconds: float = math.inf  # a longer stretch without samples is left open
    origin: str = ""  # where and when it was recorded
    panels: Sequence[Panel] = ()
    time_unit: str = "s"  # of the time axis, as a profile has it: s, ms, i (instructions), B (allocated)
    regimes: "Sequence[Regime]" = ()  # of the verdict, in order of time


def svg(picture: Picture) -> str:
    """Return *picture* as SVG."""
    key, rows = _key(picture.curves)
    down = _ROW * (rows - 1)
    sentences = [
        line.plain for sentence in picture.sentences for line in Text(printable(sentence)).wrapped(_LINE)
    ]
    below = _PANEL_HEIGHT * len(picture.panels)
    plots = [
        *_plot(picture),
        *(part for number in range(len(picture.panels)) for part in _panel(picture, number)),
        *(text(_LEFT, _HEIGHT + below + 6 + _ROW * i, line) for i, line in enumerate(sentences)),
    ]
    parts = [
        text(_LEFT, 20, picture.title, font_size=15, font_weight="bold"),
        text(_WIDTH - _RIGHT, 20, picture.origin, text_anchor="end", fill="#777777"),
        *key,
        group("\n".join(plots), class_="plot", transform=f"translate(0,{down})"),
    ]
    return charting.sheet((_WIDTH, _HEIGHT + down + below + _ROW * len(sentences)), parts)


def zoomable(picture: Picture) -> ZoomableChart:
    """Return *picture*, as `svg` draws it, as ``Course`` of ``web/timeline.js``."""
    areas = [_panel_plot(picture, number)[0] for number in range(len(picture.panels))]
    panels: list[ZoomablePanel] = [
        {"name": printable(panel.name), "top": area.top, "height": area.height, "most": area.upward[1]}
        for panel, area in zip(picture.panels, areas)
    ]
    curves = [
        _zoomable_curve(curve, number, picture.gap_seconds) for number, curve in enumerate(picture.curves)
    ]
    for number, panel in enumerate(picture.panels):
        found = (_zoomable_curve(curve, at, panel.gap_seconds) for at, curve in enumerate(panel.curves))
        curves += [{**curve, "panel": number} for curve in found]
    return charting.zoomable(
        _area(picture),
        curves,
        picture.time_unit,
        panels=panels,
        marks=[(mark.t, printable(mark.text)[:_LABEL]) for mark in _shown_marks(picture)],
        regimes=[(regime.begin, regime.end, regime.kind) for regime in picture.regimes],
    )


def _zoomable_curve(curve: Curve, number: int, gap: float) -> ZoomableCurve:
    times = [_exact(round(t, 6)) for t in curve.times]  # as --json has them
    name = printable(curve.name)[:_LABEL_OF_GROUP]
    found = charting.zoomable_curve(name, _color(curve, number), times, [*map(_exact, curve.values)])
    return {**found, "begins": [at for at, is_first in enumerate(_begins(curve, gap)) if is_first and at]}


def _exact(value: float) -> float:
    return int(value) if value == int(value) else value


def _area(picture: Picture) -> Plot:
    most = round_up(max((max(c.values) for c in picture.curves if c.values), default=1.0))
    size = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    return Plot(_LEFT, _TOP, *size, (0, _span(picture)), (0, most))


def _plot(picture: Picture) -> list[str]:
    plot = _area(picture)
    return [
        *_bands(picture.regimes, plot),
        plot.levels(charting.fifths(plot.upward[1]), format_size),
        plot.moments(_times(plot.across[1], picture.time_unit)),
        *_marks(_shown_marks(picture), plot),
        *_lines(picture.curves, plot, picture.gap_seconds),
    ]


def _bands(regimes: "Sequence[Regime]", plot: Plot) -> list[str]:
    """Return the regimes of the series as bands, each with its label at its upper end."""
    parts = []
    for regime in regimes:
        begin, end = (min(max(t, 0.0), plot.across[1]) for t in (regime.begin, regime.end))
        left, width = plot.x(begin), max(plot.x(end) - plot.x(begin), 1.0)
        change = round(regime.change_bytes)
        rate = f", {format_rate(regime.slope.value)}" if regime.slope is not None else ""
        tip = f"{regime.kind} from {time_label(begin)} to {time_label(end)}: {format_delta(change)}{rate}"
        label = regime.kind if width > _LETTER * len(regime.kind) + 8 else ""
        parts.append(
            group(
                charting.box(
                    left,
                    plot.top,
                    width,
                    plot.height,
                    _BANDS[regime.kind],
                    fill_opacity=0.16,
                    data_value=change,
                ),
                plot.upright(begin, "#bbbbbb"),
                text(left + 4, plot.top + 24, label, fill="#555555", font_size=10),
                tip=tip,
                class_="regime",
            )
        )
    return parts


def _span(picture: Picture) -> float:
    curves = [*picture.curves, *(curve for panel in picture.panels for curve in panel.curves)]
    return max((c.times[-1] for c in curves if c.times), default=1.0) or 1.0


def _lines(curves: Sequence[Curve], plot: Plot, gap: float) -> list[str]:
    return [
        element(
            "path",
            charting.title(curve.name),
            d=_path(curve, plot, gap),
            fill="none",
            stroke=_color(curve, number),
            stroke_width=0.9 if curve.is_thin else 1.8,
            class_="curve",
        )
        for number, curve in enumerate(curves)
    ]


def _color(curve: Curve, number: int) -> str:
    return _COLORS[(number if curve.group is None else curve.group) % len(_COLORS)]


def _panel(picture: Picture, number: int) -> list[str]:
    """Return panel *number*, below the axis of time and the panels before it."""
    panel = picture.panels[number]
    plot, step = _panel_plot(picture, number)
    counts = range(0, int(plot.upward[1]) + 1, step)
    return [
        text(_LEFT, plot.top - 6, panel.name, fill="#555555"),
        plot.levels(counts, lambda count: f"{count:,}"),
        *_lines(panel.curves, plot, panel.gap_seconds),
    ]


def _panel_plot(picture: Picture, number: int) -> tuple[Plot, int]:
    """Return the area of panel *number*, and the step between its lines."""
    panel = picture.panels[number]
    most = max((max(c.values) for c in panel.curves if c.values), default=1.0)
    step = int(round_step(most / 3))
    first, height = _HEIGHT - _ROW + _PANEL_HEIGHT * number, _PANEL_HEIGHT - 2 * _ROW
    top = max(math.ceil(most / step), 1) * step
    return Plot(_LEFT, first, _WIDTH - _LEFT - _RIGHT, height, (0, _span(picture)), (0, top)), step


def _shown_marks(picture: Picture) -> "list[Mark]":
    span_t = _span(picture)
    return [mark for mark in picture.marks if 0 <= mark.t <= span_t]


def _marks(marks: "Sequence[Mark]", plot: Plot) -> list[str]:
    parts = []
    free_from = 0.0  # where there is room for the next label; the line's title has every name
    for mark in marks:
        at, label = plot.x(mark.t), printable(mark.text)[:_LABEL]
        inside = [plot.upright(mark.t, "#999999", stroke_dasharray="3 3")]
        if at >= free_from and at + _LETTER * len(label) < _WIDTH:
            free_from = at + _LETTER * len(label) + 8
            inside.append(text(at + 3, plot.top + 10, label, fill="#777777", font_size=10))
        parts.append(group(*inside, tip=mark.text, class_="mark"))
    return parts


def _times(span: float, time_unit: str) -> list[tuple[float, str]]:
    """Return the ticks of the axis of time, with their labels."""
    if time_unit == "s":
        step = charting.time_step(span, 10)
    else:
        step = round_up(span / 5) if time_unit == "B" else round_step(span / 5)
    moments = [number * step for number in range(int(span / step) + 1)]
    return [(t, time_label(t) if time_unit == "s" else format_time(t, time_unit)) for t in moments]


def _key(curves: Sequence[Curve]) -> tuple[list[str], int]:
    """Return the names of *curves*, once per group, with their colours, and the number of rows."""
    entries: dict[object, tuple[str, str]] = {}
    for number, curve in enumerate(curves):
        longest = 28 if curve.group is None else _LABEL_OF_GROUP
        entry = printable(curve.name)[:longest], _color(curve, number)
        entries.setdefault(("curve", number) if curve.group is None else curve.group, entry)
    return charting.key_in_rows(entries.values(), (_LEFT, 32), _WIDTH, _SWATCH)


def _path(curve: Curve, plot: Plot, gap: float) -> str:
    rows = zip(curve.times, curve.values, _begins(curve, gap))
    return "".join(f"{'M' if begins else 'L'}{plot.x(t):.1f} {plot.y(v):.1f}" for t, v, begins in rows)


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
