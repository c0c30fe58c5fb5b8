"""Two groups of recordings → differences with confidence intervals."""

import math
from collections.abc import Sequence
from statistics import mean, variance
from typing import NamedTuple, Optional

from gdbmem.json_values import as_json
from gdbmem.model.judgement import Judgement
from gdbmem.model.series import Comparison, Difference, Slope, Verdict
from gdbmem.series.document import verdict_json
from gdbmem.series.statistics import chance_of, critical
from gdbmem.series.text import headline
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, columns_that_fit, print_notices, print_sentence
from gdbmem.terminal.document import head, judgement_line, judgement_object, to_json
from gdbmem.text import format_delta, format_rate, format_rates, format_size, printable

_MANY = 1000.0  # degrees of freedom: Student's distribution is the normal one
_FROM_RUN_TO_RUN = 0.1  # standard deviation of a rate, of the rate, on a machine that does other things, too
_ALPHA = 0.05  # probability that runs of the same program seem to differ, in any row


class Figures(NamedTuple):
    """The numbers by which recordings are compared."""

    peak_bytes: float
    floor_bytes: float
    level_bytes: float
    slope: Optional[Slope]
    most_threads: Optional[float]  # None in this and what follows: not recorded
    threads_started: Optional[float]
    threads_per_second: Optional[float]  # falls on a busy machine, where the same work takes longer
    wall_seconds: Optional[float] = None
    cpu_seconds: Optional[float] = None
    page_faults: Optional[float] = None
    is_settled: bool = True  # whether the verdict on the run is conclusive


def levels_of(values: Sequence[float], peak_bytes: float = 0.0) -> tuple[float, float, float]:
    """Return peak, floor (the lowest twentieth) and middle of *values*; *peak_bytes* is known from elsewhere."""
    # The start of a program is not a floor: every program begins small.
    later = sorted(values[len(values) // 10 :]) or [0.0]
    return max([*values, peak_bytes]), later[len(later) // 20], later[len(later) // 2]


def compare(first: Sequence[Figures], second: Sequence[Figures]) -> list[Difference]:
    """Return the differences of the *second* group from the *first*.

    With several runs on each side intervals come from the variance between runs (Welch's test); with one run only the
    slope has one, from within the run and an assumed variance between runs, if the verdicts on both are conclusive.
    They are widened for the number of rows (Holm's method).
    """

    def row(metric: str, unit: str, figure: str) -> Optional[Difference]:
        known = [[getattr(f, figure) for f in group] for group in (first, second)]
        if any(value is None for group in known for value in group):
            return None
        return difference_of(metric, unit, *known)

    found = [
        row("peak", "B", "peak_bytes"),
        row("floor", "B", "floor_bytes"),
        row("middle", "B", "level_bytes"),
        _slopes(first, second),
        row("threads", "", "most_threads"),
        row("threads started", "", "threads_started"),
        row("thread churn", "1/s", "threads_per_second"),
        row("CPU", "s", "cpu_seconds"),
        row("page faults", "", "page_faults"),
        row("wall time", "s", "wall_seconds"),
    ]
    return _together([difference for difference in found if difference is not None])


def _together(rows: Sequence[Difference]) -> list[Difference]:
    """Return *rows* with intervals of which any excludes zero by chance in one comparison of twenty (Holm's method)."""
    tested = sorted((row for row in rows if row.chance is not None), key=lambda row: row.chance or 0.0)
    wider = {}
    level = _ALPHA
    is_open = True  # once one is not shown, none with a larger chance is
    for number, row in enumerate(tested):
        if is_open:
            level = _ALPHA / (len(tested) - number)
            is_open = row.chance is not None and row.chance <= level
        wider[row.metric] = level
    return [_widened(row, wider[row.metric]) if row.metric in wider else row for row in rows]


def _widened(row: Difference, level: float) -> Difference:
    if row.low is None or row.dof is None:
        return row
    half = (row.value - row.low) * critical(level, row.dof) / critical(_ALPHA, row.dof)
    return row._replace(low=row.value - half, high=row.value + half)


def difference_of(metric: str, unit: str, first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the difference of the mean of *second* and that of *first*, with its 95 % interval (Welch's test)."""
    value = mean(second) - mean(first)
    if len(first) < 2 or len(second) < 2:
        return Difference(metric, unit, mean(first), mean(second), value)
    a, b = variance(first) / len(first), variance(second) / len(second)
    if a + b == 0:
        chance = 0.0 if value else 1.0
        return Difference(metric, unit, mean(first), mean(second), value, value, value, chance, None)
    dof = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    return _tested(metric, unit, mean(first), mean(second), math.sqrt(a + b), dof)


def _tested(metric: str, unit: str, first: float, second: float, error: float, dof: float) -> Difference:
    value = second - first
    half = critical(_ALPHA, dof) * error
    chance = chance_of(value / error, dof)
    return Difference(metric, unit, first, second, value, value - half, value + half, chance, dof)


def _slopes(first: Sequence[Figures], second: Sequence[Figures]) -> Optional[Difference]:
    known = [[(f.slope, f.is_settled) for f in group if f.slope is not None] for group in (first, second)]
    if not all(known):
        return None
    spread = difference_of("slope", "B/s", *([slope.value for slope, _ in group] for group in known))
    if spread.low is not None or not all(is_settled for group in known for _, is_settled in group):
        return spread
    one, other = known[0][0][0], known[1][0][0]
    # Half a 95 % interval in standard errors of a normal distribution.
    within = math.hypot(one.high - one.low, other.high - other.low) / (2 * critical(_ALPHA, _MANY))
    error = math.hypot(within, _FROM_RUN_TO_RUN * one.value, _FROM_RUN_TO_RUN * other.value)
    if error == 0:
        return spread
    return _tested("slope", "B/s", spread.first, spread.second, error, _MANY)


# A comparison as text and as JSON (kind=comparison).


_TOGETHER = "the intervals are for all rows together: by chance one in twenty comparisons differs"
_WITHIN = (
    "one run on a side: the interval of the slope is from within the runs and allows for rates that vary by 10 % from"
    " run to run; the rest is not judged"
)
_REPEAT = "one run on either side has no spread for the rest: repeat them (--runs 3)"

_FEWEST_THREADS, _LEAST_LEFT_BYTES = 50, 1024  # started more, and the peak for each, to be reported

_OF_DIFFERENCE = ("metric", "unit", "first", "second", "value", "low", "high", "is_shown", "chance")

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
            **as_json(comparison, "first", "second"),
            "runs": [{"run": name, "verdict": verdict_json(verdict)} for name, verdict in judged],
            "differences": [as_json(row, *_OF_DIFFERENCE) for row in comparison.differences],
            "conclusion": conclusion(comparison),
            "judgements": [judgement_object(one) for one in judgements],
        }
    )


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
