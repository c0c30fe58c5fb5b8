"""Runs of a process that was started elsewhere: all of its snapshots are collected in one folder."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from gdbmem.errors import InputError
from gdbmem.runs.distrust import check_own
from gdbmem.runs.run import Run, is_run, open_run
from gdbmem.text import printable


def run_for_process(
    program: str, process: Mapping[str, Any], *, parent: Path, folder: Optional[Path] = None
) -> tuple[Run, bool]:
    """Return the run in which snapshots of *process* collect, and whether it was made now.

    *process* identifies the process, also from a later one with the same pid: its ``pid`` and start time. The run is
    *folder*, or is in *parent*; a run that others may change is never reused.
    Raises InputError for a *folder* of another process or another user.
    """
    if folder is not None and folder.exists():
        if is_run(folder):
            check_own(folder)
            run = open_run(folder)
            if run.facts.get("process") == dict(process):
                return run, False
            raise InputError(
                f"{printable(str(folder))} is the run of another process",
                slug="run-exists",
                hint="name a new folder with --run",
            )
    elif folder is None:
        for candidate in sorted(parent.glob(f"gdbmem.*.{process['pid']}*")):
            with contextlib.suppress(InputError, OSError):  # of another user, or unreadable: not ours
                check_own(candidate)
                run = open_run(candidate)
                if run.facts.get("process") == dict(process):
                    return run, False
    run = Run.create(program, parent=parent, pid=process["pid"], folder=folder)
    run.update(process=dict(process))
    return run, True
