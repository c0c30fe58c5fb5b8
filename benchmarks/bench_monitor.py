"""Cost of a monitor, relative to psrecord and mprof, and to fixed bars."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.racing import Row
from gdbmem.linux.monitoring.tree import Tree
from gdbmem.linux.process.processes import descendants, parents, pids
from gdbmem.model.series.series import SeriesFacts
from gdbmem.series.store import Recording, SeriesWriter

TITLE = "Cost of monitoring"
_ROUNDS = 3
_START_SECONDS, _RACE_SECONDS = 2.0, 6.0
_INTERVAL = 0.1  # seconds: mprof's default


def race() -> Sequence[Row]:
    rows = [*_against_peers()]
    with _children(20) as children:
        share = _cpu_per_second(children)
        rows.append(
            Row(
                "20 processes at 10 Hz, PSS too, CPU / a second",
                share,
                1.0,
                f"at most 2 % ({share:.2%})",
                at_most=0.02,
            )
        )
        before, after = _memory_over_a_million(children)
        rows.append(
            Row(
                "10^6 samples, growth of the monitor",
                0.0, 0.0, f"at most 2 MiB ({after - before:+.1f} MiB)", at_most=2.0, value=after - before,
            )
        )  # fmt: skip
    with _children(1000) as children:
        seconds = _sweep(children)
        rows.append(
            Row(
                "1,000 processes, one sweep with PSS",
                seconds,
                0.5,
                "at most 0.5 s",
                at_most=0.5,
                value=seconds,
            )
        )
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
    """Return the CPU seconds a second of a monitor of *pids* as it comes, its start left out; the median of three."""
    words = ["--interval", f"{_INTERVAL}s", *map(str, sorted(pids))]
    found = []
    for _ in range(_ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "gdbmem.cli.main",
                "monitor",
                "-q",
                "--run",
                f"{folder}/run",
                *words,
            ]
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            found.append(_cpu_while(child, _RACE_SECONDS))
            child.kill()
            child.wait()
    return statistics.median(found)


def _cpu_while(child: subprocess.Popen[bytes], seconds: float) -> float:
    """Return the CPU seconds a second of *child* and its descendants over *seconds*, once it has started."""
    time.sleep(_START_SECONDS)
    cpu, begin = _cpu_of(child.pid), time.monotonic()
    time.sleep(seconds)
    return (_cpu_of(child.pid) - cpu) / (time.monotonic() - begin)


def _look(writer: SeriesWriter, tree: Tree, t: float) -> None:
    look = tree.look(t)
    writer.append(t, look.readings, look.changed_lines)


def _memory_over_a_million(children: set[int]) -> tuple[float, float]:
    """Return this process's resident MiB before and after a million samples, the first tenth left out."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(lambda: children, events=None)
        writer = SeriesWriter(Path(folder), _facts())
        looks = 1_000_000 // len(children)
        before = 0.0
        for number in range(looks):
            if number == looks // 10:
                before = _resident_mib()
            _look(writer, tree, number * 0.1)
            if number % 600 == 0:
                writer.thin(number * 0.1)
        after = _resident_mib()
        writer.close()
        tree.close()
        return before, after


def _resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


def _sweep(children: set[int]) -> float:
    """Return the seconds of one sample of all of them, including PSS; the best of five."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    tree = Tree(lambda: children, events=None)
    tree.look(0.0, sweep=True)
    taken = []
    for number in range(1, 6):
        begin = time.perf_counter()
        look = tree.look(number * 2.0, sweep=True)
        taken.append(time.perf_counter() - begin)
        assert look.alive == len(children) <= len(pids())
    tree.close()
    return min(taken)


# -- peers ----------------------------------------------------------------------------------------------------


def _against_peers() -> Iterator[Row]:
    """Race for RSS, the only metric that peers read, at mprof's default interval and faster; the tools take turns."""
    for size in (1, 21):
        with _family(size) as pid:
            names = ["gdbmem", *_present()]
            for interval in (_INTERVAL, _INTERVAL / 5):
                costs: dict[str, list[float]] = {name: [] for name in names}
                least = []
                for _ in range(_ROUNDS):
                    for name in names:
                        costs[name].append(_cpu_per_sample(name, pid, interval))
                    least.append(_least(pid, interval))
                if size == 1:
                    what = "the least Python that wakes up and reads statm"
                    yield Row(
                        f"CPU per sample of {what}, {1 / interval:.0f} Hz", statistics.median(least), 0.0
                    )
                what = "one process" if size == 1 else f"a family of {size}"
                for name in names[1:]:
                    yield Row(
                        f"CPU per sample of {what} at {1 / interval:.0f} Hz, gdbmem / {name}",
                        statistics.median(costs["gdbmem"]),
                        statistics.median(costs[name]),
                        "at least 10 times less",
                        at_most=0.1,
                        value=statistics.median(a / b for a, b in zip(costs["gdbmem"], costs[name])),
                    )


def _present() -> Iterator[str]:
    for name, package in _PACKAGES.items():
        if shutil.which(name, path=str(_BIN)) is None:
            print(f"bench: {name} is missing: pip install {package}", file=sys.stderr)
        else:
            yield name


_BIN = Path(sys.executable).parent
_PACKAGES = {"psrecord": "psrecord", "mprof": "memory_profiler"}
_OURS = ["-m", "gdbmem.cli.main", "monitor", "-q", "--pss-budget", "0"]
# The remainder without the sample itself: this machine's cost of waking up.
_LEAST = """\
import os, sys, time
statm = os.open(f"/proc/{sys.argv[1]}/statm", os.O_RDONLY)
while True:
    time.sleep(float(sys.argv[2]))
    os.pread(statm, 128, 0)
"""


def _least(pid: int, interval: float) -> float:
    """Return the CPU seconds per sample of a loop that reads the statm of *pid* and discards it."""
    child = subprocess.Popen([sys.executable, "-c", _LEAST, str(pid), str(interval)])
    seconds = _cpu_while(child, _RACE_SECONDS) * interval
    child.kill()
    child.wait()
    return seconds


def _command(name: str, interval: float) -> list[str]:
    """Return the words of the tool *name* before the file that it writes and the pid."""
    commands = {
        "gdbmem": [*_OURS, "--interval", f"{interval}s", "--run"],
        "psrecord": [str(_BIN / "psrecord"), "--include-children", "--interval", str(interval), "--log"],
        "mprof": [str(_BIN / "mprof"), "attach", "-C", "--interval", str(interval), "--output"],
    }
    return [sys.executable, *commands[name]]


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


def _cpu_per_sample(name: str, pid: int, interval: float) -> float:
    """Return the CPU seconds per sample of the tool *name*, its children included, its start left out."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        child = subprocess.Popen(
            [*_command(name, interval), str(out), str(pid)],
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


def _cpu_of(pid: int) -> float:
    """Return the CPU seconds of *pid* and its descendants, to the nanosecond."""
    spent = 0
    for each in (pid, *descendants({pid}, parents())):
        for schedule in Path(f"/proc/{each}/task").glob("*/schedstat"):
            spent += int(schedule.read_text().split()[0])
    return spent / 1e9


def _times_of_samples(name: str, out: Path) -> list[float]:
    """Return the times of the samples of the tool *name*, from its output."""
    if name == "gdbmem":
        return Recording(out).looks()
    rows = [line.split() for line in out.read_text().splitlines()]
    if name == "psrecord":  # seconds, CPU, real, virtual
        return [float(row[0]) for row in rows if len(row) == 4 and row[0][0].isdigit()]
    return [float(row[2]) for row in rows if row[:1] == ["MEM"]]
