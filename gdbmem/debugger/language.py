"""Evaluating gdbmem's own expressions as C, whatever the language of the current frame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gdb


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Make gdb parse expressions as *language* ("c", "c++") during the block."""
    before = str(gdb.parameter("language"))
    gdb.execute(f"set language {language}", to_string=True)
    try:
        yield
    finally:
        gdb.execute(f"set language {before}", to_string=True)
