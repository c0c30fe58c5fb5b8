"""Plain lines that a monitor prints while it runs, if no chart is drawn."""

from __future__ import annotations

from typing import Optional, TextIO

from gdbmem.linux.monitoring.tree import Look
from gdbmem.model.series.series import TREE, Mark, ProcessSample
from gdbmem.text import plural, printable
from gdbmem.units import format_duration, format_size

_EVERY_SECONDS = 10.0  # between two lines


class PlainView:
    """Periodic lines on the standard error."""

    shows_glances = False  # only complete samples are reported

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._next = 0.0
        self._begin: Optional[float] = None

    def show(self, look: Look) -> None:
        """Print a line if the last one is old enough."""
        self._begin = look.t if self._begin is None else self._begin
        total = dict(look.readings).get(TREE)
        if self._quiet or look.t < self._next or total is None:
            return
        self._next = look.t + _EVERY_SECONDS
        print(
            f"{format_duration(look.t - self._begin)}: {describe(total, look.alive)}",
            file=self._stream,
            flush=True,
        )

    def note(self, text: str) -> None:
        """Print a note."""
        print(f"gdbmem: {printable(text)}", file=self._stream, flush=True)

    def marked(self, mark: Mark) -> None:
        """Print a mark."""
        if not self._quiet:
            print(f"mark: {printable(mark.text)}", file=self._stream, flush=True)

    def keyboard(self) -> Optional[int]:
        """There are no keys."""
        return None

    def key(self) -> str:
        """There are no keys."""
        return ""


def describe(total: ProcessSample, alive: int) -> str:
    """Return a tree's *total* in a few words."""
    words = []
    if total.pss_bytes is not None:
        words.append(f"PSS {format_size(total.pss_bytes)}")
    if total.rss_bytes is not None:
        words.append(f"RSS {format_size(total.rss_bytes)}")
    words.append(plural(alive, "process", "processes"))
    if total.threads is not None:
        words.append(plural(total.threads, "thread"))
    return ", ".join(words)
