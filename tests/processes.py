"""Finding the processes that a test has started, wherever they have gone since."""

from __future__ import annotations

import os
from pathlib import Path

# A variable that every process a test starts inherits, and theirs: nobody else's valgrind or gdb has it.
MARKER = "GDBMEM_TEST"


def marked_processes(mark: str) -> dict[int, str]:
    """Return pid → command line of the processes with *mark* in their environment, but this one."""
    entry = f"{MARKER}={mark}".encode()
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            # A zombie that its parent has yet to reap has an empty environment: it is gone.
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = words.decode(errors="replace").strip()
        except OSError:
            continue  # gone meanwhile, or another user's
    return found
