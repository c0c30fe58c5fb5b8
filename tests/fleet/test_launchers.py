"""gdbmem between a real launcher and the program, on this machine: each rank has its own, the launcher its status."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.launchers import MPICH, OPEN_MPI, RANK, TORCHRUN, Launcher, slurm
from tests.live.user import GDBMEM

KIB = 1 << 10
KILLED = 'exec python3 -c "import os; os.kill(os.getpid(), 9)"'  # torchrun makes one $ of two
RECIPE = """\
program: {program}
engine: massif
points:
  - at: step
    do: [snap]
diff:
  - [step#1, step]
expect:
  - between: [step#1, step]
    at_most: 1MiB
"""


@pytest.fixture(scope="module")
def srun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    if shutil.which("slurmctld") is None or os.geteuid() != 0:
        pytest.skip("Slurm is not installed, or its daemons can't be started: not root")
    with slurm(tmp_path_factory.mktemp("slurm")) as launcher:
        yield launcher


@pytest.fixture(params=["Open MPI", "MPICH", "Slurm", "torchrun"])
def launcher(request: pytest.FixtureRequest) -> Launcher:
    if request.param == "Slurm":
        return request.getfixturevalue("srun")  # type: ignore[no-any-return]
    found = {one.name: one for one in (OPEN_MPI, MPICH, TORCHRUN)}[request.param]
    if shutil.which(found.words[0]) is None:
        pytest.skip(f"{found.name} is not installed")
    return found


def start(launcher: Launcher, count: int, *words: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        launcher.command(count, *words),
        cwd=folder,
        env={**os.environ, **launcher.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(launcher: Launcher, process: subprocess.Popen[str]) -> None:
    """End a job as its user would."""
    if launcher.cancel:
        subprocess.run(launcher.cancel, env={**os.environ, **launcher.environment}, check=True)
    else:
        process.send_signal(signal.SIGTERM)


def run(launcher: Launcher, count: int, *words: str, folder: Path) -> tuple[int, str]:
    """Return the launcher's status, and what was printed."""
    with start(launcher, count, *words, folder=folder) as process:
        said, complaints = process.communicate(timeout=300)
    return process.returncode, said + complaints


def judged(folder: Path, runs: str, *options: str) -> tuple[int, dict[str, Any]]:
    words = [GDBMEM, "ranks", runs, "--json", *options]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def monitor(runs: str, script: str) -> list[str]:
    return [GDBMEM, "monitor", "-q", "--run", f"{runs}/r.%r", "--", "sh", "-c", f"r={RANK}; {script}"]


@pytest.mark.needs("gdb", "gcc", "valgrind")
@pytest.mark.parametrize("count", [3, 8])
def test_each_rank_has_exactly_what_it_allocates_and_all_are_judged_together(
    launcher: Launcher, program: Callable[..., Path], scratch: Path, count: int
) -> None:
    (scratch / "leak.yaml").write_text(RECIPE.format(program=program("grows_by_rank", "-O0")))
    status, said = run(
        launcher, count, GDBMEM, "launch", "--recipe", "leak.yaml", "--run", "runs/r.%r", folder=scratch
    )
    assert status == 0, said
    status, found = judged(scratch, "runs")
    assert status == 4, "of the verdict, which no rank has ended with"
    (row,) = found["rows"]
    assert found["launcher"] == launcher.name and found["missing"] == [] and found["size"] == count
    sizes = [one["after_bytes"] - one["before_bytes"] for one in found["ranks"]]
    assert sizes == [512 * KIB * (rank + 1) for rank in range(count)]
    assert (row["min_bytes"], row["max_bytes"], row["rank_of_max"]) == (
        512 * KIB,
        512 * KIB * count,
        count - 1,
    )
    assert row["mean_bytes"] == sum(sizes) / count and row["ranks"] == count
    assert [one["judged"] for one in found["judgements"]] == ["met"] * 2 + ["not_met"] * (count - 2)


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), (KILLED, 128 + signal.SIGKILL)])
def test_the_launcher_gets_the_status_of_a_rank_that_fails_and_the_ranks_say_whose(
    launcher: Launcher, scratch: Path, script: str, status: int
) -> None:
    # The others end before: some launchers kill them as soon as one fails.
    words = monitor("runs", f"test $r != 1 || {{ sleep 3; {script}; }}")
    found, said = run(launcher, 3, *words, folder=scratch)
    assert found == status if launcher.ends_as_its_ranks else found == 1, said
    _, ranks = judged(scratch, "runs")
    assert {one["rank"]: one["status"] for one in ranks["ranks"]} == {0: 0, 1: status, 2: 0}


def test_a_rank_that_hangs_until_the_launcher_is_ended_is_named_and_the_others_are_whole(
    launcher: Launcher, scratch: Path
) -> None:
    words = monitor("runs", "test $r != 1 || exec sleep 600; sleep 0.5")
    with start(launcher, 3, *words, folder=scratch) as process:
        until = time.monotonic() + 120
        # A rank that is still reporting dies of the signal, and some launchers then kill the others at once.
        while len(_monitors(scratch)) != 1 or not all(map(_has_ended, _runs(scratch, 0, 2))):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        end(launcher, process)
        process.communicate(timeout=120)
    assert process.returncode != 0
    until = time.monotonic() + 60
    while not all(map(_has_ended, _runs(scratch, 1))):  # some launchers do not wait for their ranks
        assert time.monotonic() < until
        time.sleep(0.1)
    _, ranks = judged(scratch, "runs")
    statuses = {one["rank"]: one["status"] for one in ranks["ranks"]}
    assert statuses.pop(1) in (128 + signal.SIGTERM, 128 + signal.SIGINT), statuses
    assert statuses == {0: 0, 2: 0}


def _runs(folder: Path, *ranks: int) -> list[Path]:
    return [folder / "runs" / f"r.{rank}" for rank in ranks]


def _monitors(folder: Path) -> list[int]:
    """Return the pids of the monitors in *folder*."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if (process / "cwd").readlink() == folder and GDBMEM.encode() in words[:2]:
                found.append(int(process.name))
    return found


def _has_ended(run: Path) -> bool:
    try:
        return "ended" in json.loads((run / "run.json").read_text())
    except OSError:
        return False


EQUAL = """
import time
kept = []
for step in range(8):
    kept.append(bytearray(b"x" * 1_000_000))
    time.sleep(0.1)
"""


@pytest.mark.parametrize("time", range(20))
def test_of_equal_ranks_none_is_called_odd(scratch: Path, time: int) -> None:
    if shutil.which(MPICH.words[0]) is None:
        pytest.skip("MPICH is not installed")
    words = [GDBMEM, "monitor", "-q", "--run", "runs/r.%r", "--", sys.executable, "-I", "-S", "-c", EQUAL]
    status, said = run(MPICH, 8, *words, folder=scratch)
    assert status == 0, said
    _, ranks = judged(scratch, "runs")
    assert ranks["can_differ"] and ranks["odd"] == [], ranks["odd"]


GROWS = """\
import os, time
names = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "RANK", "SLURM_PROCID")
rank = int(next(os.environ[name] for name in names if name in os.environ))
kept = []
for _ in range(24):
    kept.append(b"x" * (1 + rank << 20))
    time.sleep(0.25)
os._exit(0)
"""


def test_one_monitor_of_a_host_records_the_ranks_of_each_launcher(launcher: Launcher, scratch: Path) -> None:
    (scratch / "grows.py").write_text(GROWS)
    words = (GDBMEM, "monitor", "--one-per-node", "--run", "node", "--", sys.executable, "grows.py")
    status, said = run(launcher, 3, *words, folder=scratch)
    assert status == 0, said
    assert said.count("the ranks of this host are recorded in") == 1
    until = time.monotonic() + 30
    while "ended" not in json.loads((scratch / "node" / "run.json").read_text()):
        assert time.monotonic() < until
        time.sleep(0.1)
    done = subprocess.run([GDBMEM, "ranks", "node", "--json"], cwd=scratch, capture_output=True, check=True)
    found = json.loads(done.stdout)
    assert [one["rank"] for one in found["ranks"]] == [0, 1, 2] and not found["missing"]
    assert found["total"]["rank_of_max"] == 2
    for one in found["ranks"]:
        grown = (one["after_bytes"] - one["before_bytes"]) / (1 + one["rank"] << 20)
        assert 12 <= grown <= 36, (
            "24 blocks, but for those before the first sample; Python begins with 10 MiB"
        )
