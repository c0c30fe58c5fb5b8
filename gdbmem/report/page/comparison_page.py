"""The page of a comparison of two groups of recordings: the differences and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.model.series.comparison import Comparison, Difference
from gdbmem.report.page.page import Cell, Number, Page, Section, course_section, printable_rows
from gdbmem.report.series.comparison import (
    amount_text,
    change_text,
    conclusion,
    interval_text,
    metric_name,
    reliability,
)
from gdbmem.report.series.series_plot import Picture
from gdbmem.text import printable

RunWords = Sequence[tuple[str, str]]  # run's name, its verdict in words


def comparison_page(comparison: Comparison, words: RunWords, picture: Optional[Picture] = None) -> Page:
    """Return the page of *comparison*; *words* are the verdicts, *picture* has the runs overlaid."""
    names = [*comparison.first, *comparison.second]
    page = Page(title=printable(f"{_names(comparison.first)} and {_names(comparison.second)}"))
    rules = [sentence] if (sentence := reliability(comparison)) else []
    page.sections.append(
        Section(
            "The difference",
            sentence=printable(conclusion(comparison)),
            numbers=[Number(change_text(row.value, row), row.value) for row in comparison.differences],
            rules=rules,
            header=("", "first", "second", "difference", "at least", "at most", ""),
            table=printable_rows([_row(row) for row in comparison.differences]),
        )
    )
    if picture is not None:
        page.sections.append(course_section(picture))
    groups = ["first"] * len(comparison.first) + ["second"] * len(comparison.second)
    rows = [(f"{name} ({group})", dict(words).get(name, "")) for group, name in zip(groups, names)]
    page.sections.append(Section("The runs", header=("run", "verdict"), table=printable_rows(rows)))
    return page


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} runs"


def _row(row: Difference) -> Sequence[Cell]:
    bounds: tuple[Cell, Cell] = ("", "")
    if row.low is not None and row.high is not None:
        low, high = interval_text(row)
        bounds = Number(low, row.low), Number(high, row.high)
    return (
        metric_name(row),
        Number(amount_text(row.first, row), row.first),
        Number(amount_text(row.second, row), row.second),
        Number(change_text(row.value, row), row.value),
        *bounds,
        "" if row.low is None else "differs" if row.is_shown else "not shown",
    )
