"""Python processes: objects, tracing, memory by line; beside guppy3, tracemalloc, memray, memory_profiler, scalene."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.peers import peer_python
from benchmarks.racing import Row

TITLE = "Python processes"
_ROUNDS = 5
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
    before, began, count = resident(), time.perf_counter(), 0
    if line == "heap\\n":
        from guppy import hpy
        count = sum(row.count for row in hpy().heap().bytype.partition.get_rows() if row.name == "float")
    else:
        tracemalloc.take_snapshot().statistics("lineno")
    print(time.perf_counter() - began, resident() - before, count, flush=True)
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


def race() -> Sequence[Row]:
    python = peer_python("memray==1.20.0", "guppy3==3.1.7", "memory_profiler==0.61.0", "scalene==2.4.0")
    if python is None:
        return []
    load = f"load average {os.getloadavg()[0]:.1f}"
    with tempfile.TemporaryDirectory() as name:
        rows = [
            *_objects(python),
            *_snapshots(python),
            *_tracing(python, Path(name)),
            *_lines(python, Path(name)),
        ]
    return [replace(row, name=f"{row.name} ({load})") for row in rows]


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
        """Return its seconds, its growth, and its count."""
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
    """Return the CPU seconds of a command, with what it starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, check=True, cwd=folder, capture_output=True, env=_environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


def _output(*words: str) -> str:
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=_environment())
    return done.stdout + done.stderr


def _pause(text: str) -> float:
    """Return the seconds that the process was stopped, as gdbmem printed them."""
    found = re.search(r"(?:waited|stopped) for ([\d.,]+) (ms|s)\b", text)
    assert found is not None, text
    return float(found[1].replace(",", "")) / (1000 if found[2] == "ms" else 1)


def _objects(python: Path) -> Iterator[Row]:
    """Yield the pause of the program, the time to the answer, and the growth of the program."""
    ours, pauses, grown, theirs, their_growth = [], [], [], [], []
    for _ in range(_ROUNDS):
        with _target(python) as target:
            before, began = target.resident(), time.perf_counter()
            text = _output(*_GDBMEM, "objects", str(target.process.pid))
            ours.append(time.perf_counter() - began)
            grown.append(target.resident() - before)
            pauses.append(_pause(text))
            seconds, growth, count = target.ask("heap")
            assert count >= 200_000, "guppy3 has not counted the same objects"
            theirs.append(seconds)
            their_growth.append(growth)
    what = "objects by type of a program with 600,000"
    yield Row(f"{what}: the program stands still / guppy3", *_medians(pauses, theirs))
    yield Row(f"{what}: until the answer / guppy3", *_medians(ours, theirs))
    mine, their_mib = (size / 2**20 for size in _medians(grown, their_growth))
    yield Row(f"{what}: the program grows / guppy3", mine, their_mib, unit="MiB")


def _snapshots(python: Path) -> Iterator[Row]:
    """Yield the cost of a snapshot of tracemalloc, from outside and by tracemalloc itself."""
    ours, theirs, growth = [], [], []
    for _ in range(_ROUNDS):
        with _target(python, "traced") as target:
            began = time.perf_counter()
            _output(*_GDBMEM, "traces", str(target.process.pid))
            ours.append(time.perf_counter() - began)
            seconds, grown, _ = target.ask("snapshot")
            theirs.append(seconds)
            growth.append(grown)
    grown_mib = statistics.median(growth) / 2**20
    peer = f"tracemalloc's take_snapshot, which grows the program by {grown_mib:.0f} MiB"
    yield Row(f"600,000 traces by line: until the answer / {peer}", *_medians(ours, theirs))


def _tracing(python: Path, folder: Path) -> Iterator[Row]:
    """Yield the cost of tracing a running program, and of listing the lines that grew meanwhile."""
    memray, file = str(python.with_name("memray")), folder / "attached.bin"
    starts, lists, attaches, summaries = [], [], [], []
    for _ in range(_ROUNDS):
        with _target(python, "busy") as target:
            pid = str(target.process.pid)
            starts.append(_cpu([*_GDBMEM, "start", pid], folder))
            time.sleep(_GROWING_SECONDS)
            lists.append(_cpu([*_GDBMEM, "traces", pid], folder))
        with _target(python, "busy") as target:
            pid = str(target.process.pid)
            attaches.append(_cpu([memray, "attach", "-f", "-o", str(file), "--method", "gdb", pid], folder))
            time.sleep(_GROWING_SECONDS)
            subprocess.run([memray, "detach", pid], check=True, capture_output=True)
            summaries.append(_cpu([memray, "summary", str(file)], folder))
    attached = "`memray attach`, by gdb"
    yield Row(f"tracing a running program, CPU time / {attached}", *_medians(starts, attaches))
    yield Row("listing the lines that grew, CPU time / `memray summary`", *_medians(lists, summaries))


def _lines(python: Path, folder: Path) -> Iterator[Row]:
    """Yield the CPU time of scripts with a table of memory by line."""
    # Both in the same environment, whose site-packages take part in each start.
    ours = [*_GDBMEM, "lines", "--python", str(python)]
    for name, source in (("its README's example", _EXAMPLE), ("a loop of 20,000 turns", _LOOP)):
        recorded, plain = folder / "recorded.py", folder / "plain.py"
        recorded.write_text(source)
        plain.write_text(source.replace("@profile", ""))
        words = [*ours, str(recorded)]
        theirs = [str(python), "-m", "memory_profiler", str(recorded)]
        scalene = [str(python.with_name("scalene")), "run", "-o", str(folder / "scalene.json"), str(plain)]
        took = [(_cpu(words, folder), _cpu(theirs, folder), _cpu(scalene, folder)) for _ in range(_ROUNDS)]
        mine, theirs_cpu, scalenes = (statistics.median(column) for column in zip(*took))
        bar = "no slower"
        yield Row(f"memory by line of {name}, CPU time / memory_profiler", mine, theirs_cpu, bar, 1.0)
        yield Row(f"memory by line of {name}, CPU time / scalene", mine, scalenes)


def _medians(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    return statistics.median(ours), statistics.median(theirs)
