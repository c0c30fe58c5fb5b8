"""Shared by all races: runs in pairs, what a command took, and the row that a race reports."""

from __future__ import annotations

import math
import os
import re
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional, TypeVar

from gdbmem.linux.process.process import descendants, parents

T = TypeVar("T")
Figure = Callable[[], float]  # runs something; returns the seconds, the bytes or the count that it took
_FEWEST = 6  # pairs, from which on the range of all holds the true median in at least 95 %


@dataclass(frozen=True)
class Ratio:
    """One line of the table: gdbmem's figure ÷ its peer's, once for each pair of runs, and the bar."""

    name: str
    ratios: Sequence[float]
    at_most: Optional[float] = None
    at_least: Optional[float] = None
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the median by ranks; the range of all, where there are too few pairs for one."""
        ordered, count = sorted(self.ratios), len(self.ratios)
        out = 0 if count < _FEWEST else max(math.floor((count - 1) / 2 - 0.98 * math.sqrt(count)), 0)
        return ordered[out], ordered[-1 - out]

    @property
    def met(self) -> Optional[bool]:
        """True if the whole interval is within the bar, False if none of it is; None: unclear, or no bar."""
        low, high = self.interval
        least = -math.inf if self.at_least is None else self.at_least
        most = math.inf if self.at_most is None else self.at_most
        if low > most or high < least:
            return False
        return True if self.bar and least <= low and high <= most else None

    @property
    def bar(self) -> str:
        words = [f"at least {self.at_least:.3g}"] if self.at_least is not None else []
        words += [f"at most {self.at_most:.3g}"] if self.at_most is not None else []
        return ", ".join(words)

    def line(self) -> str:
        """Return its line of the table."""
        low, high = self.interval
        spread = f" ({low:.3g} to {high:.3g})" if len(self.ratios) > 1 else ""
        met = "" if not self.bar else {None: "unclear", True: "yes", False: "**no**"}[self.met]
        name = f"{self.name}; {self.note}" if self.note else self.name
        return f"| {name} | {self.median:.3g}{spread} | {self.bar} | {met} |"


def pairs(
    ours: Callable[[], T], peer: Callable[[], T], *, rounds: int, warmups: int = 1
) -> list[tuple[T, T]]:
    """Return the results of *ours* and *peer*, which take turns, *rounds* times, who goes first alternating."""
    for _ in range(warmups):
        ours()
        peer()
    found = []
    for number in range(rounds):
        if number % 2:
            second = peer()
            found.append((ours(), second))
        else:
            first = ours()
            found.append((first, peer()))
    return found


def ratios(ours: Figure, peer: Figure, *, rounds: int, warmups: int = 1) -> list[float]:
    """Return ours ÷ peer for each pair of runs: load that hits both leaves it as it is."""
    return [a / b for a, b in pairs(ours, peer, rounds=rounds, warmups=warmups)]


def cpu_of(
    command: Sequence[object], *, folder: Optional[Path] = None, more: Mapping[str, str] = {}
) -> float:
    """Return the CPU seconds of *command* and of all that it starts and waits for; *more*: variables."""
    words = list(map(str, command))
    process = subprocess.Popen(
        words, cwd=folder, env={**os.environ, **more},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)
    return used.ru_utime + used.ru_stime


def cpu_so_far(pid: int, *, family: bool = False) -> float:
    """Return the CPU seconds of process *pid* until now, with a *family* its descendants' too, to the nanosecond."""
    each = (pid, *descendants({pid}, parents())) if family else (pid,)
    threads = (found for one in each for found in Path(f"/proc/{one}/task").glob("*/schedstat"))
    return sum(int(schedule.read_text().split()[0]) for schedule in threads) / 1e9


def peak_mib(command: Sequence[object]) -> float:
    """Run *command* and return the most memory that it and its children held at a time, each counted at its peak."""
    # Not ru_maxrss, which begins with the size of the process that started this one.
    most = 0
    words = list(map(str, command))
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, sum(map(_peak_kib, (process.pid, *descendants({process.pid}, parents())))))
            time.sleep(0.002)
    return most / 1024


def _peak_kib(pid: int) -> int:
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def seconds_of(action: Callable[[], object]) -> float:
    """Return the wall time of one call of *action*."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
