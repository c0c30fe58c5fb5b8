"""The page of measured steps: each file in its own order, with the changes of its lines in the margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Optional

from gdbmem.faults.account import HUGETLB, cause_of, only_read, sentences
from gdbmem.model.faults import FaultAccount, FaultTotals
from gdbmem.model.series import Comparison, Difference
from gdbmem.model.steps import Step, StepSum
from gdbmem.page.page import (
    Cell,
    MarginLine,
    Number,
    Page,
    Section,
    course_section,
    known_size,
    markup,
    printable_rows,
    sign_of,
    source_notices,
)
from gdbmem.profiles.paths import Query
from gdbmem.series.charts import Picture
from gdbmem.series.comparison import (
    amount_text,
    change_text,
    conclusion,
    interval_text,
    metric_name,
    reliability,
)
from gdbmem.steps.charts import steps_svg
from gdbmem.steps.steps import noun, reservations, sum_steps, total_bytes, total_sentence
from gdbmem.terminal.drawing import SourceLines
from gdbmem.text import format_delta, format_size, plural, printable

_AROUND = 2  # lines before the first that ran, and after the last
_LONGEST_GAP = 12  # longer runs of lines that did not run are omitted
_MOST_FILES = 40


@dataclass
class _File:
    """The sums of the lines of one file."""

    name: Optional[str]
    sums: list[StepSum] = field(default_factory=list)

    @property
    def delta_bytes(self) -> int:
        return sum(one.delta_bytes for one in self.sums)

    @property
    def weight(self) -> int:
        return sum(abs(one.delta_bytes) for one in self.sums)


def steps_page(steps: Sequence[Step], title: str, query: Query) -> Page:
    """Return the page of *steps*; with the source around them if *query* embeds it."""
    sources = SourceLines(query.source_folders, query.source_roots) if query.embed_source else None
    page = Page(title=printable(title))
    sentence = f"{noun(steps[-1].source)} memory: {total_sentence(steps)}"
    picture = markup(steps_svg(steps))
    page.sections.append(Section("The steps", sentence=sentence, numbers=_numbers(steps), picture=picture))
    files = _files(sum_steps(steps))
    page.sections += [_section(one, sources) for one in files[:_MOST_FILES]]
    rest = files[_MOST_FILES:]
    if rest:
        size = sum(one.delta_bytes for one in rest)
        text = plural(len(rest), "further file")
        page.sections.append(Section(text, others=[(Number(format_delta(size), size), "in all their lines")]))
    said = [*reservations(steps), *(one.message for one in source_notices(sources))]
    page.notices = [printable(one) for one in said]
    return page


def _numbers(steps: Sequence[Step]) -> list[Number]:
    """Return the numbers of the sentence about *steps*."""
    total, others = total_bytes(steps), sum(step.others_bytes or 0 for step in steps)
    return [
        Number(format_delta(total), total),
        Number(plural(len(steps), "step"), len(steps)),
        Number(format_delta(others), others),
    ]


def _files(sums: Sequence[StepSum]) -> list[_File]:
    """Return the files, largest change first, each with its lines in order."""
    found: dict[Optional[str], _File] = {}
    for one in sums:
        found.setdefault(one.file, _File(one.file)).sums.append(one)
    for file in found.values():
        file.sums.sort(key=lambda one: (one.line or 0, one.function or ""))
    return sorted(found.values(), key=lambda file: -file.weight)


def _section(file: _File, sources: Optional[SourceLines]) -> Section:
    name = PurePath(file.name).name if file.name else "no source known"
    return Section(
        printable(name),
        rules=[printable(file.name)] if file.name and file.name != name else [],
        margin=_lines(file, sources),
        others=[(Number(format_delta(file.delta_bytes), file.delta_bytes), "in these lines")],
    )


def _lines(file: _File, sources: Optional[SourceLines]) -> list[MarginLine]:
    by_line: dict[int, list[StepSum]] = {}
    for one in file.sums:
        by_line.setdefault(one.line or 0, []).append(one)
    found: list[MarginLine] = []
    for first, last in _stretches(sorted(line for line in by_line if line)):
        texts = sources.marked_up(file.name, first, last) if sources is not None and file.name else []
        if found:
            found.append(MarginLine(""))
        for number in range(first, last + 1):
            text = texts[number - first] if number - first < len(texts) else None
            if number in by_line or text is not None:
                found.append(_line(number, by_line.get(number, ()), text))
    return found + [_line(0, [one], None) for one in by_line.get(0, ())]


def _stretches(lines: Sequence[int]) -> list[tuple[int, int]]:
    """Return first and last line of each range in which *lines*, in order, are close to each other."""
    found: list[tuple[int, int]] = []
    for line in lines:
        first, last = max(line - _AROUND, 1), line + _AROUND
        if found and first - found[-1][1] <= _LONGEST_GAP:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def _line(number: int, sums: Sequence[StepSum], text: Optional[str]) -> MarginLine:
    delta = sum(one.delta_bytes for one in sums)
    hits = sum(one.hits for one in sums)
    functions = ", ".join(dict.fromkeys(one.function for one in sums if one.function))
    doubt = "~" if any(one.doubtful_hits or one.inexact_hits for one in sums) else ""
    is_unknown = bool(sums) and all(one.is_unknown for one in sums)
    amount = Number(doubt + format_delta(delta), delta) if sums and not is_unknown else None
    return MarginLine(
        str(number) if number else "?",
        amount=amount,
        unknown="?" if is_unknown else "",
        sign=sign_of(delta),
        hits=Number(f"{hits:,}", hits) if sums else None,
        text=text,
        function=printable(functions),
    )


# The section of a page that compares page faults with the resident set of each process.


_MOST_PROCESSES = 50


def account_section(totals: FaultTotals) -> Section:
    """Return the account of a recording: the growth of each process, and its explanation."""
    accounts = sorted(totals.accounts, key=lambda one: -(one.delta_bytes or 0))
    rows: list[Sequence[Cell]] = []
    for one in accounts[:_MOST_PROCESSES]:
        rows += _rows(one)
    rest = accounts[_MOST_PROCESSES:]
    if rest:
        rows.append(
            (
                plural(len(rest), "further process", "further processes"),
                _change(sum(one.delta_bytes or 0 for one in rest)),
                "",
            )
        )
    return Section(
        "Beside the resident set",
        rules=[printable(one) for one in sentences(totals)],
        header=("", "resident", ""),
        table=printable_rows(rows),
    )


def _rows(one: FaultAccount) -> list[Sequence[Cell]]:
    name = f"process {one.pid} ({one.name})"
    seen = format_size(round(one.seen_bytes))
    if one.after_bytes is None:
        return [(name, "unknown", f"made {seen} resident, and ended")]
    sizes = f"from {format_size(one.before_bytes)} to {format_size(one.after_bytes)}"
    left = round(one.seen_bytes - one.grown_bytes)
    note = (
        f"made {seen} resident, {format_size(left)} of it no longer resident or resident before"
        if left > 0
        else ""
    )
    return [
        (name, known_size(None) if one.delta_bytes is None else _change(one.delta_bytes), sizes),
        *([(HUGETLB, _change(one.hugetlb_bytes), "")] if one.hugetlb_bytes else ()),
        ("by the page faults above", _change(round(one.grown_bytes)), note),
        *([(only_read(one), _change(0), "")] if one.zero_bytes else ()),
        *((cause_of(part), _change(part.bytes), "") for part in one.unseen if part.bytes),
    ]


def _change(size_bytes: int) -> Number:
    return Number(format_delta(size_bytes), size_bytes)


# The page of a comparison of two groups of recordings: the differences and their intervals.


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
