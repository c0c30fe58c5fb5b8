"""The numbers, served to Prometheus."""

from __future__ import annotations

import urllib.request
from typing import Optional

import pytest

from gdbmem.errors import InputError
from gdbmem.linux.glance import Glance
from gdbmem.linux.tree import Look
from gdbmem.model.series import TREE, Line, Mark, Reading
from gdbmem.report.prometheus import PrometheusView

pytest.importorskip("prometheus_client", reason="an optional dependency: pip install prometheus_client")


class Silent:
    def __init__(self) -> None:
        self.looks = 0

    def show(self, look: Look) -> None:
        self.looks += 1

    def wants(self, glance: Glance) -> bool:
        return False

    def note(self, text: str) -> None: ...

    def marked(self, mark: Mark) -> None: ...

    def keyboard(self) -> Optional[int]:
        return None

    def key(self) -> str:
        return ""


def test_a_scrape_gets_the_last_look_and_what_was_last_known() -> None:
    below = Silent()
    view = PrometheusView(below, "127.0.0.1", 0)
    line = Line(1, 4711, 5, 'wor"ker\x1b', "", 0, 0.0)
    first = Reading(rss_bytes=4096, pss_bytes=2048, cpu_seconds=1.5)
    view.show(Look(0.0, [(1, first), (TREE, first)], [line], True, 1, 0))
    view.show(Look(0.2, [(1, Reading(rss_bytes=8192)), (TREE, Reading(rss_bytes=8192))], [], False, 1, 0))
    with urllib.request.urlopen(f"http://127.0.0.1:{view.port}/metrics") as answer:
        text = answer.read().decode()
    assert 'gdbmem_rss_bytes{line="0",name="(tree)",pid=""} 8192.0' in text
    assert 'pid="4711"} 2048.0' in text, "PSS is read now and then: between, the last value stands"
    assert "gdbmem_cpu_seconds_total" in text
    assert "\x1b" not in text
    assert below.looks == 2
    with pytest.raises(InputError, match="cannot serve"):
        PrometheusView(below, "127.0.0.1", view.port)
