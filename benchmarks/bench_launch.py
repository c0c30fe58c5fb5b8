"""`gdbmem launch` to the first breakpoint, against a shell script that does the same by hand."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.racing import Ratio, cpu_of, ratios

TITLE = "From the shell to the first breakpoint"
ROOT = Path(__file__).parents[1]
DECODER = ROOT / "examples" / "decoder"
LOCATION = "Decoder::load"
ROUNDS = 8


def race() -> Sequence[Ratio]:
    subprocess.run(["make", "-C", str(DECODER)], check=True, stdout=subprocess.DEVNULL)
    program = str(DECODER / "build" / "decoder")
    by_hand = [str(ROOT / "benchmarks" / "launch_by_hand.sh"), program, LOCATION]
    launch = [sys.executable, "-m", "gdbmem.cli.main", "launch", "--massif", program]
    launch += ["--ex", f"break {LOCATION}", "--ex", "continue", "--ex", "quit"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for command in (launch, by_hand):
            done = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True
            )
            if b" hit Breakpoint 1, " not in done.stdout:
                raise RuntimeError(f"{command} never came to its breakpoint")
        found = ratios(
            lambda: cpu_of(launch, folder=folder), lambda: cpu_of(by_hand, folder=folder), rounds=ROUNDS
        )
    return [Ratio("`gdbmem launch` to a breakpoint and `quit` / by hand", found, 1.5)]
