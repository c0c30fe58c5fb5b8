"""What a command has judged, for the reports of --ci."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from gdbmem.errors import UsageError
from gdbmem.gates.reports import OUTCOMES_ONLY, CiFile, GrownLine, Judged, Place, grown_line
from gdbmem.model.judgement import BYTES, Judgement
from gdbmem.text import format_size, printable

if TYPE_CHECKING:
    from gdbmem.api.recipes import Compared
    from gdbmem.model.diff import Diff
    from gdbmem.model.series import Difference, SeriesSummary
    from gdbmem.profiles.paths import Query
    from gdbmem.recipes.recipe import Recipe

_UNITS = {"B": BYTES, "B/s": "bytes_per_second", "1/s": "per_second", "s": "seconds", "": "count"}


def ci_files(args: argparse.Namespace, *, needs: str = "") -> list[CiFile]:
    """Return the reports that *args* want; raises UsageError for one of outcomes if the option *needs* is missing."""
    found: list[CiFile] = list(args.ci or ())
    if getattr(args, "junit", None):
        found.append(CiFile("junit", args.junit))
    without = needs and getattr(args, needs.lstrip("-").replace("-", "_")) is None
    for one in found:
        if without and one.kind in OUTCOMES_ONLY:
            raise UsageError(f"--ci {one.kind} reports what passed and failed, so it needs {needs}")
    return found


def grown_lines(diff: Diff, query: Query) -> list[GrownLine]:
    """Return the lines of *diff* that grew, the largest first, without the paths that *query* excludes or knows."""
    from gdbmem.profiles.ranking import rank  # with the command's own

    rows = rank(diff, query._replace(by="line", top=None, min_bytes=0)).rows
    found = [grown_line(row.site, row.amount.delta_bytes) for row in rows]
    return sorted((one for one in found if one is not None), key=lambda line: -line.delta_bytes)


def judged_by_recipe(recipe: Recipe, result: Compared, query: Query) -> Iterator[Judged]:
    """Yield the outcome of each expectation of *recipe*, with the lines that grew and its own line."""
    from gdbmem.recipes.verdicts import case_name  # with the recipe's own

    for verdict, diff in zip(result.verdicts, result.judged):
        expectation = verdict.expectation
        lines: Sequence[GrownLine] = ()
        if diff is not None:
            focus = re.compile(expectation.path) if expectation.path else None
            lines = grown_lines(diff, query._replace(focus=focus))
        origin = Place(recipe.source, expectation.position.line)
        yield Judged(verdict.judgement, lines, origin, case_name(expectation))


def measured_peaks(summaries: Sequence[SeriesSummary]) -> Iterator[Judged]:
    """Yield the known peaks of recordings as numbers."""
    for summary in summaries:
        peak = summary.known_peak_bytes
        if peak is not None:
            text = f"{printable(summary.facts.target)}: its peak was {format_size(peak)}"
            yield Judged(_number("peak", text, peak, peak, peak, BYTES))


def measured_difference(difference: Difference) -> Judged:
    """Return one difference of a comparison as a number."""
    name = f"change of {difference.metric}"
    unit = _UNITS.get(difference.unit, difference.unit)
    return Judged(_number(name, name, difference.value, difference.low, difference.high, unit))


def _number(
    name: str, text: str, value: Optional[float], low: Optional[float], high: Optional[float], unit: str
) -> Judgement:
    return Judgement(name, text, None, value, low, high, unit=unit)
