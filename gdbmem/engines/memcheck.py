"""Valgrind's memcheck: exact heap bytes per call path, and the blocks that no pointer reaches."""

from __future__ import annotations

from pathlib import Path

from gdbmem.engines.engine import VALGRIND, EngineTable
from gdbmem.engines.valgrind import ValgrindOptions, shared_arguments

NAME = "memcheck"

TABLE = EngineTable(
    name=NAME,
    runs=VALGRIND,
    summary="exact heap bytes per call path, by kind (leaked, still reachable); pointers that keep a block alive",
    cost="20 to 70 times slower (200 with fused multiply-add), twice the memory; a snapshot searches the whole heap",
    counts="requested bytes, exact",
    blind=(
        "memory that is still reachable but no longer needed: use memdiff for that, not memleaks",
        "instructions that valgrind does not support (AVX-512)",
        "a static program's heap",
        "threads at the same time: valgrind runs one at a time",
    ),
    package="valgrind",
)

OPTIONS = ValgrindOptions
END = "the heap at the end"
SUFFIX = ".ms"
ENDING = b"HEAP SUMMARY"  # a leak search comes between that and the file

# A pointer into the middle of a block counts where C++ makes such.
_HEURISTICS = "heuristics all"
_LOST = f"kinds definite,indirect,possible {_HEURISTICS}"


def valgrind_arguments(options: ValgrindOptions, history: Path) -> list[str]:
    """Return memcheck's own part of valgrind's command line; the heap at the end goes to *history*.

    Losses are reported in valgrind's log.

    ``%p`` in *history* is the process; every other ``%`` must stand doubled.
    """
    return [
        "--tool=memcheck",
        "--xtree-memory=allocs",
        f"--xtree-memory-file={history}",
        "--leak-check=full",
        "--show-leak-kinds=definite,indirect,possible",
        # As deep as massif's: a path that is cut is indistinguishable from another one.
        "--num-callers=30",
        *shared_arguments(options),
        *options.valgrind_opts,
    ]


def rescue_command(path: str) -> str:
    """Return the monitor command that saves to *path* what a SIGKILL would lose: the heap by path."""
    return heap_command(path)


def heap_command(path: str) -> str:
    """Return the monitor command that writes the heap by call path to *path*, which has no blank and ends in .ms.

    That ending selects massif's format, which names inlined functions; callgrind's does not.
    """
    return f"xtmemory {path}"


def leaks_command(*, changed: bool) -> str:
    """Return the monitor command that lists what is lost; *changed*: only what has since the last search."""
    return f"leak_check full {_LOST} {'changed' if changed else 'any'}"


def search_command() -> str:
    """Return the monitor command that lists all blocks by call path, also those that are reached."""
    return f"leak_check full kinds all {_HEURISTICS} any"


def blocks_command(record: int, limit: int) -> str:
    """Return the monitor command that lists up to *limit* blocks of a loss record of the last search."""
    return f"block_list {record} limited {limit}"


def all_blocks_command(records: int) -> str:
    """Return the monitor command that lists the blocks of the first *records* loss records of the last search."""
    return f"block_list 1..{records} unlimited"


def addressable_command(address: int, size: int) -> str:
    """Return the monitor command that says whether the program may use the *size* bytes at *address*."""
    return f"check_memory addressable {address:#x} {size}"


def pointers_command(address: int, size: int) -> str:
    """Return the monitor command that searches for pointers to *address*, or into the *size* bytes from there."""
    return f"who_points_at {address:#x} {size}"


def location_command(address: int) -> str:
    """Return the monitor command that describes the block of *address*."""
    return f"v.info location {address:#x}"
