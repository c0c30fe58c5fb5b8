"""gdbmem between mpirun and the program: a launcher is stood for by the variables and the terminal that it gives."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from gdbmem.linux.monitoring.children import listen
from tests.live.test_monitor import samples_in
from tests.live.user import GDBMEM, SECONDS

RANK = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "PMIX_NAMESPACE": "1807"}
PROGRAM = ["sh", "-c", "echo program; exit 7"]


def started(folder: Path, rank: int, *words: str) -> tuple[int, str]:
    """Run `gdbmem monitor` as *rank*, on a terminal of its own; return its status and all that was printed."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [GDBMEM, "monitor", *words, "--", *PROGRAM],
        cwd=folder,
        env={**os.environ, **RANK, "OMPI_COMM_WORLD_RANK": str(rank), "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            said = b""
            try:
                while data := terminal.read(4096):
                    said += data
            except OSError:  # all have closed it
                pass
    return process.returncode, said.decode().replace("\r\n", "\n")


def test_a_rank_that_is_not_judged_ends_as_its_program_and_its_run_names_it(scratch: Path) -> None:
    status, said = started(scratch, 3, "--fail-on", "growing", "--run", "runs/%j.%r")
    lines = said.splitlines()
    assert status == 7  # another one would make mpirun end all ranks
    assert "program" in lines and "[3] recorded in 1807.3" in lines
    assert any(line.startswith("[3] gdbmem: not judged") for line in lines)
    assert "\x1b" not in said
    facts = json.loads((scratch / "runs" / "1807.3" / "run.json").read_text())
    assert facts["rank"]["rank"] == 3 and facts["rank"]["size"] == 4 and facts["status"] == 7


def test_the_other_ranks_run_the_program_as_if_gdbmem_were_not_there(scratch: Path) -> None:
    assert started(scratch, 1, "--on-ranks", "0,2-3", "--run", "new/r.%r") == (7, "program\n")
    assert list(scratch.iterdir()) == []


def scraped(port: int, wanted: set[str]) -> str:
    """Return the numbers served on *port* once they are those of the ranks *wanted*."""
    deadline, text = time.monotonic() + SECONDS, ""
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer,
        ):
            text = str(answer.read(), "utf-8")
            if set(re.findall(r'^gdbmem_tree_rss_bytes\{rank="(\d)"\} [1-9]', text, re.MULTILINE)) == wanted:
                return text
        time.sleep(0.1)
    raise AssertionError(f"never the ranks {wanted}: {text}")


def test_one_port_has_the_numbers_of_all_ranks_of_a_host_also_when_the_one_that_served_has_ended(
    scratch: Path,
) -> None:
    pytest.importorskip("prometheus_client", reason="an optional dependency: pip install prometheus_client")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monitors = {
        str(rank): subprocess.Popen(
            [GDBMEM, "monitor", "-q", "--prometheus", f":{port}", "--run", "r.%r", "--", "sleep", "60"],
            cwd=scratch,
            env={**os.environ, **RANK, "OMPI_COMM_WORLD_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
        )
        for rank in range(3)
    }
    try:
        text = scraped(port, {"0", "1", "2"})
        families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(families) == len(set(families)), "each family stands once, as the format demands"
        assert len(re.findall(r'^gdbmem_rank_up\{rank="\d"\} 1.0$', text, re.MULTILINE)) == 3
        listening = subprocess.run(
            ["cat", "/proc/net/unix"], capture_output=True, text=True, check=True
        ).stdout
        (inode,) = re.findall(
            rf"(\d+) @gdbmem\.{os.geteuid()}\.{port}\.1807\.server$", listening, re.MULTILINE
        )
        served = [
            rank
            for rank, monitor in monitors.items()
            if f"socket:[{inode}]" in map(os.readlink, map(str, Path(f"/proc/{monitor.pid}/fd").iterdir()))
        ]
        monitors[served[0]].terminate()
        monitors[served[0]].wait(20)
        scraped(port, {"0", "1", "2"} - {served[0]})
    finally:
        for monitor in monitors.values():
            monitor.terminate()
        for monitor in monitors.values():
            monitor.wait(20)


GROWS = """
import os, sys, time
rank, folder = int(os.environ["OMPI_COMM_WORLD_RANK"]), os.getcwd()
def wait_for(name):
    while os.path.exists(folder) and not os.path.exists(name):
        time.sleep(0.05)
wait_for("grow")
keep = [b"x" * ((rank + 1) << 20) for _ in range(24)]
open(f"grown{rank}", "x").close()
wait_for("end")
os._exit(rank)
"""


def monitor_of(job: str) -> set[int]:
    found = subprocess.run(
        ["pgrep", "-f", "--", f"--job {job} |--resume .*/{job}$"], capture_output=True, text=True
    )
    names = {int(pid): Path(f"/proc/{pid}/comm") for pid in found.stdout.split()}
    return {pid for pid, name in names.items() if name.exists() and name.read_text().strip() != "sh"}


def test_one_monitor_records_all_ranks_of_a_host_and_another_takes_over_when_it_is_killed(
    scratch: Path,
) -> None:
    job = f"one{os.getpid()}"
    ranks = [
        subprocess.Popen(
            [GDBMEM, "monitor", "--one-per-node", "--run", "%j", "--", sys.executable, "-c", GROWS],
            cwd=scratch,
            env={**os.environ, **RANK, "PMIX_NAMESPACE": job, "OMPI_COMM_WORLD_RANK": str(rank)},
            stderr=subprocess.DEVNULL,
        )
        for rank in range(4)
    ]
    facts = scratch / job / "run.json"

    def seen() -> set[int]:
        with contextlib.suppress(OSError):
            return {one["rank"] for one in json.loads(facts.read_text()).get("node_ranks", ())}
        return set()

    wait_until(lambda: seen() == {0, 1, 2, 3})
    assert len(monitor_of(job)) == 1
    (first,) = monitor_of(job)
    sampled = samples_in(scratch / job)
    wait_until(lambda: samples_in(scratch / job) > sampled)
    (scratch / "grow").touch()
    wait_until(lambda: len(list(scratch.glob("grown*"))) == 4)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(monitor_of(job) - {first}) == 1)
    sampled = samples_in(scratch / job)
    wait_until(lambda: samples_in(scratch / job) > sampled + 4)
    (scratch / "end").touch()
    assert [rank.wait(60) for rank in ranks] == [0, 1, 2, 3]  # the program's own
    wait_until(lambda: not monitor_of(job) and "ended" in json.loads(facts.read_text()))
    found = json.loads(
        subprocess.run([GDBMEM, "ranks", job, "--json"], cwd=scratch, capture_output=True, check=True).stdout
    )
    assert [one["rank"] for one in found["ranks"]] == [0, 1, 2, 3] and not found["missing"]
    # Told by the kernel's events, which not every user may read.
    statuses = [one["status"] for one in found["ranks"]]
    assert statuses == [number if listen() is not None else None for number in range(4)]
    grown = [one["after_bytes"] - one["before_bytes"] for one in found["ranks"]]
    for rank, size in enumerate(grown):
        assert 24 * (rank + 1) << 20 <= size <= (24 * (rank + 1) + 12) << 20, grown
    assert found["total"]["rank_of_max"] == 3


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
