"""Checks that the files that a user names as a series are in the order in which they were written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.text import plural, printable

_SLACK_SECONDS = 1  # files that were copied or unpacked together


def order_notices(operands: Sequence[str]) -> list[Notice]:
    """Return notices about *operands* as a series, oldest first: those named twice, and those out of order."""
    said = [
        Notice(
            "named-twice", f"{printable(name)} is named {plural(operands.count(name), 'time')}: each counts"
        )
        for name in dict.fromkeys(operands)
        if operands.count(name) > 1
    ]
    files = [(name, written) for name in operands if (written := _written(name))]
    for (earlier, before), (later, after) in zip(files, files[1:]):
        if before > after + _SLACK_SECONDS:
            text = f"{printable(earlier)} was written after {printable(later)}, which follows it"
            said.append(Notice("out-of-order", f"{text}: name the oldest first ('ls -tr' lists files so)"))
            break
    return said


def process_notices(taken: Sequence[tuple[str, Optional[int]]]) -> list[Notice]:
    """Return a notice if the snapshots of *taken* (name and process) are of several processes of one run."""
    known = [(name, process) for name, process in taken if process is not None]
    if len({process for _, process in known}) < 2:
        return []
    first, last = known[0], next(one for one in reversed(known) if one[1] != known[0][1])
    text = (
        f"{printable(first[0])} is of process {first[1]}, {printable(last[0])} of process {last[1]}:"
        " the program was restarted in between, so the difference is not the growth of one process"
    )
    return [Notice("other-process", text)]


def _written(name: str) -> float:
    try:
        return Path(name).stat().st_mtime if Path(name).is_file() else 0.0
    except (OSError, ValueError):
        return 0.0
