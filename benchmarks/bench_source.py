"""`source gdbmem` in a gdb that does nothing else, against that gdb alone."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.racing import Ratio, cpu_of, ratios

TITLE = "Loading the extension"
LOADER = Path(__file__).parents[1] / "gdbinit" / "gdbmem"
BARE = ("gdb", "-nx", "-batch")


def race() -> Sequence[Ratio]:
    # A loader that gives up would be the fastest: check once that the commands exist.
    if not run(*BARE, "-ex", f"source {LOADER}", "-ex", "help massif-snap"):
        raise RuntimeError("massif-snap is not there after source gdbmem")

    found = ratios(
        lambda: cpu_of((*BARE, "-ex", f"source {LOADER}")), lambda: cpu_of(BARE), rounds=25, warmups=2
    )
    return [Ratio("`source gdbmem` and leave / bare gdb", found, 1.5)]


def run(*command: str) -> str:
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return ended.stdout
