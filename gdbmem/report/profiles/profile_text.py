"""A heap profile as text: its history, its peak, and the allocation sites of one snapshot."""

from __future__ import annotations

from gdbmem.analysis.profiles.diff import as_growth
from gdbmem.analysis.profiles.profile_course import FLAT, GREW, JUMPED, LEVELLED, ROSE, SPIKE, course_of
from gdbmem.analysis.profiles.query import DEFAULT_TOP, Query
from gdbmem.analysis.profiles.ranking import rank
from gdbmem.model.profiles.snapshot import Profile, Snapshot, Totals
from gdbmem.records import replace
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.naming import share
from gdbmem.report.notices import print_notices
from gdbmem.report.profiles.headline import answer_snapshot
from gdbmem.report.profiles.own_code import own_code_notices
from gdbmem.report.profiles.ranking_table import RowLayout, rows_table
from gdbmem.report.profiles.timeline_chart import format_time, print_chart
from gdbmem.report.profiles.tree import inverted_table
from gdbmem.report.source import SourceLines
from gdbmem.text import plural, printable
from gdbmem.units import format_size


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


def peak_sentence(profile: Profile) -> str:
    """Return where the peak of *profile* is, the tree nearest to it, and the error of the tool's own mark."""
    if not profile.snapshots:
        return "the file holds no snapshot"
    peak = profile.snapshots[profile.peak_index]
    when = format_time(peak.time, profile.time_unit)
    text = f"peak: {format_size(peak.total_bytes)} in snapshot {peak.index}, at {when}"
    return f"{text}{_nearest_tree(profile, peak)}{_own_mark(profile, peak)}"


_COURSES = {
    GREW: "it grew steadily up to the peak",
    JUMPED: "most of it came at once",
    LEVELLED: "it grew and settled",
    ROSE: "it grew unevenly",
    SPIKE: "that is a spike",
    FLAT: "it stayed about the same",
}


def course_sentence(profile: Profile) -> str:
    """Return how *profile* reached its peak, and the part left at the end; "" if it has too few snapshots."""
    course = course_of(profile.snapshots)
    if course is None:
        return ""
    peak = profile.snapshots[profile.peak_index]
    last = profile.snapshots[-1]
    left = "all" if course.kept == 1 else share(last.total_bytes, peak.total_bytes)
    how = _COURSES[course.to_peak]
    if course.since is not None:
        how = f"it grew steadily from {format_time(course.since, profile.time_unit)} on"
    text = f"history: {how}; {left} of the peak is held at the end"
    if course.has_overhead:
        size = f"{format_size(peak.extra_bytes)} beside {format_size(peak.heap_bytes)} of heap"
        text += f"; the allocator's own bytes are a large part, {size} at the peak: very many small blocks"
    return text


def _nearest_tree(profile: Profile, peak: Totals) -> str:
    if profile.peak_tree_index is None:
        return "; no snapshot has a call tree"
    tree = profile.snapshots[profile.peak_tree_index]
    if tree.index == peak.index:
        return ", with a call tree"
    size = format_size(tree.total_bytes)
    part = share(tree.total_bytes, peak.total_bytes)
    return f"; the largest call tree is that of snapshot {tree.index}, with {size} ({part} of the peak)"


def _own_mark(profile: Profile, peak: Totals) -> str:
    if profile.marked_peak_index is None:
        return ""
    marked = profile.snapshots[profile.marked_peak_index]
    if marked.total_bytes == peak.total_bytes:
        return ""
    percent = 100 * (1 - marked.total_bytes / peak.total_bytes)
    return f"; {profile.source_format}'s own mark is on snapshot {marked.index}, which is {percent:.1f} % smaller"


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
