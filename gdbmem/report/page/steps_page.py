"""The page of measured steps: each file in its own order, with the changes of its lines in the margin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Optional

from gdbmem.analysis.profiles.query import Query
from gdbmem.analysis.steps import StepSum, sum_steps, total_bytes
from gdbmem.model.steps.step import Step
from gdbmem.records import dataclass, field
from gdbmem.report.page.page import MarginLine, Number, Page, Section, markup, sign_of, source_notices
from gdbmem.report.source import SourceLines
from gdbmem.report.steps.steps import noun, reservations, total_sentence
from gdbmem.report.steps.steps_plot import steps_svg
from gdbmem.text import plural, printable
from gdbmem.units import format_delta

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
