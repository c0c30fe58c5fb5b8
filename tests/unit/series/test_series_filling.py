"""Short recordings of trees: the conclusions from RSS between two reads of PSS, and their limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.model.series import TREE, ProcessSample, SeriesFacts, SeriesLine
from gdbmem.series.filling import total_points
from gdbmem.series.store import Recording, SeriesWriter
from gdbmem.series.summary import summarize

MIB = 1 << 20
SHARED = 90 * MIB  # by both processes
Course = Callable[[float], float]


def record(
    folder: Path,
    course: Course,
    *,
    pss: Course,
    faults: Callable[[float], Optional[int]] = lambda t: None,
    seconds: float = 5.0,
    every: int = 5,
    lives: float = 1e9,
    family: Optional[Course] = None,
) -> Recording:
    """Record two processes of RSS *course* and the tree's *pss*, read at each *every*-th look; *family* at each."""
    writer = SeriesWriter(folder, SeriesFacts("x", 0.2, 1.7e9, "boot", 0.0))
    lines = [SeriesLine(n, 30 + n, 7, "worker", "", 0, 0.0) for n in (1, 2)]
    for number in range(int(seconds * 5) + 1):
        t = number * 0.2
        both = [
            (n, ProcessSample(rss_bytes=int(course(t)), minor_faults=faults(t), threads=1)) for n in (1, 2)
        ]
        readings = both if t < lives else both[:1]
        total = ProcessSample(
            threads=2,
            pss_bytes=int(pss(t)) if number % every == 0 else None,
            family_bytes=None if family is None else int(family(t)),
        )
        writer.append(t, [*readings, (TREE, total)], [] if number else lines)
    writer.close()
    return Recording(folder)


def test_a_short_leak_is_judged_by_the_looks_between_its_few_reads_of_pss(tmp_path: Path) -> None:
    def own(t: float) -> float:
        return 20 * MIB + t * 2 * MIB

    recording = record(tmp_path, lambda t: SHARED + own(t), pss=lambda t: SHARED + 2 * own(t))
    points, followed, *_ = total_points(recording)
    assert (len(points), followed) == (26, 20)
    assert points[7][1] == pytest.approx(SHARED + 2 * own(1.4), abs=4)
    summary = summarize(recording)
    assert summary.verdict.kind == "growing"
    assert summary.verdict.slope is not None
    assert summary.verdict.slope.value == pytest.approx(4 * MIB, rel=0.01), "of both, and not of shared pages"


def test_each_read_of_pss_is_met_exactly(tmp_path: Path) -> None:
    recording = record(tmp_path, lambda t: SHARED + 3e5 * (t % 1), pss=lambda t: SHARED + 100_000 * t)
    filled = dict(total_points(recording)[0])
    assert all(filled[t] == value for t, value in recording.points(TREE, "pss_bytes"))


def test_shared_pages_that_are_touched_again_make_no_growth(tmp_path: Path) -> None:
    recording = record(tmp_path, lambda t: 20 * MIB + t * 10 * MIB, pss=lambda t: SHARED)
    assert total_points(recording)[1] == 0, "RSS tells of another change than PSS does"
    assert summarize(recording).verdict.kind == "inconclusive"


def test_a_family_that_fell_while_it_was_read_makes_no_total_below_nothing(tmp_path: Path) -> None:
    # PSS was read at 2.0 after most of what the cgroup still counted had gone.
    writer = SeriesWriter(tmp_path, SeriesFacts("x", 0.2, 1.7e9, "boot", 0.0))
    lines = [SeriesLine(number, number, number, "x", "x", 0, 0.0) for number in (1, 2)]
    held = [54, 54, 54, 54, 54, 54, 54, 54, 54, 54, 33, 16, 6, 6]
    for number, family in enumerate(held):
        pss = {0: 54.6, 9: 54.6, 10: 6.9, 13: 6.9}.get(number)
        tree = ProcessSample(family_bytes=family * MIB, pss_bytes=None if pss is None else round(pss * MIB))
        writer.append(0.2 * number, [(TREE, tree)], lines if not number else [])
    writer.close()
    points = total_points(Recording(tmp_path)).points
    assert min(value for _, value in points) >= 0
    assert len(points) < len(held), "what nobody knows is left out"


def test_with_a_family_one_read_of_pss_is_enough(tmp_path: Path) -> None:
    # On a busy machine one read may cost so much that the next one is due after a short program's end.
    writer = SeriesWriter(tmp_path, SeriesFacts("x", 0.2, 1.7e9, "boot", 0.0))
    lines = [SeriesLine(number, number, number, "x", "x", 0, 0.0) for number in (1, 2)]
    for number in range(15):
        pss = 45 * MIB if number == 0 else None
        tree = ProcessSample(family_bytes=(40 if number < 5 else 70) * MIB, pss_bytes=pss)
        writer.append(0.2 * number, [(TREE, tree)], lines if not number else [])
    writer.close()
    filled = total_points(Recording(tmp_path))
    assert filled.by_cgroup == 14
    assert [value for _, value in filled.points][::7] == [45 * MIB, 75 * MIB, 75 * MIB]


def test_between_two_reads_with_a_death_nothing_is_filled(tmp_path: Path) -> None:
    recording = record(tmp_path, lambda t: SHARED, pss=lambda t: SHARED, lives=2.5)
    times = [t for t, _ in total_points(recording)[0]]
    assert not [t for t in times if 2.0 < t < 3.0]
    assert [t for t in times if 1.0 < t < 2.0]


def test_a_recording_with_many_reads_of_pss_needs_no_rss(tmp_path: Path) -> None:
    recording = record(tmp_path, lambda t: SHARED, pss=lambda t: SHARED, seconds=20.0, every=1)
    assert total_points(recording)[1] == 0


@pytest.mark.parametrize("every", [1, 5])
def test_a_program_does_not_grow_because_others_that_share_its_pages_end(tmp_path: Path, every: int) -> None:
    def kind(name: str, faults: Callable[[float], Optional[int]]) -> tuple[str, str]:
        folder = tmp_path / name
        folder.mkdir()
        recording = record(
            folder, lambda t: 8 * MIB, pss=lambda t: 2 * MIB + 1e5 * t, faults=faults, every=every
        )
        verdict = summarize(recording).verdict
        return verdict.kind, verdict.evidence.rpartition("; ")[2]

    others = "because other programs share these pages"
    said = "not counted: +{} of PSS beyond what RSS and page faults can have changed, " + others
    assert kind("idle", lambda t: 1000) == ("plateau", said.format("488.3 KiB"))
    assert kind("nearly", lambda t: 1000 + (t > 2.5)) == ("plateau", said.format("480.3 KiB"))
    assert kind("copies", lambda t: 1000 + int(t * 25))[0] == "growing", (
        "what workers copy leaves RSS as it is"
    )
    assert kind("unknown", lambda t: None)[0] == "growing", (
        "without page faults nobody knows whose doing it is"
    )


def test_a_program_in_a_group_of_its_own_does_not_grow_because_others_end_when_few_samples_have_its_faults(
    tmp_path: Path,
) -> None:
    # A monitor on a busy machine reads page faults only where it reads PSS.
    def kind(name: str, faults: int, family: Course) -> str:
        folder = tmp_path / name
        folder.mkdir()
        recording = record(
            folder, lambda t: 8 * MIB, pss=lambda t: 2 * MIB + 1e5 * t, every=5, family=family,
            faults=lambda t: 1000 + int(t) * faults if t == int(t) else None,
        )  # fmt: skip
        return summarize(recording).verdict.kind

    assert kind("idle", 0, lambda t: MIB) == "plateau"
    assert kind("copies", 25, lambda t: MIB + 1e5 * t) == "growing"
