"""The workers of real servers and pools: one ledger of them, and what Dask calls unmanaged, beside other counts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gdbmem import api
from tests.fleet.launchers import TORCH

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".cache" / "fleet" / "bin"
MIB = 1 << 20
SHARED = "shared = [bytearray(b's' * 1000) for _ in range(30_000)]\n"
APP = f"""{SHARED}
def app(environ, start):
    start("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""
TASKS = f"""{SHARED}
from celery import Celery
app = Celery("tasks", broker="memory://")
"""
LOKY = """
import os, time
from joblib import Parallel, delayed
def work(number):
    time.sleep(1)
    return os.getpid()
if __name__ == "__main__":
    Parallel(n_jobs=2)(delayed(work)(number) for number in range(2))
    time.sleep(600)
"""
LOADER = f"""{SHARED}
import time, torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self): return 1000
    def __getitem__(self, number): return torch.zeros(1000)
torch.set_num_threads(1)
rows = iter(DataLoader(Numbers(), batch_size=8, num_workers=2, persistent_workers=True))
next(rows)
time.sleep(600)
"""
FILES = {"app.py": APP, "tasks.py": TASKS, "pool.py": LOKY, "loader.py": LOADER}
# The command, the processes that it consists of, and whether they share what the first has allocated.
WORKERS: dict[str, tuple[Sequence[object], int, bool]] = {
    "gunicorn": ([BIN / "gunicorn", "--preload", "-w", "3", "-b", "127.0.0.1:0", "app:app"], 4, True),
    "celery": ([BIN / "celery", "-A", "tasks", "worker", "-c", "2", "-l", "error"], 3, True),
    "loky": ([BIN / "python", "pool.py"], 4, False),
    "DataLoader": ([TORCH / "python", "loader.py"], 3, True),
}


def children(pid: int) -> list[int]:
    found = [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    return [pid, *(below for child in found for below in children(child))]


def kernels(pids: list[int], name: str) -> int:
    """Return the sum of what the kernel calls *name* in smaps_rollup, bytes."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def await_that(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.2)


@pytest.mark.parametrize("kind", WORKERS)
def test_the_ledger_of_workers_is_the_kernels_own_sum(kind: str, scratch: Path) -> None:
    words, count, shares = WORKERS[kind]
    if not Path(str(words[0])).exists():
        pytest.skip(f"{words[0]} is missing: scripts/setup fleet")
    for name, text in FILES.items():
        (scratch / name).write_text(text)
    log = (scratch / "log").open("wb")
    with log, subprocess.Popen([*map(str, words)], cwd=scratch, stdout=log, stderr=log) as process:
        try:
            await_that(lambda: len(children(process.pid)) >= count)
            sizes: list[int] = []

            def is_steady() -> bool:
                sizes.append(kernels(children(process.pid), "Pss"))
                return len(sizes) > 4 and abs(sizes[-1] - sizes[-5]) < MIB // 8

            await_that(is_steady)
            pids = children(process.pid)
            truth, rss = kernels(pids, "Pss"), kernels(pids, "Rss")
            ledger = api.explain_workers(process.pid)
        finally:
            started = children(process.pid)
            process.terminate()
            process.wait(60)
            for pid in started[1:]:  # loky's stay
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert ledger.pss_bytes == pytest.approx(truth, rel=0.01)
    assert sum(entry.size_bytes for entry in ledger.entries) == ledger.pss_bytes
    assert not [one for one in ledger.workers if one.problem], ledger.workers
    assert not shares or rss > truth + (count - 1) * 25 * MIB, "shared: a sum of RSS counts it for each"


CLUSTER = """
import json, time
import numpy, pandas, pyarrow
from distributed import Client, LocalCluster, wait
from gdbmem.dask import MemoryPlugin, explain_workers
from gdbmem.json_values import as_json
def strings(): return pandas.DataFrame({"s": pandas.Series([f"value {n}" for n in range(300_000)], dtype=object)})
def table(): return pyarrow.table({"x": range(1_000_000), "s": ["abc"] * 1_000_000})
def managed(dask_scheduler): return {a: w.memory.managed for a, w in dask_scheduler.workers.items()}
if __name__ == "__main__":
    options = {"host": "127.0.0.1", "dashboard_address": None, "threads_per_worker": 1, "memory_limit": "2GiB"}
    with LocalCluster(n_workers=2, **options) as cluster, Client(cluster) as client:
        client.register_plugin(MemoryPlugin())
        kept = [client.submit(numpy.ones, 5_000_000), client.submit(numpy.zeros, 10_000_000), client.submit(table)]
        kept.append(client.submit(strings))
        wait(kept)
        true = client.submit(lambda frame: int(frame.memory_usage(deep=True).sum()), kept[-1]).result()
        found = explain_workers(client)
        pool = client.run(lambda: pyarrow.default_memory_pool().bytes_allocated())
        said = {"workers": [as_json(one) for one in found.workers], "unread": dict(found.unread)}
        said |= {"managed": client.run_on_scheduler(managed), "frame": true, "pool": sum(pool.values())}
        print(json.dumps(said))
"""


def test_the_unmanaged_memory_of_dasks_workers_adds_up_and_pandas_arrow_and_numpy_are_found(
    scratch: Path,
) -> None:
    python = BIN / "python"
    if not python.exists():
        pytest.skip(f"{python} is missing: scripts/setup fleet")
    (scratch / "cluster.py").write_text(CLUSTER)
    done = subprocess.run(
        [str(python), "cluster.py"], cwd=scratch, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["unread"] == {} and len(said["workers"]) == 2
    found: dict[str, dict[str, Any]] = {}
    for one in said["workers"]:
        terms = sum(term["size_bytes"] for term in one["terms"])
        error = one["managed_resident_bytes"] - one["managed_bytes"]
        assert terms + error == one["process_bytes"] - one["managed_bytes"], "to the byte"
        found.update({result["key"].partition("-")[0]: result for result in one["results"]})
    assert sum(one["managed_bytes"] for one in said["workers"]) == sum(said["managed"].values()), (
        "as the scheduler"
    )
    assert found["zeros"]["resident_bytes"] < MIB < found["zeros"]["sizeof_bytes"]
    assert found["ones"]["resident_bytes"] == pytest.approx(40_000_000, rel=0.01)
    assert found["strings"]["resident_bytes"] == pytest.approx(said["frame"], rel=0.05)
    assert found["table"]["resident_bytes"] == pytest.approx(said["pool"], rel=0.05)


PAUSED = """
import json, time
from distributed import Client, LocalCluster
from gdbmem.dask import MemoryPlugin
def grow():
    global kept
    kept = []
    while int(open("/proc/self/statm").read().split()[1]) * 4096 < 345 << 20:
        kept.append(b"x" * (1 << 20))
    time.sleep(60)
if __name__ == "__main__":
    options = {"host": "127.0.0.1", "dashboard_address": None, "threads_per_worker": 1, "memory_limit": "400MiB"}
    with LocalCluster(n_workers=1, **options) as cluster, Client(cluster) as client:
        client.register_plugin(MemoryPlugin())
        task = client.submit(grow)
        until = time.monotonic() + 60
        while not client.get_events("gdbmem") and time.monotonic() < until:
            time.sleep(0.2)
        time.sleep(1)
        logs = [line for lines in client.get_worker_logs().values() for _, line in lines]
        print(json.dumps({"events": [found for _, found in client.get_events("gdbmem")], "logs": logs}))
"""


def test_the_log_of_a_dask_worker_that_pauses_says_what_its_memory_is(scratch: Path) -> None:
    python = BIN / "python"
    if not python.exists():
        pytest.skip(f"{python} is missing: scripts/setup fleet")
    (scratch / "paused.py").write_text(PAUSED)
    done = subprocess.run(
        [str(python), "paused.py"], cwd=scratch, capture_output=True, text=True, timeout=200, check=False
    )
    said = json.loads(done.stdout.splitlines()[-1])
    (event,) = said["events"]
    assert event["process_bytes"] > 320 * MIB and event["managed_bytes"] == 0
    (told,) = (line for line in said["logs"] if "MiB unmanaged" in line)
    assert "blocks that malloc mapped individually" in told


ACTORS = """
import json, os
os.environ.update(RAY_DEDUP_LOGS="0", RAY_USAGE_STATS_ENABLED="0")
import numpy, ray
from gdbmem import api
options = {"object_store_memory": 120 << 20, "include_dashboard": False, "logging_level": "error"}
ray.init(num_cpus=2, _node_ip_address="127.0.0.1", **options)
@ray.remote(num_cpus=0.5)
class Actor:
    def __init__(self): self.kept = bytearray(b"x" * (30 << 20))
    def hold(self, array): self.array = array; return int(array.sum())
    def pid(self): return os.getpid()
actors = [Actor.remote() for _ in range(3)]
shared = ray.put(numpy.ones(5 << 20))
ray.get([one.hold.remote(shared) for one in actors])
pids = ray.get([one.pid.remote() for one in actors])
lines = [line for pid in pids for line in open(f"/proc/{pid}/smaps_rollup")]
truth = sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
ledger = api.explain_workers(pids)
entries = {f"{one.category} {one.label}": [one.size_bytes, one.resident_bytes] for one in ledger.entries}
problems = [one.problem for one in ledger.workers]
print(json.dumps({"truth": truth, "pss": ledger.pss_bytes, "entries": entries, "problems": problems}))
ray.shutdown()
"""


def test_the_ledger_of_rays_actors_is_the_kernels_own_sum_with_the_object_store_once(scratch: Path) -> None:
    python = BIN / "python"
    if not python.exists() or not list(BIN.glob("ray")):
        pytest.skip(f"{BIN}/ray is missing: scripts/setup fleet")
    (scratch / "actors.py").write_text(ACTORS)
    done = subprocess.run(
        [str(python), "actors.py"], cwd=scratch, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["pss"] == pytest.approx(said["truth"], rel=0.01) and not any(said["problems"])
    size, resident = said["entries"]["shared "]
    assert resident == pytest.approx(3 * 40 * MIB, rel=0.02), "the object store, in each actor"
    assert size <= 40.5 * MIB, "and once"
    assert said["entries"]["heap.mmapped "][0] >= 3 * 30 * MIB
