"""Time to the prompt after Ctrl-C, in each command that runs the program, for each kind of target."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.racing import Row
from tests.live.pressing import KINDS, LAUNCHES, Kind, press_in_each

TITLE = "Ctrl-C: from the key to the prompt (the longest of three times in each command)"
SOURCE = Path(__file__).parents[1] / "tests" / "programs" / "takes_sigint.c"
ROUNDS = 3


def race() -> Sequence[Row]:
    with tempfile.TemporaryDirectory(prefix="gdbmem-") as name:
        folder = Path(name)
        program = folder / SOURCE.stem
        subprocess.run(["gcc", "-g", "-O0", "-pthread", "-o", program, SOURCE], check=True)
        return [longest(kind, program, folder) for kind in (*KINDS, *LAUNCHES)]


def longest(kind: Kind, program: Path, folder: Path) -> Row:
    """Return the row of *kind*; raises where the program was changed or killed, or took a signal of ours."""
    rounds = [press_in_each(kind, program, folder) for _ in range(ROUNDS)]
    for pressed in rounds:
        if pressed.changes or (pressed.signals_taken and kind in KINDS):
            raise RuntimeError(f"{kind}: {pressed.signals_taken} signals taken; {pressed.changes}")
    each = [(seconds, command) for pressed in rounds for command, seconds in pressed.seconds.items()]
    seconds, command = max(each)
    most = 2.0 if kind.host.endswith("massif") else 1.0
    name = f"{kind}: {len(kind.commands)} commands, the longest in `{command}`"
    return Row(name, seconds, 0, f"at most {most:.0f} s", at_most=most, value=seconds)
