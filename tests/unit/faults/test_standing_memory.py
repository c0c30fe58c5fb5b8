"""Resident memory by line, from one interval to the next: which pages came and left is exact."""

from __future__ import annotations

from gdbmem.faults.growth import WeighedFault
from gdbmem.faults.resident_by_path import StandingMemory
from gdbmem.formats.json_profiles import faults_profile
from gdbmem.linux.faults.readings import Reading
from gdbmem.linux.memory.maps import PAGE, Ranges
from gdbmem.model.calltree import Frame, Snapshot
from gdbmem.model.faults import FaultTotals, NamedFaults, NamedStack
from gdbmem.profiles.diff import diff_snapshots

PID = 7
FIRST, SECOND = 0, 1  # paths


def fault(page: int, path: int, weight: float = 10.0, time: int = 1) -> WeighedFault:
    return WeighedFault(time, PID, PID, page * PAGE, PAGE, weight, path)


def resident(*pages: tuple[int, int]) -> Reading:
    ranges = Ranges((start * PAGE, end * PAGE) for start, end in pages)
    return Reading(0, rss_bytes=ranges.size_bytes, anonymous_bytes=ranges.size_bytes, anonymous=ranges)


def held(memory: StandingMemory) -> dict[int, float]:
    return {one.path: one.grown_bytes / PAGE for one in memory.stacks()}


def stays(faults: list[WeighedFault]) -> list[float]:
    return [one.weight * PAGE for one in faults]


def test_what_samples_at_the_start_of_an_area_stand_for_leaves_with_the_pages_that_left() -> None:
    # As where a burst fills the buffers: all samples are of the first pages.
    memory = StandingMemory()
    faults = [fault(page, FIRST) for page in range(10)]
    memory.come(faults, stays(faults), resident(), resident((0, 100)))
    assert held(memory) == {FIRST: 100}
    memory.leave(resident((25, 100)))
    assert held(memory) == {FIRST: 75}


def test_pages_are_charged_to_the_nearest_sample_and_their_sum_is_what_came() -> None:
    memory = StandingMemory()
    faults = [*(fault(page, FIRST) for page in (0, 10, 20)), *(fault(page, SECOND) for page in (30, 39))]
    memory.come(faults, stays(faults), resident((60, 90)), resident((0, 40), (60, 90)))
    assert sum(held(memory).values()) == 40
    assert abs(held(memory)[FIRST] - 25) <= 1


def test_pages_of_hugetlbfs_stand_at_their_line_until_they_leave() -> None:
    huge = 512 * PAGE
    memory = StandingMemory()
    faults = [WeighedFault(1, PID, PID, number * huge, huge, 1.0, FIRST) for number in range(1, 31)]
    after = Reading(0, hugetlb_bytes=30 * huge, hugetlb=Ranges([(huge, 31 * huge)]))
    memory.come(faults, [float(huge)] * 30, Reading(0), after)
    assert held(memory) == {FIRST: 30 * 512}
    memory.leave(Reading(0, hugetlb_bytes=10 * huge, hugetlb=Ranges([(huge, 11 * huge)])))
    assert held(memory) == {FIRST: 10 * 512}


def test_what_came_without_faults_is_charged_to_no_line() -> None:
    memory = StandingMemory()
    faults = [fault(page, FIRST, weight=1.0) for page in range(10)]
    memory.come(faults, stays(faults), resident(), resident((0, 10), (50, 500)))
    assert held(memory) == {FIRST: 10}


def test_faults_whose_samples_were_lost_may_have_made_it_resident() -> None:
    memory = StandingMemory()
    faults = [fault(page, FIRST, weight=1.0) for page in range(10)]
    memory.come(faults, stays(faults), resident(), resident((0, 100)), lost_bytes=100 * PAGE)
    assert held(memory) == {FIRST: 100}


def test_a_sample_in_a_library_stands_for_no_more_pages_than_came_of_files() -> None:
    memory = StandingMemory()
    faults = [fault(0, FIRST, weight=600.0), fault(200, SECOND, weight=100.0)]
    files = Ranges([(200 * PAGE, 240 * PAGE)])
    after = resident((0, 150))._replace(files=files)
    memory.come(faults, stays(faults), resident(), after)
    assert held(memory) == {FIRST: 150, SECOND: 40}


def test_a_page_that_left_and_came_again_is_charged_to_who_touched_it_last() -> None:
    memory = StandingMemory()
    faults = [fault(5, FIRST, 1.0, time=1), fault(5, SECOND, 1.0, time=2)]
    memory.come(faults, stays(faults), resident(), resident((5, 6)))
    assert held(memory) == {FIRST: 0, SECOND: 1}


def snapshot(memory: StandingMemory, name: str, recording: str) -> Snapshot:
    stacks = [
        NamedStack(
            [one.path], 1, 1, one.seen_bytes, one.grown_bytes, 1, one.seen_variance, one.grown_variance
        )
        for one in memory.stacks()
    ]
    totals = FaultTotals(1.0, 1, 1, 0, 1, 10, sees_kernel_mode=True, broken_paths=0)
    frames = [Frame("a", "a.c", 1), Frame("b", "b.c", 1)]
    profile = faults_profile(NamedFaults("x", totals, {}, frames, stacks, recording=recording), name)
    tree = profile.tree(0)
    assert tree is not None
    return Snapshot(name, name, profile.snapshots[0], tree, unit=profile.unit)


def test_memory_that_stood_before_adds_no_doubt_to_a_difference_in_one_recording() -> None:
    memory = StandingMemory()
    faults = [fault(page, page % 2) for page in range(0, 100, 10)]
    memory.come(faults, stays(faults), resident(), resident((0, 100)))
    first = {same: snapshot(memory, "first", same) for same in ("one", "other")}
    more = [fault(200, SECOND, 1.0)]
    memory.come(more, stays(more), resident((0, 100)), resident((0, 100), (200, 201)))
    second = snapshot(memory, "second", "one")
    same, strange = (diff_snapshots(first[which], second) for which in ("one", "other"))
    assert same.after[0] - same.before[0] == PAGE
    assert sum(same.variance or ()) == 0
    assert sum(strange.variance or ()) > 0
