"""`gdbmem explain --idle`: memory that a program keeps and does not use, beside what the program knows of itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.live.user import GDBMEM

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


def test_memory_that_is_kept_and_not_used_is_told_from_what_is_in_use() -> None:
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
