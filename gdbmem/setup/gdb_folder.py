"""The folder of the packages for gdb's own Python. The loader asks at each start of gdb: no import but these."""

from __future__ import annotations

import os
import sys


def data_folder_path() -> str:
    """Return the folder for what gdbmem keeps between runs: ``$XDG_DATA_HOME/gdbmem``."""
    configured = os.environ.get("XDG_DATA_HOME", "")
    # The specification requires that a relative path is ignored.
    if not configured.startswith("/"):
        configured = os.path.expanduser("~/.local/share")  # noqa: PTH111  (pathlib costs gdb 3 ms)
    return f"{configured.rstrip('/')}/gdbmem"


def private_folder_path(major: int = sys.version_info[0], minor: int = sys.version_info[1]) -> str:
    """Return the folder that holds pygments for a gdb with that Python (default: this one)."""
    return f"{data_folder_path()}/gdb-python{major}.{minor}"
