"""gdbmem heap beside chap, on the same cores: processor time and private memory.

chap is looked for in the folder HEAP_PROGRAMS (g++ -std=c++17 -O3 -DNDEBUG src/FileAnalyzer.cpp, with its line editor).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.racing import Ratio

TITLE = "heap: cores beside chap"
_SOURCES = Path(__file__).with_name("heaps")
_GDBMEM = (sys.executable, "-m", "gdbmem.cli.main", "heap", "--json", "--core")
_ANONYMOUS = re.compile(r"^RssAnon:\s*(\d+)", re.M)


class Shape(NamedTuple):
    """A heap, how often its core is read, and the most that gdbmem may take of chap's time and memory."""

    name: str
    source: str
    words: Sequence[str]
    rounds: int
    leaks: float
    both: float
    memory: tuple[float, float]  # of leaks, and of both


_SHAPES = (
    Shape("owners, 10^6 blocks", "owners", ["1000000"], 9, 0.45, 0.75, (0, 0)),
    Shape("owners, 10^7 blocks", "owners", ["10000000"], 1, 0.35, 0.6, (0.85, 1.1)),
    Shape("a std::list of 10^7", "deep", ["10000000", "list"], 1, 1, 2, (0, 0)),
    Shape("a chain of 10^7", "deep", ["10000000", "chain"], 1, 1, 2, (0, 0)),
)


class Cost(NamedTuple):
    seconds: float
    kib: int  # private memory at the peak


def race() -> Iterator[Ratio]:
    chap = Path(os.environ.get("HEAP_PROGRAMS", "/nonexistent")) / "chap"
    if not chap.exists():
        print("bench: chap is missing (HEAP_PROGRAMS)", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        for shape in _SHAPES:
            core = _core_of(shape, Path(name))
            costs = [_costs(chap, core) for _ in range(shape.rounds)]
            core.unlink()
            yield from rows(shape, costs)


def rows(shape: Shape, costs: Sequence[tuple[Cost, Cost, Cost]]) -> Iterator[Ratio]:
    """Yield the rows of a *shape*, by the costs of chap, of the leaks, and of leaks with retained sizes."""
    for place, what in ((1, "leaks"), (2, "leaks and retained")):
        seconds = [cost[place].seconds / cost[0].seconds for cost in costs]
        memory = [cost[place].kib / cost[0].kib for cost in costs]
        yield Ratio(f"{shape.name}: {what} / chap's leaks", seconds, (shape.leaks, shape.both)[place - 1])
        yield Ratio(f"{shape.name}: {what}, private memory", memory, shape.memory[place - 1] or None)


def _core_of(shape: Shape, folder: Path) -> Path:
    program = folder / shape.source
    subprocess.run(["g++", "-O1", "-o", program, _SOURCES / f"{shape.source}.cpp"], check=True)
    pipe = subprocess.PIPE
    with subprocess.Popen([program, *shape.words], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        command = ["gcore", "-o", str(folder / "core"), str(process.pid)]
        subprocess.run(command, check=True, capture_output=True)
        process.kill()
    return folder / f"core.{process.pid}"


def _costs(chap: Path, core: Path) -> tuple[Cost, Cost, Cost]:
    leaks = _cost([*_GDBMEM, str(core), "--leaks"])
    return _cost([str(chap), str(core)], b"count leaked\nquit\n"), leaks, _cost([*_GDBMEM, str(core)])


def _cost(command: Sequence[str], typed: bytes = b"") -> Cost:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        process.stdin.write(typed)
        process.stdin.close()
        most = 0
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                return Cost(used.ru_utime + used.ru_stime, most)
            found = _ANONYMOUS.search(Path(f"/proc/{process.pid}/status").read_text())
            most = max(most, int(found[1]) if found else 0)
            time.sleep(0.005)
