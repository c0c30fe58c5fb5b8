"""Processes whose control group has no memory left: held at the limit, or killed there."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import re
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from ctypes.util import find_library
from pathlib import Path
from random import Random
from typing import Callable

import pytest

from gdbmem import api
from gdbmem.api import black_box_worker
from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import PAGE
from gdbmem.linux.monitoring import limits
from gdbmem.linux.monitoring.limits import MOST_SECONDS
from gdbmem.linux.process.process import boot_id, has_ended
from gdbmem.model.series import SeriesFacts
from gdbmem.recording.targets import Wanted, find_target
from gdbmem.runs.run import Run
from gdbmem.series.black_box import black_box_of
from gdbmem.series.store import Recording, SeriesWriter
from tests.conftest import Program
from tests.libraries import needs_library
from tests.live.control_groups import PATIENCE, ControlGroup, await_that
from tests.live.user import GDBMEM, shell

pytestmark = [
    pytest.mark.usefixtures("no_process_left"),
    pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are root's"),
]

MIB = 1 << 20


@pytest.fixture
def cgroup() -> Iterator[ControlGroup]:
    """Yield a new memory cgroup without a limit yet, of version 1 if that counts memory here, else of version 2."""
    try:
        group = ControlGroup.make()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error.strerror}")
    yield group
    group.remove()


@pytest.fixture
def first(cgroup: ControlGroup) -> ControlGroup:
    """Yield one of version 1."""
    if not cgroup.is_first:
        pytest.skip("only in version 1 a process waits for memory without an end")
    return cgroup


def blocks_of(file: Path) -> int:
    (count,) = struct.unpack("<q", file.read_bytes())
    return int(count)


@contextlib.contextmanager
def held(cgroup: ControlGroup, program: Program, count: Path, *before: str) -> Iterator[int]:
    """Yield the pid of a program that stands at the limit of *cgroup*, 40 MiB, and is not killed."""
    cgroup.set_limit(40 * MIB)
    (cgroup.folder / "memory.oom_control").write_text("1")
    with cgroup.start(*before, str(program("meets_limit")), "0", str(count)) as target:
        try:
            await_that(cgroup.is_full)
            assert target.poll() is None
            yield target.pid
        finally:
            target.kill()


def test_a_process_that_is_held_at_its_limit_is_explained_as_it_stands(
    program: Program, scratch: Path, first: ControlGroup
) -> None:
    with held(first, program, scratch / "count") as pid:
        done = shell(GDBMEM, "explain", "--json", str(pid), folder=scratch)
        heap = shell(GDBMEM, "heap", "--leaks", "--json", str(pid), folder=scratch)
        state = (first.folder / "memory.oom_control").read_text()
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


def test_jemalloc_is_read_in_a_process_held_at_its_limit_and_no_copy_is_tried_of_it(
    program: Program, scratch: Path, first: ControlGroup
) -> None:
    needs_library("jemalloc")
    preloaded = "env", f"LD_PRELOAD={find_library('jemalloc')}"
    with held(first, program, scratch / "count", *preloaded) as pid:
        done = shell(GDBMEM, "explain", "--json", "--try", "--", str(pid), folder=scratch)
        state = (first.folder / "memory.oom_control").read_text()
        count = blocks_of(scratch / "count")
    document = json.loads(done.stdout)
    (malloc,) = document["mallocs"]
    assert 3072 * count <= malloc["live_bytes"] <= 3072 * (count + 2) + MIB
    (row,) = document["tried"]
    assert "no memory left" in row["why_not_tried"] and row["returned_bytes"] is None
    assert state.startswith("oom_kill_disable 1\nunder_oom 1\n"), "it stands as before"


def box_of(monitor: int) -> int:
    """Return the pid of the black box of a *monitor*; 0 while there is none."""
    children = Path(f"/proc/{monitor}/task/{monitor}/children").read_text().split()
    boxes = [int(pid) for pid in children if b"black_box" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return boxes[0] if boxes else 0


def is_watching(monitor: int) -> bool:
    """Return whether the black box of *monitor* has the kernel's events."""
    with contextlib.suppress(FileNotFoundError):  # closed meanwhile
        files = Path(f"/proc/{box_of(monitor)}/fd").iterdir()
        return any("eventfd" in (name := str(file.readlink())) or "memory.events" in name for file in files)
    return False


@contextlib.contextmanager
def watched(
    cgroup: ControlGroup,
    program: Program,
    scratch: Path,
    options: Sequence[str],
    rate: float = 0,
    waits_at: int = 0,
) -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """Yield a program that runs to the limit of *cgroup*, 64 MiB, and the monitor whose black box holds that one.

    From *waits_at* bytes on it waits for the file "on".
    """
    cgroup.set_limit(64 * MIB)
    os.mkfifo(scratch / "go")
    count = str(scratch / "count")
    begin = f'read x <"{scratch}/go"; exec "$0" {rate:.0f} "$1" {waits_at} "{scratch}/on"'
    with cgroup.start("sh", "-c", begin, str(program("meets_limit")), count) as target:
        words = [GDBMEM, "monitor", "-q", "--json", "--run", "run", "--black-box", *options, str(target.pid)]
        with (
            (scratch / "json").open("wb") as said,
            subprocess.Popen(words, cwd=scratch, stdout=said) as monitor,
        ):
            try:
                await_that(cgroup.is_held if options else lambda: is_watching(monitor.pid))
                (scratch / "go").write_text("\n")
                yield target, monitor
            finally:
                target.kill()
                monitor.wait(PATIENCE)


def test_a_black_box_that_holds_has_the_whole_ledger_of_a_process_killed_at_any_rate_of_growth(
    program: Program, scratch: Path, cgroup: ControlGroup
) -> None:
    with watched(cgroup, program, scratch, ["--hold"]) as (target, monitor):
        assert target.wait(PATIENCE) == -signal.SIGKILL
        assert monitor.wait(PATIENCE) == 0
    box = json.loads((scratch / "json").read_text())["black_box"]
    record = box["records"][-1]
    assert record["is_held"] and record["ledger_t"] <= box["ends"][0]["t"], box
    (end,) = box["ends"]
    assert end["pid"] == target.pid and end["is_killed"]
    assert record["ledger_t"] < end["kill_t"] < end["t"], "the kernel's own event, after the hold"
    assert 0 < box["held_seconds"] <= MOST_SECONDS + 0.5
    folder = scratch / "run" / record["folder"]
    ledger = json.loads((folder / "explain.json").read_text())
    live = next(entry for entry in ledger["entries"] if entry["category"] == "heap.live")
    # Where the kernel finds some pages again, the process goes on by some blocks before it is killed. In version 2 it
    # was held a tenth below the limit.
    later = 3000 * blocks_of(scratch / "count") - live["allocated_bytes"]
    assert -MIB < later < MIB + (0 if cgroup.is_first else 64 * MIB // 10)
    assert "main (" in (folder / "stacks.txt").read_text()
    assert b"[heap]" in (folder / "smaps.txt").read_bytes()
    assert not cgroup.is_held(), "as it was before"


def test_a_core_of_a_held_process_has_its_blocks_and_what_gdb_reads_in_it(
    program: Program, scratch: Path, cgroup: ControlGroup
) -> None:
    with watched(cgroup, program, scratch, ["--hold", "--core"]) as (target, monitor):
        assert target.wait(PATIENCE) == -signal.SIGKILL
        assert monitor.wait(PATIENCE) == 0
    box = json.loads((scratch / "json").read_text())["black_box"]
    record = box["records"][-1]
    core = scratch / "run" / record["folder"] / "core"
    assert "core" in record["parts"] and box["notes"] == []
    assert 0 < box["held_seconds"] <= MOST_SECONDS + 0.5
    assert not cgroup.is_held(), "as it was before"
    # By gdb: how many blocks the program has kept.
    script = (
        "set $kept = (char **)&kept",
        "set $n = 0",
        "while $kept[$n]",
        "set $n = $n + 1",
        "end",
        "output $n",
    )
    (scratch / "script").write_text("\n".join(script))
    said = shell(
        "gdb", "-batch", "-x", "script", "-c", str(core), str(program("meets_limit")), folder=scratch
    )
    assert said.stdout.split()[-1].isdigit(), said
    count = int(said.stdout.split()[-1])
    heap = json.loads(shell(GDBMEM, "heap", "--json", "--core", str(core), folder=scratch).stdout)
    ledger = json.loads((core.parent / "explain.json").read_text())
    again = json.loads(shell(GDBMEM, "explain", "--json", "--core", str(core), folder=scratch).stdout)
    # One more may be made out, which it was about to write or to free, and libc has some.
    assert 0 <= heap["live_blocks"] - count <= 4
    sizes = [
        next(entry["allocated_bytes"] for entry in each["entries"] if entry["category"] == "heap.live")
        for each in (ledger, again)
    ]
    assert sizes[0] == sizes[1], "it stands still between the ledger and the core"
    assert 3000 * count <= sizes[1] <= 3008 * (count + 4) + 8192


def test_a_black_box_that_holds_nothing_tells_of_the_kill_and_how_much_time_there_was(
    program: Program, scratch: Path, cgroup: ControlGroup
) -> None:
    # That of version 2 is in an emulated machine, which needs seconds for a ledger: there the program waits for one.
    rate, waits_at = (10e6, 0) if cgroup.is_first else (2e6, 40 * MIB)
    with watched(cgroup, program, scratch, [], rate, waits_at) as (target, monitor):
        if waits_at:
            await_that(lambda: any((scratch / "run" / "black-box").glob("*/explain.txt")))
        (scratch / "on").touch()
        assert target.wait(PATIENCE) == -signal.SIGKILL
        assert monitor.wait(PATIENCE) == 0
    document = json.loads((scratch / "json").read_text())
    box = document["black_box"]
    (end,) = box["ends"]
    assert end["pid"] == target.pid and end["is_killed"] and end["kill_t"] <= end["t"]
    assert cgroup.kills() == document["cgroup"]["kills"] == 1, "by the kernel's own count"
    assert [one["level"] for one in box["reached"]][:2] == [0.5, 0.75]
    assert box["limit_bytes"] == 64 * MIB and box["held_seconds"] is None
    whole = [one for one in box["records"] if one["ledger_t"] is not None and one["ledger_t"] <= end["t"]]
    ledger = json.loads((scratch / "run" / whole[-1]["folder"] / "explain.json").read_text())
    live = next(entry for entry in ledger["entries"] if entry["category"] == "heap.live")
    assert 16 * MIB < live["allocated_bytes"] <= 3008 * blocks_of(scratch / "count") + MIB


# A black box whose record of a process takes until it ends itself, argv: run, pid. The folder "freed" says that the
# memory is free again, and "seen" that it has been told so.
SLOW_BOX = """
import os, sys, time
from pathlib import Path
from gdbmem.api import black_box_worker
from gdbmem.linux.monitoring.limits import Room
us, run = os.getpid(), Path(sys.argv[1])
def rooms(pid):
    is_free = (run / "freed").exists()
    if is_free: (run / "seen").mkdir(exist_ok=True)
    return [Room("its control group", run, 100, 90 if is_free else 3)]
def record(*arguments):
    while os.getppid() == us: time.sleep(0.05)
black_box_worker.rooms_of, black_box_worker.take_record, black_box_worker._LAST_SECONDS = rooms, record, 0
black_box_worker.BlackBoxWorker(run, 0.05, holds=False, writes_core=False).watch()
"""


def test_the_end_of_a_process_is_told_though_its_memory_is_gone_before_its_record_is_done(
    scratch: Path,
) -> None:
    with subprocess.Popen(["sleep", "600"]) as target:
        run = Run.create("sleep", parent=scratch, pid=target.pid)
        run.update(monitor=find_target(Wanted(pids=[target.pid])).words)
        facts = SeriesFacts("sleep", 0.05, time.time(), boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME))
        SeriesWriter(run.folder, facts).close()
        words = [sys.executable, "-c", SLOW_BOX, str(run.folder)]
        with subprocess.Popen(words, stdin=subprocess.PIPE) as box:
            await_that((run.folder / "black-box" / "0001").exists)
            (run.folder / "freed").mkdir()
            await_that((run.folder / "seen").exists)
            (run.folder / "seen").rmdir()
            await_that((run.folder / "seen").exists)  # twice: the first time has been used
            target.kill()
            box.wait(PATIENCE)
    found = black_box_of(run.folder)
    assert found is not None and [one.pid for one in found.ends] == [target.pid]


@pytest.mark.parametrize("victim", ["monitor", pytest.param("black box", marks=pytest.mark.thorough)])
def test_a_cgroup_is_as_before_where_what_holds_it_is_killed(
    program: Program, scratch: Path, cgroup: ControlGroup, victim: str
) -> None:
    with watched(cgroup, program, scratch, ["--hold"]) as (target, monitor):
        await_that(cgroup.is_full)
        os.kill(monitor.pid if victim == "monitor" else box_of(monitor.pid), signal.SIGKILL)
        await_that(lambda: not cgroup.is_held())
        assert target.wait(PATIENCE) == -signal.SIGKILL


def test_a_group_of_version_2_is_frozen_while_it_is_full_and_gets_back_the_limits_that_it_had(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the files alone: a machine with cgroups of version 1 has no others."""
    monkeypatch.setattr(limits, "cgroup_of", lambda pid: None)
    values = {
        "memory.max": 100 * MIB + PAGE,
        "memory.current": 90 * MIB,
        "memory.high": "max",
        "cgroup.freeze": 0,
    }
    for name, value in values.items():
        (scratch / name).write_text(f"{value}\n")
    (scratch / "memory.stat").write_text(f"anon 1\ninactive_file {20 * MIB}\n")
    hold = limits.LimitHold(scratch)
    high = int((scratch / "memory.high").read_text())
    assert high % PAGE == 0, "or the kernel shows another number, and it is taken for somebody else's"
    assert 0.89 <= high / (100 * MIB) <= 0.9
    assert not hold.is_at_limit(), "20 MiB of what is used can be dropped"
    (scratch / "memory.stat").write_text("anon 1\ninactive_file 0\n")
    assert hold.is_at_limit()
    hold.note_limit()
    assert (scratch / "cgroup.freeze").read_text() == "1"
    (scratch / "memory.current").write_text("0\n")
    assert hold.is_at_limit(), "until it is released, whatever comes back meanwhile"
    hold.release()
    assert (scratch / "cgroup.freeze").read_text() == "0"
    assert (scratch / "memory.high").read_text() == "max"


def test_the_stacks_of_a_process_that_is_killed_before_its_ledger_is_complete_are_there(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(pid: int, *_: object) -> None:
        target.kill()
        target.wait()
        raise TargetError("it has ended", slug="gone", hint="")

    monkeypatch.setattr(black_box_worker, "_ledger", killed)
    with subprocess.Popen(["sleep", "600"]) as target:
        await_that(lambda: "nanosleep" in Path(f"/proc/{target.pid}/wchan").read_text())
        black_box_worker.take_record(target.pid, scratch, lambda: 0.0)
    assert "nanosleep" in (scratch / "stacks.txt").read_text()
    assert (scratch / "smaps.txt").exists() and not (scratch / "explain.txt").exists()


class KernelsTimes:
    """When the kernel began to kill in a control group and when the process was gone, by its own events."""

    def __init__(self, cgroup: ControlGroup, pid: int) -> None:
        self._end = os.pidfd_open(pid)
        self._wait = oom_event(cgroup)
        self.out = self.gone = math.nan
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        self._wait()
        self.out = time.clock_gettime(time.CLOCK_BOOTTIME)
        select.select([self._end], [], [])
        self.gone = time.clock_gettime(time.CLOCK_BOOTTIME)

    def close(self) -> None:
        self._thread.join(PATIENCE)
        os.close(self._end)


def oom_event(cgroup: ControlGroup) -> Callable[[], None]:
    """Return a function that waits until the kernel begins to kill in *cgroup*."""
    if not cgroup.is_first:
        events = (cgroup.folder / "memory.events").open()
        changes = select.poll()
        changes.register(events, select.POLLPRI)

        def wait() -> None:
            with events:
                while "\noom 0\n" in events.read():
                    changes.poll()
                    events.seek(0)

        return wait
    libc = ctypes.CDLL(None, use_errno=True)
    event = libc.eventfd(0, os.O_CLOEXEC)
    source = os.open(cgroup.folder / "memory.oom_control", os.O_RDONLY)
    (cgroup.folder / "cgroup.event_control").write_text(f"{event} {source}")

    def read() -> None:
        os.read(event, 8)
        os.close(event)
        os.close(source)

    return read


@pytest.mark.thorough
@pytest.mark.parametrize("kill", range(20))
def test_a_series_ends_no_interval_before_the_kernel_begins_to_kill(
    program: Program, scratch: Path, cgroup: ControlGroup, kill: int
) -> None:
    """What the kernel takes until the process is gone, up to 0.3 s, can't be read in the process any more."""
    with watched(cgroup, program, scratch, [], rate=30e6) as (target, monitor):
        times = KernelsTimes(cgroup, target.pid)
        assert target.wait(PATIENCE) == -signal.SIGKILL
        assert monitor.wait(PATIENCE) == 0
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
def test_the_kernel_kills_whom_explain_container_foretells(cgroup: ControlGroup) -> None:
    wrong = [seed for seed in range(20) if not is_foretold(cgroup, Random(seed))]
    assert len(wrong) <= 1, wrong


def is_foretold(cgroup: ControlGroup, random: Random) -> bool:
    """Return whether `explain --container` names the one of five processes that the kernel then kills."""
    choices = [0, 0, 0, random.randint(-150, 150), 500, -1000]
    words = [f"{random.randint(6, 20)},{random.choice(choices)}" for _ in range(4)]
    cgroup.hold_at(96 * MIB)
    with cgroup.start(sys.executable, "-I", "-S", "-c", HOLDERS, *words, stdin=subprocess.PIPE):
        await_that(cgroup.is_full)
        cgroup.stop()
        foretold = api.explain_container(str(cgroup.folder)).victim
        before = cgroup.pids()
        with Path("/dev/kmsg").open("rb", buffering=0) as log:
            os.lseek(log.fileno(), 0, os.SEEK_END)
            cgroup.let_kill()
            await_that(lambda: any(map(has_ended, before)))
            killed = first_killed(log.fileno(), before)
        for pid in before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    await_that(lambda: not cgroup.pids())
    return killed == foretold


def first_killed(log: int, pids: Sequence[int]) -> int:
    """Return the one of *pids* that the kernel's *log* names first: it may kill another before the memory is back."""
    while True:
        found = re.search(rb"out of memory: Killed process (\d+)", os.read(log, 8192))  # one record
        if found is not None and int(found[1]) in pids:
            return int(found[1])
