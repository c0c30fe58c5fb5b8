"""The folders for what gdbmem keeps, as text: gdb's loader asks at each start, and imports nothing else for it."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


def data_folder() -> str:
    """Return the folder for what gdbmem keeps between runs: ``$XDG_DATA_HOME/gdbmem``."""
    configured = os.environ.get("XDG_DATA_HOME", "")
    # The specification requires that a relative path is ignored.
    if not configured.startswith("/"):
        configured = os.path.expanduser("~/.local/share")  # noqa: PTH111  (gdb starts sooner without pathlib)
    return os.path.join(configured, "gdbmem")  # noqa: PTH118  (likewise)


def private_folder(version: Optional[tuple[int, int]] = None) -> str:
    """Return the folder that holds pygments for a gdb with Python *version* (default: this one)."""
    major, minor = version or sys.version_info[:2]
    return f"{data_folder()}/gdb-python{major}.{minor}"
