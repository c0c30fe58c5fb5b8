"""Valgrind's massif: exact heap bytes per call path, at the price of a program 20 to 50 times slower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gdbmem.engines.engine import VALGRIND, Table
from gdbmem.errors import UsageError
from gdbmem.text import printable

NAME = "massif"

TABLE = Table(
    name=NAME,
    runs=VALGRIND,
    summary="exact heap bytes per call path, for any dynamically linked program",
    cost="20 to 50 times slower",
    counts="bytes as they were requested, exact; pages with --pages-as-heap",
    blind=(
        "instructions that valgrind doesn't know (AVX-512)",
        "a static program's heap (use --pages-as-heap)",
        "threads at the same time: valgrind runs one at a time",
    ),
    package="valgrind",
)

# Options that the launch itself needs as it sets them: another value would leave gdb without a
# connection, or the run folder without its files.
_OURS = (
    "--tool", "--vgdb", "--log-file", "--log-fd", "--log-socket", "--xml", "--massif-out-file",
    "--trace-children", "--gen-suppressions", "--command-line-only",
)  # fmt: skip

TIME_UNITS = ("i", "ms", "B")


@dataclass(frozen=True)
class MassifOptions:
    """What the user may choose; the defaults are what an honest diff needs."""

    threshold: str = "0"  # percent of the total under which massif merges paths; 0: none is hidden
    pages_as_heap: bool = False
    stacks: bool = False
    time_unit: str = "i"
    alloc_fns: Sequence[str] = ()
    massif_opts: Sequence[str] = ()
    valgrind_opts: Sequence[str] = ()
    trace_children: bool = False

    def __post_init__(self) -> None:
        if self.time_unit not in TIME_UNITS:
            raise UsageError(
                f"time unit '{printable(self.time_unit)}' is unknown to massif",
                slug="bad-option",
                hint="i, ms or B",
            )
        try:
            valid = 0 <= float(self.threshold) <= 100
        except ValueError:
            valid = False
        if not valid:
            raise UsageError(
                f"threshold '{printable(self.threshold)}' is no percentage",
                slug="bad-option",
                hint="0 to 100",
            )
        for option in (*self.massif_opts, *self.valgrind_opts):
            _refuse_ours(option)


def _refuse_ours(option: str) -> None:
    if not option.startswith("-"):
        raise UsageError(
            f"'{printable(option)}' is no option of valgrind's",
            slug="bad-option",
            hint="write it as in --valgrind-opt=--num-callers=50",
        )
    name = option.split("=", 1)[0]
    if any(name == ours or name.startswith(f"{ours}-") for ours in _OURS):
        raise UsageError(
            f"{printable(name)} is set by the launch itself",
            slug="option-taken",
            hint="leave it out; see 'gdbmem launch --help' for the options that take its place",
        )


def valgrind_arguments(options: MassifOptions, history: Path) -> list[str]:
    """Return massif's own part of valgrind's command line; its file at the end goes to *history*.

    ``%p`` in *history* is the process; every other ``%`` must stand doubled.
    """
    arguments = [
        "--tool=massif",
        f"--massif-out-file={history}",
        f"--threshold={options.threshold}",
        f"--pages-as-heap={_yes(options.pages_as_heap)}",
        f"--stacks={_yes(options.stacks)}",
        f"--time-unit={options.time_unit}",
        f"--trace-children={_yes(options.trace_children)}",
        # Whole paths, so that a source line can be shown from any folder.
        "--fullpath-after=",
        # Threads take turns fairly, and a library that was unloaded keeps its names.
        "--fair-sched=yes",
        "--keep-debuginfo=yes",
    ]
    arguments += [f"--alloc-fn={name}" for name in options.alloc_fns]
    return [*arguments, *options.massif_opts, *options.valgrind_opts]


def snapshot_command(path: str) -> str:
    """Return the monitor command that writes a detailed snapshot to *path* (no blank in it)."""
    return f"detailed_snapshot {path}"


def history_command(path: str) -> str:
    """Return the monitor command that writes massif's own history to *path* (no blank in it)."""
    return f"all_snapshots {path}"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
