"""The numbers, served to Prometheus."""

from __future__ import annotations

import json
import os
import re
import socket
import urllib.request
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.errors import InputError
from gdbmem.linux.monitoring.tree import Look
from gdbmem.model.series import READING_FIELDS, TREE, Mark, ProcessSample, SeriesLine, Slope, Verdict
from gdbmem.series import prometheus
from gdbmem.series.prometheus import PrometheusView

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
    line = SeriesLine(1, 4711, 5, 'wor"ker\x1b', "", 0, 0.0)
    first = ProcessSample(rss_bytes=4096, pss_bytes=2048, cpu_seconds=1.5)
    view.show(Look(0.0, [(1, first), (TREE, first)], [line], True, 1))
    view.show(
        Look(0.2, [(1, ProcessSample(rss_bytes=8192)), (TREE, ProcessSample(rss_bytes=8192))], [], False, 1)
    )
    with urllib.request.urlopen(f"http://127.0.0.1:{view.port}/metrics") as answer:
        text = answer.read().decode()
    assert "gdbmem_tree_rss_bytes 8192.0" in text
    assert 'gdbmem_pss_bytes{line="1",name="wor\\"ker\\\\x1b"} 2048.0' in text, (
        "PSS is read now and then: between, the last value stands"
    )
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


def test_a_process_that_has_gone_leaves_no_number_to_the_tree_or_to_its_heir() -> None:
    view = PrometheusView(Silent(), "127.0.0.1", 0)
    parent, worker = SeriesLine(1, 10, 1, "p", "", 0, 0.0), SeriesLine(2, 20, 2, "w", "", 1, 0.0)
    alone = ProcessSample(rss_bytes=4096, shared_bytes=4096, pss_bytes=4096)
    view.show(Look(0.0, [(1, alone), (TREE, alone)], [parent], True, 1))
    both = [(1, alone), (2, alone), (TREE, ProcessSample(pss_bytes=8192))]
    view.show(Look(2.0, both, [worker], True, 2))
    assert "gdbmem_tree_rss_bytes" not in scraped(view), "the RSS of several has no honest sum"
    heir = worker._replace(pid=21, start_ticks=9, respawns=1)
    view.show(
        Look(4.0, [(1, alone), (2, ProcessSample(rss_bytes=8192)), (TREE, ProcessSample())], [heir], False, 2)
    )
    of_the_heir = {name for name in scraped(view) if 'name="w"' in name}
    assert of_the_heir == {'gdbmem_rss_bytes{line="2",name="w"}', 'gdbmem_pid{line="2",name="w"}'}
    assert scraped(view)['gdbmem_pid{line="2",name="w"}'] == 21


DASHBOARD = Path(__file__).parents[3] / "examples" / "many-hosts" / "grafana-dashboard.json"


def exported() -> set[str]:
    """Return the names that a scrape has, of a look at which everything could be read."""
    view = PrometheusView(Silent(), "127.0.0.1", 0)
    reading = ProcessSample._make([1] * len(READING_FIELDS))
    view.show(Look(0.0, [(1, reading), (TREE, reading)], [SeriesLine(1, 2, 3, "x", "", 0, 0.0)], True, 1))
    with urllib.request.urlopen(f"http://127.0.0.1:{view.port}/metrics") as answer:
        text = answer.read().decode()
    return set(re.findall(r"^(gdbmem_\w+)[{ ]", text, re.MULTILINE))


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


def test_a_sum_over_processes_counts_nothing_twice_and_workers_that_come_and_go_make_no_new_series() -> None:
    view = PrometheusView(Silent(), "127.0.0.1", 0)
    names: set[str] = set()
    for pid in range(20, 25):
        line = SeriesLine(2, pid, pid, "w", "", 1, 0.0)
        readings = [
            (1, ProcessSample(pss_bytes=3)),
            (2, ProcessSample(pss_bytes=4)),
            (TREE, ProcessSample(pss_bytes=7)),
        ]
        view.show(Look(float(pid), readings, [SeriesLine(1, 10, 1, "p", "", 0, 0.0), line], True, 2))
        numbers = scraped(view)
        assert sum(value for name, value in numbers.items() if name.startswith("gdbmem_pss_bytes")) == 7
        assert numbers["gdbmem_tree_pss_bytes"] == 7
        names |= numbers.keys()
    assert names == numbers.keys()
    tree_only = PrometheusView(Silent(), "127.0.0.1", 0, tree_only=True, judge=growing)
    tree_only._next_judgement = 0.0
    tree_only.show(Look(0.0, readings, [line], True, 2))
    numbers = scraped(tree_only)
    assert not [name for name in numbers if "line=" in name]
    assert numbers['gdbmem_verdict{kind="growing"}'] == numbers["gdbmem_grows"] == 1
    assert numbers["gdbmem_slope_bytes_per_second"] == 5


def growing() -> Verdict:
    return Verdict("growing", "pss_bytes", "it grows", 100, Slope(5, 4, 6), 1.0)


def test_a_rank_that_does_not_answer_is_said_to_be_down_and_keeps_no_other_from_being_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prometheus, "_ANSWER_SECONDS", 0.3)
    job = f"test.{os.getpid()}"
    first, second = (PrometheusView(Silent(), "127.0.0.1", 0, rank=(job, rank)) for rank in (1, 4))
    reading = ProcessSample(rss_bytes=4096, cpu_seconds=1.5)
    for number, view in enumerate((first, second), 1):
        view.show(Look(0.0, [(TREE, reading._replace(rss_bytes=number << 12))], [], True, 1))
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(f"\0gdbmem.{os.geteuid()}.0.{job}.r3")
        stopped.listen(1)
        found = scraped(first)
    assert second.port == 0, "one port is enough"
    assert {
        name: value for name, value in found.items() if "tree_rss" in name or "cpu" in name or "_up" in name
    } == {
        'gdbmem_rank_up{rank="1"}': 1,
        'gdbmem_rank_up{rank="3"}': 0,
        'gdbmem_rank_up{rank="4"}': 1,
        'gdbmem_tree_rss_bytes{rank="1"}': 4096,
        'gdbmem_tree_rss_bytes{rank="4"}': 8192,
        'gdbmem_tree_cpu_seconds_total{rank="1"}': 1.5,
        'gdbmem_tree_cpu_seconds_total{rank="4"}': 1.5,
    }
    with pytest.raises(InputError, match="cannot serve on the socket of rank 4"):
        PrometheusView(Silent(), "127.0.0.1", 0, rank=(job, 4))
