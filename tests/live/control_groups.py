"""Memory cgroups of tests, of either version."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Callable

ROOT = Path("/sys/fs/cgroup")
PATIENCE = 300.0  # seconds, also for a machine that is emulated


class ControlGroup:
    """A memory cgroup, of version 1 if that counts memory here, else of version 2."""

    def __init__(self, folder: Path) -> None:
        """Use the cgroup *folder*."""
        self.folder = folder
        self.is_first = (folder / "memory.usage_in_bytes").exists()

    @classmethod
    def make(cls) -> ControlGroup:
        """Make one without a limit; raises OSError."""
        above = ROOT / "memory" if (ROOT / "memory").is_dir() else ROOT
        folder = above / f"gdbmem-test-{os.getpid()}"
        folder.mkdir()
        return cls(folder)

    def set_limit(self, size_bytes: int) -> None:
        """Set its limit, which no swap moves; raises OSError if it counts no memory."""
        name = "memory.swappiness" if self.is_first else "memory.swap.max"
        if (self.folder / name).exists():
            (self.folder / name).write_text("0")
        (self.folder / ("memory.limit_in_bytes" if self.is_first else "memory.max")).write_text(
            str(size_bytes)
        )

    def start(self, *words: str, stdin: int | None = None) -> subprocess.Popen[bytes]:
        """Start a program in it."""
        return subprocess.Popen(words, stdin=stdin, preexec_fn=lambda: self.enter())

    def enter(self) -> None:
        """Move this process into it."""
        (self.folder / "cgroup.procs").write_text("0")

    def pids(self) -> Sequence[int]:
        """Return the processes in it."""
        return [int(pid) for pid in (self.folder / "cgroup.procs").read_text().split()]

    def is_held(self) -> bool:
        """Return whether something keeps the kernel from killing in it."""
        if self.is_first:
            return "oom_kill_disable 1" in (self.folder / "memory.oom_control").read_text()
        frozen = (self.folder / "cgroup.freeze").read_text()
        return (self.folder / "memory.high").read_text() != "max\n" or frozen != "0\n"

    def is_full(self) -> bool:
        """Return whether its processes wait for memory, or, in version 2, are slowed down."""
        if self.is_first:
            return "under_oom 1" in (self.folder / "memory.oom_control").read_text()
        high = (self.folder / "memory.high").read_text()
        return high != "max\n" and self.usage_bytes() >= int(high)

    def usage_bytes(self) -> int:
        """Return its usage, as its limit is compared with."""
        return int(
            (self.folder / ("memory.usage_in_bytes" if self.is_first else "memory.current")).read_text()
        )

    def kills(self) -> int:
        """Return how many of its processes the kernel has killed for lack of memory."""
        text = (self.folder / ("memory.oom_control" if self.is_first else "memory.events")).read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])

    def hold_at(self, size_bytes: int) -> None:
        """Let its processes fill it up to *size_bytes*, and none be killed for that."""
        if self.is_first:
            self.set_limit(size_bytes)
            (self.folder / "memory.oom_control").write_text("1")
        else:
            (self.folder / "cgroup.freeze").write_text("0")
            (self.folder / "memory.max").write_text("max")
            (self.folder / "memory.high").write_text(str(size_bytes))

    def stop(self) -> None:
        """Keep its processes, which have filled it, from running; in version 1 they do not run anyway."""
        if not self.is_first:
            (self.folder / "cgroup.freeze").write_text("1")
            await_that(lambda: "frozen 1" in (self.folder / "cgroup.events").read_text())
            self.set_limit(self.usage_bytes())

    def let_kill(self) -> None:
        """Let the kernel kill one of its processes for lack of memory, after stop(); the others stay as they are."""
        if self.is_first:
            (self.folder / "memory.oom_control").write_text("0")
        else:
            (self.folder / "memory.high").write_text("max")
            self.set_limit(self.usage_bytes() - (1 << 20))

    def remove(self) -> None:
        """End its processes, and remove it."""
        if self.is_first:
            (self.folder / "memory.oom_control").write_text("0")
        for _ in range(200):
            with contextlib.suppress(OSError):
                for pid in self.pids():
                    os.kill(pid, 9)
                self.folder.rmdir()
                return
            time.sleep(0.05)  # killed processes have to be waited for


def await_that(condition: Callable[[], bool]) -> None:
    """Wait until *condition* holds."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
