"""The black box beside a monitor: a process that records those that come near a limit, before the kernel kills one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

from gdbmem.inspection.interpreters import module_words

_LAST_SECONDS = 60.0  # for its last record, and to give back what it holds


class BlackBoxProcess:
    """The process. Close it."""

    def __init__(self, run: Path, interval_seconds: float, *, holds: bool) -> None:
        """Start it, and return when it watches; `refusal` has the reason if it does not."""
        words = [str(run), str(interval_seconds), "hold" if holds else "-"]
        self._process = subprocess.Popen(
            [sys.executable, *module_words("gdbmem.api.black_box_worker"), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
            start_new_session=True,  # Ctrl-C is for the monitor, which ends it
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        self.refusal = ""
        if not self._process.stdout.readline():
            said = self._process.stderr.read().strip().splitlines()
            self.refusal = said[-1] if said else "its process ended without a message"

    def close(self) -> None:
        """End it, and wait for a record in progress."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
