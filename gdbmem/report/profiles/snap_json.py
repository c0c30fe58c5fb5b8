"""One snapshot that `gdbmem snap` took, as JSON, ``kind=snap``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gdbmem.errors import Notice
from gdbmem.report.document import head, to_json
from gdbmem.report.profiles.run_json import record_object
from gdbmem.report.profiles.run_text import Record

STARTED_NOW = "profiler-started"


def snap_json(record: Record, run: Path, pause_seconds: float, notes: Sequence[str]) -> str:
    """Return *record* of the folder *run* as ``kind=snap``; *notes* are what the user must know."""
    said = [Notice(STARTED_NOW, note) for note in notes]
    return to_json(
        {
            **head("snap", said),
            "run": str(run),
            "pause_seconds": pause_seconds,
            "snapshot": record_object(record),
        }
    )
