"""`gdbmem launch` to the first breakpoint, against a shell script that does the same by hand."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.racing import Pair, Row

TITLE = "From the shell to the first breakpoint"
ROOT = Path(__file__).parents[1]
DECODER = ROOT / "examples" / "decoder"
LOCATION = "Decoder::load"
ROUNDS = 15


def race() -> Sequence[Row]:
    subprocess.run(["make", "-C", str(DECODER)], check=True, stdout=subprocess.DEVNULL)
    program = str(DECODER / "build" / "decoder")
    by_hand = [str(ROOT / "benchmarks" / "launch_by_hand.sh"), program, LOCATION]
    launch = [sys.executable, "-m", "gdbmem.cli.main", "launch", "--massif", program]
    launch += ["--ex", f"break {LOCATION}", "--ex", "continue", "--ex", "quit"]
    ours: list[float] = []
    peer: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(-1, ROUNDS):  # the first round warms up
            rivals = [(launch, ours), (by_hand, peer)]
            for command, seconds in rivals if number % 2 else reversed(rivals):
                taken = seconds_to_breakpoint(command, folder)
                if number >= 0:
                    seconds.append(taken)
    pair = Pair(ours, peer)
    return [
        Row(
            "`gdbmem launch` / by hand",
            pair.ours_median,
            pair.peer_median,
            f"at most 0.3 s more ({pair.median_difference:+.2f} s)",
            at_most=0.3,
            value=pair.median_difference,
        )
    ]


def seconds_to_breakpoint(command: Sequence[str], folder: str) -> float:
    """Return the time until the user would read that the breakpoint is hit; the end isn't timed."""
    start = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if b" hit Breakpoint 1, " in line:
                taken = time.perf_counter() - start
                child.stdout.read()
                return taken
    raise RuntimeError(f"{command} never came to its breakpoint")
