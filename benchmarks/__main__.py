"""Run the races and print one table of ratios; scripts/bench calls this."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.racing import Row

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"
HEADING = (
    "# Races\n\n"
    "Written by `scripts/bench`. Each figure is a median; gdbmem and its peer took turns in the same run.\n"
    "A ratio is gdbmem's time divided by the peer's: below 1 is faster."
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
    results = [(name, *run(name)) for name in args.races or available]
    tables = {title: table(title, rows) for _, title, rows in results}
    print("\n".join(tables.values()))
    keep(tables)
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
        has_peer = row.peer_seconds > 0  # else the bar is for ours alone
        peer, ratio = (amount(row.peer_seconds, row.unit), f"{row.ratio:.2f}") if has_peer else ("", "")
        ours = amount(row.ours_seconds, row.unit)
        lines.append(f"| {row.name} | {ours} | {peer} | {ratio} | {row.bar} | {met} |")
    return "\n".join(lines) + "\n"


def keep(tables: Mapping[str, str]) -> None:
    """Write *tables* into RESULTS.md; a race that was not run now keeps its previous table."""
    old = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    sections = {part.split("\n", 1)[0]: f"## {part}" for part in old.split("\n## ")[1:]}
    sections.update({title: f"{text}\n{circumstances()}\n" for title, text in tables.items()})
    parts = (sections[title].rstrip("\n") for title in sorted(sections))
    RESULTS.write_text("\n\n".join([HEADING, *parts]) + "\n", encoding="utf-8")


def amount(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:.2f} {unit}"
    return f"{value * 1000:.2f} ms" if value < 1 else f"{value:.2f} s"


def circumstances() -> str:
    """Return date, machine and tools: ratios can be compared between machines, seconds can't."""
    cpus = len(os.sched_getaffinity(0))
    machine = f"{platform.machine()}, {cpus} processors, Python {platform.python_version()}"
    tools = f"{first_line('gdb', '--version')}; {first_line('valgrind', '--version')}"
    return f"{time.strftime('%Y-%m-%d')}; {machine}; {tools}"


def first_line(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
