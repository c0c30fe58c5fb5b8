"""What a command costs that looks at a running process, and what the process notices of it; peers that anyone has."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from benchmarks.racing import Ratio, cpu_of, pairs

_LOOK_SECONDS = 0.0005
_READS = """
import re, sys
with open(f"/proc/{sys.argv[1]}/mem", "rb", buffering=0) as memory, open(f"/proc/{sys.argv[1]}/maps") as maps:
    buffer = memoryview(bytearray(1 << 20))
    for line in maps:
        extent = re.match("([0-9a-f]+)-([0-9a-f]+) rw", line)
        start, end = (int(part, 16) for part in extent.groups()) if extent else (0, 0)
        memory.seek(start)
        while start < end:
            start += memory.readinto(buffer[:end - start])
"""


def reading(pid: int) -> list[str]:
    """Return the words of a Python that reads once what process *pid* may write to, and does nothing with it."""
    return [sys.executable, "-c", _READS, str(pid)]


def bare_gdb(pid: int) -> list[str]:
    """Return the words of a gdb that attaches to process *pid* and leaves."""
    return ["gdb", "-nx", "-batch", "-p", str(pid)]


def cpu_and_stop(pid: int, command: Sequence[object]) -> tuple[float, float]:
    """Run *command*; return its CPU seconds, and for how long process *pid* was stopped meanwhile."""
    stopped, ends = 0.0, threading.Event()

    def look() -> None:
        nonlocal stopped
        since: Optional[float] = None
        while not ends.wait(_LOOK_SECONDS):
            is_stopped = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "tT"
            now = time.perf_counter()
            if is_stopped and since is None:
                since = now
            elif not is_stopped and since is not None:
                stopped, since = stopped + now - since, None

    looking = threading.Thread(target=look)
    looking.start()
    try:
        taken = cpu_of(command)
    finally:
        ends.set()
        looking.join()
    return taken, stopped


def beside_gdb(
    name: str, pid: int, command: Sequence[object], most: float, most_stop: float, rounds: int
) -> list[Ratio]:
    """Return the CPU time of *command* and how long it stops process *pid*, beside a gdb that attaches and leaves."""
    found = pairs(
        lambda: cpu_and_stop(pid, command), lambda: cpu_and_stop(pid, bare_gdb(pid)), rounds=rounds, warmups=0
    )
    stops = [a[1] / b[1] for a, b in found]
    return [
        Ratio(f"{name} / `gdb -batch -p`", [a[0] / b[0] for a, b in found], most),
        Ratio(f"{name}: wall time for which the process stands still / `gdb -batch -p`", stops, most_stop),
    ]
