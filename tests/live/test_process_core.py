"""A core that is written from /proc while the process is stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdbmem.errors import TargetError
from gdbmem.inspection.process_core import write_core
from tests.live.control_groups import await_that
from tests.live.user import GDBMEM, shell

pytestmark = [
    pytest.mark.usefixtures("no_process_left"),
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root may read what a process maps (/proc/PID/map_files)"
    ),
]

KEEPS = """
import mmap, os, threading, time
kept = [bytes(3000) for _ in range(20_000)]
shared = mmap.mmap(-1, 1 << 20)
shared.write(b"s" * (1 << 20))
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def process() -> Iterator[int]:
    """Yield the pid of a process with two threads and 20,000 blocks."""
    words = [sys.executable, "-I", "-S", "-c", KEEPS]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stdout.readline()
        waits = [task / "wchan" for task in Path(f"/proc/{started.pid}/task").iterdir()]
        await_that(
            lambda: all(wait.read_text() in ("hrtimer_nanosleep", "poll_schedule_timeout") for wait in waits)
        )
        yield started.pid
        started.kill()


@pytest.mark.needs("gdb")
def test_a_core_from_proc_has_the_blocks_and_the_threads_of_the_process(process: int, scratch: Path) -> None:
    core = scratch / "core"
    write_core(process, core, until=time.monotonic() + 60)
    assert core.stat().st_mode & 0o777 == 0o600
    live = json.loads(shell(GDBMEM, "heap", "--json", str(process), folder=scratch).stdout)
    found = json.loads(shell(GDBMEM, "heap", "--json", "--core", str(core), folder=scratch).stdout)
    assert found["live_blocks"] == live["live_blocks"] > 20_000
    assert found["live_bytes"] == live["live_bytes"]
    said = shell(
        "gdb", "-batch", "-ex", "info threads", "-c", str(core), sys.executable, folder=scratch
    ).stdout
    assert said.count("LWP") == 5, said  # each when it is added and in the list, the current one once more
    assert b"s" * (1 << 20) in core.read_bytes(), "shared memory, too"
    assert "TracerPid:\t0" in Path(f"/proc/{process}/status").read_text()


def test_a_core_that_takes_too_long_is_not_left_half_written(process: int, scratch: Path) -> None:
    with pytest.raises(TargetError, match="too little time"):
        write_core(process, scratch / "core", until=time.monotonic())
    assert not (scratch / "core").exists()
