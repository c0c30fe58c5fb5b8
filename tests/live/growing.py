"""`gdbmem grow` on programs that make memory resident on request."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Optional

GROW = [sys.executable, "-m", "gdbmem.cli.main", "grow"]
SECONDS = 60


@dataclass
class Grown:
    """The growth by the program's own count, and by gdbmem."""

    said_bytes: Optional[int]  # None: it did not come to that
    result: dict[str, Any]

    @property
    def first(self) -> dict[str, Any]:
        """The row with most bytes."""
        row: dict[str, Any] = self.result["sites"]["paths"][0]
        return row

    @property
    def line(self) -> str:
        """Its place."""
        site = self.first["site"]
        return f"{site['function']}:{site['line']}"

    def account(self, pid: int) -> dict[str, Any]:
        """The account of one process."""
        one: dict[str, Any] = next(a for a in self.result["totals"]["accounts"] if a["pid"] == pid)
        return one

    def unseen(self, pid: int) -> dict[str, int]:
        """The growth that its faults don't explain, by kind."""
        return {part["kind"]: part["bytes"] for part in self.account(pid)["unseen"]}


@contextlib.contextmanager
def program_at_work(words: Sequence[str | Path]) -> Iterator[subprocess.Popen[str]]:
    """Start a program that waits for a line of input once it has printed "ready"."""
    program = subprocess.Popen(
        list(map(str, words)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for(program.stdout, "ready")
        yield program
    finally:
        with contextlib.suppress(OSError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def wait_for(stream: Optional[IO[str]], word: str) -> str:
    """Return the first line of *stream* that begins with *word*."""
    assert stream is not None
    for line in stream:
        if line.startswith(word):
            return line
    raise AssertionError(f"no line {word}")


def grow(
    program: subprocess.Popen[str],
    *options: str,
    prefix: Sequence[str] = (),
    until: str = "grew",
    ends: bool = True,
    command: Sequence[str] = GROW,
) -> Grown:
    """Record *program* from before it continues until it prints *until*; "": until it has ended."""
    tool = subprocess.Popen(
        [*prefix, *command, "--json", str(program.pid), *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        wait_for(tool.stderr, "gdbmem: recording")
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
        said = int(wait_for(program.stdout, until).split()[1]) if until else None
        if until and ends:
            tool.send_signal(signal.SIGINT)
        output, errors = tool.communicate(timeout=SECONDS)
    finally:
        tool.kill()
        tool.wait()
    assert tool.returncode == 0, errors
    return Grown(said, json.loads(output))
