"""The numbers, served to Prometheus."""

from __future__ import annotations

import json
import re
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.errors import InputError
from gdbmem.linux.tree import Look
from gdbmem.model.series import READING_FIELDS, TREE, Line, Mark, Reading
from gdbmem.report.prometheus import PrometheusView

pytest.importorskip("prometheus_client", reason="an optional dependency: pip install prometheus_client")


class Silent:
    shows_glances = False

    def __init__(self) -> None:
        self.looks = 0

    def show(self, look: Look) -> None:
        self.looks += 1

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
    view.show(Look(0.0, [(1, first), (TREE, first)], [line], True, 1))
    view.show(Look(0.2, [(1, Reading(rss_bytes=8192)), (TREE, Reading(rss_bytes=8192))], [], False, 1))
    with urllib.request.urlopen(f"http://127.0.0.1:{view.port}/metrics") as answer:
        text = answer.read().decode()
    assert 'gdbmem_rss_bytes{line="0",name="(tree)",pid=""} 8192.0' in text
    assert 'pid="4711"} 2048.0' in text, "PSS is read now and then: between, the last value stands"
    assert "gdbmem_cpu_seconds_total" in text
    assert "\x1b" not in text
    assert below.looks == 2
    with pytest.raises(InputError, match="cannot serve"):
        PrometheusView(below, "127.0.0.1", view.port)


def scraped(view: PrometheusView) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{view.port}/metrics") as answer:
        text = answer.read().decode()
    found = (row.rpartition(" ") for row in text.splitlines() if row.startswith("gdbmem_"))
    return {name: float(number) for name, _, number in found}


TREE_LABELS = '{line="0",name="(tree)",pid=""}'


def test_a_process_that_has_gone_leaves_no_number_to_the_tree_or_to_its_heir() -> None:
    view = PrometheusView(Silent(), "127.0.0.1", 0)
    parent, worker = Line(1, 10, 1, "p", "", 0, 0.0), Line(2, 20, 2, "w", "", 1, 0.0)
    alone = Reading(rss_bytes=4096, shared_bytes=4096, pss_bytes=4096)
    view.show(Look(0.0, [(1, alone), (TREE, alone)], [parent], True, 1))
    both = [(1, alone), (2, alone), (TREE, Reading(pss_bytes=8192))]
    view.show(Look(2.0, both, [worker], True, 2))
    assert f"gdbmem_rss_bytes{TREE_LABELS}" not in scraped(view), "the RSS of several has no honest sum"
    heir = replace(worker, pid=21, start_ticks=9, respawns=1)
    view.show(Look(4.0, [(1, alone), (2, Reading(rss_bytes=8192)), (TREE, Reading())], [heir], False, 2))
    of_the_heir = {name for name in scraped(view) if 'pid="21"' in name}
    assert of_the_heir == {'gdbmem_rss_bytes{line="2",name="w",pid="21"}'}


DASHBOARD = Path(__file__).parents[2] / "examples" / "many-hosts" / "grafana-dashboard.json"


def exported() -> set[str]:
    """Return the names that a scrape has, of a look at which everything could be read."""
    view = PrometheusView(Silent(), "127.0.0.1", 0)
    reading = Reading._make([1] * len(READING_FIELDS))
    view.show(Look(0.0, [(1, reading), (TREE, reading)], [Line(1, 2, 3, "x", "", 0, 0.0)], True, 1))
    with urllib.request.urlopen(f"http://127.0.0.1:{view.port}/metrics") as answer:
        text = answer.read().decode()
    return set(re.findall(r"^(gdbmem_\w+)\{", text, re.MULTILINE))


def test_the_dashboard_to_import_asks_only_for_numbers_that_are_served() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [variable["definition"] for variable in dashboard["templating"]["list"]]
    queries.append(DASHBOARD.with_name("growing.yml").read_text())
    asked = {name for query in queries for name in re.findall(r"gdbmem_\w+", query)}
    assert len(asked) >= 9
    assert asked <= exported()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert {item["name"] for item in dashboard["__inputs"]} == {"DS_PROMETHEUS"}
