"""Read, compare and judge memory from Python, as the `gdbmem` command does.

The names in ``__all__`` are stable from 1.0 on; docs/api.md presents them with examples. Nothing is printed. A failure
is a `GdbmemError` with a message, a hint and the slug of its paragraph in docs/messages.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gdbmem.api.heaps import (
        encode_heap_blocks,
        heap,
        heap_blocks,
        heap_growth,
        heap_of_core,
        read_heap,
        whole_heap,
        whole_heap_of_core,
        write_heap,
    )
    from gdbmem.api.ledgers import (
        explain,
        explain_container,
        explain_core,
        explain_workers,
        read_ledger,
    )
    from gdbmem.api.profiles import (
        Loaded,
        ReadOptions,
        diff,
        export,
        open_profile,
        rank,
        read_snapshot,
        read_snapshots,
        read_stretch,
    )
    from gdbmem.api.ranks import read_ranks
    from gdbmem.api.recipes import ExpectationVerdict, Recipe, RecipeResult, load_recipe, run_recipe
    from gdbmem.api.series import compare, summarize
    from gdbmem.errors import (
        GdbmemError,
        InputError,
        MissingToolError,
        Notice,
        TargetError,
        ToolError,
        UsageError,
    )
    from gdbmem.model.calltree import CallTree, Frame, Profile, Snapshot, Totals
    from gdbmem.model.diff import Diff, Side
    from gdbmem.model.groups import CgroupEntry, CgroupLedger, CgroupProcess
    from gdbmem.model.heap_graph import HeapGrowth, HeapQuery, HeapView, SavedHeap
    from gdbmem.model.ledger import Entry, Ledger
    from gdbmem.model.ranks import RankRow, Ranks, RankState
    from gdbmem.model.series import Comparison, Difference, LineSummary, Regime, SeriesSummary, Slope, Verdict
    from gdbmem.profiles.paths import Query
    from gdbmem.profiles.ranking import Amount, Ranking, Row

# Where each name is defined. A name is imported when it is first used: a program that only reads a massif file does
# not import the code that reads processes (importing all takes 300 ms more).
_HOMES = {
    "api.heaps": (
        "encode_heap_blocks", "heap", "heap_blocks", "heap_growth", "heap_of_core", "read_heap", "whole_heap",
        "whole_heap_of_core", "write_heap",
    ),
    "api.ledgers": ("explain", "explain_container", "explain_core", "explain_workers", "read_ledger"),
    "api.profiles": (
        "Loaded", "ReadOptions", "diff", "export", "open_profile", "rank", "read_snapshot", "read_snapshots",
        "read_stretch",
    ),
    "api.ranks": ("read_ranks",),
    "api.recipes": ("ExpectationVerdict", "Recipe", "RecipeResult", "load_recipe", "run_recipe"),
    "api.series": ("compare", "summarize"),
    "errors": ("GdbmemError", "InputError", "MissingToolError", "Notice", "TargetError", "ToolError", "UsageError"),
    "model.calltree": ("CallTree", "Frame", "Profile", "Snapshot", "Totals"),
    "model.diff": ("Diff", "Side"),
    "model.groups": ("CgroupEntry", "CgroupLedger", "CgroupProcess"),
    "model.heap_graph": ("HeapGrowth", "HeapQuery", "HeapView", "SavedHeap"),
    "model.ledger": ("Entry", "Ledger"),
    "model.ranks": ("RankRow", "RankState", "Ranks"),
    "model.series": ("Comparison", "Difference", "LineSummary", "Regime", "SeriesSummary", "Slope", "Verdict"),
    "profiles.paths": ("Query",),
    "profiles.ranking": ("Amount", "Ranking", "Row"),
}  # fmt: skip

__all__ = [
    "Amount",
    "CallTree",
    "CgroupEntry",
    "CgroupLedger",
    "CgroupProcess",
    "Comparison",
    "Diff",
    "Difference",
    "Entry",
    "ExpectationVerdict",
    "Frame",
    "GdbmemError",
    "HeapGrowth",
    "HeapQuery",
    "HeapView",
    "InputError",
    "Ledger",
    "LineSummary",
    "Loaded",
    "MissingToolError",
    "Notice",
    "Profile",
    "Query",
    "RankRow",
    "RankState",
    "Ranking",
    "Ranks",
    "ReadOptions",
    "Recipe",
    "RecipeResult",
    "Regime",
    "Row",
    "SavedHeap",
    "SeriesSummary",
    "Side",
    "Slope",
    "Snapshot",
    "TargetError",
    "ToolError",
    "Totals",
    "UsageError",
    "Verdict",
    "compare",
    "diff",
    "encode_heap_blocks",
    "explain",
    "explain_container",
    "explain_core",
    "explain_workers",
    "export",
    "heap",
    "heap_blocks",
    "heap_growth",
    "heap_of_core",
    "load_recipe",
    "open_profile",
    "rank",
    "read_heap",
    "read_ledger",
    "read_ranks",
    "read_snapshot",
    "read_snapshots",
    "read_stretch",
    "run_recipe",
    "summarize",
    "whole_heap",
    "whole_heap_of_core",
    "write_heap",
]


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'gdbmem.api' has no attribute '{name}'")
    return getattr(importlib.import_module(f"gdbmem.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
