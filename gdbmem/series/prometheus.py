"""The values of a monitor, served to Prometheus in addition to another view.

Values of the tree have separate names (gdbmem_tree_pss_bytes), so that sum() over processes counts nothing twice. A
process is identified by its line, not its pid: respawned workers create no new series.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Callable, Optional

from gdbmem.errors import InputError, MissingToolError
from gdbmem.model.series import KINDS, READING_FIELDS, TREE, Verdict
from gdbmem.series.watching import Latest, View, WatchedView
from gdbmem.text import printable

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_COUNTERS = {
    "minor_faults", "major_faults", "threads_started", "cpu_seconds", "cgroup_limit_hits", "cgroup_kills",
    "copied_bytes", "copiers", "torn_rounds",
}  # fmt: skip
_TREE_ONLY = READING_FIELDS[READING_FIELDS.index("family_bytes") :]
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
            kind: Any = CounterMetricFamily if field in _COUNTERS else GaugeMetricFamily
            value = getattr(total, field) if total is not None else None
            if value is not None:
                name = field if field in _TREE_ONLY else f"tree_{field}"
                yield kind(f"gdbmem_{name}", _help(field, whose="of all processes watched"), value=value)
            if self._tree_only or field in _TREE_ONLY:
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
    return f"{_MEANING[field]} ({whose})" if field not in _TREE_ONLY else _MEANING[field]
