"""Run the races and print one table of ratios; scripts/bench calls this."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.racing import Row

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"


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
    results = [(name, *run(name)) for name in args.races or available]
    report = "\n".join(table(title, rows) for _, title, rows in results)
    print(report)
    if args.races:
        print(
            f"bench: {RESULTS.name} keeps the results of a whole run, so it was left alone", file=sys.stderr
        )
    else:
        RESULTS.write_text(f"{heading()}\n{report}", encoding="utf-8")
        print(f"bench: written to {RESULTS}", file=sys.stderr)
    missed = [row.name for _, _, rows in results for row in rows if row.met is False]
    if missed:
        print(f"bench: not met: {'; '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


def run(name: str) -> tuple[str, Sequence[Row]]:
    module = importlib.import_module(f"benchmarks.bench_{name}")
    print(f"bench: {name}: {module.TITLE} …", file=sys.stderr, flush=True)
    start = time.monotonic()
    rows: Sequence[Row] = module.race()
    print(f"bench: {name} took {time.monotonic() - start:.0f} s", file=sys.stderr)
    return module.TITLE, rows


def table(title: str, rows: Sequence[Row]) -> str:
    lines = [
        f"## {title}",
        "",
        "| race | gdbmem | peer | ratio | bar | met |",
        "|---|---:|---:|---:|---|---|",
    ]
    for row in rows:
        met = {None: "", True: "yes", False: "**no**"}[row.met]
        ours, peer = seconds(row.ours_seconds), seconds(row.peer_seconds)
        lines.append(f"| {row.name} | {ours} | {peer} | {row.ratio:.2f} | {row.bar} | {met} |")
    return "\n".join(lines) + "\n"


def seconds(value: float) -> str:
    return f"{value * 1000:.2f} ms" if value < 1 else f"{value:.2f} s"


def heading() -> str:
    """Say what was raced on what: ratios travel between machines, seconds don't."""
    cpus = len(os.sched_getaffinity(0))
    machine = f"{platform.machine()}, {cpus} processors, Python {platform.python_version()}"
    tools = f"{first_line('gdb', '--version')}; {first_line('valgrind', '--version')}"
    return (
        "# Races\n\n"
        "Written by `scripts/bench`. Each figure is a median; gdbmem and its peer took turns in the same run.\n"
        "A ratio is gdbmem's time divided by the peer's: below 1 is faster.\n\n"
        f"{time.strftime('%Y-%m-%d')}; {machine}; {tools}\n"
    )


def first_line(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
