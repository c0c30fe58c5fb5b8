"""Ctrl-C in each command that runs the program, beside Ctrl-C in gdb's own `next`, for several kinds of target."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.racing import Ratio, ratios
from tests.live.pressing import ATTACHED, LAUNCHED, Kind, press_in_each

TITLE = "Ctrl-C: from the key to the prompt, wall time; the longest of gdbmem's commands"
SOURCE = Path(__file__).parents[1] / "tests" / "programs" / "takes_sigint.c"
ROUNDS = 4
OWN = Kind(ATTACHED, "default")
KINDS = (OWN, *(Kind(ATTACHED, way) for way in ("blocked", "sigwait")), Kind(f"{LAUNCHED} none", "blocked"))

_MOST = 170  # the prompt is back within a second where gdb's own command takes 6 ms


def race() -> Sequence[Ratio]:
    with tempfile.TemporaryDirectory(prefix="gdbmem-") as name:
        folder = Path(name)
        program = folder / SOURCE.stem
        subprocess.run(["gcc", "-g", "-O0", "-pthread", "-o", program, SOURCE], check=True)
        return [against_next(kind, program, folder) for kind in KINDS]


def against_next(kind: Kind, program: Path, folder: Path) -> Ratio:
    """Return the row of *kind*; raises where the program was changed or killed, or took a signal of ours."""

    def ours() -> float:
        pressed = press_in_each(kind, program, folder)
        if pressed.changes or (pressed.signals_taken and kind.host == ATTACHED):
            raise RuntimeError(f"{kind}: {pressed.signals_taken} signals taken; {pressed.changes}")
        return max(pressed.seconds.values())

    def peer() -> float:
        pressed = press_in_each(OWN, program, folder, commands=["next 1000000"])
        return max(pressed.seconds.values())

    found = ratios(ours, peer, rounds=ROUNDS, warmups=0)
    return Ratio(f"{kind}: the longest of {len(kind.commands)} commands / gdb's own `next`", found, _MOST)
