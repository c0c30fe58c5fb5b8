"""Files that people post, each beside the least that reads it: CPU time of whole processes."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.bench_formats import GDBMEM, PARSING
from benchmarks.profile_files import heaptrack_file
from benchmarks.racing import Ratio, cpu_of, peak_mib, ratios

TITLE = "Files that people post"
RECORDS, FRAMES, CALLS = 8_000, 25, 20_000
OBJECTS, TRACES = 500_000, 50_000
ROUNDS = 6
_MALLOC = "__interceptor_malloc ../../../../src/libsanitizer/asan/asan_malloc_linux.cpp:69"
_MAIN = "__libc_start_call_main ../sysdeps/nptl/libc_start_call_main.h:58"

_HEAP = f"""\
const kept = globalThis.kept = [];
for (let n = 0; n < {OBJECTS}; n++) kept.push({{ number: n, name: `item ${{n}}`, next: kept[n >> 1] }});
require("v8").writeHeapSnapshot(process.argv[1]);
"""
_LOAD = "import json, sys; print(len(json.load(open(sys.argv[1]))))"
_LOOP = r"""
import re, sys
frame = re.compile(r"\s*#(\d+) 0x([0-9a-f]+) in (.+?) (\S+?)(?::(\d+))?(?::(\d+))?$")
print(sum(frame.match(line) is not None for line in open(sys.argv[1])))
"""


def race() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        yield from _heap_snapshot(here)
        yield _row(
            "LeakSanitizer's report of {}",
            _leaks(here),
            "a loop with a regular expression for each line",
            1.5,
            _LOOP,
        )
        yield from _heaptrack(here)


def _heap_snapshot(here: Path) -> Iterator[Ratio]:
    file = here / "node.heapsnapshot"
    if shutil.which("node") is None:
        print("bench: node is not here, so there is no .heapsnapshot", file=sys.stderr)
        return
    subprocess.run(("node", "-e", _HEAP, str(file)), check=True)
    yield _row(".heapsnapshot of {}", file, "`json.load`", 0.5, _LOAD)
    memory = peak_mib((*GDBMEM, "show", file)) * 2**20 / file.stat().st_size
    yield Ratio(f".heapsnapshot of {_megabytes(file)}: memory / the file's size", [memory], 2.5)


def _leaks(here: Path) -> Path:
    """Return a report of RECORDS stacks, as LeakSanitizer of gcc writes it, through CALLS different calls."""
    file = here / "leaks.txt"
    chosen = random.Random(1)
    calls = [
        f"0x{0x55D000000000 + n * 64:x} in app::call{n}(int, char const*) /src/app/part{n % 50}.cpp:{n % 900 + 1}"
        for n in range(CALLS)
    ]
    with file.open("w") as stream:
        stream.write(f"\n{'=' * 65}\n==4711==ERROR: LeakSanitizer: detected memory leaks\n\n")
        for record in range(RECORDS):
            stream.write(f"Direct leak of {record + 1} byte(s) in 1 object(s) allocated from:\n")
            stream.write(f"    #0 0x7f3c1e2b88d5 in {_MALLOC}\n")
            for number, call in enumerate(chosen.choices(calls, k=FRAMES), 1):
                stream.write(f"    #{number} {call}\n")
            stream.write(f"    #{FRAMES + 1} 0x7f3c1da461c9 in {_MAIN}\n\n")
        total = RECORDS * (RECORDS + 1) // 2
        stream.write(f"SUMMARY: AddressSanitizer: {total} byte(s) leaked in {RECORDS} allocation(s).\n")
    return file


def _heaptrack(here: Path) -> Iterator[Ratio]:
    if shutil.which("heaptrack") is None:
        print("bench: heaptrack is not here, so nothing races against it", file=sys.stderr)
        return
    script = here / "parsing.py"
    script.write_text(PARSING)
    small, more, most = (
        heaptrack_file([sys.executable, str(script), count], here, f"of{count}") for count in ("2", "3", "4")
    )
    sizes = f"{_megabytes(small)} and {_megabytes(more)}"
    ours, peer = (*GDBMEM, "diff", small, more), ("heaptrack_print", "-d", small, "-f", more)
    yield Ratio(
        f"heaptrack pair of Python parsing modules, {sizes} packed / `heaptrack_print -d`",
        _ratios(ours, peer),
        1.5,
    )
    for what, file, bar in (
        (f"{_traces(more):,} real traces", more, 2),
        (f"{_traces(most):,} real traces", most, 2),
        (f"{TRACES:,} chained traces", _chain(here), 5),
    ):
        yield Ratio(
            f"heaptrack, {what}, show / `heaptrack_print`",
            _ratios((*GDBMEM, "show", file), ("heaptrack_print", file)),
            bar,
        )


def _chain(here: Path) -> Path:
    lines = ["v 10400 3\nX ./p\nI 1000 10\ns 1 m\n"]
    lines += [
        f"i {n + 0x1000:x} 1 1\nt {n:x} {n - 1:x}\na 10 {n:x}\n+ {n - 1:x}\n" for n in range(1, TRACES + 1)
    ]
    file = here / "chain"
    file.write_text("".join(lines))
    return file


def _traces(file: Path) -> int:
    text = subprocess.run(("zstdcat", str(file)), capture_output=True, check=True).stdout
    return text.count(b"\nt ")


def _row(what: str, file: Path, peer: str, at_most: float, script: str) -> Ratio:
    """Return the cost of showing *file* beside that of a Python *script*, which *peer* describes."""
    found = _ratios((*GDBMEM, "show", file), (sys.executable, "-c", script, file))
    return Ratio(f"{what.format(_megabytes(file))}, show / {peer}", found, at_most)


def _ratios(ours: Sequence[object], peer: Sequence[object]) -> list[float]:
    return ratios(lambda: cpu_of(ours), lambda: cpu_of(peer), rounds=ROUNDS)


def _megabytes(file: Path) -> str:
    return f"{file.stat().st_size / 1e6:.1f} MB"
