"""The numbers of a monitor, served to Prometheus beside whatever else shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional, Protocol

from gdbmem.errors import InputError, MissingToolError
from gdbmem.linux.tree import Look
from gdbmem.model.series import READING_FIELDS, TREE, Line, Mark
from gdbmem.report.latest import Latest
from gdbmem.text import printable

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_COUNTERS = {
    "minor_faults", "major_faults", "threads_started", "cpu_seconds", "cgroup_limit_hits", "cgroup_kills",
}  # fmt: skip


class _View(Protocol):
    @property
    def shows_glances(self) -> bool: ...
    def show(self, look: Look) -> None: ...
    def note(self, text: str) -> None: ...
    def marked(self, mark: Mark) -> None: ...
    def keyboard(self) -> Optional[int]: ...
    def key(self) -> str: ...


class PrometheusView:
    """Passes everything on to another view and answers scrapes with the last look."""

    def __init__(self, view: _View, host: str, port: int) -> None:
        """Serve on *host* and *port*; raises MissingToolError, InputError."""
        try:
            import prometheus_client
        except ImportError:
            raise MissingToolError(
                "the package prometheus_client is missing",
                slug="no-prometheus",
                hint="pip install prometheus_client",
            ) from None
        self._view = view
        self._latest = Latest()
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
        """Yield a family for each number; the tree's own has the name "(tree)" and no pid."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        lines, readings = dict(self._latest.lines), dict(self._latest.readings)
        for field in READING_FIELDS:
            kind: Any = CounterMetricFamily if field in _COUNTERS else GaugeMetricFamily
            family = kind(f"gdbmem_{field}", f"gdbmem: {_words(field)}", labels=("line", "pid", "name"))
            for number, reading in readings.items():
                value = getattr(reading, field)
                if value is not None:
                    family.add_metric(_labels(number, lines.get(number)), value)
            yield family

    def describe(self) -> list[Metric]:
        """Say nothing before the first look."""
        return []

    def show(self, look: Look) -> None:
        """Keep *look* for the next scrape; what was not read this time stays as it was."""
        self._latest.take(look)
        self._view.show(look)

    @property
    def shows_glances(self) -> bool:
        """Whether the other view does: a scrape has time to wait for the next whole look."""
        return self._view.shows_glances

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


def _words(field: str) -> str:
    words = field.replace("_", " ")
    return f"{words} (of short-lived children at least)" if field == "cpu_seconds" else words


def _labels(number: int, line: Optional[Line]) -> list[str]:
    if number == TREE or line is None:
        return ["0", "", "(tree)"]
    return [str(number), str(line.pid), printable(line.name)]
