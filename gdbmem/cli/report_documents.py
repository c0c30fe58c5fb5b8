"""The pages of a process, of a core, of recordings, and of --json documents other than profiles."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from gdbmem.api.heaps import heap_growth, read_heap
from gdbmem.api.ledgers import BlockQueries, explain, explain_core, read_ledger, saved_heap_map
from gdbmem.api.pools import answer_failed, read_pools
from gdbmem.api.profiles import ReadOptions, Run, find_operand
from gdbmem.api.series import Recording, compare_recordings, picture_of, recorded, summary_of
from gdbmem.cli.report_pages import known_facts, make_page
from gdbmem.errors import UsageError
from gdbmem.formats.documents import read_comparison, read_objects, read_steps
from gdbmem.heap.text import print_growth, print_heap
from gdbmem.model.series import SeriesSummary, Verdict
from gdbmem.page.ledger_page import ledger_growth_page, ledger_page
from gdbmem.page.page import Cell, Number, Page, Section, course_section, known_size, printable_rows
from gdbmem.page.pools_page import objects_growth_page, objects_page, pools_page
from gdbmem.page.steps_page import comparison_page, steps_page
from gdbmem.profiles.paths import Query
from gdbmem.runs.saved_results import HEAP, file_text, find_saved
from gdbmem.series.text import headline
from gdbmem.terminal.console import make_console
from gdbmem.text import format_delta, format_duration, format_rate, format_size, printable

_MOST_ROWS = 20  # of a table of changes


def process_page(pid: int, say: Callable[[str], None]) -> Page:
    """Return the page of the resident memory of process *pid*, with a map of its heap if there is one."""
    look = BlockQueries.asked(map_if_any=True)
    ledger = explain(pid, progress=say, look=look)
    return ledger_page(ledger, look.map if look is not None else None)


def core_page(core: Path) -> Page:
    """Return the page of the memory in the core file *core*."""
    look = BlockQueries.asked(map_if_any=True)
    ledger = explain_core(core, look=look)
    return ledger_page(ledger, look.map if look is not None else None)


def _ledgers(operands: Sequence[str], query: Query) -> Page:
    del query
    ledgers = [read_ledger(one) for one in operands]
    if len(ledgers) == 1:
        return ledger_page(ledgers[0], saved_heap_map(operands[0]))
    return ledger_growth_page(ledgers, [Path(one).name for one in operands])


def _objects(operands: Sequence[str], query: Query) -> Page:
    del query
    moments = [read_objects(Path(one)) for one in operands]
    if len(moments) == 1:
        return objects_page(moments[0])
    return objects_growth_page(moments, [Path(one).name for one in operands])


def _heaps(operands: Sequence[str], query: Query) -> Page:
    """Return the page of a heap, or of two: its holders as a tree and a flame graph, and the report in words."""
    places = [str(_heap_file(one)) for one in operands]
    page = make_page(places, query, ReadOptions())
    stream = io.StringIO()
    console = make_console(stream, width=110, color=False)
    if len(operands) > 1:
        first, last = operands[0], operands[-1]
        print_growth(heap_growth(read_heap(first), read_heap(last), (first, last)), console, _MOST_ROWS)
    else:
        print_heap(read_heap(operands[0]).view, {}, console)
    words = Section("Who holds the heap", text=stream.getvalue())
    page.sections.append(words)
    return page


def _heap_file(operand: str) -> Path:
    place, name = find_operand(operand)
    return place.file(find_saved(place, HEAP, name or "").file) if isinstance(place, Run) else place


def _steps(operands: Sequence[str], query: Query) -> Page:
    name = _one_alone(operands, "steps", "'memwatch report --since' compares two recordings of steps")
    return steps_page(read_steps(file_text(Path(name)), name), f"the steps of {Path(name).name}", query)


def _comparison(operands: Sequence[str], query: Query) -> Page:
    del query
    name = _one_alone(operands, "comparison", "'gdbmem compare' takes more runs on each side")
    return comparison_page(*read_comparison(file_text(Path(name)), name))


def pools_of_files(operands: Sequence[str], query: Query) -> Page:
    """Return the page of the pools in a log, a memory dump, or what `gdbmem bfc --json` wrote."""
    del query
    name = _one_alone(operands, "bfc", "'gdbmem bfc diff' compares two")
    pools = read_pools(name)
    decisions = [answer_failed(one) for one in pools.allocators]
    return pools_page(pools.allocators, decisions, pools.notices, Path(name).name)


def _one_alone(operands: Sequence[str], what: str, hint: str) -> str:
    if len(operands) > 1:
        raise UsageError(f"a page can show only one file of kind '{what}'", hint=hint)
    return operands[0]


# By the kind of a document.
PAGES: Mapping[str, Callable[[Sequence[str], Query], Page]] = {
    "bfc": pools_of_files,
    "comparison": _comparison,
    "heap": _heaps,
    "ledger": _ledgers,
    "python-objects": _objects,
    "steps": _steps,
}


# The page of `gdbmem report` for recordings of a monitor.


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
    page.facts = [fact for summary in summaries for fact in _facts_of_series(summary)]
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


def _facts_of_series(summary: SeriesSummary) -> list[tuple[str, str]]:
    """Return the facts of the recording that *summary* judges."""
    facts = summary.facts
    began = datetime.fromtimestamp(facts.began).astimezone() if facts.began > 0 else None
    every = format_duration(facts.interval_seconds) if facts.interval_seconds else ""
    limit = facts.limit_bytes
    return known_facts(
        [
            ("target", facts.target),
            ("began", began.isoformat(sep=" ", timespec="seconds") if began else ""),
            ("samples", f"{summary.samples:,} in {format_duration(summary.seconds)}"),
            ("interval", every),
            ("PSS", f"read {summary.reads_of_pss:,} times" if summary.reads_of_pss else "never read"),
            ("limit", f"{format_size(limit)}, of {facts.limit_of}" if limit is not None else ""),
            ("threads", "the kernel reported each start" if facts.exact_threads else ""),
            ("can't see", "changes between two samples: at most the kernel's own peak is known"),
        ]
    )
