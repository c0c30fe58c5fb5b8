"""A gate on a recording passes only if nothing known can hide what it excludes; each blind way has a twin."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Optional

import pytest

from gdbmem.cli.main import main
from gdbmem.model.series import TREE, ProcessSample, SeriesFacts, SeriesLine
from gdbmem.series.store import SeriesWriter

MIB = 1 << 20
SECONDS, INTERVAL = 60, 0.5
Course = Callable[[float], float]  # seconds → MiB


def level(_: float) -> float:
    return 50.0


def leak(t: float) -> float:
    return 50.0 + t


def falling(t: float) -> float:
    return 150.0 - t


def record(
    folder: Path,
    *,
    rss: Course = level,
    processes: int = 1,
    reads_pss: bool = True,
    run: Optional[dict[str, Any]] = None,
    limit_of: str = "the machine",
    every: int = 1,
    tree: Mapping[str, Course] = MappingProxyType({}),
) -> Path:
    """Record a program whose processes have *rss* each; the *tree* has further sizes, in each *every*th sample."""
    folder.mkdir()
    (folder / "run.json").write_text(
        json.dumps({"format_version": 1, "ending": "exit", "status": 0, **(run or {})})
    )
    writer = SeriesWriter(folder, SeriesFacts("server", INTERVAL, 1.7e9, "boot", 0.0, 64 << 30, limit_of))
    lines = [
        SeriesLine(n + 1, 100 + n, 1, "server", "./server", TREE if not n else 1, 0.0)
        for n in range(processes)
    ]
    for number in range(int(SECONDS / INTERVAL)):
        t = number * INTERVAL
        size = int(rss(t) * MIB)
        sizes = {name: int(of(t) * MIB) for name, of in tree.items()} if number % every == 0 else {}
        whole = ProcessSample(rss_bytes=size, pss_bytes=size, anonymous_bytes=size, shmem_bytes=0)
        if processes > 1:
            whole = ProcessSample(
                pss_bytes=processes * size if reads_pss else None, torn_rounds=0 if reads_pss else number
            )
        one = ProcessSample(rss_bytes=size)
        total = whole._replace(**sizes)
        writer.append(
            t, [*((line.number, one) for line in lines), (TREE, total)], lines if not number else []
        )
    writer.close()
    return folder


def gate(folder: Path, fail_on: str = "growing:10MiB/h") -> tuple[int, str]:
    """Return the status, and the sentences that text and JSON have alike."""
    outputs = []
    for more in ([], ["--json"]):
        stream = io.StringIO()
        with redirect_stdout(stream):
            status = main(["monitor", "--no-color", "--fail-on", fail_on, *more, str(folder)])
        outputs.append(stream.getvalue())
    judgements = json.loads(outputs[1])["judgements"]
    said = " ".join(one["text"] + "; " + "; ".join(u["message"] for u in one["unseen"]) for one in judgements)
    outcomes = {one["judged"] for one in judgements}
    assert ("not_met" in outcomes, "not_judged" in outcomes and "not_met" not in outcomes) == (
        status == 4,
        status == 125,
    )
    words = " ".join(outputs[0].split())
    for one in judgements:
        if one["judged"] == "not_judged":
            assert all(" ".join(u["message"].split()) in words for u in one["unseen"]), words
    return status, said


def test_a_level_passes_and_a_leak_does_not(tmp_path: Path) -> None:
    assert gate(record(tmp_path / "level"))[0] == 0
    assert gate(record(tmp_path / "leak", rss=leak))[0] == 4


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"status": 139, "ending": "exit"}, "was ended by SIGSEGV (status 139)"),
        ({"status": 3, "ending": "exit"}, "ended with status 3"),
        ({"status": 137, "ending": "signal"}, "was ended by SIGKILL (status 137)"),
        ({"unseen": {"stopped_seconds": 58.0}}, "it was stopped for"),
        ({"unseen": {"children": "many"}}, "can't be read"),
        ({"unseen": ["x"]}, "can't be read"),
        ({"unseen": {"children": 3}}, "at least 3 children are not in the numbers"),
        ({"unseen": {"hidden_processes": True}}, "root finds all of them"),
        ({"unseen": {"lost_writes": 2}}, "samples could not be written"),
        ({"status": None, "monitor": {"program": ["x"]}}, "how the program ended is unknown"),
    ],
)
def test_what_the_run_knows_it_could_not_see_is_not_judged(
    tmp_path: Path, run: dict[str, Any], said: str
) -> None:
    status, words = gate(record(tmp_path / "blind", run=run))
    assert status == 125
    assert said in words
    assert gate(record(tmp_path / "leak", rss=leak, run=run))[0] == 4, (
        "what was seen counts, whatever was not"
    )


@pytest.mark.parametrize(
    "run",
    [
        {"status": 143, "ending": "time"},
        {"status": None},
        {"unseen": {"stopped_seconds": 0.4, "children": 0}},
    ],
)
def test_a_program_that_gdbmem_ended_has_not_failed(tmp_path: Path, run: dict[str, Any]) -> None:
    assert gate(record(tmp_path / "run", run=run))[0] == 0


def test_the_largest_process_of_a_tree_without_pss_is_not_the_tree(tmp_path: Path) -> None:
    status, said = gate(record(tmp_path / "blind", processes=3, reads_pss=False))
    assert status == 125
    assert (
        "the largest process is judged; 'gdbmem monitor -- PROGRAM' measures it in a cgroup of its own"
        in said
    )
    assert "root" not in said
    assert gate(record(tmp_path / "seen", processes=3))[0] == 0


def test_the_cgroup_of_a_tree_without_pss_is_judged_in_its_place(tmp_path: Path) -> None:
    leaks = record(tmp_path / "leaks", processes=3, reads_pss=False, tree={"family_bytes": leak})
    assert gate(leaks)[0] == 4
    stays = record(tmp_path / "stays", processes=3, reads_pss=False, tree={"family_bytes": level})
    assert gate(stays)[0] == 0


def test_growth_that_is_in_no_process_is_in_its_cgroup(tmp_path: Path) -> None:
    status, said = gate(record(tmp_path / "memfd", tree={"family_bytes": leak}))
    assert status == 4
    assert "memory of its cgroup that is in none of the watched processes: growing" in said
    few, said = gate(record(tmp_path / "few", tree={"family_bytes": leak}, every=20))
    assert few == 125
    assert "beside the watched processes its cgroup grew by +30.0 MiB" in said
    assert gate(record(tmp_path / "level", tree={"family_bytes": level}))[0] == 0


@pytest.mark.parametrize(
    ("limit_of", "metric", "said"),
    [
        ("the machine", "family_kernel_bytes", "pipes, sockets, page tables"),
        (
            "the cgroup",
            "cgroup_shmem_bytes",
            "files in memory that are charged to its cgroup grew by +39.5 MiB",
        ),
    ],
)
def test_growth_of_what_no_process_maps_is_not_passed_over(
    tmp_path: Path, limit_of: str, metric: str, said: str
) -> None:
    status, words = gate(record(tmp_path / "grows", limit_of=limit_of, tree={metric: leak}))
    assert status == 125
    assert said in words
    assert gate(record(tmp_path / "level", limit_of=limit_of, tree={metric: level}))[0] == 0


@pytest.mark.parametrize("metric", ["family_kernel_bytes", "family_bytes"])
def test_what_the_start_of_a_program_needs_is_no_growth(tmp_path: Path, metric: str) -> None:
    def starts(t: float) -> float:
        return 40.0 + min(t, 10.0)

    assert gate(record(tmp_path / "starts", tree={metric: starts}))[0] == 0


@pytest.mark.parametrize("metric", ["hugetlb_bytes", "swap_bytes"])
def test_a_leak_that_the_resident_set_lacks_is_growth(tmp_path: Path, metric: str) -> None:
    status, said = gate(record(tmp_path / "leak", tree={metric: leak}))
    assert status == 4
    assert "+59" in said and "which RSS lacks" in said
    assert gate(record(tmp_path / "level", tree={metric: level}))[0] == 0


def test_memory_that_is_swapped_out_is_neither_lost_nor_new(tmp_path: Path) -> None:
    assert gate(record(tmp_path / "moved", rss=falling, tree={"swap_bytes": leak}))[0] == 0
    assert gate(record(tmp_path / "hidden", tree={"swap_bytes": leak}))[0] == 4


def test_a_leak_in_the_place_of_pages_of_files_does_not_pass(tmp_path: Path) -> None:
    status, said = gate(record(tmp_path / "pressed", tree={"anonymous_bytes": leak, "file_bytes": falling}))
    assert status == 125
    assert "anonymous memory grew by +39.5 MiB while as many pages of files left it" in said
    closed = record(tmp_path / "closed", rss=falling, tree={"anonymous_bytes": level, "file_bytes": falling})
    assert gate(closed)[0] == 0


def test_a_process_that_was_killed_at_the_limit_has_not_shown_a_level(tmp_path: Path) -> None:
    def kills(t: float) -> float:
        return (t >= SECONDS - 5) / MIB

    status, said = gate(record(tmp_path / "killed", tree={"cgroup_bytes": level, "cgroup_kills": kills}))
    assert status == 125
    assert "killed at the limit" in said


def test_a_leak_on_a_gpu_is_growth_though_the_resident_set_stays(tmp_path: Path) -> None:
    status, said = gate(record(tmp_path / "leak", tree={"gpu_bytes": leak}))
    assert status == 4
    assert "memory on GPUs: growing" in said
    few, said = gate(record(tmp_path / "few", tree={"gpu_bytes": leak}, every=20))
    assert few == 125
    assert "its memory on GPUs grew by +30.0 MiB" in said
    assert gate(record(tmp_path / "level", tree={"gpu_bytes": level}))[0] == 0
