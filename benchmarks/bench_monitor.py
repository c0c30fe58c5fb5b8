"""Cost of a monitor, relative to psrecord and mprof, and to fixed bars."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Callable

from benchmarks.peers import peer
from benchmarks.racing import Ratio, cpu_so_far, ratios
from gdbmem.linux.monitoring.tree import Tree
from gdbmem.linux.process.process import pids
from gdbmem.model.series import SeriesFacts
from gdbmem.series.store import Recording, SeriesWriter

TITLE = "Cost of monitoring"
_ROUNDS, _SWEEPS = 4, 11
_START_SECONDS, _RACE_SECONDS = 2.0, 4.0
_INTERVAL = 0.1  # seconds: mprof's default


def race() -> Sequence[Ratio]:
    rows = [*_against_peers()]
    with _children(20) as children:
        found = ratios(
            lambda: _cpu_per_second(children), lambda: _least(children, _INTERVAL), rounds=_ROUNDS, warmups=0
        )
        rows.append(Ratio(f"20 processes at 10 Hz, with PSS / {_LEAST_NAME} of them", found, 15))
        rows.append(
            Ratio("resident memory after 10^6 samples / after 10^5", [_memory_over_a_million(children)], 1.06)
        )
    with _children(1000) as children, _look_at(children) as sweep:
        found = ratios(sweep, lambda: _reading_all(children), rounds=_SWEEPS)
        rows.append(Ratio("1,000 processes, one sweep with PSS / reading their smaps_rollup", found, 6))
    return rows


@contextlib.contextmanager
def _children(count: int) -> Iterator[set[int]]:
    """Yield *count* processes that sleep."""
    sleep = shutil.which("sleep") or "sleep"
    started = [subprocess.Popen([sleep, "1000"]) for _ in range(count)]
    try:
        yield {process.pid for process in started}
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def _facts() -> SeriesFacts:
    return SeriesFacts("bench", 0.1, time.time(), "boot", 0.0)


def _cpu_per_second(pids: set[int]) -> float:
    """Return the CPU seconds a second of a monitor of *pids* as it comes, its start left out."""
    words = ["monitor", "-q", "--interval", f"{_INTERVAL}s", *map(str, sorted(pids))]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gdbmem.cli.main", *words, "--run", f"{folder}/run"]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = _cpu_while(child, _RACE_SECONDS)
        child.kill()
        child.wait()
    return found


def _cpu_while(child: subprocess.Popen[bytes], seconds: float) -> float:
    """Return the CPU seconds a second of *child* and its descendants over *seconds*, once it has started."""
    time.sleep(_START_SECONDS)
    cpu, begin = cpu_so_far(child.pid, family=True), time.monotonic()
    time.sleep(seconds)
    return (cpu_so_far(child.pid, family=True) - cpu) / (time.monotonic() - begin)


def _look(writer: SeriesWriter, tree: Tree, t: float) -> None:
    look = tree.look(t)
    writer.append(t, look.readings, look.changed_lines)


def _memory_over_a_million(children: set[int]) -> float:
    """Return this process's resident memory after a million samples ÷ after the first tenth."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(lambda: children, events=None)
        writer = SeriesWriter(Path(folder), _facts())
        looks = 1_000_000 // len(children)
        before = 1
        for number in range(looks):
            if number == looks // 10:
                before = _resident_pages()
            _look(writer, tree, number * 0.1)
            if number % 600 == 0:
                writer.thin(number * 0.1)
        after = _resident_pages()
        writer.close()
        tree.close()
        return after / before


def _resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


@contextlib.contextmanager
def _look_at(children: set[int]) -> Iterator[Callable[[], float]]:
    """Yield what takes one sample of all of them, including PSS, and returns its CPU seconds."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    tree = Tree(lambda: children, events=None)
    tree.look(0.0, sweep=True)
    times = itertools.count(2.0, 2.0)

    def sweep() -> float:
        begin = time.process_time()
        look = tree.look(next(times), sweep=True)
        assert look.alive == len(children) <= len(pids())
        return time.process_time() - begin

    yield sweep
    tree.close()


def _reading_all(children: set[int]) -> float:
    begin = time.process_time()
    for pid in children:
        Path(f"/proc/{pid}/smaps_rollup").read_bytes()
    return time.process_time() - begin


# -- peers ----------------------------------------------------------------------------------------------------


def _against_peers() -> Iterator[Ratio]:
    """Race for RSS, the only metric that peers read, at mprof's default interval; the tools take turns."""
    tools = {"gdbmem": Path(sys.executable), **{name: found for name in _PEERS if (found := peer(name))}}
    for size in (1, 21):
        what = f"{'one process' if size == 1 else f'a family of {size}'} at {1 / _INTERVAL:.0f} Hz"
        costs: dict[str, list[float]] = {name: [] for name in [*tools, _LEAST_NAME]}
        with _family(size) as pid:
            for _ in range(_ROUNDS):
                for name, tool in tools.items():
                    costs[name].append(_cpu_per_sample(name, tool, pid))
                costs[_LEAST_NAME].append(_least({pid}, _INTERVAL) * _INTERVAL)
        ours = costs.pop("gdbmem")
        for name, theirs in costs.items():
            at_most = None if name == _LEAST_NAME else 0.1
            yield Ratio(f"a sample of {what} / {name}", [a / b for a, b in zip(ours, theirs)], at_most)


_PEERS = ("psrecord", "mprof")
_OURS = ["-m", "gdbmem.cli.main", "monitor", "-q", "--pss-budget", "0"]
_LEAST_NAME = "the least Python that wakes up and reads statm"
# The remainder without the sample itself: this machine's cost of waking up.
_LEAST = """\
import os, sys, time
each = [os.open(f"/proc/{pid}/statm", os.O_RDONLY) for pid in sys.argv[2:]]
while True:
    time.sleep(float(sys.argv[1]))
    for statm in each:
        os.pread(statm, 128, 0)
"""


def _least(pids: set[int], interval: float) -> float:
    """Return the CPU seconds a second of a loop that reads the statm of *pids* and discards it."""
    child = subprocess.Popen([sys.executable, "-c", _LEAST, str(interval), *map(str, pids)])
    seconds = _cpu_while(child, _RACE_SECONDS)
    child.kill()
    child.wait()
    return seconds


def _command(name: str, tool: Path) -> list[str]:
    """Return the words of the tool *name* before the file that it writes and the pid."""
    commands = {
        "gdbmem": [*_OURS, "--interval", f"{_INTERVAL}s", "--run"],
        "psrecord": ["--include-children", "--interval", str(_INTERVAL), "--log"],
        "mprof": ["attach", "-C", "--interval", str(_INTERVAL), "--output"],
    }
    return [str(tool), *commands[name]]


@contextlib.contextmanager
def _family(size: int) -> Iterator[int]:
    """Yield the pid of a process with *size* - 1 children; all sleep."""
    children = "sleep 1000 & " * (size - 1)
    parent = subprocess.Popen(["sh", "-c", f"{children} exec sleep 1000"], start_new_session=True)
    time.sleep(0.5)
    try:
        yield parent.pid
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()


def _cpu_per_sample(name: str, tool: Path, pid: int) -> float:
    """Return the CPU seconds per sample of the tool *name*, its children included, its start left out."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        child = subprocess.Popen(
            [*_command(name, tool), str(out), str(pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path.cwd()), "PYTHONUNBUFFERED": "1"},
        )
        cpu = _cpu_while(child, _RACE_SECONDS)
        child.send_signal(signal.SIGKILL if name == "gdbmem" else signal.SIGINT)
        child.wait()
        times = _times_of_samples(name, out)
    rate = (len(times) - 1) / (times[-1] - times[0])
    return cpu / rate


def _times_of_samples(name: str, out: Path) -> list[float]:
    """Return the times of the samples of the tool *name*, from its output."""
    if name == "gdbmem":
        return Recording(out).looks()
    rows = [line.split() for line in out.read_text().splitlines()]
    if name == "psrecord":  # seconds, CPU, real, virtual
        return [float(row[0]) for row in rows if len(row) == 4 and row[0][0].isdigit()]
    return [float(row[2]) for row in rows if row[:1] == ["MEM"]]
