"""`massif-snap` against valgrind's own `monitor detailed_snapshot`, in turn at one stop of one gdb."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.racing import Ratio

TITLE = "One snapshot at the prompt, wall time"
ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "tests" / "programs" / "many_paths.c"
ROUNDS = 50
BARS = (
    (100, 3),
    (2_000, 1.5),
    (float("inf"), 2.5),
)  # up to so many nodes: the largest ratio to the raw command

# Runs inside gdb, stopped where the heap is built. {file} and {result} are replaced.
IN_GDB = """
import json, time, gdb
def seconds(command):
    start = time.perf_counter()
    gdb.execute(command, to_string=True)
    return time.perf_counter() - start
ours, peer = [], []
for number in range(-2, {rounds}):
    rivals = [("massif-snap", ours), ("monitor detailed_snapshot {file}", peer)]
    for command, times in rivals if number % 2 else reversed(rivals):
        taken = seconds(command)
        if number >= 0:
            times.append(taken)
with open("{result}", "w") as stream:
    json.dump([ours, peer], stream)
"""


def race() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "many_paths"
        subprocess.run(["gcc", "-g", "-O0", str(SOURCE), "-o", str(program)], check=True)
        for paths in (4, 250, 12500):
            found, nodes = measure(folder, program, paths)
            most = next(ratio for limit, ratio in BARS if nodes <= limit)
            yield Ratio(f"`massif-snap` / `monitor detailed_snapshot`, {nodes:,} nodes", found, most)


def measure(folder: Path, program: Path, paths: int) -> tuple[list[float], int]:
    raw, result, script = folder / "raw.massif", folder / "result.json", folder / "race.py"
    script.write_text(IN_GDB.format(rounds=ROUNDS, file=raw, result=result))
    commands = ["break built", "continue", f"source {script}", "quit"]
    # massif's default depth of 30 is more than the paths of this program need.
    words = [word for command in commands for word in ("--ex", command)]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "gdbmem.cli.main",
            "launch",
            "--massif",
            str(program),
            *words,
            "--",
            str(paths),
        ],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )
    ours, peer = json.loads(result.read_text())
    result.unlink()
    nodes = sum(line.lstrip().startswith("n") for line in raw.read_text().splitlines())
    return [a / b for a, b in zip(ours, peer)], nodes
