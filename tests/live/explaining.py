"""Programs that print what they hold, and wait to be explained."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Optional

import pytest

from gdbmem.inspection.live_process import explain_process
from gdbmem.model.ledger import Heap, Ledger
from tests.live.user import GDBMEM, shell


class Running:
    """A program that has printed "ready" and waits."""

    def __init__(self, process: subprocess.Popen[str], output: str) -> None:
        self.process, self.output = process, output
        found = re.search(r"^pid (\d+)", output, re.M)
        self.pid = int(found[1]) if found else process.pid

    def figure(self, pattern: str) -> tuple[int, ...]:
        found = re.findall(pattern, self.output) or [("0", "0")]  # glibc 2.43 has no fastbins
        return tuple(int(value) for value in found[-1])

    def type(self, text: str) -> IO[str]:
        """Send *text* to its standard input; return its standard output, to read the answer from."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()
        return self.process.stdout

    def trim(self) -> None:
        assert self.type("t\n").readline() == "trimmed\n"


@contextlib.contextmanager
def running(command: Sequence[object], environment: Optional[dict[str, str]] = None) -> Iterator[Running]:
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        output = ""
        assert process.stdout is not None
        for line in process.stdout:
            if line == "ready\n":
                break
            output += line
        yield Running(process, output)
    finally:
        process.kill()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        process.wait()


def explain(pid: int, **options: object) -> Ledger:
    ledger = explain_process(pid, **options)  # type: ignore[arg-type]
    ledger.check()
    return ledger


def heap_of(ledger: Ledger) -> Heap:
    assert ledger.heap is not None
    return ledger.heap


def slugs(ledger: Ledger) -> set[str]:
    return {notice.slug for notice in ledger.notices}


def unexpected(errors: str) -> str:
    """Return the complaints but those of a busy machine, on which a stopped process may wait for long."""
    return re.sub(
        r"^gdbmem: process \d+ .* is stopped for about .* are (?:read|copied)\n", "", errors, flags=re.M
    )


def gdbmem(*words: object) -> subprocess.CompletedProcess[str]:
    return shell(GDBMEM, *map(str, words))


@contextlib.contextmanager
def huge_pages(count: int) -> Iterator[None]:
    """Make the kernel keep *count* huge pages for hugetlbfs meanwhile; skips if it doesn't."""
    setting = Path("/proc/sys/vm/nr_hugepages")
    with setting.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time on this machine, from whatever checkout
        before = setting.read_text()
        try:
            setting.write_text(str(int(before) + count))
        except OSError:
            pytest.skip("root only may set aside huge pages")
        try:
            if int(setting.read_text()) < int(before) + count:
                pytest.skip("the kernel has no huge pages to set aside")
            yield
        finally:
            setting.write_text(before)
