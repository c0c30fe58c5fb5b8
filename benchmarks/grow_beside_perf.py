"""`gdbmem grow -- PROGRAM` beside `perf record` of every page fault: what each costs, and what it loses."""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.racing import Row

_PAIRS = 10


def beside_perf(storm: Path, folder: Path) -> Iterator[Row]:
    """Yield the ratios of the CPU times of a storm of allocations: the program's own, and those of the tools."""
    words = [str(storm), "allocate", "60"]
    has_perf = shutil.which("perf") is not None
    runs = [_run(words, folder, has_perf=has_perf, turn=turn) for turn in range(_PAIRS)]
    lost = statistics.median(one["lost"] for one in runs)
    yield _ratio(
        "CPU time of a started storm, under `gdbmem grow` / alone",
        runs,
        "recorded",
        "alone",
        1.10,
        "at most 1.10",
    )
    name = f"samples of it that were lost ({runs[0]['faults']:,.0f} faults)"
    yield Row(name, lost, 0.0, f"at most 10 % ({lost:.1%})", 0.10, value=lost)
    if not has_perf:
        print("bench: perf is missing", file=sys.stderr)
        return
    yield _ratio(
        "CPU time of it, under `perf record` of every fault / alone", runs, "beside", "alone", None, ""
    )
    yield _ratio(
        "CPU time of `gdbmem grow` / `perf record -c 1 -g` and `perf script`",
        runs,
        "ours",
        "peer",
        0.5,
        "at most 0.5",
    )


def _ratio(
    name: str, runs: Sequence[Mapping[str, float]], ours: str, peer: str, at_most: float | None, bar: str
) -> Row:
    ratios = [one[ours] / one[peer] for one in runs]
    middle = statistics.median(ratios)
    spread = f"{bar} ({min(ratios):.2f} to {max(ratios):.2f}, {len(runs)} pairs)"
    first, second = (statistics.median(one[key] for one in runs) for key in (ours, peer))
    return Row(name, first, second, spread, at_most, value=middle)


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
        found["faults"] = totals["faults"]
        found["lost"] = totals["lost_samples"] / (totals["lost_samples"] + totals["samples"])

    def perf() -> None:
        record = ["perf", "record", "-q", "-e", "page-faults", "-c", "1", "-g", "-o", "perf.data", "--"]
        found["beside"], recording = _cpu([*record, *words], folder)
        found["peer"] = recording + _cpu(["perf", "script", "-i", "perf.data"], folder)[1]

    actions = [grow, perf] if has_perf else [grow]
    for action in actions if turn % 2 else reversed(actions):
        action()
    found["alone"] = _cpu(words, folder)[0]
    return found


def _cpu(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Run *command*; return the CPU seconds that the program says it took, and those of all processes beside it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, input="\n", capture_output=True, text=True, check=True, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = done.stdout.splitlines()[:2]
    own = float(lines[1]) if lines[:1] == ["ready"] else 0.0
    return own, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - own
