"""rich's tables and text, or plain ones where gdb's Python has no rich: what was recorded is printed all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

HAS_RICH = True

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text
else:
    try:
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        from gdbmem.report.plain import PlainTable as Table
        from gdbmem.report.plain import PlainText as Text

        HAS_RICH = False

__all__ = ["HAS_RICH", "Table", "Text"]
