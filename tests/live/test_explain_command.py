"""`gdbmem explain` as it is typed: its output, comparisons and refusals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gdbmem.allocators.glibc import heap
from gdbmem.errors import TargetError
from gdbmem.inspection.live_process import explain_process
from tests.conftest import Program
from tests.live.explaining import explain, gdbmem, running
from tests.live.user import SECONDS
from tests.processes import without_main_thread


def refusal(pid: int) -> str:
    with pytest.raises(TargetError) as caught:
        explain_process(pid)
    return caught.value.slug


def test_no_such_process() -> None:
    assert refusal(4_190_001) == "no-such-process"


def test_a_zombie() -> None:
    process = subprocess.Popen(["true"])
    deadline = time.monotonic() + SECONDS
    while "State:\tZ" not in Path(f"/proc/{process.pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert refusal(process.pid) == "process-zombie"
    process.wait()


def test_a_process_whose_main_thread_has_ended_is_looked_at_through_another() -> None:
    with without_main_thread() as pid:
        for fork in (None, False, True):
            ledger = explain_process(pid, fork=fork)
            assert sum(entry.resident_bytes for entry in ledger.entries) == ledger.rss_bytes > 1 << 20
            assert ledger.heap is not None


def test_a_kernel_thread() -> None:
    if Path("/proc/2/comm").exists() and Path("/proc/2/comm").read_text() == "kthreadd\n":
        assert refusal(2) == "process-kernel"
    else:
        pytest.skip("no kernel thread is visible here")


@pytest.mark.needs("gdb")
def test_one_that_a_gdb_holds_is_refused_with_what_to_type_there(program: Program) -> None:
    with running([program("heap_known"), "none"]) as target:
        gdb = subprocess.Popen(
            ["gdb", "-nx", "-q", "-p", str(target.pid)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + SECONDS
            while "TracerPid:\t0" in Path(f"/proc/{target.pid}/status").read_text():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert refusal(target.pid) == "process-traced"
        finally:
            gdb.communicate(b"detach\nquit\n", timeout=60)  # killed, it would leave a child behind


def test_a_process_that_goes_away_is_an_error_in_a_sentence(program: Program) -> None:
    def dies(*_: object) -> None:
        os.kill(target.pid, signal.SIGKILL)
        os.waitpid(target.pid, 0x40000000)  # __WALL: its tracer sees it end first
        heap.walk(*_)  # type: ignore[arg-type]

    with running([program("heap_known"), "none"]) as target, pytest.raises(TargetError) as caught:
        explain_process(target.pid, walker=dies)
    assert caught.value.slug in ("memory-unreadable", "process-ended", "no-such-process")


def test_the_command_says_first_what_to_do(program: Program) -> None:
    with running([program("heap_known"), "middle"]) as target:
        done = gdbmem("explain", target.pid)
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    size = r"\d\.\d MiB"
    assert re.fullmatch(
        rf"{size} resident; {size} of it is freed memory that glibc keeps: malloc_trim\(0\) would return {size}"
        r" \(once only; pages used again are faulted in again\)",
        first,
    )
    assert "100.0 %  total" in done.stdout


@pytest.mark.parametrize(("way", "words"), [("--fork", ()), ("--hold", ()), ("--fork", ("dontfork",))])
def test_what_was_freed_lazily_is_an_entry_and_the_answer(
    program: Program, way: str, words: tuple[str, ...]
) -> None:
    with running([program("frees_lazily"), *words]) as target:
        theirs = sum(
            map(int, re.findall(r"LazyFree:\s+(\d+)", Path(f"/proc/{target.pid}/smaps").read_text()))
        )
        done = gdbmem("explain", target.pid, way, "--json")
        text = gdbmem("explain", target.pid, way).stdout
    entries = {entry["category"]: entry["resident_bytes"] for entry in json.loads(done.stdout)["entries"]}
    # The kernel counts the last pages of a call a little later.
    assert entries["anonymous.lazyfree"] == pytest.approx(theirs << 10, abs=256 << 10)
    assert entries["anonymous.lazyfree"] + entries["anonymous.other"] == pytest.approx(
        24 << 20, abs=256 << 10
    )
    assert " MiB of it is freed already (MADV_FREE): the kernel takes it when memory is short" in text


def test_json_adds_up_and_can_be_compared_with_later(program: Program, tmp_path: Path) -> None:
    with running([program("heap_known"), "middle"]) as target:
        before = tmp_path / "before.json"
        assert gdbmem("explain", target.pid, "--json", "-o", before).returncode == 0
        target.trim()
        grown = gdbmem("explain", target.pid, "--since", before, "--json")
    document = json.loads(before.read_text())
    assert document["kind"] == "ledger"
    assert sum(entry["resident_bytes"] for entry in document["entries"]) == document["rss_bytes"]
    changes = {e["category"]: e["delta_bytes"] for e in json.loads(grown.stdout)["entries"]}
    assert changes["heap.free.releasable"] == -document["releasable_bytes"]


@pytest.mark.parametrize(
    "program", [["sleep", "100"], [sys.executable, "-c", "import ssl, time; time.sleep(100)"]]
)
def test_looking_at_a_process_brings_nothing_into_its_memory(program: list[str]) -> None:
    # With a locale its file lies beside libc's data.
    process = subprocess.Popen(program, env={**os.environ, "LC_ALL": "C.UTF-8"})
    try:
        # Before Python 3.11 its sleep is a select.
        while not re.search("nanosleep|select|poll", Path(f"/proc/{process.pid}/wchan").read_text()):
            assert process.poll() is None
            time.sleep(0.01)
        rollup = Path(f"/proc/{process.pid}/smaps_rollup")
        before = re.findall("Rss: .*", rollup.read_text())
        first, second = explain(process.pid), explain(process.pid)
        assert re.findall("Rss: .*", rollup.read_text()) == before != []
        assert first.rss_bytes == second.rss_bytes
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("option", ["--sizes", "--pinners", "--types", "--arena=0"])
def test_what_a_comparison_would_leave_unheard_is_refused(option: str) -> None:
    done = gdbmem("explain", os.getpid(), "--since", "before.json", option)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--since can't be shown together with {option.partition('=')[0]}; " in done.stderr


def test_a_full_disk_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        words = [shutil.which("gdbmem", path=str(Path(sys.executable).parent)) or "", "--help"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "gdbmem: the disk is full; free some space [output-unwritable]\n",
    )


def test_a_pid_that_is_none_is_an_error_in_one_line() -> None:
    done = gdbmem("explain", "4190001")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gdbmem: there is no process 4190001; 'ps' lists them [no-such-process]\n"


def test_the_process_goes_on_as_if_nothing_had_been(program: Program) -> None:
    with running([program("heap_known"), "none", 3]) as target:
        for _ in range(3):
            explain(target.pid)
        assert "TracerPid:\t0" in Path(f"/proc/{target.pid}/status").read_text()
        deadline = time.monotonic() + SECONDS  # it has to be scheduled once more before it sleeps again
        while "State:\tS" not in Path(f"/proc/{target.pid}/status").read_text():
            assert time.monotonic() < deadline
        target.trim()  # it still answers
