"""`layout memwatch`: gdb's text interface with a window that shows the program's memory at every stop."""

from __future__ import annotations

import gdb

TYPE_CHECKING = False  # typing itself takes gdb 4 ms to import
if TYPE_CHECKING:
    from typing import Any

NAME = "memwatch"
_LAYOUT = "{-horizontal src 2 memwatch 1} 2 status 0 cmd 1"


def register_layout() -> None:
    """Register `layout memwatch`, if this gdb has a text interface that supports custom windows."""
    if not hasattr(gdb, "register_window_type"):
        return
    try:
        gdb.register_window_type(NAME, _open)
        gdb.execute(f"tui new-layout {NAME} {_LAYOUT}", to_string=True)
    except (gdb.error, RuntimeError):  # built without it
        return


def _open(tui_window: Any) -> Any:
    from gdbmem.debugger.memwatch.commands.window import MemoryWindow  # gdb starts 20 ms sooner

    return MemoryWindow(tui_window)
