"""The name of the program that a process runs, which is not that of the valgrind around it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gdbmem.linux.process.living import memory_folder

_VALGRINDS = ("valgrind", "valgrind.bin")  # the second is what Debian's script executes


def program_name(name: str, words: Sequence[str]) -> str:
    """Return the name of the program of a process that the kernel calls *name*, with *words* as its command line.

    Valgrind's tools are programs called TOOL-PROCESSOR-linux ("massif-amd64-li" to the kernel) that load the program.
    """
    if "-" not in name or not words or words[0].rpartition("/")[2] not in _VALGRINDS:
        return name
    program = next((word for word in words[1:] if not word.startswith("-")), "")
    return program.rpartition("/")[2] or name


def words_of(pid: int) -> list[str]:
    """Return the command line of process *pid*; [] if it has ended."""
    try:
        return os.fsdecode(Path(f"{memory_folder(pid)}/cmdline").read_bytes()).split("\0")[:-1]
    except OSError:
        return []
