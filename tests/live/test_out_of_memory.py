"""Processes whose control group has no memory left: held at the limit, or killed there."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from gdbmem import api
from gdbmem.linux.process.process import has_ended
from gdbmem.series.store import Recording
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


def box_of(monitor: int) -> int:
    """Return the pid of the black box of a *monitor*; 0 while there is none."""
    children = Path(f"/proc/{monitor}/task/{monitor}/children").read_text().split()
    boxes = [int(pid) for pid in children if b"black_box" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return boxes[0] if boxes else 0


def await_events(monitor: int) -> None:
    """Wait until the black box of *monitor* has the kernel's events."""
    until = time.monotonic() + 60
    while True:
        assert time.monotonic() < until
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            files = Path(f"/proc/{box_of(monitor)}/fd").iterdir()
            if any("eventfd" in str(file.readlink()) for file in files):
                return
        time.sleep(0.01)


@contextlib.contextmanager
def watched(
    cgroup: Path, program: Program, scratch: Path, options: Sequence[str], rate: float = 0
) -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """Yield a program that runs to the limit of *cgroup*, 64 MiB, and the monitor whose black box holds that one."""
    (cgroup / "memory.limit_in_bytes").write_text(str(64 * MIB))
    os.mkfifo(scratch / "go")
    count = str(scratch / "count")
    begin = f'read x <"{scratch}/go"; exec "$0" {rate:.0f} "$1"'
    with start_in(cgroup, "sh", "-c", begin, str(program("meets_limit")), count) as target:
        words = [GDBMEM, "monitor", "-q", "--json", "--run", "run", "--black-box", *options, str(target.pid)]
        with (
            (scratch / "json").open("wb") as said,
            subprocess.Popen(words, cwd=scratch, stdout=said) as monitor,
        ):
            try:
                if options:
                    await_text(cgroup / "memory.oom_control", "oom_kill_disable 1")
                else:
                    await_events(monitor.pid)
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
    (end,) = box["ends"]
    assert end["pid"] == target.pid and end["is_killed"]
    assert record["ledger_t"] < end["kill_t"] < end["t"], "the kernel's own event, after the hold"
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
        os.kill(monitor.pid if victim == "monitor" else box_of(monitor.pid), signal.SIGKILL)
        await_text(cgroup / "memory.oom_control", "oom_kill_disable 0", seconds=20)
        assert target.wait(60) == -signal.SIGKILL


class KernelsTimes:
    """When the kernel began to kill in a control group and when the process was gone, by its own events."""

    def __init__(self, cgroup: Path, pid: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._event = libc.eventfd(0, os.O_CLOEXEC)
        self._source = os.open(cgroup / "memory.oom_control", os.O_RDONLY)
        (cgroup / "cgroup.event_control").write_text(f"{self._event} {self._source}")
        self._end = os.pidfd_open(pid)
        self.out = self.gone = math.nan
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        os.read(self._event, 8)
        self.out = time.clock_gettime(time.CLOCK_BOOTTIME)
        select.select([self._end], [], [])
        self.gone = time.clock_gettime(time.CLOCK_BOOTTIME)

    def close(self) -> None:
        self._thread.join(60)
        for descriptor in (self._event, self._source, self._end):
            os.close(descriptor)


@pytest.mark.thorough
@pytest.mark.parametrize("kill", range(20))
def test_a_series_ends_no_interval_before_the_kernel_begins_to_kill(
    program: Program, scratch: Path, cgroup: Path, kill: int
) -> None:
    """What the kernel takes until the process is gone, up to 0.3 s, can't be read in the process any more."""
    with watched(cgroup, program, scratch, [], rate=30e6) as (target, monitor):
        times = KernelsTimes(cgroup, target.pid)
        assert target.wait(60) == -signal.SIGKILL
        assert monitor.wait(120) == 0
    times.close()
    document = json.loads((scratch / "json").read_text())
    box, interval = document["black_box"], document["interval_seconds"]
    with contextlib.closing(Recording(scratch / "run")) as recording:
        began = recording.facts.boot_seconds
    read = [one["t"] for one in document["samples"] if one["pid"] == target.pid and one["rss_bytes"]]
    followed = [one["t"] for one in document["samples"] if one["line"] == 0]
    busy = 0.1  # of a machine on which other tests run
    assert times.out - began - read[-1] <= interval + busy, "of the process: before the kernel began"
    gaps = [b - a for a, b in zip(followed, followed[1:]) if a > read[-1]]
    assert followed[-1] >= times.gone - began - busy and max(gaps, default=0) <= interval + busy
    ledgers = [record["ledger_t"] for record in box["records"] if record["ledger_t"] is not None]
    assert ledgers and ledgers[0] <= box["ends"][-1]["t"]
    assert box["ends"][-1]["kill_t"] == pytest.approx(times.out - began, abs=busy)


# Holds memory in four processes, argv: MiB,oom_score_adj of each; then grows until its control group is full.
HOLDERS = """
import mmap, os, sys
def fill(size):
    kept = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, size, 4096): kept[at] = 1
    return kept
told, tell = os.pipe()
for word in sys.argv[1:]:
    size, adjustment = map(int, word.split(","))
    if not os.fork():
        open("/proc/self/oom_score_adj", "w").write(str(adjustment))
        kept = fill(size << 20)
        os.write(tell, b".")
        os.read(0, 1)
        os._exit(0)
for word in sys.argv[1:]: os.read(told, 1)
kept = []
while True: kept.append(fill(1 << 18))
"""


@pytest.mark.thorough
def test_the_kernel_kills_whom_explain_container_foretells(cgroup: Path) -> None:
    (cgroup / "memory.limit_in_bytes").write_text(str(96 * MIB))
    wrong = [seed for seed in range(20) if not is_foretold(cgroup, Random(seed))]
    assert len(wrong) <= 1, wrong


def is_foretold(cgroup: Path, random: Random) -> bool:
    """Return whether `explain --container` names the one of five processes that the kernel then kills."""
    (cgroup / "memory.oom_control").write_text("1")
    choices = [0, 0, 0, random.randint(-150, 150), 500, -1000]
    words = [f"{random.randint(6, 20)},{random.choice(choices)}" for _ in range(4)]
    inside = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", HOLDERS, *words],
        stdin=subprocess.PIPE,
        preexec_fn=lambda: (cgroup / "cgroup.procs").write_text("0"),
    )
    with inside:
        await_text(cgroup / "memory.oom_control", "under_oom 1")
        foretold = api.explain_container(str(cgroup)).victim
        before = list(map(int, (cgroup / "cgroup.procs").read_text().split()))
        (cgroup / "memory.oom_control").write_text("0")
        until = time.monotonic() + 60
        while not (ended := [pid for pid in before if has_ended(pid)]):
            assert time.monotonic() < until
            time.sleep(0.005)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
    while (cgroup / "cgroup.procs").read_text():
        time.sleep(0.01)
    return ended == [foretold]
