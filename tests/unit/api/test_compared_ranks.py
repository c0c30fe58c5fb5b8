"""Ranks of a parallel job, compared and judged together."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional
from xml.etree import ElementTree

import pytest

from gdbmem.api.ranks import read_ranks
from gdbmem.cli.main import main
from gdbmem.errors import InputError
from gdbmem.json_values import as_json
from gdbmem.model.series import TREE, ProcessSample, SeriesFacts, SeriesLine
from gdbmem.runs.ranks import Rank
from gdbmem.runs.run import Run
from gdbmem.series.store import SeriesWriter
from tests.unit.massif_texts import massif, path

KIB, MIB = 1 << 10, 1 << 20
Course = Callable[[int, int], int]  # rank, snapshot → bytes


def rank_of(number: int, size: Optional[int] = 8, **fields: Any) -> Rank:
    return Rank("Open MPI", number, size, number, f"node{number // 4}", "1807", **fields)


def run_of(folder: Path, rank: Rank, course: Course, *, snapshots: int = 4, **facts: Any) -> Run:
    """Make the run of *rank*, in which two lines hold *course* and a constant at each snapshot."""
    run = Run.create("solver", parent=folder, pid=1, folder=folder / f"r.{rank.rank}", rank=rank)
    run.update(program="solver", end={"status": 0}, **facts)
    for at in range(snapshots):
        held = course(rank.rank, at)
        relative = run.next_file("massif")
        text = massif([*path(held, "keep (a.c:5)", "main (a.c:9)"), *path(5000, "load (a.c:7)")])
        (run.folder / relative).write_text(text)
        run.append("step", file=relative, engine="massif", heap_bytes=held + 5000)
    return run


def expectation(*, met: bool) -> dict[str, Any]:
    measured = KIB if met else 3 * KIB
    return {
        "name": "heap from step#1 to step",
        "text": "heap from step#1 to step",
        "limit": 2 * KIB,
        "measured": measured,
        "low": measured,
        "high": measured,
        "unseen": [],
        "metric": "heap",
    }


def test_each_line_has_the_ranks_own_numbers_and_they_add_up(tmp_path: Path) -> None:
    for number in range(3):
        run_of(tmp_path, rank_of(number, 3), lambda rank, at: at * (rank + 1) * 128 * KIB, snapshots=5)
    found = read_ranks([tmp_path])
    (row,) = found.rows
    assert row.frames[0].line == 5
    assert (row.min_bytes, row.mean_bytes, row.max_bytes) == (512 * KIB, 1024 * KIB, 1536 * KIB)
    assert (row.rank_of_max, row.ranks, row.sum_bytes) == (2, 3, 3072 * KIB)
    assert found.total is not None and found.total.sum_bytes == row.sum_bytes and found.elsewhere_bytes == 0
    assert not found.can_differ and not found.odd and not found.missing


def test_a_line_that_one_rank_has_counts_as_nothing_on_the_others(tmp_path: Path) -> None:
    for number in range(4):
        run_of(tmp_path, rank_of(number, 4), lambda rank, at: at * MIB if rank == 2 else 10)
    (row,) = read_ranks([tmp_path]).rows
    assert (row.min_bytes, row.mean_bytes, row.max_bytes, row.ranks) == (0, 0.75 * MIB, 3 * MIB, 1)


def test_the_rank_that_grows_otherwise_is_named_with_the_snapshot_since_which_it_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(1)
    noise = {(rank, at): chance.randrange(10 * KIB) for rank in range(8) for at in range(6)}
    for number in range(8):
        run_of(
            tmp_path,
            rank_of(number),
            lambda rank, at: at * MIB + noise[rank, at] + (2 * MIB * (at - 2) if rank == 5 and at > 2 else 0),
            snapshots=6,
        )
    (odd,) = read_ranks([tmp_path]).odd
    assert (odd.rank, odd.since) == (5, "step#4")
    assert odd.change_bytes - odd.others_bytes == pytest.approx(6 * MIB, abs=20 * KIB)
    assert main(["ranks", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "rank 5 differs from the others since step#4" in said and "on rank 5" in said


@pytest.mark.parametrize("job", range(20))
def test_no_rank_of_equal_ones_is_called_odd(tmp_path: Path, job: int) -> None:
    chance = random.Random(job)
    for number in range(8):
        run_of(tmp_path, rank_of(number), lambda rank, at: int(at * MIB * chance.gauss(1, 0.01)) + at)
    found = read_ranks([tmp_path])
    assert found.can_differ and not found.odd


def series_of(folder: Path, rank: Rank, course: Callable[[float], float], *, until: int = 120) -> None:
    run = Run.create("solver", parent=folder, pid=1, folder=folder / f"r.{rank.rank}", rank=rank)
    run.update(monitor={"program": ["./solver"]}, ending="exit", status=0)
    writer = SeriesWriter(run.folder, SeriesFacts("solver", 1.0, 1.7e9, "boot", 0.0))
    line = SeriesLine(1, 10, 1, "solver", "./solver", TREE, 0.0, 120.0)
    for t in range(until):
        size = int(course(t) * MIB)
        reading = ProcessSample(rss_bytes=size, pss_bytes=size)
        writer.append(float(t), [(1, reading), (TREE, reading)], [line] if t == 0 else [])
    writer.close()


def test_an_equal_rank_whose_first_sample_came_late_on_a_busy_machine_is_not_called_odd(
    tmp_path: Path,
) -> None:
    def course(number: int, most: float) -> Callable[[float], float]:
        late = 7 if number == 4 else 0.1 * number  # what it had before the first sample
        return lambda t: min(8 + late + t, most)

    for folder, most in (("equal", 30), ("odd", 45)):
        (tmp_path / folder).mkdir()
        for number in range(8):
            series_of(tmp_path / folder, rank_of(number), course(number, most if number == 4 else 30))
    assert not read_ranks([tmp_path / "equal"]).odd
    assert [one.rank for one in read_ranks([tmp_path / "odd"]).odd] == [4]


def test_an_equal_rank_that_went_on_after_its_last_sample_on_a_busy_machine_is_not_called_odd(
    tmp_path: Path,
) -> None:
    def course(pace: float) -> Callable[[float], float]:
        return lambda t: 8 + pace * t

    for folder, until, pace in (("equal", 70, 0.5), ("odd", 120, 0.3)):
        (tmp_path / folder).mkdir()
        for number in range(8):
            is_other = number == 4
            series_of(
                tmp_path / folder,
                rank_of(number),
                course(pace if is_other else 0.5),
                until=until if is_other else 120,
            )
    assert not read_ranks([tmp_path / "equal"]).odd
    assert [one.rank for one in read_ranks([tmp_path / "odd"]).odd] == [4]


def series_of_wrapped(folder: Path, rank: Rank, totals: Sequence[tuple[float, float, float]]) -> None:
    """Make the series of a rank that a script starts: *totals* are times, PSS and private memory, MiB."""
    run = Run.create("solver", parent=folder, pid=1, folder=folder / f"r.{rank.rank}", rank=rank)
    run.update(monitor={"program": ["./solver"]}, ending="exit", status=0)
    writer = SeriesWriter(run.folder, SeriesFacts("solver", 0.2, 1.7e9, "boot", 0.0))
    lines = [SeriesLine(number, 9 + number, 1, "sh", "sh solver", TREE, 0.0) for number in (1, 2)]
    known = {t: (int(pss * MIB), int(private * MIB)) for t, pss, private in totals}
    for number in range(12):
        t = number / 4
        pss, private = known.get(t, (None, None))
        writer.append(
            t,
            [(1, ProcessSample(rss_bytes=MIB)), (TREE, ProcessSample(pss_bytes=pss, uss_bytes=private))],
            lines if number == 0 else [],
        )
    writer.close()


FLAT: Sequence[tuple[float, float, float]] = [(0.0, 1, 1), (0.25, 1, 1)]


def test_a_rank_whose_total_is_first_known_when_it_has_grown_is_not_called_odd(tmp_path: Path) -> None:
    for number in range(8):
        series_of_wrapped(
            tmp_path, rank_of(number), [(0.0, 1, 1), (1.0, 20, 20), (2.0, 20, 20)][2 * (number == 3) :]
        )
    found = read_ranks([tmp_path])
    assert not found.odd
    assert [state.rank for state in found.ranks if state.change_bytes is None] == [3], "unknown, not 0"
    assert found.total is not None and found.total.min_bytes == 19 * MIB


def test_a_rank_whose_total_begins_late_or_grows_as_others_unshare_pages_is_not_called_odd(
    tmp_path: Path,
) -> None:
    for number in range(8):
        totals = [*FLAT, *((1.0 + at / 4, 24, 20) for at in range(8))]
        if number == 3:
            totals = totals[2:]
        if number == 6:  # it is the last that has the library's pages
            totals[-3:] = [(2.25 + at / 4, 36, 20) for at in range(3)]
        series_of_wrapped(tmp_path, rank_of(number), totals)
    assert not read_ranks([tmp_path]).odd


def test_a_wrapped_rank_that_really_grows_is_still_odd(tmp_path: Path) -> None:
    for number in range(8):
        grown = 60 if number == 5 else 24
        totals = [*FLAT, *((1.0 + at / 4, grown, grown - 4) for at in range(8))]
        series_of_wrapped(tmp_path, rank_of(number), totals)
    assert [odd.rank for odd in read_ranks([tmp_path]).odd] == [5]


def test_ranks_that_were_watched_are_compared_by_their_memory_and_judged_by_a_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(6):
        growth = 0.5 if number == 4 else 0.0
        series_of(tmp_path, rank_of(number, 6), lambda t, growth=growth: 50 + growth * max(t - 60, 0) + t % 2)  # type: ignore[misc]
    assert main(["ranks", str(tmp_path), "--json", "--fail-on", "growing"]) == 4
    found = json.loads(capsys.readouterr().out)
    (odd,) = found["odd"]
    assert odd["rank"] == 4 and 60 < float(odd["since"].split()[0]) < 75
    assert found["metric"] == "resident" and found["rows"] == []
    assert [one["judged"] for one in found["judgements"]].count("not_met") == 1


def test_equal_ranks_of_which_one_was_sampled_before_its_last_step_are_not_called_odd(tmp_path: Path) -> None:
    for number in range(6):
        last = 121 if number == 2 else 119  # seconds, when it grows by 2 MiB: the last sample is of 119 s
        series_of(tmp_path, rank_of(number, 7), lambda t, last=last: 50 + t / 60 + 2.0 * (t >= last))  # type: ignore[misc]
    assert not read_ranks([tmp_path]).odd
    series_of(tmp_path / "other", rank_of(6, 7), lambda t: 50 + t / 6)
    assert [one.rank for one in read_ranks([tmp_path, tmp_path / "other"]).odd] == [6]


def judged(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["ranks", str(folder), *words])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_a_rank_that_is_missing_or_was_not_judged_never_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        run_of(tmp_path, rank_of(number, 4), lambda rank, at: at, expectations=[expectation(met=True)])
    status, said = judged(tmp_path, capsys, "--junit", str(tmp_path / "junit.xml"))
    assert status == 125 and "1 rank of 4 left no run (3)" in said
    cases = ElementTree.parse(tmp_path / "junit.xml").iter("testcase")
    assert [[child.tag for child in case] for case in cases] == [["system-out"]] * 3 + [["error"]]
    run_of(tmp_path, rank_of(3, 4), lambda rank, at: at)
    assert judged(tmp_path, capsys)[0] == 125
    (tmp_path / "r.3" / "run.json").unlink()
    run = Run(tmp_path / "r.3")
    run.update(program="solver", rank=rank_of(3, 4)._asdict(), expectations=[expectation(met=False)])
    status, said = judged(tmp_path, capsys)
    assert status == 4 and "NOT MET    rank 3: heap from step#1 to step" in said


def test_a_gate_that_no_rank_can_be_judged_by_does_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        run_of(tmp_path, rank_of(number, 2), lambda rank, at: at, expectations=[expectation(met=True)])
    assert judged(tmp_path, capsys)[0] == 0
    status, said = judged(tmp_path, capsys, "--fail-on", "growing")
    assert status == 125 and "--fail-on judges series" in said


def test_a_job_of_unknown_size_is_not_judged_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(tmp_path, rank_of(0, None), lambda rank, at: at, expectations=[expectation(met=True)])
    status, said = judged(tmp_path, capsys)
    assert status == 125 and "does not tell how many ranks" in said


def test_texts_of_a_strangers_run_bring_no_escapes_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = {**expectation(met=True), "text": "\x1b[2J", "name": "\x1b[2J", "low": 0, "high": 9 << 40}
    hostile["unseen"] = [{"slug": "x", "message": "\x1b[2J", "could_hide_bytes": None}]
    rank = rank_of(0, 1)._replace(launcher="\x1b[2J", host="\x1b[2J")
    run_of(tmp_path, rank, lambda rank, at: at, expectations=[hostile])
    status, said = judged(tmp_path, capsys)
    assert status == 125 and "\x1b" not in said and "NOT JUDGED" in said


def test_the_newest_run_of_a_restarted_rank_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for restart in (1, 0):
        folder = tmp_path / f"{restart}"
        folder.mkdir()
        run_of(folder, rank_of(0, 2, restart=restart), lambda rank, at, held=restart + 1: at * held * MIB)  # type: ignore[misc]
    found = read_ranks([tmp_path / "0", tmp_path / "1"])
    assert [one.change_bytes for one in found.ranks] == [6 * MIB] and found.missing == [1]
    assert [notice.slug for notice in found.notices] == ["older-runs"]


@pytest.mark.parametrize(
    "facts",
    [
        {"rank": {"rank": "0"}},
        {"rank": {**rank_of(0)._asdict(), "size": 1 << 50}},
        {"rank": {**rank_of(0)._asdict(), "rank": -1}},
        {"expectations": [{"name": 1}]},
        {"expectations": [{"name": "a", "text": "b", "low": "c"}]},
    ],
)
def test_a_damaged_run_is_named_and_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], facts: Mapping[str, Any]
) -> None:
    run = run_of(tmp_path, rank_of(0, 2), lambda rank, at: at)
    run.update(**facts)
    status, said = judged(tmp_path, capsys)
    assert status == 125 and "r.0/run.json" in said and said.count("\n") == 1


def test_runs_of_several_jobs_or_of_none_are_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judged(tmp_path, capsys)[1].startswith("gdbmem: not judged: no run of a rank is here")
    run_of(tmp_path, rank_of(0), lambda rank, at: at)
    run_of(tmp_path, rank_of(1)._replace(job="\x1b[2J"), lambda rank, at: at)
    status, said = judged(tmp_path, capsys)
    assert status == 125 and "2 jobs" in said and "\x1b" not in said
    assert judged(tmp_path / "nothing", capsys)[0] == 125


def test_the_ranks_in_the_run_of_one_monitor_of_a_host_are_compared_as_if_each_had_its_own(
    tmp_path: Path,
) -> None:
    run = Run.create("ranks", parent=tmp_path, pid=1, folder=tmp_path / "node")
    ranks = [
        {"pid": 100 + n, "start_ticks": 7, **as_json(rank_of(n, 6)), "status": n or None} for n in range(6)
    ]
    run.update(node_ranks=ranks)
    writer = SeriesWriter(run.folder, SeriesFacts("ranks of 1807", 1.0, 1.0, "", 0.0))
    lines = [SeriesLine(n + 1, 100 + n, 7, "solver", "", TREE, 0.0, 60.0) for n in range(5)]
    lines.append(SeriesLine(6, 300, 9, "helper", "", 5, 0.0, 60.0))  # a child of rank 4
    for t in range(60):
        held = [20 * MIB + (t * MIB if n == 3 else 0) for n in range(5)]
        readings = [(n + 1, ProcessSample(rss_bytes=size)) for n, size in enumerate(held)]
        readings.append((6, ProcessSample(rss_bytes=5 * MIB)))
        writer.append(float(t), [(TREE, ProcessSample(rss_bytes=sum(held) + 5 * MIB)), *readings], lines)
    writer.close()
    found = read_ranks([tmp_path])
    changes = [one.change_bytes for one in found.ranks]
    assert changes == [0, 0, 0, 59 * MIB, 0, None]  # of the last nothing was seen
    assert [one.after_bytes for one in found.ranks][4] == 25 * MIB
    assert [odd.rank for odd in found.odd] == [3] and not found.missing
    assert [one.status for one in found.ranks] == [None, 1, 2, 3, 4, 5], "unknown is not 0"
    run.update(node_ranks=[{**ranks[0], "pid": "x"}])
    with pytest.raises(InputError, match=r"rank in .* is damaged"):
        read_ranks([tmp_path])
