"""Processes whose control group has no memory left: held at the limit, or killed there."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.live.user import GDBMEM, shell

pytestmark = [
    pytest.mark.usefixtures("no_process_left"),
    pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are root's"),
]

MIB = 1 << 20


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Yield a new memory cgroup of version 1, without a limit yet."""
    folder = Path(f"/sys/fs/cgroup/memory/gdbmem-test-{os.getpid()}")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup of version 1 can be made here: {error.strerror}")
    yield folder
    (folder / "memory.oom_control").write_text("0")
    for _ in range(100):
        with contextlib.suppress(OSError):
            for pid in (folder / "cgroup.procs").read_text().split():
                os.kill(int(pid), 9)
            folder.rmdir()
            return
        time.sleep(0.05)  # killed processes have to be waited for


def start_in(cgroup: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, preexec_fn=lambda: (cgroup / "cgroup.procs").write_text("0"))


def blocks_of(file: Path) -> int:
    (count,) = struct.unpack("<q", file.read_bytes())
    return int(count)


@contextlib.contextmanager
def held(cgroup: Path, program: Program, count: Path) -> Iterator[int]:
    """Yield the pid of a program that stands at the limit of *cgroup*, 40 MiB, and is not killed."""
    (cgroup / "memory.limit_in_bytes").write_text(str(40 * MIB))
    (cgroup / "memory.oom_control").write_text("1")
    with start_in(cgroup, str(program("meets_limit")), "0", str(count)) as target:
        try:
            until = time.monotonic() + 60
            while "under_oom 1" not in (cgroup / "memory.oom_control").read_text():
                assert target.poll() is None and time.monotonic() < until
                time.sleep(0.01)
            yield target.pid
        finally:
            target.kill()


def test_a_process_that_is_held_at_its_limit_is_explained_as_it_stands(
    program: Program, scratch: Path, cgroup: Path
) -> None:
    with held(cgroup, program, scratch / "count") as pid:
        done = shell(GDBMEM, "explain", "--json", str(pid), folder=scratch)
        state = (cgroup / "memory.oom_control").read_text()
        traced = Path(f"/proc/{pid}/status").read_text()
        count = blocks_of(scratch / "count")
    assert "stands still: its control group has no memory left" in done.stderr, done.stderr
    entries = {entry["category"]: entry for entry in json.loads(done.stdout)["entries"]}
    # One block more may be made out, which it was about to write or to free.
    assert 3000 * count <= entries["heap.live"]["allocated_bytes"] <= 3008 * (count + 2) + MIB
    assert state.startswith("oom_kill_disable 1\nunder_oom 1\n"), "it stands as before"
    assert "TracerPid:\t0" in traced
