"""The selected thread and frame, and their registers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Optional

import gdb


@contextmanager
def selection_kept() -> Iterator[None]:
    """Restore the selected thread and frame at the end of the block."""
    selected, frame = gdb.selected_thread(), _selected_frame()
    try:
        yield
    finally:
        if selected is not None and selected.is_valid():
            selected.switch()
            if frame is not None and frame.is_valid():
                frame.select()


def _selected_frame() -> Optional[gdb.Frame]:
    try:
        return gdb.selected_frame()
    except gdb.error:
        return None


def thread_pointer() -> int:
    """Return the thread pointer of the selected thread; 0 if gdb doesn't know it."""
    return register("$fs_base") or register("$tpidr")


def register(name: str) -> int:
    """Return a register of the selected frame as an unsigned number; 0 if there is none of that name."""
    try:
        value = gdb.parse_and_eval(name)
        return int(value) & (1 << 64) - 1
    except (gdb.error, OverflowError, ValueError):
        return 0  # this architecture has no such register
