"""Remedies on live processes: another run with the setting returns the predicted memory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from ctypes.util import find_library
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from gdbmem.errors import TargetError
from gdbmem.launch.measured import MeasuredRun, trim_by_gdb
from gdbmem.linux.process import process
from gdbmem.linux.process.process import stat_of
from gdbmem.model.ledger import TRIM, Remedy, best_remedy
from tests.conftest import Program
from tests.libraries import needs_library
from tests.live.explaining import explain, gdbmem, running
from tests.live.test_explain import resident_bytes
from tests.live.user import GDBMEM, SECONDS

RUNS = 3


def level_of(words: list[str], settings: dict[str, str]) -> float:
    sizes = []
    for _ in range(RUNS):
        with running(words, settings) as target:
            sizes.append(resident_bytes(target.pid))
    return median(sizes)


@pytest.mark.parametrize(
    ("mode", "setting"),
    [
        ("tcaches", "glibc.malloc.tcache_count=0"),
        ("end", "glibc.malloc.tcache_count=0"),
        ("level", "glibc.malloc.trim_threshold=131072"),
        ("level", "glibc.malloc.top_pad=0"),
    ],
)
def test_what_a_setting_is_predicted_to_give_back_is_what_it_does(
    program: Program, mode: str, setting: str
) -> None:
    words = [str(program("freed_kept", "-pthread")), mode]
    with running(words) as target:
        remedies = {remedy.setting: remedy for remedy in explain(target.pid).remedies}
    predicted = remedies[setting]
    assert predicted.predicted_bytes is not None
    assert predicted.predicted_bytes > 4 << 20
    gain = level_of(words, {}) - level_of(words, {"GLIBC_TUNABLES": setting})
    assert_kept(predicted, gain)


def assert_kept(predicted: Remedy, gain: float) -> None:
    assert predicted.predicted_bytes is not None
    near = abs(gain - predicted.predicted_bytes) <= 0.1 * predicted.predicted_bytes
    assert near or predicted.low_bytes <= gain <= predicted.high_bytes
    assert predicted.high_bytes - predicted.low_bytes <= predicted.predicted_bytes / 2


@pytest.mark.parametrize("mode", ["holes", "live"])
def test_what_no_setting_gives_back_is_promised_of_none(program: Program, mode: str) -> None:
    words = [str(program("freed_kept", "-pthread")), mode]
    with running(words) as target:
        remedies = explain(target.pid).remedies
    settings = [remedy for remedy in remedies if not remedy.is_call]
    assert all((remedy.predicted_bytes or 0) < 1 << 20 for remedy in settings)
    best = best_remedy(remedies)
    # Where a fault may bring several pages (mTHP), the end of a heap may have some that are not used yet.
    gives_back = best is not None and best.is_call and (best.predicted_bytes or 0) > 256 << 10
    assert gives_back == (mode == "holes")


def test_where_tcaches_hold_it_all_the_first_sentence_reports_it_and_fewer_arenas_are_not_promised(
    program: Program,
) -> None:
    with running([str(program("freed_kept", "-pthread")), "tcaches"]) as target:
        done = gdbmem("explain", target.pid, "--remedies")
    size = r"\d+\.\d MiB"
    assert re.match(
        rf"{size} resident; {size} of it is freed memory that glibc keeps: GLIBC_TUNABLES=glibc\.malloc\.tcache_count=0"
        rf" would save about {size} \({size} to {size}; each malloc and free takes its arena's lock\)\n",
        done.stdout,
    )
    arenas = next(line for line in done.stdout.splitlines() if "arena_max=2" in line)
    assert arenas.startswith("unknown until measured, at most ")


def test_docs_name_no_remedy_that_was_not_simulated() -> None:
    root = Path(__file__).parents[2]
    pages = [*root.glob("docs/**/*.md"), *root.glob("examples/**/*.md"), root / "README.md"]
    assert not [page for page in pages if "MALLOC_ARENA_MAX" in page.read_text()]


LEVELLING = ("top_pad=0", "trim_threshold=131072", "mmap_threshold=131072")


# -- measured ---------------------------------------------------------------------------------------------


def measured(*words: object, runs: int = 2) -> dict[str, Any]:
    done = gdbmem("compare", "--remedies", "--runs", runs, "-q", "--json", "--", *words)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["kind"] == "remedies"
    return document


@pytest.mark.needs("gdb")
def test_compare_proves_the_best_of_a_program_that_rests(program: Program) -> None:
    found = measured(program("freed_kept", "-pthread"), "level")
    assert found["moment"] == "at rest"
    # All four give the same block back: of equal ones the best is one that was predicted.
    by_name = {row["setting"]: row for row in found["remedies"]}
    assert by_name.keys() == {TRIM, *(f"glibc.malloc.{name}" for name in LEVELLING)}
    for row in found["remedies"]:
        assert row["measured_bytes"] > 18 << 20, row
        assert row["measured_low_bytes"] <= row["measured_bytes"]
        predicts = row["setting"] != "glibc.malloc.mmap_threshold=131072"
        assert row["is_as_predicted"] is (True if predicts else None), row
    assert found["remedies"][0]["predicted_bytes"] is not None
    assert found["children"] == 0


@pytest.mark.needs("gdb")
def test_a_program_that_ends_is_measured_as_it_does_with_all_of_its_memory(
    program: Program, tmp_path: Path
) -> None:
    path = program("freed_kept", "-pthread")
    input_file = tmp_path / "input"
    input_file.write_text("\n")
    done = subprocess.run(
        [GDBMEM, "compare", "--remedies", "--runs", "2", "--json", "--", path, "end"],
        stdin=input_file.open(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["moment"] == "at its end"
    assert found["rss_bytes"] > 20 << 20
    by_name = {row["setting"]: row for row in found["remedies"]}
    for setting in (TRIM, "glibc.malloc.tcache_count=0"):
        assert by_name[setting]["is_as_predicted"], by_name[setting]
        assert by_name[setting]["measured_bytes"] > 20 << 20
    assert "run 2 of 2, as it is: " in done.stderr


def test_where_nothing_is_freed_nothing_is_run_again(program: Program) -> None:
    found = measured(program("freed_kept", "-pthread"), "live")
    assert (found["remedies"], found["runs"]) == ([], 1)
    assert "no remedy can return more than " in found["answer"]


def test_processes_that_a_program_starts_are_counted_as_not_measured() -> None:
    with MeasuredRun(["/bin/sh", "-c", "sleep 1000 & sleep 1000 & wait"]) as run:
        deadline = time.monotonic() + SECONDS
        while (count := run.children()) < 2:
            run.take_stops()
            assert time.monotonic() < deadline
        assert count == 2
    assert not Path(f"/proc/{run.pid}").exists()


def test_a_run_that_is_measured_leaves_nothing_behind(program: Program) -> None:
    path = program("freed_kept", "-pthread")
    with MeasuredRun([str(path), "live"], "GLIBC_TUNABLES=glibc.malloc.arena_max=2") as run:
        assert run.reach(0.3) == "after the time given"
        environment = Path(f"/proc/{run.pid}/environ").read_bytes()
        assert b"GLIBC_TUNABLES=glibc.malloc.arena_max=2\0" in environment
    assert not Path(f"/proc/{run.pid}").exists()


def test_signals_and_stops_of_a_program_that_is_measured_are_its_own(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = f"trap 'echo usr1 >> {out}' USR1; kill -USR1 $$; kill -STOP $$; echo on >> {out}"
    with MeasuredRun(["/bin/sh", "-c", script]) as run:
        deadline = time.monotonic() + SECONDS
        while stat_of(run.pid).state not in "Tt" or not out.exists():  # type: ignore[union-attr]
            run.take_stops()
            assert time.monotonic() < deadline
        os.kill(run.pid, signal.SIGCONT)
        assert run.reach(None) == "at its end"
    assert out.read_text() == "usr1\non\n"


@pytest.mark.parametrize(
    ("words", "slug"),
    [
        (["--", "/no/such/program"], "program-not-found"),
        ([], "usage"),
        (["a", "--", "true"], "usage"),
        (["--plot", "x.svg", "--", "true"], "usage"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(words: list[str], slug: str) -> None:
    done = gdbmem("compare", "--remedies", *words)
    assert done.returncode == (2 if slug == "usage" else 1)
    assert len(done.stderr.strip().splitlines()) <= 3


def test_a_program_that_ends_while_it_is_measured_at_rest_keeps_its_memory_until_then() -> None:
    with MeasuredRun(["sleep", "1.2"]) as run:
        moment = run.reach(None)
        time.sleep(0.5)  # it has come to its end
        size = run.rss_bytes()
        assert run.ledger(moment).rss_bytes == size > 0


@pytest.mark.needs("gdb")
def test_a_program_that_ends_before_gdb_is_there_is_asked_in_another_run() -> None:
    assert trim_by_gdb(["sleep", "1.1"], None) >= 0


def test_a_process_whose_memory_is_gone_is_not_said_to_be_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its exit and its end a process has no memory to read, which the kernel refuses even to root."""
    own = os.getpid()
    facts = SimpleNamespace(pid=own, name="x", state="R", tracer=0, uid=0)
    monkeypatch.setattr(process, "_opens", lambda _: False)
    monkeypatch.setattr(process, "status_fields", lambda pid: {"Name": "x", "Tgid": str(pid)})
    monkeypatch.setattr(process, "process_facts", lambda _: facts)
    with pytest.raises(TargetError, match="ended before it could be inspected"):
        process.check_analysable(own)


def test_settings_of_the_allocator_that_a_program_has_are_measured_by_their_names(
    program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    library = find_library("tcmalloc_minimal") or ""
    words = ["env", f"LD_PRELOAD={library}", program("returns_memory")]
    (tmp_path / "empty").touch()  # its input, at whose end it ends
    with (tmp_path / "empty").open() as stdin:
        done = subprocess.run(
            [*map(str, (GDBMEM, "compare", "--remedies", "--runs", 1, "--json", "--", *words))],
            stdin=stdin,
            capture_output=True,
            text=True,
        )
    found = json.loads(done.stdout)
    by_name = {row["setting"]: row for row in found["remedies"]}
    assert set(by_name) == {
        "TCMALLOC_RELEASE_RATE=10",
        "TCMALLOC_AGGRESSIVE_DECOMMIT=1",
        "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=1048576",
    }
    best = by_name["TCMALLOC_AGGRESSIVE_DECOMMIT=1"]
    assert best["measured_bytes"] > 10 << 20
    assert f"; TCMALLOC_AGGRESSIVE_DECOMMIT=1 env LD_PRELOAD={library} " in found["answer"]
