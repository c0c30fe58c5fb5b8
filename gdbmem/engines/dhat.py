"""Valgrind's DHAT: one profile of a whole run, with what each call path allocated, held at the peak, and kept."""

from __future__ import annotations

from pathlib import Path

from gdbmem.engines.engine import VALGRIND, Table
from gdbmem.engines.valgrind import ValgrindOptions, shared_arguments

NAME = "dhat"

TABLE = Table(
    name=NAME,
    runs=VALGRIND,
    summary="one profile of the whole run: allocated in all, at the peak, at the end",
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
