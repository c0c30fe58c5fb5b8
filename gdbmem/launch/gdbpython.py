"""gdb's own Python: which one it is, and the private folder of packages that gdbmem gives it.

The loader (`gdbinit/gdbmem`) imports this module inside gdb, so it imports next to nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Optional


def data_folder() -> Path:
    """Return the folder for what gdbmem keeps between runs: ``$XDG_DATA_HOME/gdbmem``."""
    configured = os.environ.get("XDG_DATA_HOME", "")
    # The specification says that a relative path here is to be ignored.
    root = Path(configured) if configured.startswith("/") else Path("~/.local/share").expanduser()
    return root / "gdbmem"


def private_folder(version: Optional[tuple[int, int]] = None) -> Path:
    """Return the folder that holds rich and pygments for a gdb with Python *version* (default: this one)."""
    major, minor = version or sys.version_info[:2]
    return data_folder() / f"gdb-python{major}.{minor}"
