"""Valgrind's massif: exact heap bytes per call path, at the price of a program many times slower."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gdbmem.engines.engine import VALGRIND, EngineTable
from gdbmem.engines.valgrind import ValgrindOptions, refuse_ours, shared_arguments, yes
from gdbmem.errors import UsageError
from gdbmem.text import printable

NAME = "massif"

TABLE = EngineTable(
    name=NAME,
    runs=VALGRIND,
    summary="exact heap bytes per call path, for any dynamically linked program",
    cost="2 to 25 times slower; 200 and more with fused multiply-add, as in matrix libraries",
    counts="requested bytes, exact; pages with --pages-as-heap",
    blind=(
        "instructions that valgrind does not support (AVX-512)",
        "a static program's heap (use --pages-as-heap)",
        "threads at the same time: valgrind runs one at a time",
    ),
    package="valgrind",
)

END = "massif's own history"
SUFFIX = ".out"
ENDING = b""

TIME_UNITS = ("i", "ms", "B")


class MassifOptions(ValgrindOptions):
    """The options; the defaults are those that an exact diff needs."""

    def __init__(
        self,
        *,
        threshold: str = "0",  # percent of the total under which massif merges paths; 0: none is hidden
        pages_as_heap: bool = False,
        stacks: bool = False,
        time_unit: str = "i",
        alloc_fns: Sequence[str] = (),
        massif_opts: Sequence[str] = (),
        **of_valgrind: Any,
    ) -> None:
        super().__init__(**of_valgrind)
        if time_unit not in TIME_UNITS:
            raise UsageError(
                f"time unit '{printable(time_unit)}' is unknown to massif",
                slug="bad-option",
                hint="i, ms or B",
            )
        try:
            valid = 0 <= float(threshold) <= 100
        except ValueError:
            valid = False
        if not valid:
            raise UsageError(
                f"threshold '{printable(threshold)}' is not a percentage", slug="bad-option", hint="0 to 100"
            )
        for option in massif_opts:
            refuse_ours(option)
        self.threshold = threshold
        self.pages_as_heap = pages_as_heap
        self.stacks = stacks
        self.time_unit = time_unit
        self.alloc_fns = alloc_fns
        self.massif_opts = massif_opts


OPTIONS = MassifOptions


def valgrind_arguments(options: MassifOptions, history: Path) -> list[str]:
    """Return massif's own part of valgrind's command line; its file at the end goes to *history*.

    ``%p`` in *history* is the process; every other ``%`` must stand doubled.
    """
    arguments = [
        "--tool=massif",
        f"--massif-out-file={history}",
        f"--threshold={options.threshold}",
        f"--pages-as-heap={yes(options.pages_as_heap)}",
        f"--stacks={yes(options.stacks)}",
        f"--time-unit={options.time_unit}",
        "--depth=100",  # massif's 30 end within a library of templates or Rust's
        *shared_arguments(options),
    ]
    arguments += [f"--alloc-fn={name}" for name in options.alloc_fns]
    return [*arguments, *options.massif_opts, *options.valgrind_opts]


def snapshot_command(path: str) -> str:
    """Return the monitor command that writes a detailed snapshot to *path* (no blank in it)."""
    return f"detailed_snapshot {path}"


def history_command(path: str) -> str:
    """Return the monitor command that writes massif's own history to *path* (no blank in it)."""
    return f"all_snapshots {path}"


def rescue_command(path: str) -> str:
    """Return the monitor command that saves to *path* what a SIGKILL would lose."""
    return history_command(path)
