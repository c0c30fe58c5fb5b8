"""Python processes with 10^7 objects, and with 10^7 traces, read from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from benchmarks.processes import beside_gdb
from benchmarks.racing import Ratio

TITLE = "Python processes: 10^7 objects, 10^7 traces"
_PAGE = 4096
_RED_ZONE = 128  # bytes below the stack pointer that are in use
_PIECE = 1 << 24
_ROUNDS = 3
_PYTHON = [sys.executable, "-m", "gdbmem.cli.main", "python"]
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


def race() -> Sequence[Ratio]:
    limits = (("objects", 28, 2.3), ("traces", 100, 0.72))
    return [row for what, most, most_memory in limits for row in _read(what, most, most_memory)]


def _read(what: str, at_most: float, most_memory: float) -> Iterator[Ratio]:
    """Yield the rows of one command on a process that holds 10^7 of *what*."""
    words = [sys.executable, "-c", _HOLDS, what]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
        pid = target.pid
        assert target.stdout is not None
        assert target.stdout.readline() == b"ready\n"
        before = _pages(pid)
        mib, text = _command(what, pid)
        after = _pages(pid)
        command = [*_PYTHON, what, str(pid)]
        beside = beside_gdb(f"10^7 {what}", pid, command, at_most, 1, _ROUNDS)
        target.kill()
    assert _counted(text) >= 10**7, text
    assert len(before) == len(after), "the process has mapped memory"
    changed = sum(one != other for one, other in zip(before, after))
    name, process_mib = f"10^7 {what}", len(before) * _PAGE / 2**20
    yield from beside
    yield Ratio(f"{name}: memory / the process's", [mib / process_mib], most_memory)
    yield Ratio(
        f"{name}: pages of the process that changed, but for unused stack / all", [changed / len(before)], 0
    )


def _command(what: str, pid: int) -> tuple[float, str]:
    """Return the MiB at the peak that the command took, and what it printed."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([*_PYTHON, what, str(pid)], stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    assert process.returncode == 0, text
    return usage.ru_maxrss / 1024, text


def _counted(text: str) -> int:
    """Return the largest number in *text* with commas in it."""
    return max(int(found.replace(",", "")) for found in re.findall(r"\d{1,3}(?:,\d{3})+", text))


def _pages(pid: int) -> list[int]:
    """Return a checksum of each page that the process may write to, without the unused part of its stack."""
    while len(where := Path(f"/proc/{pid}/syscall").read_text().split()) < 3:  # it is not yet in its read()
        time.sleep(0.01)
    pointer = int(where[-2], 16)
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
