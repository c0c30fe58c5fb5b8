"""The CPU time of a minute of monitoring at 5 Hz, interpreter and imports included, beside mprof and psrecord."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from benchmarks.peers import peer
from benchmarks.racing import Ratio, cpu_of, cpu_so_far

TITLE = "Cost of a minute of monitoring, including start and report"
_ROUNDS = 3
_SECONDS = 60.0
_BEFORE_ITS_END = 0.3  # seconds: when the recording is almost over, and the report has not begun
# The watched program: it holds 50 MB, and prints its own CPU time at its end.
_PROGRAM = """\
import resource, sys, time
held = bytearray(50_000_000)
for at in range(0, len(held), 4096):
    held[at] = 1
time.sleep(float(sys.argv[1]))
used = resource.getrusage(resource.RUSAGE_SELF)
open(sys.argv[2], "w").write(str(used.ru_utime + used.ru_stime))
"""


@dataclass(frozen=True)
class _Cost:
    """The CPU seconds of one tool, its program's left out."""

    recording: float  # until just before the program's end
    whole: float


def race() -> Sequence[Ratio]:
    tools = dict(_tools())
    costs: dict[str, list[_Cost]] = {name: [] for name in tools}
    starts = []
    for _ in range(_ROUNDS):
        # At the same time, not in turns, so that other load affects all of them equally.
        for name, cost in zip(tools, _minute(list(tools.values()))):
            costs[name].append(cost)
        starts.append(statistics.median(cpu_of((sys.executable, "-c", "pass")) for _ in range(5)))
    return [
        *_rows("with PSS", costs["PSS"], "mprof", costs.get("mprof"), starts),
        *_rows("RSS only", costs["RSS"], "psrecord", costs.get("psrecord"), starts),
        # As psrecord does it; else each process that is started anywhere on the machine wakes a monitor up.
        *_rows("RSS of one process only", costs["alone"], "psrecord", costs.get("psrecord"), starts),
    ]


def _tools() -> Iterator[tuple[str, list[str]]]:
    """Yield each tool's name and its words before the program's; it runs in a separate folder."""
    monitor = [str(Path(sys.executable).with_name("gdbmem")), "monitor", "-q", "--run", "run"]
    yield "PSS", [*monitor, "--"]
    yield "RSS", [*monitor, "--pss-budget", "0", "--"]
    yield "alone", [*monitor, "--pss-budget", "0", "--no-children", "--"]
    if mprof := peer("mprof"):
        yield "mprof", [str(mprof), "run", "-C", "--backend", "psutil_pss", "-T", "0.2", "-o", "out"]
    if psrecord := peer("psrecord"):
        yield "psrecord", [str(psrecord), "--interval", "0.2", "--log", "out"]


def _minute(tools: Sequence[list[str]]) -> list[_Cost]:
    """Return the cost of each of *tools*, each of which watches its own program, all at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / str(number) for number in range(len(tools))]
        began = time.monotonic()
        children = [_start(tool, place) for tool, place in zip(tools, folders)]
        time.sleep(max(began + _SECONDS - _BEFORE_ITS_END - time.monotonic(), 0.0))
        recorded = [cpu_so_far(child.pid) for child in children]
        costs = []
        for child, place, recording in zip(children, folders, recorded):
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode:
                raise RuntimeError(f"{child.args!r} ended with {child.returncode}")
            own = float((place / "cpu").read_text())
            costs.append(_Cost(recording, used.ru_utime + used.ru_stime - own))
        return costs


def _start(tool: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir()
    (folder / "program.py").write_text(_PROGRAM)
    words = [sys.executable, "-I", "-S", "program.py", str(_SECONDS), "cpu"]
    program = [" ".join(words)] if "psrecord" in tool[0] else words
    return subprocess.Popen(
        [*tool, *program], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _rows(
    what: str, ours: Sequence[_Cost], name: str, theirs: Optional[Sequence[_Cost]], starts: Sequence[float]
) -> Iterator[Ratio]:
    if theirs is not None:
        found = [a.recording / b.whole for a, b in zip(ours, theirs)]
        yield Ratio(f"{what}, the recording, gdbmem / {name}", found, 1)
    found = [(cost.whole - cost.recording) / start for cost, start in zip(ours, starts)]
    yield Ratio(f"{what}, verdict and report / `python -c pass`", found, 27)
