"""The values of a monitor, served to Prometheus in addition to another view.

Values of the tree have separate names (gdbmem_tree_pss_bytes), so that sum() over processes counts nothing twice.
A process is identified by its line, not its pid: respawned workers create no new series.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

from gdbmem.errors import InputError, MissingToolError
from gdbmem.linux.monitoring.tree import Look
from gdbmem.model import series
from gdbmem.model.series import Verdict
from gdbmem.series.views import Latest, View, WatchedView
from gdbmem.text import printable

if TYPE_CHECKING:
    from prometheus_client.core import Metric

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
        rank: Optional[tuple[str, int]] = None,
    ) -> None:
        """Serve on *host* and *port*, the tree's numbers and, unless *tree_only*, each process's.

        With *judge* also the verdict, updated as often as its cost allows. *rank*: the job, and which of its ranks
        this is; the ranks of a host share the port. Raises MissingToolError, InputError.
        """
        if importlib.util.find_spec("prometheus_client") is None:
            raise MissingToolError(
                "the package prometheus_client is missing",
                slug="no-prometheus",
                hint="pip install prometheus_client",
            )
        self._latest = Latest()
        super().__init__(view, self._latest.take)
        self._tree_only = tree_only
        self._judge = judge
        self._verdict: Optional[Verdict] = None
        self._next_judgement = time.monotonic() + _JUDGE_EVERY_SECONDS
        self._at = host, port
        self.port = 0  # that it serves on; 0 while another rank does
        self._may_serve = True
        self._ranks = (
            None if rank is None else RanksOfHost(self, f"gdbmem.{os.geteuid()}.{port}.{rank[0]}", rank[1])
        )
        self._serve_if_first()

    def show(self, look: Look) -> None:
        """Keep it for the next scrape; serve all ranks if the one that did has ended."""
        super().show(look)
        if self._may_serve:
            try:
                self._serve_if_first()
            except InputError as error:
                self._may_serve = False
                self.note(f"no rank of this host serves to Prometheus any longer: {error}")

    def _serve_if_first(self) -> None:
        from prometheus_client import CollectorRegistry, start_http_server  # slow to import

        if self._ranks is not None and not self._ranks.lead():
            return
        registry = CollectorRegistry()
        registry.register(self._ranks or self)
        host, port = self._at
        try:
            server, _ = start_http_server(port, host, registry)
        except OSError as error:
            raise _unusable(f"{host}:{port}", error) from None
        self.port, self._may_serve = server.server_port, False

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each number of the tree and of the processes."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # slow to import

        lines, readings = dict(self._latest.lines), dict(self._latest.readings)
        total = readings.pop(series.TREE, None)
        for field in series.READING_FIELDS:
            kind: Any = CounterMetricFamily if field in series.COUNTERS else GaugeMetricFamily
            value = getattr(total, field) if total is not None else None
            if value is not None:
                name = field if field in series.TREE_FIELDS else f"tree_{field}"
                yield kind(f"gdbmem_{name}", _help(field, whose="of all processes watched"), value=value)
            if self._tree_only or field in series.TREE_FIELDS:
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
        for kind in series.KINDS:
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
    return f"{_MEANING[field]} ({whose})" if field not in series.TREE_FIELDS else _MEANING[field]


def _unusable(place: str, error: OSError) -> InputError:
    return InputError(f"cannot serve on {place}: {error.strerror}", slug="bad-port", hint="name a free port")


# One port for the ranks of a host. Each answers on an abstract socket of its own, which no other user may read or take
# the place of; whichever has the socket ".server" asks all of them at each scrape. When it ends the next takes over.


_ANSWER_SECONDS = 3.0  # less than Prometheus waits
_ASKED_AT_ONCE = 64  # ranks
_LARGEST_ANSWER = 64 << 20  # bytes
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class RanksOfHost:
    """The numbers of all ranks of a job on this host, each with a label that says whose they are."""

    def __init__(self, own: Any, name: str, rank: int) -> None:
        """Answer to the others that know *name* with what *own* collects. Raises InputError."""
        self._own = own
        self._name = name
        self._lead: Optional[socket.socket] = None
        try:
            self._answers = _bound(f"{name}.r{rank}")
        except OSError as error:
            raise _unusable(f"the socket of rank {rank}", error) from None
        threading.Thread(target=self._answer, daemon=True).start()

    def lead(self) -> bool:
        """Return whether this rank is the one that serves all, which it becomes if there is none."""
        if self._lead is None:
            with contextlib.suppress(OSError):
                self._lead = _bound(f"{self._name}.server")
        return self._lead is not None

    def close(self) -> None:
        """Leave the others."""
        self._answers.shutdown(socket.SHUT_RDWR)
        for one in (self._answers, self._lead):
            if one is not None:
                one.close()

    def _answer(self) -> None:
        from prometheus_client import CollectorRegistry, generate_latest  # slow to import

        registry = CollectorRegistry()
        registry.register(self._own)
        while True:
            try:
                asking, _ = self._answers.accept()
            except OSError:  # it was closed
                return
            with asking, contextlib.suppress(OSError):
                asking.settimeout(_ANSWER_SECONDS)
                if _is_own_user(asking):
                    asking.sendall(generate_latest(registry))

    def collect(self) -> Iterator[Metric]:
        """Yield the families of all ranks, and which of them have answered."""
        from concurrent.futures import ThreadPoolExecutor  # slow to import

        from prometheus_client.core import GaugeMetricFamily
        from prometheus_client.parser import text_string_to_metric_families

        up = GaugeMetricFamily(
            "gdbmem_rank_up", "1 if the rank's monitor has answered in time", labels=("rank",)
        )
        families: dict[str, Metric] = {}
        present = self._present()
        with ThreadPoolExecutor(
            _ASKED_AT_ONCE
        ) as pool:  # one that is stopped does not keep the others waiting
            answers = list(pool.map(self._ask, present))
        for rank, answer in zip(present, answers):
            if answer is None:
                up.add_metric([str(rank)], 0)
                continue
            found = text_string_to_metric_families(answer)
            up.add_metric([str(rank)], 1)
            for family in found:
                samples = [one._replace(labels={"rank": str(rank), **one.labels}) for one in family.samples]
                family.samples = []
                families.setdefault(family.name, family).samples.extend(samples)
        yield from families.values()
        yield up

    def describe(self) -> list[Metric]:
        """Describe no metrics before the first sample."""
        return []

    def _present(self) -> list[int]:
        names = Path("/proc/self/net/unix").read_text(errors="replace")
        return sorted(
            {int(one) for one in re.findall(rf" @{re.escape(self._name)}\.r([0-9]+)$", names, re.MULTILINE)}
        )

    def _ask(self, rank: int) -> Optional[str]:
        deadline = time.monotonic() + _ANSWER_SECONDS
        content = b""
        with socket.socket(socket.AF_UNIX) as peer, contextlib.suppress(OSError, ValueError):
            peer.settimeout(_ANSWER_SECONDS)
            peer.connect(f"\0{self._name}.r{rank}")
            while _is_own_user(peer) and len(content) < _LARGEST_ANSWER:
                peer.settimeout(max(deadline - time.monotonic(), 0.001))
                part = peer.recv(1 << 16)
                if not part:
                    return content.decode()
                content += part
        return None


def _bound(name: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(f"\0{name}")
        made.listen(16)
    except OSError:
        made.close()
        raise
    return made


def _is_own_user(peer: socket.socket) -> bool:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())
