"""The page of `gdbmem report` for recordings of a monitor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gdbmem.api.series import Recording, compare_recordings, recorded, summary_of
from gdbmem.api.series_pictures import picture_of
from gdbmem.cli.measured import facts_of_series
from gdbmem.model.series import SeriesSummary, Verdict
from gdbmem.page.page import Cell, Number, Page, Section, course_section, known_size, printable_rows
from gdbmem.page.steps_page import comparison_page
from gdbmem.series.text import headline
from gdbmem.text import format_delta, format_duration, format_rate, format_size, printable


def page_of_comparison(places: Sequence[Path]) -> Page:
    """Return the page that compares the first of the recordings at *places* with the others."""
    with recorded(places) as folders:
        recordings = [Recording(folder) for folder in folders]
        summaries = [summary_of(recording) for recording in recordings]
        return compared_page(recordings, summaries, first=1)


def compared_page(recordings: Sequence[Recording], summaries: Sequence[SeriesSummary], *, first: int) -> Page:
    """Return the page that compares *recordings*[:first] with the others."""
    comparison = compare_recordings(recordings, summaries, first=first)
    words = [
        (r.folder.name, f"{headline(s.verdict)}: {s.verdict.evidence}") for r, s in zip(recordings, summaries)
    ]
    return comparison_page(comparison, words, picture_of(recordings, summaries, first_group=first))


def page_of_series(place: Path) -> Page:
    """Return the page of the recording at *place*, a run or another tool's file: verdict, history, processes."""
    with recorded([place]) as (folder,):
        recording = Recording(folder)
        return recorded_page([recording], [summary_of(recording)])


def recorded_page(recordings: Sequence[Recording], summaries: Sequence[SeriesSummary]) -> Page:
    """Return the page of *recordings*, overlaid if there are several."""
    targets = dict.fromkeys(summary.facts.target for summary in summaries)
    names = [recording.folder.name for recording in recordings]
    page = Page(title=printable(" / ".join(targets)), subtitle=printable("  ".join(names)))
    for name, summary in zip(names, summaries):
        title = "Verdict" if len(names) == 1 else f"Verdict on {printable(name)}"
        sentence = f"{headline(summary.verdict)}: {summary.verdict.evidence}"
        page.sections.append(Section(title, sentence=sentence, numbers=_numbers(summary.verdict)))
    page.sections.append(course_section(picture_of(recordings, summaries)))
    if len(summaries) == 1 and len(summaries[0].verdict.regimes) > 1:
        page.sections.append(_regimes(summaries[0]))
    for name, summary in zip(names, summaries):
        title = "Processes" if len(names) == 1 else f"Processes of {printable(name)}"
        page.sections.append(_processes(title, summary))
    page.facts = [fact for summary in summaries for fact in facts_of_series(summary)]
    said = [printable(notice.message) for summary in summaries for notice in summary.notices]
    page.notices = list(dict.fromkeys(said))
    return page


def _numbers(verdict: Verdict) -> list[Number]:
    """Return the numbers that the evidence of *verdict* may name and that its JSON has, too."""
    rates = [one.value for one in (verdict.slope, *(regime.slope for regime in verdict.regimes)) if one]
    changes = [verdict.step_bytes, *(regime.change_bytes for regime in verdict.regimes)]
    durations = [verdict.period_seconds, verdict.step_at, verdict.needs_seconds]
    size, resolution = verdict.amplitude_bytes, verdict.resolution
    return [
        *(Number(format_rate(rate), rate) for rate in dict.fromkeys(rates)),
        *(Number(format_delta(one), one) for one in dict.fromkeys(changes) if one is not None),
        *(Number(format_duration(one), one) for one in durations if one is not None),
        *([] if size is None else [Number(format_size(size), size)]),
        *([] if resolution is None else [Number(format_rate(resolution).lstrip("+"), resolution)]),
    ]


def _regimes(summary: SeriesSummary) -> Section:
    rows: list[Sequence[Cell]] = [
        (
            one.kind,
            Number(format_duration(one.begin), one.begin),
            Number(format_duration(one.end), one.end),
            Number(format_delta(round(one.change_bytes)), one.change_bytes),
            "" if one.slope is None else Number(format_rate(one.slope.value), one.slope.value),
            "",
        )
        for one in summary.verdict.regimes
    ]
    rule = "The intervals of uniform behaviour shown in the picture; the last one is judged."
    header = ("it was", "from", "to", "change", "rate", "")
    return Section("Stretches", rules=[rule], header=header, table=printable_rows(rows))


def _processes(title: str, summary: SeriesSummary) -> Section:
    rows = []
    for row in summary.lines:
        sizes = (known_size(size) for size in (row.first_bytes, row.peak_bytes, row.last_bytes))
        rows.append((f"{row.line.names} {row.line.pid}", *sizes, row.line.command))
    header = ("process", "first", "peak", "last", "command")
    return Section(title, header=header, table=printable_rows(rows))
