"""`gdbmem explain --fork`: the process notices nothing but a short wait."""

from __future__ import annotations

import mmap
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.inspection.live_process import explain_process
from gdbmem.linux.holding.ptrace import Freeze
from gdbmem.linux.memory.maps import Counted, Mapping, count_pages, read_smaps, scan_resident
from gdbmem.model.ledger import LAZILY_FREED
from tests.conftest import Program
from tests.live.explaining import Running, explain, heap_of, running
from tests.live.user import GDBMEM, SECONDS

KILLS = int(os.environ.get("GDBMEM_ROUNDS", "4"))
TIMES = 2 * KILLS


def figures(target: Running) -> dict[str, int]:
    line = target.type("x\n").readline()
    return {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", line)}


def children(pid: int) -> str:
    return "".join(
        (task / "children").read_text()
        for task in Path(f"/proc/{pid}/task").iterdir()
        if (task / "children").exists()
    )


def test_a_server_under_load_loses_no_call_no_request_and_keeps_no_zombie(program: Program) -> None:
    with running([program("steady_server"), 1]) as target:
        time.sleep(0.1)
        before = figures(target)
        for _ in range(TIMES):
            explain(target.pid, fork=True)
        after = figures(target)
        for name in ("interrupted", "signals", "lost", "wrong"):
            assert after[name] == 0, after
        assert after["answers"] > before["answers"]
        assert children(target.pid) == ""
        assert "TracerPid:\t0" in Path(f"/proc/{target.pid}/status").read_text()


def test_stopping_it_whole_interrupts_no_call_either(program: Program) -> None:
    with running([program("steady_server"), 1]) as target:
        for _ in range(TIMES):
            explain(target.pid)
        assert figures(target)["interrupted"] == 0


def test_the_copy_tells_the_same_as_the_process_itself(program: Program) -> None:
    with running([program("heap_known"), "pairs", 3]) as target:
        itself, copy = explain(target.pid), explain(target.pid, fork=True)
        assert heap_of(itself).arenas == heap_of(copy).arenas
        assert itself.releasable_bytes == copy.releasable_bytes
        heaps = [
            [e for e in ledger.entries if e.category.startswith(("heap", "arena", "stack"))]
            for ledger in (itself, copy)
        ]
        assert heaps[0] == heaps[1]
        assert copy.pause_seconds is not None


def test_pages_present_are_smaps_rss_mapping_by_mapping(program: Program) -> None:
    with running([program("heap_faults"), "huge-pages"]) as target, Freeze(target.pid):
        mappings = read_smaps(target.pid)
        present = scan_resident(target.pid, [(mappings[0].start, mappings[-1].end)])
        if present is None:
            pytest.skip("this kernel has no PAGEMAP_SCAN")
        assert [m.rss_bytes for m in mappings] == [present.within(m.start, m.end) for m in mappings]


# Private pages of a file, some written; memory shared with nobody; pages that were only read; a hole.
MIXED = """
import mmap, tempfile, time
file = tempfile.TemporaryFile()
file.truncate(1 << 18)
written = mmap.mmap(file.fileno(), 1 << 18, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
shared, private = mmap.mmap(-1, 1 << 18), mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, 1 << 17, 4096):
    shared[at], private[at], private[(1 << 18) + at] = 1, 1, private[(1 << 19) + at]
    written[at] = written[at + (1 << 17)]
"""
# What smaps alone tells from other pages.
FREED = """
freed = mmap.mmap(-1, 1 << 22, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
freed.write(bytes(1 << 22))
freed.madvise(mmap.MADV_FREE)
"""
READY = "print('ready', flush=True); time.sleep(1000)"


class Counts:
    """What `count_pages` returns while a copy is explained, beside the copy's smaps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counted: Optional[Counted] = None
        self.smaps: Sequence[Mapping] = ()
        monkeypatch.setattr("gdbmem.inspection.live_process.count_pages", self._count)

    def _count(self, pid: int, mappings: Sequence[Mapping]) -> Optional[Counted]:
        self.counted, self.smaps = count_pages(pid, mappings), read_smaps(pid)
        return self.counted


@pytest.fixture
def can_scan() -> None:
    if scan_resident(os.getpid(), [(0, 1 << 46)]) is None:
        pytest.skip("this kernel has no PAGEMAP_SCAN")


@pytest.mark.usefixtures("can_scan")
def test_a_mapping_of_the_copy_has_the_resident_bytes_that_its_smaps_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = Counts(monkeypatch)
    with running([sys.executable, "-c", MIXED + READY]) as target:
        ledger = explain(target.pid, fork=True)
    assert counts.counted is not None
    assert ledger.rss_bytes >= 6 << 17
    copied = {one.start: (one.rss_bytes, one.anonymous_bytes) for one in counts.smaps}
    for one in counts.counted.mappings:
        assert (one.rss_bytes, one.anonymous_bytes) == copied.get(one.start, (0, 0)), one


@pytest.mark.usefixtures("can_scan")
def test_memory_that_only_smaps_tells_apart_is_read_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counts(monkeypatch)
    with running([sys.executable, "-c", MIXED + FREED + READY]) as target:
        ledger = explain(target.pid, fork=True)
    assert counts.counted is None
    lazily_freed = sum(one.resident_bytes for one in ledger.entries if one.category == LAZILY_FREED)
    # A processor's batch of up to 31 pages counts as lazily freed only once the kernel empties it, which may be between
    # the two readings.
    assert lazily_freed > 1 << 21
    assert abs(lazily_freed - sum(one.lazily_freed_bytes for one in counts.smaps)) <= 31 * mmap.PAGESIZE


@pytest.mark.usefixtures("can_scan")
def test_pages_that_the_kernel_counts_otherwise_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counts(monkeypatch)
    kept = {"RssAnon": "4096 kB", "RssFile": "0 kB", "RssShmem": "0 kB", "VmSwap": "0 kB"}
    monkeypatch.setattr("gdbmem.linux.memory.maps.status_fields", lambda _: kept)
    with running([sys.executable, "-c", MIXED + READY]) as target:
        ledger = explain(target.pid, fork=True)
    assert counts.counted is None
    assert ledger.rss_bytes >= 6 << 17


@pytest.mark.parametrize("fork", [False, True])
def test_a_kernel_that_cannot_scan_pages_gives_the_same_ledger(
    program: Program, monkeypatch: pytest.MonkeyPatch, fork: bool
) -> None:
    def no_such_request(*_: object) -> None:
        raise OSError(25, "Inappropriate ioctl for device")

    with running([program("heap_known"), "pairs", 2]) as target:
        scanned = explain(target.pid, fork=fork)
        monkeypatch.setattr("gdbmem.linux.memory.maps.scan_pages", no_such_request)
        read = explain(target.pid, fork=fork)
    for ledger in (scanned, read):
        assert heap_of(ledger).is_exact
    heaps = [
        [e for e in ledger.entries if e.category.startswith(("heap", "arena"))] for ledger in (scanned, read)
    ]
    assert heaps[0] == heaps[1]


def test_no_copy_is_left_when_the_analysis_fails(program: Program) -> None:
    def fails(*_: object) -> None:
        raise KeyboardInterrupt

    with running([program("heap_known"), "none"]) as target:
        try:
            explain_process(target.pid, walker=fails, fork=True)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("the walker was not called")
        assert children(target.pid) == ""
        assert os.waitpid(target.pid, os.WNOHANG)[0] == 0  # the program itself still runs
        target.trim()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_no_copy_is_left_when_gdbmem_is_ended(number: signal.Signals, program: Program) -> None:
    code = (
        "import sys, time\n"
        "from gdbmem.inspection import live_process\n"
        "def wait(*words, **options):\n"
        "    print('copied', flush=True)\n"
        "    for _ in range(600): time.sleep(0.1)\n"  # a signal just before a sleep is seen after it
        "live_process.fill_reading = wait\n"
        "from gdbmem.cli.main import main\n"
        "sys.exit(main(['explain', '--fork', sys.argv[1]]))\n"
    )
    with running([program("heap_known"), "pairs", 3]) as target:
        words = [sys.executable, "-c", code, str(target.pid)]
        with subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # nohup hands down that it is ignored
        ) as looking:
            assert looking.stdout is not None
            assert looking.stdout.readline() == b"copied\n"
            assert children(target.pid) != ""
            looking.send_signal(number)
            assert looking.wait(timeout=20) == 128 + number
        assert children(target.pid) == ""
        assert "TracerPid:\t0" in Path(f"/proc/{target.pid}/status").read_text()


def is_held(pid: int) -> bool:
    return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()


def test_nothing_is_left_when_gdbmem_is_killed_while_it_has_a_copy(program: Program) -> None:
    with running([program("steady_server"), 1]) as target:
        met = 0
        for number in range(KILLS):
            with subprocess.Popen(
                [GDBMEM, "explain", "--fork", str(target.pid)], stdout=subprocess.DEVNULL
            ) as looking:
                while looking.poll() is None and not children(target.pid):
                    if number % 2 and is_held(target.pid):
                        break
                    time.sleep(0.0005)
                time.sleep(0.0007 * number)
                met += is_held(target.pid) or children(target.pid) != ""
                looking.kill()
            deadline = time.monotonic() + SECONDS
            while (children(target.pid) or is_held(target.pid)) and time.monotonic() < deadline:
                time.sleep(0.002)
            assert children(target.pid) == "", "a zombie, or a copy that runs"
        after = figures(target)
        assert all(after[name] == 0 for name in ("interrupted", "signals", "lost", "wrong")), after
        assert met, "no kill met a copy"


READS_BESIDE_COPIES = """
import mmap, os, sys
with open(sys.argv[1], "wb+") as file:
    file.truncate(64 << 20)
    area = mmap.mmap(file.fileno(), 64 << 20, flags=mmap.MAP_PRIVATE)
for at in range(0, 32 << 20, 4096): area[at] = 1
for at in range(32 << 20, 64 << 20, 4096): area[at]
os.write(1, b"pid %d\\nready\\n" % os.getpid())
os.read(0, 1)
"""


def test_huge_pages_of_a_file_beside_private_copies_of_others_are_not_left_out(tmp_path: Path) -> None:
    # A database that is mapped privately, and partly written. The kernel copies the small pages of such a mapping.
    with running([sys.executable, "-c", READS_BESIDE_COPIES, tmp_path / "data"]) as target:
        mappings = [one for one in read_smaps(target.pid) if one.name == str(tmp_path / "data")]
        huge = sum(one.huge_bytes for one in mappings)
        if not huge:
            pytest.skip("this kernel or file system has no huge pages of files")
        ledger = explain_process(target.pid, fork=True)
        truth = sum(one.rss_bytes for one in read_smaps(target.pid))
    assert ledger.beside["huge_pages"] >= huge
    assert ledger.rss_bytes == pytest.approx(truth, abs=1 << 20)
