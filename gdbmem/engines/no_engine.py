"""No heap profiler at all: gdb, with the ledger and what else needs no help from the allocator."""

from __future__ import annotations

from collections.abc import Mapping

from gdbmem.engines.engine import NATIVE, Call, EngineTable, Inferior, NativeOptions
from gdbmem.errors import TargetError

TABLE = EngineTable(
    name="none",
    runs=NATIVE,
    summary="the program without a profiler, for commands that need none",
    cost="none",
    counts="nothing by itself",
    blind=("call paths, because it takes no snapshots",),
)


def environment(prefix: str, options: NativeOptions) -> Mapping[str, str]:
    """Return nothing: the program runs unchanged."""
    return {}


def snapshot(inferior: Inferior, prefix: str, target: str) -> Call:
    """Refuse: there is no profiler."""
    raise TargetError(
        "this program was launched without a heap profiler (--engine none)",
        slug="no-profiler",
        hint="quit gdb and launch it with --massif, --engine gperftools or --engine jemalloc",
    )
