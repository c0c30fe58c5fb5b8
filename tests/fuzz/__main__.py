"""Changes real files at random and has their readers read them; scripts/fuzz calls this."""

from __future__ import annotations

import argparse
import datetime
import hashlib
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.fuzz.guided import is_possible, run_guided
from tests.fuzz.readers import READERS, remove_scratch
from tests.fuzz.running import Finding, run
from tests.reliability import keep
from tests.zoo.table import versions

_INPUTS = Path("/tmp/gdbmem-fuzz")  # what found something is kept there


@dataclass
class Total:
    tried: int = 0
    seconds: float = 0
    findings: dict[str, Finding] = field(default_factory=dict)
    reached: str = ""  # of the code, in words; known of a guided run only


def main() -> int:
    args = _arguments()
    if args.guided and not is_possible():
        print("fuzz: atheris can't be imported, which --guided needs; it has packages for some Pythons only")
        return 2
    wanted = [
        reader.name
        for reader in READERS
        if not args.reader or any(text in reader.name for text in args.reader)
    ]
    each = max(1, args.executions // len(wanted))
    begun = time.monotonic()
    totals = {}
    one = partial(_guided if args.guided else _one, count=each, seed=args.seed, seconds=args.seconds)
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("fork")) as pool:
        for name, total in zip(wanted, pool.map(one, wanted)):
            totals[name] = total
            print(f"{name:20} {total.tried:10,} in {total.seconds:6.1f} s{total.reached}", flush=True)
            for finding in total.findings.values():
                print(f"    {finding.what}: {finding.detail.strip()[:300]}\n    {_kept(finding)}", flush=True)
    lines = list(_page(totals, args, time.monotonic() - begun))
    print(lines[-3])
    if args.keep:
        keep("guided" if args.guided else "fuzz", lines)
    return 1 if any(total.findings for total in totals.values()) else 0


def _one(name: str, count: int, seed: int, seconds: float) -> Total:
    (reader,) = (reader for reader in READERS if reader.name == name)
    begun = time.process_time()
    tried, findings = run(reader, count, seed, seconds)
    remove_scratch()
    return Total(tried, time.process_time() - begun, findings)


def _guided(name: str, count: int, seed: int, seconds: float) -> Total:
    begun = time.monotonic()
    found = run_guided(name, count, seed, seconds, _INPUTS / "corpus" / _file_name(name))
    reached = f", {found.reached_first:,} branches reached by the examples, {found.reached:,} in the end"
    remove_scratch()
    return Total(found.tried, time.monotonic() - begun, found.findings, reached)


def _kept(finding: Finding) -> Path:
    _INPUTS.mkdir(exist_ok=True)
    path = _INPUTS / f"{_file_name(finding.reader)}-{hashlib.sha256(finding.data).hexdigest()[:12]}"
    path.write_bytes(finding.data)
    return path


def _file_name(reader: str) -> str:
    return reader.replace("/", "_").replace(" ", "-")


def _page(totals: dict[str, Total], args: argparse.Namespace, seconds: float) -> Iterator[str]:
    """Yield the lines of docs/reliability.md."""
    yield "| reader | executions | processor time | findings |"
    yield "|---|---:|---:|---:|"
    for name, total in totals.items():
        yield f"| {name} | {total.tried:,} | {total.seconds:.0f} s | {len(total.findings)} |"
    yield ""
    count = sum(total.tried for total in totals.values())
    found = sum(len(total.findings) for total in totals.values())
    how = "guided by coverage" if args.guided else "by structure"
    yield f"{count:,} executions {how}, seed {args.seed}, {found} findings; {seconds / 60:.0f} min."
    yield ""
    yield f"{datetime.date.today()}; {versions()}; {os.cpu_count()} processors"


def _arguments() -> Any:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument(
        "executions", nargs="?", type=int, default=20_000, metavar="N", help="in all (default: 20000)"
    )
    parser.add_argument(
        "--reader", action="append", metavar="TEXT", help="only readers with TEXT in their name"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="(default: 1)")
    parser.add_argument("--seconds", type=float, default=1e9, metavar="N", help="for each reader at most")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="readers at once (default: 1)")
    parser.add_argument("--guided", action="store_true", help="choose changes by coverage, with atheris")
    parser.add_argument("--keep", action="store_true", help="write the result into docs/reliability.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
