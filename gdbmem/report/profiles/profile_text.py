"""A heap profile as text: its history, its peak, and the allocation sites of one snapshot."""

from __future__ import annotations

from gdbmem.analysis.profiles.diff import as_growth
from gdbmem.analysis.profiles.query import DEFAULT_TOP, Query
from gdbmem.analysis.profiles.ranking import rank
from gdbmem.model.profiles.snapshot import Profile, Snapshot
from gdbmem.records import replace
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.notices import print_notices
from gdbmem.report.profiles.course_text import course_sentence, peak_sentence
from gdbmem.report.profiles.headline import answer_snapshot
from gdbmem.report.profiles.own_code import own_code_notices
from gdbmem.report.profiles.ranking_table import RowLayout, rows_table
from gdbmem.report.profiles.timeline_chart import print_chart
from gdbmem.report.profiles.tree import inverted_table
from gdbmem.report.source import SourceLines
from gdbmem.text import plural, printable


def print_timeline(profile: Profile, console: Console) -> None:
    """Print the history of *profile* and a sentence about its peak."""
    print_sentence(console, printable(profile.command or profile.source), "bold")
    trees = sum(totals.has_tree for totals in profile.snapshots)
    console.print(f"{plural(len(profile.snapshots), 'snapshot')}, {trees} with a call tree", style="dim")
    console.print()
    print_chart(profile, console)
    print_sentence(console, peak_sentence(profile))
    course = course_sentence(profile)
    if course:
        print_sentence(console, course)
    print_notices(profile.notices, console)


def print_sites(
    snapshot: Snapshot,
    query: Query,
    console: Console,
    *,
    moment: str,
    known_from: str = "",
) -> None:
    """Print where the memory of *snapshot* is; *moment* is its name in the sentence."""
    growth = as_growth(snapshot)
    sentence = answer_snapshot(growth, query, moment=moment)
    print_sentence(console, sentence, "bold")
    ranking = rank(growth, replace(query, top=query.top or DEFAULT_TOP))
    if not ranking.total.after_bytes:
        return
    sources = SourceLines(query.source_folders, query.source_roots)
    layout = RowLayout(console, query, sources, is_change=False, known_from=known_from)
    console.print()
    console.print(inverted_table(ranking, layout) if query.inverted else rows_table(ranking, layout))
    print_notices([*own_code_notices(ranking), *sources.notices()], console)
