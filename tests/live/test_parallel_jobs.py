"""gdbmem between mpirun and the program: a launcher is stood for by the variables and the terminal that it gives."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

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
