"""rich's parts, imported when they are first used; plain ones where gdb's Python has no rich.

Use them as ``drawing.Text``: importing this module imports nothing of rich, which takes 40 ms.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console as Console
    from rich.console import ConsoleOptions as ConsoleOptions
    from rich.console import Group as Group
    from rich.console import RenderableType as RenderableType
    from rich.console import RenderResult as RenderResult
    from rich.live import Live as Live
    from rich.padding import Padding as Padding
    from rich.segment import Segment as Segment
    from rich.segment import Segments as Segments
    from rich.table import Table as Table
    from rich.text import Text as Text

_MODULES = {
    "Console": "rich.console",
    "Group": "rich.console",
    "Live": "rich.live",
    "Padding": "rich.padding",
    "Segment": "rich.segment",
    "Segments": "rich.segment",
    "Table": "rich.table",
    "Text": "rich.text",
}
_PLAIN = {"Table": "PlainTable", "Text": "PlainText"}


def has_rich() -> bool:
    """Return whether this Python has rich; otherwise only tables and text can be drawn, without colours."""
    try:
        importlib.import_module("rich.text")
    except ImportError:
        return False
    return True


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(name)
    try:
        found: object = getattr(importlib.import_module(_MODULES[name]), name)
    except ImportError:
        if name not in _PLAIN:
            raise
        found = getattr(importlib.import_module("gdbmem.report.plain"), _PLAIN[name])
    globals()[name] = found
    return found
