"""Views of a recording while it runs: plain lines, an observer called with each sample, the latest values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional, Protocol, TextIO

from gdbmem.linux.monitoring.tree import Look
from gdbmem.model import series
from gdbmem.model.series import Mark, ProcessSample, SeriesLine
from gdbmem.text import format_duration, format_size, plural, printable

if TYPE_CHECKING:
    pass


# A view that passes everything on to another one, after calling an observer with each sample.


class View(Protocol):
    """The interface of a view of a recording; a view without a keyboard inherits what it says of one."""

    @property
    def shows_glances(self) -> bool:
        """True if glances have to be decoded and shown as samples."""

    def show(self, look: Look) -> None: ...
    def note(self, text: str) -> None: ...
    def marked(self, mark: Mark) -> None: ...

    def keyboard(self) -> Optional[int]:
        """Return a descriptor with keys to read, if there is one."""
        return None

    def key(self) -> str:
        """Return the command of the pending key: "quit", "mark", "pause", "sort" or ""."""
        return ""


class WatchedView:
    """Passes everything on after calling *see*."""

    def __init__(self, view: View, see: Callable[[Look], None], *, glances: bool = False) -> None:
        """Call *see* with each complete sample, with *glances* also with those in between."""
        self._view = view
        self._see = see
        self._glances = glances

    def show(self, look: Look) -> None:
        """Call the observer, then show it."""
        self._see(look)
        self._view.show(look)

    @property
    def shows_glances(self) -> bool:
        """True if glances are used."""
        return self._glances or self._view.shows_glances

    def note(self, text: str) -> None:
        """Pass it on."""
        self._view.note(text)

    def marked(self, mark: Mark) -> None:
        """Pass it on."""
        self._view.marked(mark)

    def keyboard(self) -> Optional[int]:
        """Pass it on."""
        return self._view.keyboard()

    def key(self) -> str:
        """Pass it on."""
        return self._view.key()


# Plain lines that a monitor prints while it runs, if no chart is drawn.


_EVERY_SECONDS = 10.0  # between two lines


class PlainView(View):
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
        total = dict(look.readings).get(series.TREE)
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


# The latest values of each process: a value missing in a sample is kept from the previous one.


_SWEPT = (
    "pss_bytes", "uss_bytes", "swap_bytes", "anonymous_bytes", "file_bytes", "shmem_bytes", "private_dirty_bytes",
    "shared_dirty_bytes", "hugetlb_bytes",
)  # fmt: skip
_UNKNOWN_OF_SEVERAL = ("rss_bytes", "shared_bytes")  # a sum would count shared pages several times


class Latest:
    """The lines of a tree and their last readings."""

    def __init__(self) -> None:
        self.lines: dict[int, SeriesLine] = {}
        self.readings: dict[int, ProcessSample] = {}  # of living processes, and of the tree

    def take(self, look: Look) -> None:
        """Add the sample *look*."""
        for line in look.changed_lines:
            before = self.lines.get(line.number, line)
            if (before.pid, before.start_ticks) != (line.pid, line.start_ticks):
                # The values of the previous process don't apply to its successor.
                self.readings.pop(line.number, None)
            self.lines[line.number] = line
        found = {number: self._filled(number, reading, look) for number, reading in look.readings}
        self.readings = {n: r for n, r in found.items() if n == series.TREE or not self._has_gone(n)}

    def _has_gone(self, number: int) -> bool:
        line = self.lines.get(number)
        return line is not None and line.gone is not None

    def _filled(self, number: int, reading: ProcessSample, look: Look) -> ProcessSample:
        before = self.readings.get(number)
        if before is not None:
            if look.swept:  # values that this sample could not read are unknown
                before = before._replace(**dict.fromkeys(_SWEPT))
            reading = reading.filled_from(before)
        if number == series.TREE and look.alive > 1:
            reading = reading._replace(**dict.fromkeys(_UNKNOWN_OF_SEVERAL))
        return reading
