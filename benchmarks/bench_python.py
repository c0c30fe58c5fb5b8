"""Python processes: objects, tracing, memory by line; beside guppy3, tracemalloc, memray, memory_profiler, scalene."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.peers import peer_python
from benchmarks.racing import Ratio, cpu_of, pairs

TITLE = "Python processes"
_ROUNDS = 4
_GDBMEM = [sys.executable, "-m", "gdbmem.cli.main", "python"]
_GROWING_SECONDS = 0.5

# Answers each line: "heap" counts its objects with guppy3, "snapshot" sums its traces. "busy" allocates all the time.
_TARGET = """
import os, sys, time, tracemalloc
rows = [(str(i), float(i)) for i in range(200_000)]
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
if "traced" in sys.argv:
    tracemalloc.start()
    traced = [(str(i), float(i)) for i in range(200_000)]
print("ready", flush=True)
kept = []
while "busy" in sys.argv:
    kept.append(bytes(10_000))
    time.sleep(0.001)
for line in sys.stdin:
    before, began, wall, count = resident(), time.process_time(), time.perf_counter(), 0
    if line == "heap\\n":
        from guppy import hpy
        count = sum(row.count for row in hpy().heap().bytype.partition.get_rows() if row.name == "float")
    else:
        tracemalloc.take_snapshot().statistics("lineno")
    print(time.process_time() - began, time.perf_counter() - wall, resident() - before, count, flush=True)
"""
# The first example of memory_profiler's README, and a loop.
_EXAMPLE = """
@profile
def my_func():
    a = [1] * (10 ** 6)
    b = [2] * (2 * 10 ** 7)
    del b
    return a

if __name__ == '__main__':
    my_func()
"""
_LOOP = """
@profile
def many(n):
    kept = []
    for i in range(n):
        kept.append(bytes(1000))
    return kept

if __name__ == '__main__':
    many(20_000)
"""


def race() -> Sequence[Ratio]:
    python = peer_python()
    if python is None:
        return []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*_objects(python), *_snapshots(python), *_tracing(python, folder), *_lines(python, folder)]


class _Target:
    """A program with 600,000 objects that answers lines."""

    def __init__(self, python: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [python, "-c", _TARGET, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ask(self, word: str) -> list[float]:
        """Return its CPU seconds, its wall seconds, its growth, and its count."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return [float(part) for part in self._line().split()]

    def resident(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def _target(python: Path, *words: str) -> Iterator[_Target]:
    target = _Target(python, *words)
    try:
        yield target
    finally:
        target.process.kill()
        target.process.communicate()


def _cpu(words: Sequence[str], folder: Path) -> float:
    return cpu_of(words, folder=folder, more=_environment())


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(__file__).parents[1])}


def _output(*words: str) -> tuple[float, str]:
    """Run *words*; return its CPU seconds and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, **_environment()}
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout + done.stderr


def _pause(text: str) -> float:
    """Return the seconds that the process was stopped, as gdbmem printed them."""
    found = re.search(r"(?:waited|stopped) for ([\d.,]+) (ms|s)\b", text)
    assert found is not None, text
    return float(found[1].replace(",", "")) / (1000 if found[2] == "ms" else 1)


def _objects(python: Path) -> Iterator[Ratio]:
    """Yield the pause of the program, the cost of the answer, and the growth of the program."""
    pauses, took, grown = [], [], []
    for _ in range(_ROUNDS):
        with _target(python) as target:
            before = target.resident()
            ours, text = _output(*_GDBMEM, "objects", str(target.process.pid))
            mine = target.resident() - before
            theirs, wall, growth, count = target.ask("heap")
            assert count >= 200_000, "guppy3 has not counted the same objects"
            pauses.append(_pause(text) / wall)
            took.append(ours / theirs)
            grown.append(mine / growth)
    what = "objects by type of a program with 600,000"
    yield Ratio(f"{what}: wall time for which the program stands still / guppy3", pauses)
    yield Ratio(f"{what} / guppy3", took)
    yield Ratio(f"{what}: memory that the program grows by / guppy3", grown)


def _snapshots(python: Path) -> Iterator[Ratio]:
    """Yield the cost of a snapshot of tracemalloc, from outside and by tracemalloc itself."""
    took = []
    for _ in range(_ROUNDS):
        with _target(python, "traced") as target:
            ours, _ = _output(*_GDBMEM, "traces", str(target.process.pid))
            took.append(ours / target.ask("snapshot")[0])
    yield Ratio("600,000 traces by line / tracemalloc's take_snapshot", took)


def _tracing(python: Path, folder: Path) -> Iterator[Ratio]:
    """Yield the cost of tracing a running program, and of listing the lines that grew meanwhile."""
    memray, file = str(python.with_name("memray")), folder / "attached.bin"

    def ours() -> tuple[float, float]:
        with _target(python, "busy") as target:
            pid = str(target.process.pid)
            start = _cpu([*_GDBMEM, "start", pid], folder)
            time.sleep(_GROWING_SECONDS)
            return start, _cpu([*_GDBMEM, "traces", pid], folder)

    def peer() -> tuple[float, float]:
        with _target(python, "busy") as target:
            pid = str(target.process.pid)
            start = _cpu([memray, "attach", "-f", "-o", str(file), "--method", "gdb", pid], folder)
            time.sleep(_GROWING_SECONDS)
            subprocess.run([memray, "detach", pid], check=True, capture_output=True)
            return start, _cpu([memray, "summary", str(file)], folder)

    found = pairs(ours, peer, rounds=_ROUNDS, warmups=0)
    yield Ratio("tracing a running program / `memray attach`, by gdb", [a[0] / b[0] for a, b in found])
    yield Ratio("listing the lines that grew / `memray summary`", [a[1] / b[1] for a, b in found])


def _lines(python: Path, folder: Path) -> Iterator[Ratio]:
    """Yield the cost of scripts with a table of memory by line."""
    # Both in the same environment, whose site-packages take part in each start.
    ours = [*_GDBMEM, "lines", "--python", str(python)]
    for name, source in (("its README's example", _EXAMPLE), ("a loop of 20,000 turns", _LOOP)):
        recorded, plain = folder / "recorded.py", folder / "plain.py"
        recorded.write_text(source)
        plain.write_text(source.replace("@profile", ""))
        words = [*ours, str(recorded)]
        profiler = [str(python), "-m", "memory_profiler", str(recorded)]
        scalene = [str(python.with_name("scalene")), "run", "-o", str(folder / "scalene.json"), str(plain)]
        took = [(_cpu(words, folder), _cpu(profiler, folder), _cpu(scalene, folder)) for _ in range(_ROUNDS)]
        yield Ratio(f"memory by line of {name} / memory_profiler", [a / b for a, b, _ in took], 1)
        yield Ratio(f"memory by line of {name} / scalene", [a / c for a, _, c in took])
