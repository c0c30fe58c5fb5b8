"""The window of `layout memwatch`: resident memory, its last change and history, the lines that grew most."""

from __future__ import annotations

from typing import Any, Optional

import gdb

from gdbmem.debugger.memwatch.commands.auto import auto
from gdbmem.debugger.memwatch.gauges.gauge import accounts
from gdbmem.errors import GdbmemError
from gdbmem.model.steps import Step
from gdbmem.steps.charts import totals
from gdbmem.steps.steps import noun, place, sum_steps
from gdbmem.terminal.drawing import sparkline
from gdbmem.text import format_delta, format_size, printable

_RED, _GREEN, _DIM, _BOLD, _PLAIN = "\033[31m", "\033[32m", "\033[2m", "\033[1m", "\033[0m"
# gdb 10 writes into a window byte by byte, which garbles all but ASCII. Only its version reveals this.
_LEVELS = " _.:-=+*#" if gdb.VERSION.startswith("10.") else " ▁▂▃▄▅▆▇█"


class MemoryWindow:
    """The window called memwatch; gdb calls render, close and the scroll methods."""

    def __init__(self, window: Any) -> None:
        self._window = window
        self._window.title = "memory"
        self._first = 0  # of the listed lines
        auto.watch(self.render)

    def close(self) -> None:
        """Called by gdb when the window goes away."""
        auto.unwatch(self.render)

    def vscroll(self, count: int) -> None:
        """Called by gdb: move by *count* lines."""
        self._first = max(self._first + count, 0)
        self.render()

    def render(self) -> None:
        """Redraw everything, after a stop and when the size has changed."""
        if not self._window.is_valid():
            return
        width, height = self._window.width, self._window.height
        rows = self._rows(width)[:height]
        text = "\n".join(rows)
        self._window.erase()
        self._window.write(text)

    def _rows(self, width: int) -> list[str]:
        try:
            account = accounts.current()
            size_bytes = account.gauge.read()
        except (GdbmemError, gdb.error) as error:
            return [printable(str(error))[:width]]
        steps = account.steps
        size = "?" if size_bytes is None else format_size(size_bytes)
        rows = [f"{_BOLD}{size}{_PLAIN} {noun(account.gauge.source)}"]
        if not steps:
            return [*rows, f"{_DIM}{'step or continue'[:width]}{_PLAIN}"]
        last = steps[-1]
        rows.append(f"{_coloured(last.delta_bytes, last)} at {place(last)}"[: width + 9])
        rows.append(sparkline(totals(steps)[-width:], _LEVELS))
        rows.append(f"{_DIM}{f'{format_delta(totals(steps)[-1])} in {len(steps):,} steps'[:width]}{_PLAIN}")
        grown = [one for one in sum_steps(steps) if one.delta_bytes]
        for one in grown[self._first :]:
            where = f"{(one.file or '?').rpartition('/')[2]}:{one.line or '?'}"
            rows.append(f"{_paint(one.delta_bytes)}{format_delta(one.delta_bytes):>11}{_PLAIN} "
                        f"{printable(where)[: max(width - 12, 0)]}")  # fmt: skip
        return rows


def _coloured(delta_bytes: Optional[int], step: Step) -> str:
    shared = " shared" if step.lock == "shared" else ""
    text = "?" if delta_bytes is None else format_delta(delta_bytes)
    return f"{_paint(delta_bytes)}{text}{_PLAIN}{shared}"


def _paint(delta_bytes: Optional[int]) -> str:
    return _RED if delta_bytes and delta_bytes > 0 else _GREEN if delta_bytes and delta_bytes < 0 else _DIM
