"""A comparison as text and as JSON (kind=comparison)."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.errors import InputError
from gdbmem.files import JsonObject
from gdbmem.json_values import from_json
from gdbmem.model.judgement import Judgement
from gdbmem.model.series.comparison import Comparison, Difference
from gdbmem.model.series.verdict import Verdict
from gdbmem.report import drawing
from gdbmem.report.console import Console, columns_that_fit, print_sentence
from gdbmem.report.document import head, read_document, to_json
from gdbmem.report.judgement import judgement_line, judgement_object
from gdbmem.report.notices import print_notices
from gdbmem.report.series.series_json import verdict_json
from gdbmem.report.series.series_text import headline
from gdbmem.text import printable
from gdbmem.units import format_delta, format_rate, format_rates, format_size

_TOGETHER = "the intervals are for all rows together: by chance one in twenty comparisons differs"
_WITHIN = (
    "one run on a side: the interval of the slope is from within the runs and allows for rates that vary by 10 % from"
    " run to run; the rest is not judged"
)
_REPEAT = "one run on either side has no spread for the rest: repeat them (--runs 3)"

_FEWEST_THREADS, _LEAST_LEFT_BYTES = 50, 1024  # started more, and the peak for each, to be reported

Judged = Sequence[tuple[str, Verdict]]  # run's name, its verdict


def print_comparison(
    comparison: Comparison, judged: Judged, console: Console, judgements: Sequence[Judgement] = ()
) -> None:
    """Print the verdicts of the runs, then the differences, then what a gate says of the second group."""
    for name, verdict in judged:
        print_sentence(console, f"{printable(name)}: {headline(verdict)}: {verdict.evidence}")
    headings = ["", "first", "second", "difference", "interval", ""]
    rows = [_cells(row) for row in comparison.differences]
    shown = columns_that_fit([headings, *rows], console.width, give_up=(4, 1, 2))
    table = drawing.Table()
    for column in shown:
        table.add_column(headings[column], justify="right" if column else "left", no_wrap=True)
    for cells in rows:
        table.add_row(*(drawing.Text(cells[column]) for column in shown))
    console.print()
    console.print(table)
    console.print()
    if reliability(comparison):
        print_sentence(console, reliability(comparison), "dim")
    print_sentence(console, conclusion(comparison), "bold")
    if leftover(comparison):
        print_sentence(console, leftover(comparison))
    for judgement in judgements:
        print_sentence(console, judgement_line(judgement), "bold")
    print_notices(comparison.notices, console)


def _cells(row: Difference) -> list[str]:
    shown = "" if row.low is None else "differs" if row.is_shown else "not shown"
    return [
        metric_name(row),
        amount_text(row.first, row),
        amount_text(row.second, row),
        change_text(row.value, row),
        " to ".join(interval_text(row)),
        shown,
    ]


def metric_name(row: Difference) -> str:
    """Return the name of the metric of *row*."""
    return row.metric + ("/s" if row.unit == "1/s" else "")


def reliability(comparison: Comparison) -> str:
    """Return the sentence on the intervals of *comparison*; "" if it has none."""
    tested = {row.metric for row in comparison.differences if row.low is not None}
    if min(len(comparison.first), len(comparison.second)) < 2 and tested == {"slope"}:
        return _WITHIN
    return _TOGETHER if tested else ""


def conclusion(comparison: Comparison) -> str:
    """Return the sentence that summarises the comparison."""
    shown = [row for row in comparison.differences if row.is_shown]
    if shown:
        return "they differ: " + ", ".join(
            f"{metric_name(row)} {change_text(row.value, row)}" for row in shown
        )
    if all(row.low is None for row in comparison.differences):
        return "not judged: one run on a side and no conclusive slope on both; repeat them (--runs 3)"
    if all(row.low is None for row in comparison.differences if row.metric != "slope"):
        return f"no difference in slope that these runs can show; {_REPEAT}"
    return "no difference that these runs can show"


def leftover(comparison: Comparison) -> str:
    """Return the sentence on memory that goes with started threads; "" if the runs show none."""
    shown = {row.metric: row for row in comparison.differences if row.is_shown}
    threads, peak = shown.get("threads started"), shown.get("peak")
    if threads is None or peak is None or abs(threads.value) < _FEWEST_THREADS:
        return ""
    each = peak.value / threads.value
    if each < _LEAST_LEFT_BYTES:
        return ""
    return (
        f"each additional thread corresponds to {format_delta(each)} at the peak: ended threads seem to leave "
        "memory behind"
    )


def comparison_json(comparison: Comparison, judged: Judged, judgements: Sequence[Judgement] = ()) -> str:
    """Return the document."""
    return to_json(
        {
            **head("comparison", comparison.notices),
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
            "judgements": [judgement_object(one) for one in judgements],
        }
    )  # fmt: skip


def amount_text(value: float, row: Difference, sign: str = "") -> str:
    """Return *value* in the unit of *row*; *sign* "+": with its sign."""
    if row.unit == "B":
        return format_delta(value) if sign else format_size(value)
    if row.unit == "s":
        return f"{value:{sign},.2f} s"
    return format_rate(value) if row.unit == "B/s" else f"{value:{sign},.0f}"


def change_text(value: float, row: Difference) -> str:
    """Return *value* in the unit of *row*, with its sign."""
    return amount_text(value, row, "+")


def interval_text(row: Difference) -> Sequence[str]:
    """Return the two ends of the interval of *row*; "" if it has none."""
    if row.low is None or row.high is None:
        return ()
    if row.unit == "B/s":
        return tuple(format_rates(row.low, row.high))
    return change_text(row.low, row), change_text(row.high, row)


def read_comparison(text: str, name: str) -> tuple[Comparison, Sequence[tuple[str, str]]]:
    """Return the comparison that comparison_json() wrote, and each run with its verdict; raises InputError."""
    refusal = InputError(
        f"{printable(name)} holds no comparison that this gdbmem can read",
        slug="bad-comparison",
        hint="'gdbmem compare --json -o FILE' writes one",
    )
    return read_document(text, "comparison", _comparison, refusal)


def _comparison(document: JsonObject) -> tuple[Comparison, Sequence[tuple[str, str]]]:
    rows = [{name: row[name] for name in row if name != "is_shown"} for row in document["differences"]]
    first, second = (from_json(list[str], document[side]) for side in ("first", "second"))
    if not first or not second:
        raise ValueError
    judged = [(run["run"], run["verdict"]) for run in document["runs"]]
    runs = [(from_json(str, name), f"{verdict['kind']}: {verdict['evidence']}") for name, verdict in judged]
    return Comparison(first, second, from_json(list[Difference], rows)), runs
