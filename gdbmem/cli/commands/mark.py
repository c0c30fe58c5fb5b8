"""Run `gdbmem mark`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from gdbmem.commands.arguments import ArgumentParser
from gdbmem.errors import InputError, UsageError
from gdbmem.linux.monitoring.sampling import clock_of
from gdbmem.runs.distrust import check_own
from gdbmem.runs.run import current_folder, has_series
from gdbmem.series.store import Recording, add_mark, is_being_written
from gdbmem.text import printable

_LONGEST = 200


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Set the mark."""
    args = parser.parse_args(argv)
    if not args.text.strip() or len(args.text) > _LONGEST:
        raise UsageError(f"a mark has 1 to {_LONGEST} characters")

    folder = _find(args.run)
    check_own(folder)
    recording = Recording(folder)
    recording.close()
    add_mark(folder, args.text, clock_of(recording.facts)())
    return 0


def _find(given: Optional[str]) -> Path:
    named = given or os.environ.get("GDBMEM_RUN")
    if named:
        return Path(named)
    live = [path for path in sorted(current_folder().iterdir()) if _is_live(path)]
    if len(live) == 1:
        return live[0]
    if live:
        names = ", ".join(printable(path.name) for path in live)
        raise InputError(
            f"several monitors are running here: {names}", slug="no-monitor", hint="name one with --run"
        )
    raise InputError(
        "no monitor is recording in this folder", slug="no-monitor", hint="name its run folder with --run"
    )


def _is_live(folder: Path) -> bool:
    with contextlib.suppress(OSError):  # a folder of another user
        return has_series(folder) and is_being_written(folder)
    return False
