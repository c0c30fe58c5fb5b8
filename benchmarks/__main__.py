"""Run the races and keep each one's table of ratios; scripts/bench calls this."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.racing import Ratio

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"
HEADING = (
    "# Races\n\n"
    "Written by `scripts/bench`. A ratio is what gdbmem took divided by what its peer took: below 1 is less. The two\n"
    "took turns in pairs of runs; shown are the median ratio of the pairs and its 95 % interval by ranks (with fewer\n"
    "than six pairs: the smallest and the largest). What they took is processor time, of all processes that they\n"
    "started, where a row does not say memory, wall time or something else. A bar is met if the whole interval is\n"
    "within it, and missed if none of it is; between these it is unclear."
)


def main() -> int:
    available = sorted(path.stem[len("bench_") :] for path in FOLDER.glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument(
        "races", nargs="*", metavar="RACE", help=f"one of: {', '.join(available)} (default: all of them)"
    )
    args = parser.parse_args()
    unknown = sorted(set(args.races) - set(available))
    if unknown:
        parser.error(f"no race '{unknown[0]}'; there are: {', '.join(available)}")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background, a shell lets us ignore it
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # with it each start compiles anew what a user has compiled
    missed = [row for name in args.races or available for row in run(name)]
    if missed:
        print(f"bench: not met: {'; '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


def run(name: str) -> Sequence[str]:
    """Run the race *name*, keep its table; return the rows whose bar is missed."""
    module = importlib.import_module(f"benchmarks.bench_{name}")
    print(f"bench: {name}: {module.TITLE} …", file=sys.stderr, flush=True)
    start, load = time.monotonic(), os.getloadavg()[0]
    rows: list[Ratio] = []
    for row in module.race():
        print(row.line(), file=sys.stderr, flush=True)
        rows.append(row)
    loads = sorted((load, os.getloadavg()[0]))
    print(f"bench: {name} took {time.monotonic() - start:.0f} s", file=sys.stderr)
    text = table(module.TITLE, rows)
    print(text)
    keep(module.TITLE, f"{text}\n{circumstances()}; load average {loads[0]:.1f} to {loads[1]:.1f}\n")
    return [row.name for row in rows if row.met is False]


def table(title: str, rows: Sequence[Ratio]) -> str:
    lines = [f"## {title}", "", "| race | ratio (interval) | bar | met |", "|---|---:|---|---|"]
    return "\n".join([*lines, *(row.line() for row in rows)]) + "\n"


def keep(title: str, text: str) -> None:
    """Write the table *text* into RESULTS.md; the other races keep theirs."""
    old = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    sections = {part.split("\n", 1)[0]: f"## {part}" for part in old.split("\n## ")[1:]}
    sections[title] = text
    parts = (sections[title].rstrip("\n") for title in sorted(sections))
    RESULTS.write_text("\n\n".join([HEADING, *parts]) + "\n", encoding="utf-8")


def circumstances() -> str:
    """Return date, machine and tools."""
    cpus = len(os.sched_getaffinity(0))
    machine = f"{platform.machine()}, {cpus} processors, Python {platform.python_version()}"
    tools = f"{first_line('gdb', '--version')}; {first_line('valgrind', '--version')}"
    return f"{time.strftime('%Y-%m-%d')}; {machine}; {tools}"


def first_line(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
