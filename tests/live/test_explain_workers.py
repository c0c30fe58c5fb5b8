"""`gdbmem explain --workers`: the memory of forked processes, shared pages once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.user import GDBMEM, shell

pytestmark = pytest.mark.usefixtures("no_process_left")

MIB = 1 << 20
# 30 MiB that all share, and 10 MiB of each worker's own; prints the pids.
FORKS = """
import os, sys
shared = [bytearray(b"s" * 1000) for _ in range(30_000)]
ready, told = os.pipe()
stay, go = os.pipe()
for worker in range(3):
    if not os.fork():
        os.close(go)
        own = [bytearray(b"w" * 1000) for _ in range(10_000)]
        os.write(told, b"x")
        os.read(stay, 1)
        os._exit(0)
for worker in range(3): os.read(ready, 1)
print("ready", flush=True)
sys.stdin.read()
os.close(go)
for worker in range(3): os.wait()
"""


def pss_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def test_what_forked_workers_share_counts_once_in_their_ledger(scratch: Path) -> None:
    words = [sys.executable, "-I", "-S", "-c", FORKS]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"ready\n"
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        truth = sum(map(pss_of, [parent.pid, *map(int, children)]))
        done = shell(GDBMEM, "explain", "--workers", str(parent.pid), "--json", folder=scratch)
        refused = shell(GDBMEM, "explain", "--workers", str(parent.pid), "--remedies", folder=scratch)
        parent.communicate()
    ledger = json.loads(done.stdout)
    assert len(ledger["workers"]) == 4
    assert ledger["pss_bytes"] == pytest.approx(truth, rel=0.02)
    assert sum(entry["size_bytes"] for entry in ledger["entries"]) == ledger["pss_bytes"]
    live = next(entry for entry in ledger["entries"] if entry["category"] == "heap.live")
    asked = 30_000 * 1000 + 3 * 10_000 * 1000
    assert asked * 0.95 < live["size_bytes"] < asked * 1.25
    assert live["resident_bytes"] > 4 * 30_000 * 1000, "as explain shows for each"
    assert refused.returncode == 2 and "--workers makes one ledger" in refused.stderr
