"""Valgrind's DHAT: one profile of a whole run, with what each call path allocated, held at the peak, and kept."""

from __future__ import annotations

from pathlib import Path

from gdbmem.engines.engine import VALGRIND, EngineTable
from gdbmem.engines.valgrind import ValgrindOptions, shared_arguments

NAME = "dhat"

TABLE = EngineTable(
    name=NAME,
    runs=VALGRIND,
    summary="one profile of the whole run: allocated in all, at the peak, at the end",
    cost="20 to 90 times slower; 200 and more with fused multiply-add, as in matrix libraries",
    counts="requested bytes, exact",
    blind=(
        "moments in between: it takes no snapshots",
        "anything, if the program is killed with SIGKILL: it writes at the end",
        "instructions that valgrind does not support (AVX-512)",
        "a static program's heap",
        "threads at the same time: valgrind runs one at a time",
    ),
    package="valgrind",
    whole_run=True,
)

OPTIONS = ValgrindOptions
END = "DHAT's profile of the whole run"
SUFFIX = ".out"
ENDING = b""


def valgrind_arguments(options: ValgrindOptions, history: Path) -> list[str]:
    """Return DHAT's own part of valgrind's command line; its profile at the end goes to *history*.

    ``%p`` in *history* is the process; every other ``%`` must stand doubled.
    """
    return [
        "--tool=dhat",
        f"--dhat-out-file={history}",
        "--num-callers=30",
        *shared_arguments(options),
        *options.valgrind_opts,
    ]


def rescue_command(path: str) -> None:
    """Return None: DHAT writes at the end or not at all."""
    return
