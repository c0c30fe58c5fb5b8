"""A heap profile for people: its course, its peak, and where the memory is at one of its snapshots."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Optional

from gdbmem.analysis.diff import as_growth
from gdbmem.analysis.query import DEFAULT_TOP, Query
from gdbmem.analysis.ranking import rank
from gdbmem.analysis.timeline import nearest_with_tree, peak_of
from gdbmem.model.snapshot import Profile, Snapshot
from gdbmem.report.answer import answer_snapshot
from gdbmem.report.chart import format_time, print_chart
from gdbmem.report.notices import print_notices
from gdbmem.report.rows import Layout, rows_table
from gdbmem.report.source import SourceLines
from gdbmem.report.tree import inverted_table
from gdbmem.text import plural, printable
from gdbmem.units import format_size

if TYPE_CHECKING:
    from rich.console import Console


def print_timeline(profile: Profile, console: Console) -> None:
    """Print the course of *profile* and a sentence about its peak."""
    from rich.text import Text

    console.print(Text(printable(profile.command or profile.source), "bold"))
    trees = sum(totals.has_tree for totals in profile.snapshots)
    console.print(f"{plural(len(profile.snapshots), 'snapshot')}, {trees} with a call tree", style="dim")
    console.print()
    print_chart(profile, console)
    console.print(peak_sentence(profile))
    print_notices(profile.notices, console)


def peak_sentence(profile: Profile) -> str:
    """Return where the peak of *profile* is and which tree is nearest to it."""
    peak = peak_of(profile.snapshots)
    if peak is None:
        return "the file holds no snapshot"
    when = format_time(peak.time, profile.time_unit)
    text = f"peak: {format_size(peak.total_bytes)} in snapshot {peak.index}, at {when}"
    nearest = nearest_with_tree(profile.snapshots, peak)
    if nearest is None:
        return f"{text}; no snapshot has a call tree"
    if nearest.index == peak.index:
        return f"{text}, with a call tree"
    part = 100 * nearest.total_bytes / peak.total_bytes if peak.total_bytes else 100.0
    return (
        f"{text}; the nearest call tree is in snapshot {nearest.index}, with"
        f" {format_size(nearest.total_bytes)} ({part:.1f} % of the peak)"
    )


def print_sites(
    snapshot: Snapshot,
    query: Query,
    console: Console,
    *,
    moment: str,
    sources: Optional[SourceLines] = None,
    noun: str = "heap",
) -> None:
    """Print where the memory of *snapshot* is; *moment* is what to call it in the sentence."""
    from rich.text import Text

    growth = as_growth(snapshot)
    console.print(Text(answer_snapshot(growth, query, moment=moment, noun=noun), "bold"))
    ranking = rank(growth, replace(query, top=query.top or DEFAULT_TOP))
    if not ranking.total.after_bytes:
        return
    layout = Layout(console, query, sources or SourceLines(), is_change=False)
    console.print()
    console.print(inverted_table(ranking, layout) if query.inverted else rows_table(ranking, layout))
