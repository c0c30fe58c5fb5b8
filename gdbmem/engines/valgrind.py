"""The common part of valgrind's tools as engines: their options, those that the launch sets, and the differences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, Protocol

from gdbmem.engines.engine import EngineTable
from gdbmem.errors import UsageError
from gdbmem.text import printable

# Options that the launch itself sets: with another value gdb would have no connection, or the run folder no files.
_OURS = (
    "--tool", "--vgdb", "--log-file", "--log-fd", "--log-socket", "--xml", "--massif-out-file", "--dhat-out-file",
    "--xtree-leak", "--xtree-memory", "--trace-children", "--gen-suppressions", "--command-line-only",
)  # fmt: skip


# The monitor command that prints what valgrind itself has mapped, and its line on the program's malloc blocks.
# Source: valgrind 3.16 to 3.24, coregrind/m_mallocfree.c, VG_(print_all_arena_stats).
MEMORY_COMMAND = "v.info memory"
_CLIENT_ARENA = re.compile(r"\bclient *: *[\d,]+/ *([\d,]+) max/curr mmap'd")


class ValgrindOptions:
    """The options under each of valgrind's tools."""

    def __init__(self, *, valgrind_opts: Sequence[str] = (), trace_children: bool = False) -> None:
        for option in valgrind_opts:
            refuse_ours(option)
        self.valgrind_opts = valgrind_opts
        self.trace_children = trace_children


class ValgrindEngine(Protocol):
    """The interface of the module of an engine that is one of valgrind's tools."""

    TABLE: EngineTable
    OPTIONS: type[ValgrindOptions]
    END: str  # what it writes at the program's end, in words
    SUFFIX: str  # of that file: it may make the format
    ENDING: bytes  # the line of its log when it begins to write that; b"": none

    def valgrind_arguments(self, options: Any, history: Path) -> list[str]:
        """Return the tool's own part of valgrind's command line; its file at the end goes to *history*.

        ``%p`` in *history* is the process; every other ``%`` must stand doubled.
        """

    def rescue_command(self, path: str) -> Optional[str]:
        """Return the monitor command that saves to *path* what a SIGKILL would lose; None: there is none."""


def client_arena_bytes(answer: str) -> Optional[int]:
    """Return the bytes mapped for the program's malloc blocks, of the *answer* to MEMORY_COMMAND; None: unknown."""
    found = _CLIENT_ARENA.search(answer)
    return int(found[1].replace(",", "")) if found else None


def shared_arguments(options: ValgrindOptions) -> list[str]:
    """Return the options that every tool gets, so that its stacks are complete."""
    return [
        f"--trace-children={yes(options.trace_children)}",
        # Whole paths, so that a source line can be shown from any folder.
        "--fullpath-after=",
        # Threads take turns fairly, and a library that was unloaded keeps its names.
        "--fair-sched=yes",
        "--keep-debuginfo=yes",
    ]


def refuse_ours(option: str) -> None:
    """Raise UsageError for an *option* of valgrind's that the launch sets itself, or that is none."""
    if not option.startswith("-"):
        raise UsageError(
            f"'{printable(option)}' is not an option of valgrind's",
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


def yes(flag: bool) -> str:
    """Return *flag* as valgrind writes it."""
    return "yes" if flag else "no"
