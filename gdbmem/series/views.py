"""Views of a recording while it runs: plain lines, values for Prometheus, an observer called with each sample."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Callable, Optional, Protocol, TextIO

from gdbmem.errors import InputError, MissingToolError
from gdbmem.linux.monitoring.tree import Look
from gdbmem.model.series import (
    COUNTERS,
    KINDS,
    READING_FIELDS,
    TREE,
    TREE_FIELDS,
    Mark,
    ProcessSample,
    SeriesLine,
    Verdict,
)
from gdbmem.text import format_duration, format_size, plural, printable

if TYPE_CHECKING:
    from prometheus_client.core import Metric


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
        self.readings = {n: r for n, r in found.items() if n == TREE or not self._has_gone(n)}

    def _has_gone(self, number: int) -> bool:
        line = self.lines.get(number)
        return line is not None and line.gone is not None

    def _filled(self, number: int, reading: ProcessSample, look: Look) -> ProcessSample:
        before = self.readings.get(number)
        if before is not None:
            if look.swept:  # values that this sample could not read are unknown
                before = before._replace(**dict.fromkeys(_SWEPT))
            reading = reading.filled_from(before)
        if number == TREE and look.alive > 1:
            reading = reading._replace(**dict.fromkeys(_UNKNOWN_OF_SEVERAL))
        return reading


# The values of a monitor, served to Prometheus in addition to another view.
#
# Values of the tree have separate names (gdbmem_tree_pss_bytes), so that sum() over processes counts nothing twice.
# A process is identified by its line, not its pid: respawned workers create no new series.


_JUDGE_EVERY_SECONDS, _JUDGE_BUDGET = 15.0, 0.01  # of a CPU
_MEANING = {
    "rss_bytes": "Resident set size, shared pages included; a tree of several processes has none",
    "pss_bytes": "Proportional set size: a page that N processes share counts 1/N for each",
    "uss_bytes": "Unique set size: resident pages that no other process shares",
    "shared_bytes": "Resident pages of files and shared memory",
    "swap_bytes": "Swapped out",
    "anonymous_bytes": "Resident anonymous memory; of the tree by PSS",
    "file_bytes": "Resident pages of files; of the tree by PSS",
    "shmem_bytes": "Resident shared memory; of the tree by PSS",
    "private_dirty_bytes": "Private pages that have been written to, what copy-on-write has copied included",
    "shared_dirty_bytes": "Shared pages that have been written to: inherited and not yet copied",
    "heap_bytes": "Resident in [heap], the main heap of malloc",
    "stack_bytes": "Resident in [stack], the first thread's",
    "minor_faults": "Page faults that read nothing from a disk",
    "major_faults": "Page faults that read from a disk",
    "threads": "Threads now",
    "threads_started": "Threads started",
    "open_files": "Open file descriptors",
    "cpu_seconds": "Processor time, user and system; of short-lived children a lower bound",
    "peak_rss_bytes": "Highest resident set size during the recording, by the kernel's own count",
    "gpu_bytes": "Memory on NVIDIA GPUs",
    "hugetlb_bytes": "Huge pages of the hugetlb pool, in neither RSS nor PSS",
    "family_bytes": "Anonymous and shared memory of a cgroup made for the program",
    "copied_bytes": "Inherited memory that forked processes have copied by writing to it",
    "copiers": "Forked processes that have copied inherited memory",
    "torn_rounds": "Reads of PSS left out because a process was born or died meanwhile",
    "cgroup_bytes": "Memory of the cgroup with the tightest limit, others' processes in it included",
    "cgroup_peak_bytes": "Highest memory of that cgroup since it was made",
    "cgroup_cache_bytes": "Part of the cgroup's memory that the kernel can drop immediately",
    "cgroup_limit_bytes": "Memory limit of the cgroup",
    "cgroup_limit_hits": "Times that the cgroup reached its limit",
    "cgroup_kills": "Processes that the kernel has killed at the cgroup's limit",
    "cgroup_shmem_bytes": "Files in memory (/dev/shm, memfds) that are charged to the cgroup",
    "family_kernel_bytes": "Kernel memory of a cgroup made for the program: pipes, sockets, page tables",
}


class PrometheusView(WatchedView):
    """Passes everything on to another view and answers scrapes with the last sample."""

    def __init__(
        self,
        view: View,
        host: str,
        port: int,
        *,
        tree_only: bool = False,
        judge: Optional[Callable[[], Verdict]] = None,
    ) -> None:
        """Serve on *host* and *port*, the tree's numbers and, unless *tree_only*, each process's.

        With *judge* also the verdict, updated as often as its cost allows. Raises MissingToolError, InputError.
        """
        try:
            import prometheus_client  # slow to import
        except ImportError:
            raise MissingToolError(
                "the package prometheus_client is missing",
                slug="no-prometheus",
                hint="pip install prometheus_client",
            ) from None
        self._latest = Latest()
        super().__init__(view, self._latest.take)
        self._tree_only = tree_only
        self._judge = judge
        self._verdict: Optional[Verdict] = None
        self._next_judgement = time.monotonic() + _JUDGE_EVERY_SECONDS
        registry = prometheus_client.CollectorRegistry()
        registry.register(self)
        try:
            self._server, _ = prometheus_client.start_http_server(port, host, registry)
        except OSError as error:
            raise InputError(
                f"cannot serve on {host}:{port}: {error.strerror}", slug="bad-port", hint="name a free port"
            ) from None
        self.port: int = self._server.server_port

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each number of the tree and of the processes."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # slow to import

        lines, readings = dict(self._latest.lines), dict(self._latest.readings)
        total = readings.pop(TREE, None)
        for field in READING_FIELDS:
            kind: Any = CounterMetricFamily if field in COUNTERS else GaugeMetricFamily
            value = getattr(total, field) if total is not None else None
            if value is not None:
                name = field if field in TREE_FIELDS else f"tree_{field}"
                yield kind(f"gdbmem_{name}", _help(field, whose="of all processes watched"), value=value)
            if self._tree_only or field in TREE_FIELDS:
                continue
            family = kind(f"gdbmem_{field}", _help(field, whose="of one process"), labels=("line", "name"))
            for number, reading in readings.items():
                value = getattr(reading, field)
                if value is not None and number in lines:
                    family.add_metric([str(number), printable(lines[number].name)], value)
            yield family
        if not self._tree_only:
            pids = GaugeMetricFamily("gdbmem_pid", "The process on this line now", labels=("line", "name"))
            for number in readings.keys() & lines.keys():
                pids.add_metric([str(number), printable(lines[number].name)], lines[number].pid)
            yield pids
        yield from self._verdicts()

    def _verdicts(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily  # slow to import

        now = time.monotonic()
        if self._judge is not None and now >= self._next_judgement:
            began = time.thread_time()
            self._verdict = self._judge()
            self._next_judgement = now + max(
                _JUDGE_EVERY_SECONDS, (time.thread_time() - began) / _JUDGE_BUDGET
            )
        verdict = self._verdict
        if verdict is None:
            return
        family = GaugeMetricFamily(
            "gdbmem_verdict", "1 for the verdict on the recording so far", labels=("kind",)
        )
        for kind in KINDS:
            family.add_metric([kind], float(verdict.kind == kind))
        yield family
        yield GaugeMetricFamily(
            "gdbmem_grows",
            "1 when memory is lost over time: it grows, or a sawtooth's floor rises",
            value=verdict.grows,
        )
        if verdict.slope is not None:
            for name, value in (
                ("", verdict.slope.value),
                ("_low", verdict.slope.low),
                ("_high", verdict.slope.high),
            ):
                yield GaugeMetricFamily(
                    f"gdbmem_slope{name}_bytes_per_second",
                    "Slope of the verdict, of a sawtooth's floor; low and high: its 95 % interval",
                    value=value,
                )

    def describe(self) -> list[Metric]:
        """Describe no metrics before the first sample."""
        return []


def _help(field: str, *, whose: str) -> str:
    return f"{_MEANING[field]} ({whose})" if field not in TREE_FIELDS else _MEANING[field]
