"""A line at the bottom of the terminal that names the work of a command, while it takes long."""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Optional

from gdbmem.text import printable

if TYPE_CHECKING:
    from rich.progress import Progress

_SECONDS_UNTIL_DRAWN = 1.0


class Working:
    """Shows *what* is done and for how long, on the standard error of a terminal, after a second; then clears it.

    A console that prints ends it, too. Without a terminal, or without rich (as in gdb's own Python), nothing is shown.
    """

    _shown: ClassVar[Optional[Working]] = None

    def __init__(self, what: str, *, after: float = _SECONDS_UNTIL_DRAWN) -> None:
        self._what, self._after = printable(what), after
        self._lock = threading.Lock()
        self._timer: Optional[threading.Timer] = None
        self._drawn: Optional[Progress] = None
        self._is_over = False

    def __enter__(self) -> Working:
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            self._timer = threading.Timer(self._after, self._draw)
            self._timer.daemon = True
            self._timer.start()
            Working._shown = self
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.end()

    def end(self) -> None:
        """Clear it, and draw no more."""
        if self._timer is None:
            return
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            Working._shown = None
            if self._drawn is not None:
                self._drawn.stop()
                self._drawn = None

    @classmethod
    def end_shown(cls) -> None:
        """End what is shown, if anything is: something will be printed."""
        if cls._shown is not None:
            cls._shown.end()

    @classmethod
    def print_above(cls, sentence: str) -> None:
        """Print *sentence* on the standard error, above what is shown."""
        shown = cls._shown
        if shown is None or shown._drawn is None:
            print(sentence, file=sys.stderr, flush=True)
        else:
            shown._drawn.console.print(sentence, markup=False, highlight=False)

    def _draw(self) -> None:
        try:
            from rich.console import Console  # only for what takes long
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        except ImportError:
            return
        with self._lock:
            if self._is_over:
                return
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
            console = Console(stderr=True, highlight=False)
            self._drawn = Progress(
                *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._drawn.add_task(self._what, total=None)
            self._drawn.start()
            self._drawn.console.show_cursor()  # nothing would show it again if this process were killed
