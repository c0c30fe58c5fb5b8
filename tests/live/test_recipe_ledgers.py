"""Recipes that record ledgers and surveys of containers: kept, listed, compared, judged."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program
from tests.libraries import needs_library
from tests.live.explaining import running
from tests.live.test_memexplain import gdb
from tests.live.test_recipes_live import Played, play
from tests.live.user import GDBMEM, shell

pytestmark = [pytest.mark.needs("gdb", "g++"), pytest.mark.usefixtures("no_process_left")]

FREED = 20_000 * 256  # every second of 40,000 blocks of 248 bytes, with its header
RECIPE = """
engine: none
points:
  - {at: filled, do: [ledger, containers]}
  - {at: holed, do: [{print: COUNT}, ledger, containers, {gdb: info line}]}
diff: [["filled#1", "holed#1"], ["filled#1", filled]]
expect:
  - {between: ["filled#1", "holed#1"], metric: retained, at_most: 1MiB}
  - {between: ["filled#1", "holed#1"], metric: rss, at_most: 1MiB}
"""


def gdbmem(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return shell(GDBMEM, *map(str, words), folder=folder)


@pytest.fixture(scope="module")
def played(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(RECIPE, tmp_path_factory.mktemp("r"), "--json", "--run", "run", program=program("keeps_half"))


@pytest.fixture(scope="module")
def result(played: Played) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(played.out)
    return parsed


def test_freed_memory_that_malloc_keeps_is_judged_by_the_bytes_that_the_program_freed(
    played: Played, result: dict[str, Any]
) -> None:
    retained, rss = result["expectations"]
    # Headers and the caches' first blocks apart, it is what was freed.
    assert abs(retained["measured"] - FREED) < 16 << 10
    assert (retained["met"], rss["met"], played.status) == (False, True, 4)
    assert abs(rss["measured"]) < 128 << 10, "freeing every second block gives nothing back"


def test_freed_memory_that_another_malloc_keeps_is_judged_by_the_bytes_that_the_program_freed(
    program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    recipe = RECIPE.replace("engine: none", "engine: gperftools").replace(", containers", "")
    played = play(recipe, tmp_path, "--json", "--run", "run", program=program("keeps_half"))
    retained, rss = json.loads(played.out)["expectations"]
    # 20,000 blocks in a class of 256 bytes; the profiler's own tables are in the same heap.
    assert abs(retained["measured"] - 20_000 * 256) < 256 << 10
    assert (retained["met"], rss["met"], played.status) == (False, True, 4)


def test_what_changed_between_two_points_is_in_the_result(result: dict[str, Any]) -> None:
    holed, refilled = result["ledger_diffs"]
    assert holed["between"] == ["filled#1", "holed#1"]
    pinned = next(e for e in holed["entries"] if e["category"] == "heap.free.pinned")
    assert abs(pinned["delta_bytes"] - FREED) < 16 << 10
    assert refilled["between"] == ["filled#1", "filled"]
    (blocks,) = result["container_diffs"][1]["containers"]
    assert (blocks["path"], blocks["delta_bytes"]) == ("blocks", 40_000 * 8)
    assert [point["ledgers"] for point in result["points"]] == [["filled", "filled#2"], ["holed", "holed#2"]]


def test_actions_of_gdb_are_done_natively_at_each_hit(played: Played) -> None:
    assert len(re.findall(r"holed: print: .* = 40000", played.err)) == 2
    assert len(re.findall(r"holed: gdb: Line \d+ of", played.err)) == 2


def test_the_ledgers_of_a_run_are_listed_shown_and_compared_again(played: Played) -> None:
    folder = played.folder
    listed = json.loads(gdbmem("show", "run", "--json", folder=folder).stdout)
    assert [ledger["name"] for ledger in listed["ledgers"]] == ["filled#1", "holed#1", "filled#2", "holed#2"]
    assert abs(listed["ledgers"][1]["retained_bytes"] - FREED) < 16 << 10
    assert listed["containers"][0]["held_bytes"] == 40_000 * 8
    assert "holed#1" in gdbmem("show", "run", folder=folder).stdout
    shown = gdbmem("show", "run:holed#1", folder=folder).stdout
    assert "live blocks of 248 bytes lie on its pages" in shown
    compared = gdbmem("diff", "run:filled#1", "run:holed#1", folder=folder).stdout
    assert "most in heap.free.pinned: +4.9 MiB" in compared
    grown = gdbmem("diff", "run:filled#1", "run:filled", "--containers", "--fail-on", "1KiB", folder=folder)
    assert "blocks: 40,000 → 40,000 elements, +312.5 KiB" in grown.stdout
    assert (grown.returncode, "grew by 312.5 KiB" in grown.stderr) == (4, True)
    missing = gdbmem("show", "run:nowhere", "--ledger", folder=folder)
    assert "no ledger was saved as 'nowhere'; there are filled#1," in missing.stderr


def test_without_json_it_is_printed_which_part_grew(program: Program, scratch: Path) -> None:
    played = play(RECIPE, scratch, program=program("keeps_half"))
    assert "most in heap.free.pinned: +4.9 MiB" in played.out
    assert re.search(
        r"NOT MET +freed memory that malloc keeps from filled#1 to holed#1: \+4\.9 MiB", played.out
    )
    assert "holed: ledger: " in played.err


def test_a_ledger_under_massif_is_refused_before_anything_runs(program: Program, scratch: Path) -> None:
    text = "points: [{at: filled, do: [snap, ledger]}]\n"
    played = play(text, scratch, program=program("keeps_half"))
    assert (
        "leak.yaml:2:15: under massif the ledger at 'filled' would be of valgrind's own memory" in played.err
    )
    assert not list(scratch.glob("gdbmem.*"))
    (scratch / "none.yaml").write_text(RECIPE + f"program: {program('keeps_half')}\n")
    overridden = gdbmem("launch", "--recipe", "none.yaml", "--massif", folder=scratch)
    assert "under massif the ledger" in overridden.stderr


@pytest.mark.needs("valgrind")
def test_containers_can_be_had_under_massif(program: Program, scratch: Path) -> None:
    played = play(
        "points: [{at: filled, do: [snap, containers]}]\ndiff: [['filled#1', filled]]\n",
        scratch, "--json", program=program("keeps_half"),
    )  # fmt: skip
    result = json.loads(played.out)
    assert len(result["diffs"]) == len(result["container_diffs"]) == 1
    assert result["container_diffs"][0]["delta_bytes"] == 40_000 * 8


def test_the_resident_set_can_be_judged_under_gperftools_beside_its_snapshots(
    program: Program, scratch: Path
) -> None:
    needs_library("gperftools")
    text = """
engine: gperftools
points: [{at: filled, do: [snap, ledger]}, {at: holed, do: [snap, ledger]}]
diff: [["filled#1", "holed#1"]]
expect: [{between: ["filled#1", "holed#1"], metric: rss, at_most: 2MiB}]
"""
    played = play(text, scratch, "--json", program=program("keeps_half"))
    result = json.loads(played.out)
    assert result["diffs"][0]["delta_bytes"] == -20_000 * 248
    assert [one["met"] for one in result["expectations"]] == [True]
    assert result["ledger_diffs"][0]["before_rss_bytes"] > 40_000 * 248


def test_a_point_that_is_never_hit_leaves_its_ledger_unjudged(program: Program, scratch: Path) -> None:
    text = """
engine: none
points: [{at: filled, do: [ledger], hits: {only: [9]}}, {at: holed, do: [ledger], hits: {only: [1]}}]
expect: [{between: ["filled#1", "holed#1"], metric: retained, at_most: 1MiB}]
"""
    played = play(text, scratch, program=program("keeps_half"))
    assert "NOT JUDGED freed memory that malloc keeps from filled#1 to holed#1" in played.out
    assert "'filled' was hit 2 times, never as required by 'hits'" in played.out
    assert played.status == 125


def test_what_is_saved_at_the_prompt_is_listed_and_outlives_gdb(program: Program, tmp_path: Path) -> None:
    done = gdb(
        tmp_path, program("keeps_half"),
        "break holed", "run",
        "memexplain --save a", "memcontainers --save a", "continue", "memexplain --save a",
        "memlist", "memexplain --since a#1", "kill",
    )  # fmt: skip
    assert "ledger saved as a#2" in done.stdout, done.stderr
    assert re.search(r"a#1 .*holed at keeps_half.cpp", done.stdout)
    (run,) = tmp_path.glob("gdbmem.*")
    assert (
        "1 container holds 312.5 KiB"
        in gdbmem("show", f"{run.name}:a", "--containers", folder=tmp_path).stdout
    )


def test_what_a_run_keeps_is_compared_with_in_the_shell_and_what_a_file_holds_in_gdb(
    played: Played, program: Program, tmp_path: Path
) -> None:
    run = played.folder / "run"
    with running([program("heap_known"), "all"]) as target:
        saved = gdbmem("explain", target.pid, "--save", f"{run}:later", "-o", tmp_path / "x", folder=tmp_path)
        assert saved.stderr == "gdbmem: ledger saved as run:later\n"
        target.trim()
        grown = gdbmem("explain", target.pid, "--since", f"{run}:later", folder=tmp_path).stdout
        assert re.match(r"resident set -\d.* to now; most in heap.free.releasable", grown)
        wrong = gdbmem("explain", target.pid, "--since", f"{run}:nowhere", folder=tmp_path)
        assert "no ledger was saved as 'nowhere'; there are filled#1" in wrong.stderr
        for place in (run, tmp_path / "x"):
            refused = gdbmem("explain", target.pid, "--save", place, folder=tmp_path)
            assert (refused.returncode, "--save takes RUN:NAME" in refused.stderr) == (2, True)
    assert gdbmem("show", f"{run}:later", "--json", folder=tmp_path).returncode == 0
    done = gdb(
        tmp_path, program("keeps_half"), "break holed", "run",
        "memexplain --json -o a.json", "memcontainers --json -o b.json", "continue",
        "memexplain --since a.json", f"memexplain --since {run}:filled#1", "memcontainers --since b.json",
        f"memcontainers --since {run}:filled#1", "memexplain --since b.json", "memexplain --since nothing", "kill",
    )  # fmt: skip
    said = re.findall(r"^resident set (?:unchanged|[+-]).* from (\S+) to now;? ?", done.stdout, re.M)
    assert said == ["a.json", f"{run}:filled#1"], done.stderr
    assert done.stdout.count("blocks: 40,000 → 40,000 elements, +312.5 KiB") == 2
    assert "b.json holds no ledger" in done.stderr
    assert "no ledger was saved as 'nothing'" in done.stderr


def test_the_call_path_of_the_pinning_blocks_is_named_by_a_snapshot_of_another_run(
    program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    text = "engine: gperftools\npoints: [{at: holed}]\n"
    taken = play(text, tmp_path, "--run", "sizes", program=program("keeps_half"))
    done = gdb(
        tmp_path, program("keeps_half"), "break holed", "run",
        "memexplain", "memexplain --pinners --paths sizes:holed#1",
        "memexplain --paths sizes:holed#1 --json -o 1.json",
    )  # fmt: skip
    asked, answered = re.findall(r".* live blocks of 248 bytes lie on its pages.*", done.stdout)
    assert asked.endswith(
        "(--pinners lists them, --paths RUN:NAME shows the call paths that allocate such blocks)"
    )
    assert answered.endswith(" of 248 bytes lie on its pages, likely allocated at keeps_half.cpp:17 (main)")
    assert re.search(r"20,000 +248 +keeps_half\.cpp:17 \(main\)", done.stdout), (done.stderr, taken.err)
    joined = json.loads((tmp_path / "1.json").read_text())["pinner_paths"]
    assert joined["sizes"][0]["paths"][0]["blocks"] == 20_000
    assert abs(joined["sizes"][0]["live"] - 20_000) < 100
