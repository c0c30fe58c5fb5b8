"""The resident memory of a process at one moment, for comparison with its page faults."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Optional

from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import parse_smaps
from gdbmem.linux.memory.pages import PAGE, Ranges, huge_ranges, resident_kinds
from gdbmem.linux.memory.rollup import parse_rollup
from gdbmem.linux.process.living import memory_folder
from gdbmem.records import dataclass, field

_LAST_ADDRESS = 1 << 63  # the kernel's addresses begin after it


@dataclass(frozen=True)
class Reading:
    """The resident memory of a process at about one moment; sizes are bytes, times CLOCK_MONOTONIC in ns."""

    time: int  # when reading began
    rss_bytes: int = 0
    anonymous_bytes: int = 0
    shared_bytes: int = 0  # of pages that other processes have mapped too
    swap_bytes: int = 0
    anonymous: Ranges = field(default_factory=Ranges)  # resident pages
    files: Ranges = field(default_factory=Ranges)  # and those of files and shared memory
    huge: Ranges = field(default_factory=Ranges)  # of both, the huge ones
    until: int = 0  # when reading was complete: a running process changes meanwhile; 0: it took no time

    def within(self, start: int, end: int) -> int:
        """Return how much of an area is resident."""
        return self.anonymous.within(start, end) + self.files.within(start, end)

    @property
    def file_bytes(self) -> int:
        """Return the resident bytes of files and shared memory."""
        return self.rss_bytes - self.anonymous_bytes


def read_resident(pid: int) -> Optional[Reading]:
    """Return the resident memory of *pid*; None if it has ended or may not be read.

    It takes some 10 ms a GiB, and doesn't stop the process.
    """
    began = time.monotonic_ns()
    try:
        folder = Path(memory_folder(pid))
        rollup = parse_rollup((folder / "smaps_rollup").read_bytes())
        mappings = parse_smaps((folder / "maps").read_bytes())
        areas = [(one.start, one.end) for one in mappings if one.end < _LAST_ADDRESS]
        anonymous, files = resident_kinds(pid, areas) if areas else (Ranges(), Ranges())
        huge = huge_ranges(pid, areas) if areas else Ranges()
    except (OSError, KeyError, TargetError):
        return None
    if not resident_bytes(pid):  # it has ended meanwhile: the last values are not its memory
        return None
    return Reading(
        began,
        rollup.rss_bytes,
        rollup.anonymous_bytes,
        rollup.rss_bytes - rollup.uss_bytes,
        rollup.swap_bytes,
        anonymous,
        files,
        huge,
        until=time.monotonic_ns(),
    )


def resident_bytes(pid: int) -> Optional[int]:
    """Return the resident bytes by statm alone; None if the process has ended."""
    statm = _statm(f"/proc/{pid}") or _statm(memory_folder(pid))
    return statm or None


def _statm(folder: str) -> int:
    """Return the resident bytes in a statm; 0 if there is none, or its thread has ended."""
    try:
        with open(f"{folder}/statm", "rb", buffering=0) as stream:  # noqa: PTH123  (hot path)
            words = stream.read(256).split()
    except OSError:
        return 0
    return int(words[1]) * PAGE if len(words) > 1 else 0
