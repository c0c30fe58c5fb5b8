"""Dumps that a profiler took by itself during a run: recorded at its end, each with its process."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from gdbmem.errors import GdbmemError, Notice
from gdbmem.formats.opening import OpenOptions, open_profile
from gdbmem.launch.native import PREFIX
from gdbmem.patterns import lazy_pattern
from gdbmem.runs.run import OWN, Run

# own.PROCESS.NUMBER.i0.heap is jemalloc's; own_PROCESS.0001.heap gperftools' of a program that was executed.
_OF_PROCESS = lazy_pattern(rf"{PREFIX}(?:\.(\d+)\.\d+\.\w+|_(\d+)\.\d+)\.heap")


def collect_own_dumps(run: Run, engine: str, began: float) -> Sequence[Notice]:
    """Record the dumps that the engine took by itself in *run*; return notices on them.

    *began* is seconds since 1970.
    """
    known = {record.file for record in run.snapshots if not record.base_name.startswith("unnamed-")}
    unsigned: list[int] = []  # bytes allocated until each dump without a process id
    for path in sorted((run.folder / "snapshots").glob(f"{PREFIX}*.heap"), key=_order):
        file = f"snapshots/{path.name}"
        if file in known or not path.stat().st_size:
            continue
        process = _process(path)
        seconds = round(max(0.0, path.stat().st_mtime - began), 3)
        total = _total(path, None)
        run.append(OWN, file=file, engine=engine, seconds=seconds, heap_bytes=total, process=process)
        allocated = _total(path, "allocated") if process is None else None
        unsigned += [] if allocated is None else [allocated]
    if all(earlier <= later for earlier, later in zip(unsigned, unsigned[1:])):
        return []
    # The total of allocated bytes of a process never shrinks.
    text = f"a forked child has dumped too, under its parent's file names: the origin of those called {OWN} is unknown"
    return [Notice("mixed-dumps", text)]


def _process(path: Path) -> Optional[int]:
    found = _OF_PROCESS.fullmatch(path.name)
    return int(found[1] or found[2]) if found is not None else None


def _total(path: Path, metric: Optional[str]) -> Optional[int]:
    with contextlib.suppress(GdbmemError):
        return open_profile(path, OpenOptions(metric=metric)).snapshots[0].total_bytes
    return None


def _order(path: Path) -> tuple[int, list[int]]:
    # Files that are written in the same few milliseconds get the same time.
    return path.stat().st_mtime_ns, [int(number) for number in re.findall(r"\d+", path.name)]
