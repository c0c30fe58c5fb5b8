"""Processes whose control group has no memory left: held at the limit, or killed there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
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
        heap = shell(GDBMEM, "heap", "--leaks", "--json", str(pid), folder=scratch)
        state = (cgroup / "memory.oom_control").read_text()
        traced = Path(f"/proc/{pid}/status").read_text()
        count = blocks_of(scratch / "count")
    assert "stands still: its control group has no memory left" in done.stderr, done.stderr
    entries = {entry["category"]: entry for entry in json.loads(done.stdout)["entries"]}
    # One block more may be made out, which it was about to write or to free.
    assert 3000 * count <= entries["heap.live"]["allocated_bytes"] <= 3008 * (count + 2) + MIB
    # What only a register leads to is not lost: the kernel does not show the registers of a thread that waits so.
    assert json.loads(heap.stdout)["leaks"]["doubt"] == "the registers of 1 thread could not be read"
    assert state.startswith("oom_kill_disable 1\nunder_oom 1\n"), "it stands as before"
    assert "TracerPid:\t0" in traced


def await_text(file: Path, text: str, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while text not in file.read_text():
        assert time.monotonic() < until, file.read_text()
        time.sleep(0.01)


@contextlib.contextmanager
def watched(
    cgroup: Path, program: Program, scratch: Path, options: Sequence[str]
) -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """Yield a program that runs to the limit of *cgroup*, 64 MiB, and the monitor whose black box holds that one."""
    (cgroup / "memory.limit_in_bytes").write_text(str(64 * MIB))
    os.mkfifo(scratch / "go")
    count = str(scratch / "count")
    begin = f'read x <"{scratch}/go"; exec "$0" 0 "$1"'
    with start_in(cgroup, "sh", "-c", begin, str(program("meets_limit")), count) as target:
        words = [GDBMEM, "monitor", "-q", "--json", "--run", "run", "--black-box", *options, str(target.pid)]
        with (
            (scratch / "json").open("wb") as said,
            subprocess.Popen(words, cwd=scratch, stdout=said) as monitor,
        ):
            try:
                await_text(cgroup / "memory.oom_control", "oom_kill_disable 1")
                (scratch / "go").write_text("\n")
                yield target, monitor
            finally:
                target.kill()
                monitor.wait(120)


def test_a_black_box_that_holds_has_the_whole_ledger_of_a_process_killed_at_any_rate_of_growth(
    program: Program, scratch: Path, cgroup: Path
) -> None:
    with watched(cgroup, program, scratch, ["--hold"]) as (target, monitor):
        assert target.wait(60) == -signal.SIGKILL
        assert monitor.wait(120) == 0
    box = json.loads((scratch / "json").read_text())["black_box"]
    record = box["records"][-1]
    assert record["is_held"] and record["ledger_t"] <= box["ends"][0]["t"], box
    assert box["ends"] == [{"t": box["ends"][0]["t"], "pid": target.pid, "is_killed": True}]
    assert 0 < box["held_seconds"] <= 10
    folder = scratch / "run" / record["folder"]
    ledger = json.loads((folder / "explain.json").read_text())
    live = next(entry for entry in ledger["entries"] if entry["category"] == "heap.live")
    # Where the kernel finds some pages again, the process goes on by some blocks before it is killed.
    assert abs(live["allocated_bytes"] - 3000 * blocks_of(scratch / "count")) < MIB
    assert "main (" in (folder / "stacks.txt").read_text()
    assert b"[heap]" in (folder / "smaps.txt").read_bytes()
    assert "oom_kill_disable 0" in (cgroup / "memory.oom_control").read_text(), "as it was before"


@pytest.mark.parametrize("victim", ["monitor", pytest.param("black box", marks=pytest.mark.thorough)])
def test_a_cgroup_is_as_before_where_what_holds_it_is_killed(
    program: Program, scratch: Path, cgroup: Path, victim: str
) -> None:
    with watched(cgroup, program, scratch, ["--hold"]) as (target, monitor):
        await_text(cgroup / "memory.oom_control", "under_oom 1")
        children = Path(f"/proc/{monitor.pid}/task/{monitor.pid}/children").read_text().split()
        worker = next(pid for pid in children if b"black_box" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(monitor.pid if victim == "monitor" else int(worker), signal.SIGKILL)
        await_text(cgroup / "memory.oom_control", "oom_kill_disable 0", seconds=20)
        assert target.wait(60) == -signal.SIGKILL
