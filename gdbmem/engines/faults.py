"""Page faults: the kernel samples which lines make memory resident, and a snapshot has what is resident by then."""

from __future__ import annotations

from collections.abc import Mapping

from gdbmem.engines.engine import NATIVE, EngineTable, NativeOptions
from gdbmem.errors import UsageError

NAME = "faults"

TABLE = EngineTable(
    name=NAME,
    runs=NATIVE,
    summary="resident memory by the lines that touched it first, with any allocator; nothing is preloaded",
    cost="almost none: up to 1000 page faults per second are sampled",
    counts="resident pages, exact; the lines that touched them are estimated from samples, with the error",
    blind=(
        "which lines allocate: a line that touches freed memory again makes nothing resident",
        "pages of files that one fault maps together, and pages inherited from its parent",
        "faults in kernel mode, for ordinary users (such as read() into fresh memory)",
    ),
    package="libdw1",
    options=("period",),
    reads_memory=True,
)


def environment(prefix: str, options: NativeOptions) -> Mapping[str, str]:
    """Return nothing: the program runs unchanged. Raises UsageError for an invalid period."""
    if options.period is not None and not 1 <= options.period < 1 << 31:
        raise UsageError(
            f"--period is a number of page faults from 1 on, not {options.period}", slug="bad-option"
        )
    return {}
