"""A comparison as text and as JSON (kind=comparison)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbmem.model.comparison import Comparison, Difference
from gdbmem.model.verdict import Verdict
from gdbmem.report import drawing
from gdbmem.report.console import columns_that_fit, print_sentence, print_table
from gdbmem.report.document import head, to_json
from gdbmem.report.series.series_json import verdict_json
from gdbmem.report.series.series_text import headline
from gdbmem.text import printable
from gdbmem.units import format_delta, format_rate, format_rates, format_size

if TYPE_CHECKING:
    from rich.console import Console

_TOGETHER = "the intervals are for all rows together: by chance one comparison in twenty differs"

Judged = Sequence[tuple[str, Verdict]]  # run's name, its verdict


def print_comparison(comparison: Comparison, judged: Judged, console: Console) -> None:
    """Print the verdicts of the runs, then the differences."""
    for name, verdict in judged:
        print_sentence(console, f"{printable(name)}: {headline(verdict)}: {verdict.evidence}")
    headings = ["", "first", "second", "difference", "interval", ""]
    rows = [_cells(row) for row in comparison.differences]
    shown = columns_that_fit([headings, *rows], console.width, give_up=(4, 1, 2))
    table = drawing.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in shown:
        table.add_column(headings[column], justify="right" if column else "left", no_wrap=True)
    for cells in rows:
        table.add_row(*(drawing.Text(cells[column]) for column in shown))
    console.print()
    print_table(console, table)
    console.print()
    if any(row.low is not None for row in comparison.differences):
        print_sentence(
            console,
            "the intervals are for all rows together: by chance one in twenty comparisons differs",
            "dim",
        )
    print_sentence(console, conclusion(comparison), "bold")


def _cells(row: Difference) -> list[str]:
    shown = "" if row.low is None else "differs" if row.is_shown else "not shown"
    return [
        _name(row),
        _amount(row.first, row),
        _amount(row.second, row),
        _change(row.value, row),
        _interval(row),
        shown,
    ]


def _name(row: Difference) -> str:
    return row.metric + ("/s" if row.unit == "1/s" else "")


def conclusion(comparison: Comparison) -> str:
    """Return the sentence that sums the comparison up."""
    shown = [row for row in comparison.differences if row.is_shown]
    if shown:
        return "they differ: " + ", ".join(f"{_name(row)} {_change(row.value, row)}" for row in shown)
    if all(row.low is None for row in comparison.differences if row.metric != "slope"):
        return (
            "no difference in slope that these runs can show; one run on either side has no spread for the rest: "
            "repeat them (--runs 3)"
        )
    return "no difference that these runs can show"


def comparison_json(comparison: Comparison, judged: Judged) -> str:
    """Return the document."""
    return to_json(
        {
            **head("comparison", ()),
            "first": list(comparison.first),
            "second": list(comparison.second),
            "runs": [{"run": name, "verdict": verdict_json(verdict)} for name, verdict in judged],
            "differences": [
                {
                    "metric": row.metric, "unit": row.unit, "first": row.first, "second": row.second,
                    "value": row.value, "low": row.low, "high": row.high, "is_shown": row.is_shown,
                    "chance": row.chance,
                }
                for row in comparison.differences
            ],
            "conclusion": conclusion(comparison),
        }
    )  # fmt: skip


def _amount(value: float, row: Difference) -> str:
    if row.unit == "B":
        return format_size(value)
    if row.unit == "s":
        return f"{value:,.2f} s"
    return format_rate(value) if row.unit == "B/s" else f"{value:,.0f}"


def _change(value: float, row: Difference) -> str:
    if row.unit == "B":
        return format_delta(value)
    if row.unit == "s":
        return f"{value:+,.2f} s"
    return format_rate(value) if row.unit == "B/s" else f"{value:+,.0f}"


def _interval(row: Difference) -> str:
    if row.low is None or row.high is None:
        return ""
    if row.unit == "B/s":
        return " to ".join(format_rates(row.low, row.high))
    return f"{_change(row.low, row)} to {_change(row.high, row)}"
