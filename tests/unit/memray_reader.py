"""What memray's own reader says of a recording of two threads, for tests that run without memray."""

from __future__ import annotations

import datetime
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional

import pytest


class Interval(NamedTuple):
    allocated_before_snapshot: int
    deallocated_before_snapshot: Optional[int]
    n_allocations: int
    n_bytes: int


class Record(NamedTuple):
    function: str
    tid: int
    thread_name: str
    intervals: tuple[Interval, ...] = ()
    size: int = 0
    n_allocations: int = 1

    def stack_trace(self) -> list[tuple[str, str, int]]:
        return [(self.function, "app.py", len(self.function))]


class Snapshot(NamedTuple):
    time: int


class Reader:
    """A recording of 30 ms with a time each 10: what memray's own reader says of it."""

    def __init__(self, source: str) -> None:
        began = datetime.datetime.fromtimestamp(1000, datetime.timezone.utc)
        self.metadata = types.SimpleNamespace(
            has_native_traces=False,
            command_line="app.py",
            start_time=began,
            end_time=began + datetime.timedelta(seconds=0.035),
        )

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def get_memory_snapshots(self) -> Iterator[Snapshot]:
        return (Snapshot(1_000_000 + 10 * n) for n in range(4))

    def get_temporal_allocation_records(self, merge_threads: bool) -> Iterator[Record]:
        yield Record("early", 1, "", (Interval(1, 3, 2, 200), Interval(1, None, 1, 50)))
        yield Record("late", 2, "wor\x1b]8;;ker", (Interval(2, None, 4, 40), Interval(2, 3, 1, 10)))
        yield Record("finally", 2, "wor\x1b]8;;ker", (Interval(4, None, 1, 1000),))

    def get_leaked_allocation_records(self, merge_threads: bool) -> Iterator[Record]:
        yield Record("early", 1, "", size=50)
        yield Record("late", 2, "wor\x1b]8;;ker", size=40, n_allocations=4)


def memray_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a file in *folder* that memray, replaced by Reader, can read."""
    monkeypatch.setitem(sys.modules, "memray", types.SimpleNamespace(FileReader=Reader))
    file = folder / "memray.bin"
    file.write_bytes(b"memray\0 and what only memray reads")
    return str(file)
