"""The exit status of a monitor, from its judgements and the program's own status."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gdbmem.model.judgement import MET, NOT_MET, Judgement, exit_status


def judged_status(judgements: Sequence[Judgement], status: int) -> int:
    """Return the exit status: of a gate that of *judgements*, with the reason on the standard error; else *status*."""
    if not judgements:
        return status
    for one in judgements:
        if one.judged != MET:
            outcome = "not met" if one.judged == NOT_MET else "not judged"
            print(f"gdbmem: {outcome}: {one.sentence}", file=sys.stderr)
    return exit_status(judgements)
