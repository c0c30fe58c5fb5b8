"""`gdbmem grow -- PROGRAM` beside `perf record` of every page fault: what each costs, and what it loses.

What a storm of `allocate 60` takes more, by experiments with perf_event_open alone (Linux 6.18, AMD EPYC, 10 to 20
pairs each, ± 1 %; 2.3 µs a fault without any):

| opened for the program, inherited, one a processor | CPU time / bare |
|---|---:|
| mappings, names and births only | 1.00 |
| MINOR or ANY opened, and never enabled: the kernel calls perf for every fault of the machine | 1.01 to 1.02 |
| MINOR counts | 1.035 |
| MINOR and ANY count | 1.065 |
| MINOR takes a small sample of 101, ANY counts | 1.085 |
| MINOR takes a whole sample of 401 (16 KiB of stack; 1 KiB costs the same) | 1.04 |
| MINOR takes a small sample of each fault (0.5 µs, 0.15 its time, 0.08 its page size) | 1.27 |

So no recording of which the first 7,000 faults are sampled one by one costs less than 1.06.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.racing import Ratio

_PAIRS = 20


def beside_perf(storm: Path, folder: Path) -> Iterator[Ratio]:
    """Yield the ratios of the CPU times of a storm of allocations: the program's own, and those of the tools."""
    words = [str(storm), "allocate", "60"]
    has_perf = shutil.which("perf") is not None
    runs = [_run(words, folder, has_perf=has_perf, turn=turn) for turn in range(-1, _PAIRS)][1:]

    def of(ours: str, peer: str) -> list[float]:
        return [one[ours] / one[peer] for one in runs]

    yield Ratio(
        "the program's own: a storm of `allocate 60`, under `grow --` / bare", of("recorded", "alone"), 1.10
    )
    yield Ratio("samples of it that `grow` lost / all", [one["lost"] for one in runs], 0.10)
    if not has_perf:
        print("bench: perf is missing", file=sys.stderr)
        return
    yield Ratio("the same under `perf record -e page-faults -c 1 -g` / bare", of("beside", "alone"))
    yield Ratio(
        "`grow` itself / `perf record -e page-faults -c 1 -g` and `perf script`", of("ours", "peer"), 0.5
    )


def _run(words: Sequence[str], folder: Path, *, has_perf: bool, turn: int) -> Mapping[str, float]:
    """Return CPU seconds of the program alone, and of it and of each tool together; tools take turns."""
    found: dict[str, float] = {}

    def grow() -> None:
        ours = [
            sys.executable,
            "-m",
            "gdbmem.cli.main",
            "grow",
            "--json",
            "-o",
            "grown.json",
            "--force",
            "--",
        ]
        found["recorded"], found["ours"] = _cpu([*ours, *words], folder)
        totals = json.loads((folder / "grown.json").read_text())["totals"]
        found["lost"] = totals["lost_samples"] / (totals["lost_samples"] + totals["samples"])

    def perf() -> None:
        record = ["perf", "record", "-q", "-e", "page-faults", "-c", "1", "-g", "-o", "perf.data", "--"]
        found["beside"], recording = _cpu([*record, *words], folder)
        found["peer"] = recording + _cpu(["perf", "script", "-i", "perf.data"], folder)[1]

    def alone() -> None:
        found["alone"] = _cpu(words, folder)[0]

    actions = [grow, alone, perf] if has_perf else [grow, alone]
    for action in actions if turn % 2 else reversed(actions):
        action()
    return found


def _cpu(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Run *command*; return the CPU seconds that the program says it took, and those of all processes beside it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, input="\n", capture_output=True, text=True, check=True, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = done.stdout.splitlines()[:2]
    own = float(lines[1]) if lines[:1] == ["ready"] else 0.0
    return own, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - own
