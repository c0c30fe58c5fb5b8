"""Changes real files at random and has their readers read them; scripts/fuzz calls this."""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.mutate import mutate
from tests.fuzz.readers import READERS, Reader
from tests.fuzz.running import Finding, limits, run, try_one
from tests.reliability import keep
from tests.zoo.table import versions

_INPUTS = Path("/tmp/gdbmem-fuzz")  # what found something is kept there


@dataclass
class Total:
    tried: int = 0
    seconds: float = 0
    findings: dict[str, Finding] = field(default_factory=dict)


def main() -> int:
    args = _arguments()
    if args.guided:
        return _guided(next(reader for reader in READERS if reader.name == args.guided), args)
    wanted = [
        reader for reader in READERS if not args.reader or any(text in reader.name for text in args.reader)
    ]
    each = max(1, args.executions // len(wanted))
    begun = time.monotonic()
    totals = {}
    with ProcessPoolExecutor(args.jobs) as pool:
        futures = {
            reader.name: pool.submit(_one, reader.name, each, args.seed, args.seconds) for reader in wanted
        }
        for name, future in futures.items():
            totals[name] = total = future.result()
            print(f"{name:20} {total.tried:10,} in {total.seconds:6.1f} s", flush=True)
            for finding in total.findings.values():
                print(
                    f"    {finding.what}: {finding.detail.strip()[:300]}\\n    {_kept(finding)}", flush=True
                )
    lines = list(_page(totals, args.seed, time.monotonic() - begun))
    print(lines[-3])
    if args.keep:
        keep("fuzz", lines)
    return 1 if any(total.findings for total in totals.values()) else 0


def _one(name: str, count: int, seed: int, seconds: float) -> Total:
    (reader,) = (reader for reader in READERS if reader.name == name)
    begun = time.process_time()
    tried, findings = run(reader, count, seed, seconds)
    return Total(tried, time.process_time() - begun, findings)


def _kept(finding: Finding) -> Path:
    _INPUTS.mkdir(exist_ok=True)
    path = (
        _INPUTS
        / f"{finding.reader.replace('/', '_').replace(' ', '-')}-{hashlib.sha256(finding.data).hexdigest()[:12]}"
    )
    path.write_bytes(finding.data)
    return path


def _page(totals: dict[str, Total], seed: int, seconds: float) -> Iterator[str]:
    """Yield the lines of docs/reliability.md."""
    yield "| reader | executions | processor time | findings |"
    yield "|---|---:|---:|---:|"
    for name, total in totals.items():
        yield f"| {name} | {total.tried:,} | {total.seconds:.0f} s | {len(total.findings)} |"
    yield ""
    count = sum(total.tried for total in totals.values())
    found = sum(len(total.findings) for total in totals.values())
    yield f"{count:,} executions by structure, seed {seed}, {found} findings; {seconds / 60:.0f} min."
    yield ""
    yield f"{datetime.date.today()}; {versions()}; {os.cpu_count()} processors"


def _guided(reader: Reader, args: argparse.Namespace) -> int:
    """Have atheris choose what to change by the code that it reaches; it ends this process."""
    import random

    try:
        import atheris
    except ImportError:
        print(
            "fuzz: atheris is not installed: .venv/bin/pip install atheris (it comes for some Pythons only)"
        )
        return 2
    examples, found = list(reader.examples()), set()
    folder = _INPUTS / "corpus" / reader.name.replace("/", "_").replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    for example in examples:
        (folder / hashlib.sha256(example).hexdigest()).write_bytes(example)

    def one(data: bytes) -> None:
        finding = try_one(reader, data)
        if finding is not None and finding.what not in found:
            found.add(finding.what)
            print(f"    {finding.what}: {finding.detail.strip()[:300]}\\n    {_kept(finding)}", flush=True)

    def change(data: bytes, most: int, seed: int) -> bytes:
        return mutate(bytes(data), random.Random(seed), examples)[:most]

    atheris.instrument_all()
    words: Sequence[str] = [
        sys.argv[0],
        str(folder),
        f"-runs={args.executions}",
        "-max_len=131072",
        f"-seed={args.seed}",
    ]
    with limits():
        atheris.Setup(words, one, custom_mutator=change)
        atheris.Fuzz()
    return 0


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
    parser.add_argument("--guided", metavar="READER", help="by coverage, with atheris; one reader")
    parser.add_argument("--keep", action="store_true", help="write the result into docs/reliability.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
