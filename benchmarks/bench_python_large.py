"""Python processes with 10^7 objects, and with 10^7 traces, read from outside."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional

from benchmarks.racing import Row

TITLE = "Python processes: 10^7 objects, 10^7 traces"
_PAGE = 4096
_RED_ZONE = 128  # bytes below the stack pointer that are in use
_PIECE = 1 << 24
_MIB = 2**20
_LOOK_SECONDS = 0.0005
# It stays on one processor, because the kernel writes the processor's number into its memory (rseq).
_HOLDS = """
import gc, os, sys, tracemalloc
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
gc.disable()
if sys.argv[1] == "traces":
    tracemalloc.start()
    held = [float(number) for number in range(10**7 + 1000)]
else:
    held = [(number, float(number)) for number in range(10**7 // 3 + 1)]
os.write(1, b"ready\\n")
os.read(0, 1)
"""


def race() -> Sequence[Row]:
    load = f"load average {os.getloadavg()[0]:.1f}"
    rows = [row for what, seconds in (("objects", 10), ("traces", 20)) for row in _read(what, seconds)]
    return [replace(row, name=f"{row.name} ({load})") for row in rows]


def _read(what: str, at_most: int) -> Iterator[Row]:
    """Yield the rows of one command on a process that holds 10^7 of *what*, and has *at_most* seconds for it."""
    words = [sys.executable, "-c", _HOLDS, what]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
        assert target.stdout is not None
        assert target.stdout.readline() == b"ready\n"
        before = _pages(target.pid)
        with _stopped(target.pid) as spans:
            seconds, cpu, mib, text = _command(what, target.pid)
        after = _pages(target.pid)
        target.kill()
    assert _counted(text) >= 10**7, text
    assert len(before) == len(after), "the process has mapped memory"
    changed = sum(one != other for one, other in zip(before, after))
    pause, gib = sum(spans), len(before) * _PAGE / 2**30
    name, bar = f"10^7 {what}", 0.01 + 0.04 * gib
    yield Row(
        f"{name}: the whole command", seconds, 0, f"at most {at_most} s", at_most=at_most, value=seconds
    )
    yield Row(f"{name}: its processor time", cpu, 0)
    yield Row(f"{name}: its memory", mib, 0, "at most 1 GiB", at_most=1024, value=mib, unit="MiB")
    said = "at most 40 ms a GiB and 10 ms"
    yield Row(
        f"{name}: the process, of {gib:.2f} GiB, stands still", pause, 0, said, at_most=bar, value=pause
    )
    written = changed * _PAGE / _MIB
    unused = "pages of it that changed, but for unused stack"
    yield Row(f"{name}: {unused}", written, 0, "none", at_most=0, value=written, unit="MiB")


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[list[float]]:
    """Yield a list that finally has the seconds of each stop of the process."""
    spans: list[float] = []
    ends = threading.Event()

    def look() -> None:
        since: Optional[float] = None
        while not ends.wait(_LOOK_SECONDS):
            is_stopped = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "tT"
            now = time.perf_counter()
            if is_stopped and since is None:
                since = now
            elif not is_stopped and since is not None:
                spans.append(now - since)
                since = None

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield spans
    finally:
        ends.set()
        looking.join()


def _command(what: str, pid: int) -> tuple[float, float, float, str]:
    """Return the seconds, the CPU seconds and the MiB at the peak that the command took, and what it printed."""
    with tempfile.TemporaryFile("w+") as output:
        words = [sys.executable, "-m", "gdbmem.cli.main", "python", what, str(pid)]
        began = time.perf_counter()
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    assert process.returncode == 0, text
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text


def _counted(text: str) -> int:
    """Return the largest number in *text* with commas in it."""
    return max(int(found.replace(",", "")) for found in re.findall(r"\d{1,3}(?:,\d{3})+", text))


def _pages(pid: int) -> list[int]:
    """Return a checksum of each page that the process may write to, without the unused part of its stack."""
    pointer = int(Path(f"/proc/{pid}/syscall").read_text().split()[-2], 16)
    found = []
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            extent: Optional[re.Match[str]] = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if extent is None:
                continue
            start, end = (int(part, 16) for part in extent.groups())
            if start <= pointer < end:
                start = pointer - _RED_ZONE
            for at in range(start, end, _PIECE):
                memory.seek(at)
                piece = memory.read(min(_PIECE, end - at))
                found += [zlib.crc32(piece[page : page + _PAGE]) for page in range(0, len(piece), _PAGE)]
    return found
