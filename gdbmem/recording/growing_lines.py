"""A `gdbmem grow` beside a monitor: the lines that make the watched processes grow."""

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
