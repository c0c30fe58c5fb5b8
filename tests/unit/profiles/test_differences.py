"""Files that are a difference of two profiles already, and what else show, report and export must agree on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gdbmem.cli.main import main
from gdbmem.model.calltree import Totals
from gdbmem.profiles.timeline import course_of
from gdbmem.terminal.drawing import thinned
from tests.unit.massif_texts import massif, path

CAPTURES = Path(__file__).parents[2] / "captures" / "stacks"
BEFORE, AFTER = CAPTURES / "tc.0002.heap", CAPTURES / "tc.0001.heap"
LOAD = path(300, "load (load.cpp:7)", "main (main.cpp:9)")
LEAK = path(5000, "remember (decoder.cpp:120)", "main (main.cpp:9)")


def answer(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    file = tmp_path / "delta.pb.gz"
    assert main(["export", str(BEFORE), str(AFTER), "--to", "pprof", "-o", str(file)]) == 0
    return file


def by_path(document: Any) -> dict[str, int]:
    return {json.dumps(row["frames"]): row["delta_bytes"] for row in document["paths"] if row["delta_bytes"]}


def test_our_own_difference_for_pprof_is_read_as_one(delta: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = answer(capsys, "diff", BEFORE, AFTER, "--by", "function")
    read = answer(capsys, "show", delta, "--by", "function")
    assert read["delta_bytes"] == ours["delta_bytes"] == -42300
    assert sorted(by_path(read).values()) == sorted(by_path(ours).values())


def test_our_own_difference_in_which_nothing_shrank_is_still_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, tree in (("a.ms", LOAD), ("b.ms", LOAD + LEAK)):
        (tmp_path / name).write_text(massif(tree))
    file = tmp_path / "grown.pb.gz"
    assert (
        main(["export", str(tmp_path / "a.ms"), str(tmp_path / "b.ms"), "--to", "pprof", "-o", str(file)])
        == 0
    )
    assert main(["show", str(file)]) == 0
    assert "heap grew by 4.9 KiB from its base" in capsys.readouterr().out
    assert main(["diff", str(file), str(tmp_path / "b.ms"), "--fail-on", "0"]) == 125


def test_what_was_there_before_a_difference_is_unknown_not_nothing(
    delta: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = answer(capsys, "show", delta)
    assert read["before"]["total_bytes"] is None and read["after"]["total_bytes"] is None
    assert {row["before_bytes"] for row in read["paths"]} == {None}
    assert {row["change"] for row in read["paths"]} <= {"grew", "shrank"}, "nothing appeared: nobody knows"
    assert main(["show", str(delta)]) == 0
    assert "heap shrank by 41.3 KiB from its base" in capsys.readouterr().out


def test_a_difference_is_reported_and_exported_and_not_compared(
    delta: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(delta), "-o", str(tmp_path / "page.html")]) == 0
    assert "heap shrank by 41.3 KiB" in (tmp_path / "page.html").read_text()
    again = tmp_path / "again.pb.gz"
    assert main(["export", str(delta), "--to", "pprof", "-o", str(again)]) == 0
    assert answer(capsys, "show", again)["delta_bytes"] == -42300
    assert main(["diff", str(delta), str(AFTER)]) == 1
    assert "is already the difference of two profiles" in capsys.readouterr().err


def test_export_takes_the_tree_that_show_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.ms"
    file.write_text(massif(LOAD, [*LOAD, *LEAK], path(1, "exit (a.c:1)")))
    assert main(["export", str(file), "--to", "folded"]) == 0
    assert "remember (decoder.cpp:120) 5000" in capsys.readouterr().out


def test_a_spike_and_a_jump_are_seen_however_few_columns_there_are() -> None:
    course = [100] * 60
    course[31] = 4000
    assert max(thinned(course, 24)) == 4000
    assert len(thinned(course, 24)) == 24
    jump = [100] * 57 + [400] * 3
    assert thinned(jump, 24)[-1] == 400 and thinned(jump, 24)[0] == 100
    assert thinned(list(range(100)), 24)[0] == 0, "both ends are kept"
    assert thinned([5, 1], 24) == [5, 1]


def test_growth_outside_the_heap_is_no_standstill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "before.ms", tmp_path / "after.ms"
    before.write_text(massif(LOAD))
    grown = massif(LOAD).replace("mem_stacks_B=0", "mem_stacks_B=6000000")
    after.write_text(grown.replace("mem_heap_extra_B=0", "mem_heap_extra_B=44000"))
    assert main(["diff", str(before), str(after), "--fail-on", "0"]) == 4
    shown = capsys.readouterr()
    assert "; outside the heap, stacks grew by 5.7 MiB and allocator overhead grew by 43.0 KiB\n" in shown.out
    assert "stacks, outside the heap" in shown.out
    assert "+5.8 MiB of it in no call tree" in shown.err
    assert main(["diff", str(before), str(after), "--fail-on", "6MiB"]) == 0
    for limits in (["leaked=0"], ["1KiB", "2KiB"]):  # those of heaps
        assert main(["diff", str(before), str(after), *(f"--fail-on={one}" for one in limits)]) == 2
        assert "has one limit, a SIZE" in capsys.readouterr().err
    found = answer(capsys, "diff", before, after)
    assert [row["delta_bytes"] for row in found["outside_heap"]] == [6_000_000, 44_000]
    assert main(["report", str(before), str(after), "-o", str(tmp_path / "page.html")]) == 0
    assert "stacks, outside the heap" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("grown", "status", "limit"), [(20_000, 4, "10KiB"), (20_000, 0, "20KiB"), (-3000, 0, "0")]
)
def test_growth_after_the_last_call_tree_is_growth(
    grown: int, status: int, limit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, end in (("before.ms", 5300), ("after.ms", 5300 + grown)):
        (tmp_path / name).write_text(massif(LOAD, LEAK, None, sizes=[300, 5000, end]))
    before, after = (str(tmp_path / name) for name in ("before.ms", "after.ms"))
    assert main(["diff", before, after, "--fail-on", limit]) == status
    shown = capsys.readouterr()
    later = "in later snapshots, without a call tree"
    if grown > 0:
        assert (
            f"+19.5 KiB  {later}" in shown.out and "; memory in later snapshots grew by 19.5 KiB" in shown.out
        )
        assert ("+19.5 KiB of it in no call tree" in shown.err) == (status == 4)
    else:
        assert f"-300 B  {later}" in shown.out, "before it held more than its tree, after it freed"
    assert main(["diff", f"{before}:1", f"{after}:1"]) == 0
    assert later not in capsys.readouterr().out, "asked for by number"


def totals(*sizes: int, extra_bytes: int = 0) -> list[Totals]:
    return [Totals(at, float(at), size, extra_bytes, 0, False) for at, size in enumerate(sizes)]


RISE = range(0, 600, 10)


@pytest.mark.parametrize(
    ("sizes", "to_peak", "gave_back"),
    [
        (RISE, "grew", False),
        ([*RISE, 400, 200, 0], "grew", True),
        ([10] * 20 + [500] * 40, "at-once", False),
        ([min(30 * n, 600) for n in range(80)], "settled", False),
        ([*(min(30 * n, 600) for n in range(80)), 0], "settled", True),
        ([10] * 30 + [600, 800, 600] + [10] * 30, "spike", True),
        ([500] * 60, "flat", False),
    ],
)
def test_a_file_s_course_is_judged_up_to_its_peak_and_to_its_end(
    sizes: Sequence[int], to_peak: str, gave_back: bool
) -> None:
    course = course_of(totals(*sizes))
    assert course is not None
    assert (course.to_peak, course.kept < 0.5) == (to_peak, gave_back)


def at(*points: tuple[float, int]) -> list[Totals]:
    return [Totals(index, time, size, 0, 0, False) for index, (time, size) in enumerate(points)]


# massif takes a snapshot when something is allocated: a leak is a staircase, of as many steps as there are snapshots.
@pytest.mark.parametrize(
    ("count", "lead"), [*product([4, 5, 7, 12, 24, 40], [0, 1, 3]), *product([12, 24, 40], [20])]
)  # lead: of the time of the leak
def test_a_leak_of_equal_steps_grows_steadily_however_few_there_are(count: int, lead: int) -> None:
    steps = [(10.0 * (lead * count + number), 100 * number) for number in range(1, count + 1)]
    course, column = course_of(at((0.0, 0), *steps)), steps[-1][0] / 60
    assert course is not None and course.to_peak == "grew"
    if lead:
        assert course.since is not None and abs(course.since - steps[0][0]) <= 2 * column
    else:
        assert course.since is None


def test_a_leak_after_a_jump_grows_steadily_from_there_on() -> None:
    leak = [(200.0 + 20 * number, 1000 + 25 * number) for number in range(40)]
    course = course_of(at((0.0, 0), (100.0, 200), (150.0, 1000), *leak))
    assert course is not None and course.to_peak == "grew" and course.since is not None
    assert 100 < course.since < 300


@pytest.mark.parametrize(
    "steps",
    [
        [(100, 100), (500, 200), (900, 300)],  # three steps are not yet a line
        [(10, 100), (20, 200), (30, 300), (40, 400), (990, 900)],
        [(500, 10), (510, 500), (520, 990), (1000, 1000)],
        [(900, 200), (901, 500), (902, 600), (1000, 900)],
        [(1000, 900)],  # after a long computation
    ],
)
def test_steps_that_are_not_alike_are_not_called_steady(steps: Sequence[tuple[int, int]]) -> None:
    course = course_of(at((0, 0), (1, 1), (2, 2), (3, 1), *steps))
    assert course is not None and course.to_peak != "grew"


def test_an_allocator_s_own_bytes_are_reported_where_they_are_much() -> None:
    course = course_of(totals(*RISE, extra_bytes=2000))
    assert course is not None and course.has_overhead


def test_a_program_that_frees_at_its_end_still_grew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.ms"
    trees = [path(1000 * n, "remember (decoder.cpp:120)", "main (main.cpp:9)") for n in range(1, 7)]
    file.write_text(massif(*trees, path(10, "exit (a.c:1)")))
    assert main(["diff", "--series", str(file)]) == 0
    out = capsys.readouterr().out
    assert "steadily at decoder.cpp:120 (remember)" in out
    assert "the series ends at the peak, snapshot 5" in " ".join(out.split())


def test_a_total_that_grew_did_not_simply_go_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.ms"
    teeth = [1000, 9000, 1000, 9000, 1000, 9000, 1300]
    file.write_text(massif(*(path(size, "f (a.c:1)") for size in teeth)))
    assert main(["diff", "--series", str(file)]) == 0
    assert "most went back" in capsys.readouterr().out


STAYED = "stayed about the same; all of the peak is held in its last snapshot"


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((0, *[204] * 100), f"history: it came at the beginning, and {STAYED}"),
        ((200, *[204] * 100), f"history: it {STAYED}"),
        ((0, 200, 200, 200, 200, 50), "of the peak is held in its last snapshot"),
    ],
)
def test_massifs_last_snapshot_is_not_called_the_end_nor_a_start_from_nothing_level(
    sizes: tuple[int, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites = [[(1, size << 20, "0x1: a (x.c:1)")] if size else None for size in sizes]
    (tmp_path / "m").write_text(massif(*sites, sizes=[size << 20 for size in sizes]))
    assert main(["show", str(tmp_path / "m")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert words in shown and "at the end" not in shown
