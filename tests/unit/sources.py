"""The sources of the package as trees, parsed once and only where a test reads them."""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gdbmem"


@functools.cache
def trees() -> Mapping[Path, ast.Module]:
    """Return each module's path → its tree."""
    gc.disable()  # which would look through all of the nodes again and again, and so in later tests
    try:
        return {path: ast.parse(path.read_bytes()) for path in sorted(PACKAGE.rglob("*.py"))}
    finally:
        gc.freeze()
        gc.enable()
