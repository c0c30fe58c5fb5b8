"""gdbmem between mpirun and the program: a launcher is stood for by the variables and the terminal that it gives."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.user import GDBMEM

RANK = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "PMIX_NAMESPACE": "1807"}
PROGRAM = ["sh", "-c", "echo program; exit 7"]


def started(folder: Path, rank: int, *words: str) -> tuple[int, str]:
    """Run `gdbmem monitor` as *rank*, on a terminal of its own; return its status and all that was printed."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [GDBMEM, "monitor", *words, "--", *PROGRAM],
        cwd=folder,
        env={**os.environ, **RANK, "OMPI_COMM_WORLD_RANK": str(rank), "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            said = b""
            try:
                while data := terminal.read(4096):
                    said += data
            except OSError:  # all have closed it
                pass
    return process.returncode, said.decode().replace("\r\n", "\n")


def test_a_rank_that_is_not_judged_ends_as_its_program_and_its_run_names_it(scratch: Path) -> None:
    status, said = started(scratch, 3, "--fail-on", "growing", "--run", "runs/%j.%r")
    lines = said.splitlines()
    assert status == 7  # another one would make mpirun end all ranks
    assert "program" in lines and "[3] recorded in 1807.3" in lines
    assert any(line.startswith("[3] gdbmem: not judged") for line in lines)
    assert "\x1b" not in said
    facts = json.loads((scratch / "runs" / "1807.3" / "run.json").read_text())
    assert facts["rank"]["rank"] == 3 and facts["rank"]["size"] == 4 and facts["status"] == 7


def test_the_other_ranks_run_the_program_as_if_gdbmem_were_not_there(scratch: Path) -> None:
    assert started(scratch, 1, "--on-ranks", "0,2-3", "--run", "new/r.%r") == (7, "program\n")
    assert list(scratch.iterdir()) == []


LAUNCHERS = {
    "Open MPI": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
    "MPICH": ["mpirun.mpich"],
}
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


@pytest.mark.thorough
@pytest.mark.needs("gdb", "gcc", "valgrind")
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_under_a_real_launcher_each_rank_has_what_it_allocates_and_all_are_judged_together(
    launcher: str, program: Callable[..., Path], scratch: Path
) -> None:
    words = LAUNCHERS[launcher]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{launcher} is not installed")
    (scratch / "leak.yaml").write_text(RECIPE.format(program=program("grows_by_rank", "-O0")))
    ranks = [*words, "-n", "3", GDBMEM, "launch", "--recipe", "leak.yaml", "--run", "runs/r.%r"]
    done = subprocess.run(
        ranks, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    judged = subprocess.run(
        [GDBMEM, "ranks", "runs", "--json"], cwd=scratch, capture_output=True, text=True, check=False
    )
    assert judged.returncode == 4, judged.stderr
    found = json.loads(judged.stdout)
    (row,) = found["rows"]
    assert found["launcher"] == launcher and found["missing"] == []
    assert (row["min_bytes"], row["mean_bytes"], row["max_bytes"]) == (512 << 10, 1024 << 10, 1536 << 10)
    assert (row["rank_of_max"], row["ranks"]) == (2, 3)
    assert [one["judged"] for one in found["judgements"]] == ["met", "met", "not_met"]
    fails = [*words, "-n", "2", GDBMEM, "monitor", "-q", "--run", "failed/r.%r", "--", "sh", "-c", "exit 3"]
    done = subprocess.run(
        fails, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
