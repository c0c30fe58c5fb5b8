"""A run, a profile or a difference as one HTML file: opens anywhere, fetches nothing, runs no script.

gdbmem report gdbmem.decoder.4711           the run: its course, its snapshots, what grew between them
gdbmem report massif.out.1 massif.out.2     what grew from one file to the other
gdbmem report gdbmem.monitor.812            what a monitor recorded, with its verdict
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from gdbmem.analysis.profiles.query import Query, add_mine_option, compile_regex, counts_blocks, read_known
from gdbmem.api.profiles import (
    ReadOptions,
    Run,
    SnapshotRecord,
    as_growth,
    asked_for,
    diff,
    difference_in_file,
    find_operand,
    has_series,
    load_from_profile,
    open_profile,
    outline,
    read_record,
    recipe_diffs,
    spool_operands,
)
from gdbmem.api.runs import LEDGER, kept_records, load_kept
from gdbmem.api.series import Recording, summary_of
from gdbmem.api.series_pictures import picture_of
from gdbmem.arguments import ArgumentParser
from gdbmem.cli.profiles.reading import add_reading_options, read_options_from, source_roots
from gdbmem.errors import InputError, Notice
from gdbmem.model.series import Mark
from gdbmem.report.console import make_console
from gdbmem.report.containers.containers import print_containers
from gdbmem.report.ledger.ledger_text import print_ledger
from gdbmem.report.output import open_output
from gdbmem.report.page.page import Page, Section, course_section, diff_section, render
from gdbmem.report.profiles.profile_text import course_sentence, peak_sentence
from gdbmem.report.series.series_plot import Curve, Picture
from gdbmem.report.series.series_text import headline
from gdbmem.text import printable
from gdbmem.units import format_delta, format_size

if TYPE_CHECKING:
    from gdbmem.model.snapshot import Profile

_MOST_DIFFS = 12
_MOST_POINTS = 4000  # of a curve


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `gdbmem report` takes."""
    parser.usage = "gdbmem report [OPTIONS] A [B]"
    parser.add_argument(
        "operands", metavar="A B", nargs="+", help="a run, RUN:NAME, or a profile; two for their difference"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to FILE (default: NAME.html here; '-': stdout)"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument("--title", metavar="TEXT", help="what to write above it")
    parser.add_argument(
        "--known", metavar="FILE", help="paths that are known and accepted: a regex on each line, # comments"
    )
    add_mine_option(parser)
    parser.add_argument(
        "--source", metavar="FOLDER", action="append", help="where to look for source files (may be repeated)"
    )
    add_reading_options(parser)


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Read, fill the page, write it, and say where it is."""
    arguments = parser.parse_args(argv)
    if len(arguments.operands) > 2:
        parser.error("one run or profile, or two for their difference")
    query = Query(
        known=tuple(read_known(arguments.known)) if arguments.known else (),
        source_folders=arguments.source or (),
        source_roots=source_roots(),
        mine=compile_regex(arguments.mine, "--mine"),
        by_blocks=counts_blocks(arguments.metric),
    )

    arguments.operands = spool_operands(arguments.operands)
    target = arguments.output or f"{_stem(arguments.operands[-1])}.html"
    with open_output(target, force=arguments.force) as stream:
        page = _page(arguments, query)
        if arguments.title:
            page.title = printable(arguments.title)
        stream.write(render(page))
    if target != "-":
        print(f"gdbmem: the report is {printable(target)}", file=sys.stderr)
    return 0


def _stem(operand: str) -> str:
    name = Path(operand.rstrip("/")).name
    return "".join(c if c.isalnum() or c in "._-+#" else "_" for c in name)[:100] or "report"


def _page(arguments: argparse.Namespace, query: Query) -> Page:
    options = read_options_from(arguments)
    if len(arguments.operands) == 2:
        return _page_of_difference(arguments.operands, query, options)
    place, selector = find_operand(arguments.operands[0])
    if not isinstance(place, Run):
        return _page_of_profile(place, selector, query, options)
    if has_series(place.folder):
        return _page_of_series(place.folder)
    return _page_of_run(place, selector, query, options)


def _page_of_difference(operands: Sequence[str], query: Query, options: ReadOptions) -> Page:
    found = diff(*operands, options=options)
    names = [found.before_side.name, found.after_side.name]
    page = Page(title=printable(" → ".join(names)), subtitle=printable("  ".join(operands)))
    page.sections.append(diff_section(f"from {names[0]} to {names[1]}", found, query))
    _add_notices(page, found.notices)
    return page


def _page_of_profile(path: Path, selector: Optional[str], query: Query, options: ReadOptions) -> Page:
    profile = open_profile(path, options)
    page = Page(title=printable(Path(profile.source).name), subtitle=printable(profile.command))
    difference = difference_in_file(profile)
    if difference is not None:
        page.sections.append(diff_section("what came and what went", difference, query))
        _add_notices(page, difference.notices)
        return page
    if len(profile.snapshots) > 1:
        page.sections.append(course_section(_picture(profile)))
    elif profile.peak_tree_index is None:
        page.sections.append(Section("The heap", sentence=peak_sentence(profile)))
    said = profile.notices
    if selector is not None or profile.peak_tree_index is not None:
        loaded = load_from_profile(profile, selector or "peak")
        growth = as_growth(loaded.snapshot)
        page.sections.append(diff_section(loaded.snapshot.name, growth, query, is_change=False))
        said = [*loaded.notices, *profile.notices]
    _add_notices(page, said)
    return page


def _picture(profile: Profile) -> Picture:
    totals = profile.snapshots
    shown = [totals[index] for index in outline([t.total_bytes for t in totals], _MOST_POINTS)]
    times = [t.time for t in shown]
    curves = [Curve("heap", times, [float(t.heap_bytes) for t in shown])]
    if any(t.total_bytes > t.heap_bytes for t in shown):
        curves.append(Curve("with overhead and stacks", times, [float(t.total_bytes) for t in shown], True))
    sentences = list(filter(None, (peak_sentence(profile), course_sentence(profile))))
    return Picture("", curves, sentences=sentences, time_unit=profile.time_unit)


def _page_of_series(folder: Path) -> Page:
    recording = Recording(folder)
    summary = summary_of(recording)
    page = Page(title=printable(summary.facts.target), subtitle=printable(folder.name))
    page.sections.append(
        Section("Verdict", sentence=f"{headline(summary.verdict)}: {summary.verdict.evidence}")
    )
    page.sections.append(course_section(picture_of([recording], [summary])))
    rows = []
    for row in summary.lines:
        sizes = (_known_size(size) for size in (row.first_bytes, row.peak_bytes, row.last_bytes))
        rows.append((f"{row.line.name} {row.line.pid}", *sizes, row.line.command))
    page.sections.append(
        Section("Processes", header=("process", "first", "peak", "last", "command"), table=_printable(rows))
    )
    return page


def _known_size(size_bytes: Optional[float]) -> str:
    return "?" if size_bytes is None else format_size(size_bytes)


def _page_of_run(run: Run, selector: Optional[str], query: Query, options: ReadOptions) -> Page:
    facts = run.facts
    words = [str(facts.get("program", "")), *map(str, facts.get("arguments") or [])]
    page = Page(title=printable(Path(words[0]).name or run.folder.name), subtitle=printable(" ".join(words)))
    page.facts = _facts(run)
    records = list(asked_for(run.snapshots))
    if selector is not None:
        records = [run.record(selector)]
    page.sections += _expectations(run)
    if len(records) > 1:
        page.sections += _snapshots(run, records)
    said = list(run.notices)
    for before, after in _pairs(run, records):
        page.sections.append(_pair_section(run, before, after, query, options, said))
    if records and len(records) < 2:
        page.sections.append(_single_section(run, records[0], query, options, said))
    page.sections += _kept_sections(run)
    if not page.sections:
        raise InputError(
            f"{printable(run.folder.name)} holds nothing to report",
            slug="no-snapshot",
            hint="take snapshots: massif-snap or massif-break in gdb, or points in a recipe",
        )
    _add_notices(page, said)
    return page


def _facts(run: Run) -> list[tuple[str, str]]:
    facts = run.facts
    versions = facts.get("versions") or {}
    rows = [
        ("run", run.folder.name),
        ("command", " ".join(map(str, facts.get("command") or []))),
        ("engine", str(facts.get("engine") or "")),
        ("began", str(facts.get("began") or "")),
        ("ended", str(facts.get("ended") or "")),
        *((str(name), str(version)) for name, version in versions.items()),
    ]
    return [(printable(name), printable(value)) for name, value in rows if value]


def _expectations(run: Run) -> list[Section]:
    rows = [
        (_judged(found.get("met")), str(found.get("text", "")))
        for found in run.facts.get("expectations") or []
    ]
    return [Section("Expectations", header=("", ""), table=_printable(rows))] if rows else []


def _judged(met: object) -> str:
    return "ok" if met is True else "NOT MET" if met is False else "NOT JUDGED"


def _snapshots(run: Run, records: Sequence[SnapshotRecord]) -> list[Section]:
    rows = []
    former: Optional[int] = None
    for record in records:
        size = record.heap_bytes
        delta = "" if size is None or former is None else format_delta(size - former)
        rows.append((record.name, _known_size(size), delta, f"{record.seconds:.1f} s" if record.seconds else "",
                     record.place or ""))  # fmt: skip
        former = size if size is not None else former
    sections = [
        Section("Snapshots", header=("name", "heap", "change", "after", "where"), table=_printable(rows))
    ]
    points = [
        (r.seconds, r.heap_bytes, r.name)
        for r in records
        if r.seconds is not None and r.heap_bytes is not None
    ]
    if len(points) > 1:
        curve = Curve("heap at each snapshot", [p[0] for p in points], [float(p[1]) for p in points])
        marks = [Mark(t, name) for t, _, name in points] if len(points) <= 20 else ()
        sections.insert(0, course_section(Picture("", [curve], marks)))
    return sections


def _pairs(run: Run, records: Sequence[SnapshotRecord]) -> list[tuple[str, str]]:
    """Return which snapshots to compare: as the recipe asked, else the first and the last, then each with the next."""
    asked = recipe_diffs(run)
    if asked and len(records) > 1:
        return asked[:_MOST_DIFFS]
    names = [record.name for record in records]
    steps = list(zip(names, names[1:]))
    whole = [(names[0], names[-1])] if len(names) > 2 else []
    return [*whole, *steps][:_MOST_DIFFS]


def _pair_section(
    run: Run, before: str, after: str, query: Query, options: ReadOptions, said: list[Notice]
) -> Section:
    title = f"from {before} to {after}"
    try:
        found = diff(*(read_record(run, run.record(name), options) for name in (before, after)))
    except InputError as error:  # one damaged file is no reason to show nothing of the others
        return Section(printable(title), sentence=printable(str(error)))
    said += found.notices
    return diff_section(title, found, query)


def _single_section(
    run: Run, record: SnapshotRecord, query: Query, options: ReadOptions, said: list[Notice]
) -> Section:
    loaded = read_record(run, record, options)
    said += loaded.notices
    return diff_section(record.name, as_growth(loaded.snapshot), query, is_change=False)


def _kept_sections(run: Run) -> list[Section]:
    """Return the last ledger and the last scan of containers, as a terminal shows them."""
    last = {record.kind: record for record in kept_records(run)}
    sections = []
    for kind, record in last.items():
        stream = io.StringIO()
        console = make_console(stream, width=110, color=False)
        kept = load_kept(run, kind, record.name)
        if kind == LEDGER:
            print_ledger(kept, console)
        else:
            print_containers(kept, console, _MOST_DIFFS)
        what = "Resident memory" if kind == LEDGER else "Containers"
        sections.append(Section(f"{what} at {printable(record.name)}", text=stream.getvalue()))
    return sections


def _printable(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[printable(cell) for cell in row] for row in rows]


def _add_notices(page: Page, said: Sequence[Notice]) -> None:
    page.notices = list(dict.fromkeys(printable(notice.message) for notice in said))
