"""`source gdbmem` in a gdb that does nothing else, against that gdb alone."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.racing import Row, race_pair

TITLE = "Loading the extension"
LOADER = Path(__file__).parents[1] / "gdbinit" / "gdbmem"
BARE = ("gdb", "-nx", "-batch")


def race() -> Sequence[Row]:
    # A loader that gives up would be the fastest: check once that the commands exist.
    if not run(*BARE, "-ex", f"source {LOADER}", "-ex", "help massif-snap"):
        raise RuntimeError("massif-snap is not there after source gdbmem")

    def loaded() -> None:
        run(*BARE, "-ex", f"source {LOADER}")

    def bare() -> None:
        run(*BARE)

    pair = race_pair(loaded, bare, rounds=25, warmups=2)
    return [
        Row(
            "`source gdbmem` and leave / bare gdb",
            pair.ours_median,
            pair.peer_median,
            "adds at most half of a bare start",
            at_most=1.5,
            value=pair.median_ratio,
        )
    ]


def run(*command: str) -> str:
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return ended.stdout
