"""`gdbmem explain --idle`: memory that a program keeps and does not use, beside what the program knows of itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.live.user import GDBMEM, shell

pytestmark = pytest.mark.usefixtures("no_process_left")

MIB = 1 << 20
KEEPS = """
import mmap, time
cold, hot = (mmap.mmap(-1, size << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for size in (48, 24))
cold[:] = bytes(len(cold))
print("ready", flush=True)
while True:
    for at in range(0, len(hot), 4096):
        hot[at] = 1
    time.sleep(0.02)
"""


def test_memory_that_is_kept_and_not_used_is_distinguished_from_what_is_in_use() -> None:
    program = subprocess.Popen([sys.executable, "-c", KEEPS], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        tool = subprocess.Popen(
            [GDBMEM, "explain", "--idle", "60s", "--json", str(program.pid)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert tool.stderr is not None
        assert "the accessed bits of process" in tool.stderr.readline()
        time.sleep(1)
        tool.send_signal(signal.SIGINT)
        output, errors = tool.communicate(timeout=60)
        assert tool.returncode == 0, errors
        assert program.poll() is None
    finally:
        program.kill()
        program.communicate()
    found = json.loads(output)
    assert 0.5 < found["seconds"] < 50
    anonymous = next(row for row in found["entries"] if row["category"] == "anonymous.other")
    assert 48 * MIB <= anonymous["most_idle_bytes"] < 56 * MIB
    assert anonymous["least_idle_bytes"] <= anonymous["most_idle_bytes"]
    assert anonymous["resident_bytes"] >= 72 * MIB
    assert 48 * MIB <= found["idle_bytes"] <= found["rss_bytes"] - 20 * MIB


MAIN_THREAD_ENDS = """
import ctypes, mmap, platform, threading, time
kept = mmap.mmap(-1, 48 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
kept[:] = bytes(len(kept))
threading.Thread(target=time.sleep, args=(100,)).start()
print("ready", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


def test_a_process_whose_main_thread_has_ended_is_read_through_another() -> None:
    with subprocess.Popen([sys.executable, "-c", MAIN_THREAD_ENDS], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            while b") Z " not in Path(f"/proc/{process.pid}/stat").read_bytes():
                time.sleep(0.01)
            words = [GDBMEM, "explain", "--idle", "200ms", "--json", str(process.pid)]
            done = shell(*words)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["idle_bytes"] >= 48 * MIB
        finally:
            process.kill()


def untouched(pid: int) -> int:
    """The kernel's own figures for it."""
    sizes = {"Rss:": 0, "Referenced:": 0}
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        key, *rest = line.split()
        if key in sizes:
            sizes[key] += int(rest[0]) << 10
    return sizes["Rss:"] - sizes["Referenced:"]


@pytest.mark.needs("gdb", "g++")
def test_a_map_that_is_never_erased_is_named_by_type_by_size_and_by_the_variable_that_holds_it(
    program: Program,
) -> None:
    keeps = subprocess.Popen([program("keeps_tasks", "-pthread")], stdout=subprocess.PIPE, text=True)
    try:
        assert keeps.stdout is not None and keeps.stdout.readline() == "ready\n"
        tool = subprocess.Popen(
            [GDBMEM, "explain", "--idle", "60s", "--json", str(keeps.pid)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert tool.stderr is not None
        assert "the accessed bits of process" in tool.stderr.readline()
        time.sleep(1)
        by_kernel = untouched(keeps.pid)
        tool.send_signal(signal.SIGINT)
        output, errors = tool.communicate(timeout=60)
        assert tool.returncode == 0, errors
    finally:
        keeps.kill()
        keeps.communicate()
    found = json.loads(output)
    assert abs(found["idle_bytes"] - by_kernel) < 7 * MIB  # of 36: what is used all the time may show late
    tasks, *_ = found["types"]
    assert (tasks["name"], tasks["blocks"]) == ("Task", 100_000)
    assert (
        tasks["least_idle_bytes"] > 0.25 * tasks["bytes"] and tasks["most_idle_bytes"] > 0.9 * tasks["bytes"]
    )
    nodes = next(row for row in found["types"] if row["kind"] == "tree")
    assert nodes["blocks"] == 100_000
    # These are used all the time; of pages that the processor has in its cache of addresses no bit is set.
    used = next(row for row in found["sizes"] if row["size_bytes"] == 3000)
    assert used["blocks"] == 2000 and used["least_idle_bytes"] < 0.6 * used["bytes"]
    assert sum(row["least_idle_bytes"] for row in found["types"]) <= found["idle_bytes"]
    assert [row["name"] for row in found["tree_holders"]] == ["app::tasks"]
