"""The history of a heap profile in sentences: its peak, and how it got there."""

from __future__ import annotations

from gdbmem.analysis.profiles.profile_course import FLAT, GREW, JUMPED, LEVELLED, ROSE, SPIKE, course_of
from gdbmem.model.profiles.snapshot import Profile, Totals
from gdbmem.report.naming import share
from gdbmem.units import format_size, format_time

_STAYED = "stayed about the same"
_COURSES = {
    GREW: "it grew steadily up to the peak",
    JUMPED: "most of it came at once",
    LEVELLED: "it grew and settled",
    ROSE: "it grew unevenly",
    SPIKE: "that is a spike",
    FLAT: f"it {_STAYED}",
}


def peak_sentence(profile: Profile) -> str:
    """Return where the peak of *profile* is, the tree nearest to it, and the error of the tool's own mark."""
    if not profile.snapshots:
        return "the file holds no snapshot"
    peak = profile.snapshots[profile.peak_index]
    when = format_time(peak.time, profile.time_unit)
    text = f"peak: {format_size(peak.total_bytes)} in snapshot {peak.index}, at {when}"
    return f"{text}{_nearest_tree(profile, peak)}{_own_mark(profile, peak)}"


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
    if course.to_peak == FLAT and profile.snapshots[0].total_bytes * 2 < peak.total_bytes:
        how = f"it came at the beginning, and {_STAYED}"
    # Massif takes no snapshot when the program ends: what that frees last is in none.
    text = f"history: {how}; {left} of the peak is held in its last snapshot"
    if course.has_overhead:
        size = f"{format_size(peak.extra_bytes)} beside {format_size(peak.heap_bytes)} of heap"
        text += f"; allocator overhead is large, {size} at the peak: very many small blocks"
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
