"""A real Prometheus scrapes a monitor and answers a query about it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.live.user import GDBMEM, SECONDS

pytest.importorskip("prometheus_client", reason="an optional dependency: pip install prometheus_client")
pytestmark = [pytest.mark.usefixtures("no_process_left"), pytest.mark.needs("prometheus")]


EXAMPLE = Path(__file__).parents[2] / "examples" / "many-hosts"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answer(port: int, query: str) -> list[dict[str, Any]]:
    address = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(query)}"
    with urllib.request.urlopen(address, timeout=5) as response:
        found: list[dict[str, Any]] = json.load(response)["data"]["result"]
        return found


def queries_of_the_dashboard() -> list[str]:
    dashboard = json.loads((EXAMPLE / "grafana-dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


@pytest.mark.needs("promtool")
def test_the_configuration_to_copy_and_its_alerts_are_valid() -> None:
    done = subprocess.run(
        ["promtool", "check", "config", str(EXAMPLE / "prometheus.yml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 rules found" in done.stdout


def test_prometheus_stores_what_a_monitor_serves(scratch: Path) -> None:
    ours, theirs = free_port(), free_port()
    (scratch / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: gdbmem, static_configs: [{{targets: ['127.0.0.1:{ours}']}}]}}]\n"
    )
    monitor = subprocess.Popen(
        [GDBMEM, "monitor", "-q", "--prometheus", f":{ours}", "--run", "run", str(os.getpid())],
        cwd=scratch,
        stdout=subprocess.DEVNULL,
    )
    server = subprocess.Popen(
        ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
         f"--web.listen-address=127.0.0.1:{theirs}"],
        cwd=scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + SECONDS
        found: list[dict[str, Any]] = []
        while not found:
            assert time.monotonic() < deadline, "Prometheus never answered with our number"
            time.sleep(0.2)
            try:
                found = answer(theirs, f"gdbmem_rss_bytes and on (line) (gdbmem_pid == {os.getpid()})")
            except OSError:
                continue
        assert float(found[0]["value"][1]) > 1 << 20
        for query in queries_of_the_dashboard():  # answer() raises where Prometheus can't parse one
            answer(theirs, query.replace("$instance", ".*"))
    finally:
        for process in (monitor, server):
            process.terminate()
            process.wait(20)
