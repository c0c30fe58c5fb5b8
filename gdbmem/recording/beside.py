"""The processes beside a monitor: `gdbmem grow`, which records the lines that grow, and the black box."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from gdbmem.inspection.interpreters import module_words
from gdbmem.launch.child import die_with_parent
from gdbmem.linux.process.process import has_ended

RECORDING = "recording "  # the beginning of its first line when recording has started
_BEGUN = f"gdbmem: {RECORDING}"
_SECONDS = 600.0  # for naming what was recorded


class GrowingLines:
    """Records the page faults of some processes to a file, in a separate process. Close it."""

    def __init__(self, pids: Sequence[int], profile: Path) -> None:
        """Start, and return when it records; `refusal` has the reason if it does not."""
        self._pids = pids
        grow = ["grow", "--profile", str(profile), "--force", *map(str, pids)]
        us = os.getpid()
        self._tool = subprocess.Popen(
            [sys.executable, *module_words("gdbmem.cli.main"), *grow],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
            start_new_session=True,  # Ctrl-C is for the monitor, which ends it
            # It saves its data if the monitor is killed.
            preexec_fn=lambda: die_with_parent(signal.SIGINT, us),
        )
        self.refusal = self._refusal()

    def _refusal(self) -> str:
        assert self._tool.stderr is not None
        said = ""
        for line in self._tool.stderr:
            if line.startswith(_BEGUN):
                return ""
            said = line
        return said.strip().removeprefix("gdbmem: ") or "gdbmem grow ended without a message"

    def finish(self) -> Optional[str]:
        """End the recording and return its report; None if there is none."""
        # When all have ended it ends by itself, and a signal would interrupt its report.
        if not all(map(has_ended, self._pids)):
            with contextlib.suppress(OSError):
                self._tool.send_signal(signal.SIGINT)
        try:
            report, _ = self._tool.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        return report or None

    def close(self) -> None:
        """End it without a report, if it still runs."""
        with contextlib.suppress(OSError):
            self._tool.kill()
        for pipe in (self._tool.stdout, self._tool.stderr):
            if pipe is not None:
                pipe.close()
        self._tool.wait()


# The black box beside a monitor: a process that records those that come near a limit, before the kernel kills one.


_LAST_SECONDS = 60.0  # for its last record, and to give back what it holds


class BlackBoxProcess:
    """The process. Close it."""

    def __init__(self, run: Path, interval_seconds: float, *, holds: bool, writes_core: bool) -> None:
        """Start it, and return when it watches; `refusal` has the reason if it does not."""
        words = [str(run), str(interval_seconds), "core" if writes_core else "hold" if holds else "-"]
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
