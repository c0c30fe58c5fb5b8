"""Memory over the steps, drawn with characters: a chart, and one line of it."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.model.steps.step import Step
from gdbmem.report.console import Console, glyphs_for
from gdbmem.report.sparkline import thinned
from gdbmem.report.steps.steps import noun
from gdbmem.report.steps.steps_plot import totals
from gdbmem.text import plural
from gdbmem.units import format_delta

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
