"""`gdbmem explain` on processes that are hard to inspect: unharmed, they wait long only if that was announced."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

import pytest

from gdbmem.allocators.others import Recognised, recognise
from gdbmem.errors import TargetError
from gdbmem.inspection import live_process
from gdbmem.inspection.live_process import explain_process
from gdbmem.linux.holding import copying
from gdbmem.linux.holding.copying import _device_writes, is_long, wait_text
from gdbmem.linux.holding.ptrace import Freeze, ahead_of_others
from gdbmem.linux.memory.maps import Mapping, Ranges, read_smaps, resident_ranges
from gdbmem.linux.process.process import process_facts
from gdbmem.model.ledger import Ledger
from gdbmem.model.memory import Memory
from tests.conftest import Program
from tests.cover import cover
from tests.live.explaining import Running, explain, gdbmem, heap_of, running, slugs
from tests.live.test_explain_copy import children
from tests.live.user import GDBMEM

CALLS = {
    "x86_64": {"clone": 56, "wait4": 61, "mmap": 9},
    "aarch64": {"clone": 220, "wait4": 260, "mmap": 222},
}
BLOCKS = 60_000
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@contextmanager
def guarded(program: Program, *words: object) -> Iterator[Running]:
    with running([program("guarded"), *words]) as target:
        impossible = re.search("^impossible (.*)", target.output, re.M)
        if impossible:
            pytest.skip(f"{impossible[1]} can't be had here")
        yield target


def assert_unharmed(target: Running) -> None:
    """It runs, is not traced, has no child, got no signal, and works as before."""
    assert children(target.pid) == ""
    status = Path(f"/proc/{target.pid}/status").read_text()
    assert "TracerPid:\t0" in status
    assert re.search(r"^State:\t[SR]", status, re.M)
    assert not re.search(r"^(SigPnd|ShdPnd):\t0*[1-9a-f]", status, re.M)
    assert target.type("x\n").readline() == "alive 1\n"


def assert_right(ledger: Ledger) -> None:
    assert BLOCKS <= sum(arena.live_chunks for arena in heap_of(ledger).arenas) <= BLOCKS + 10


FORKS, ANSWERS, FILTERED = (None, True, False), ("kill", "trap", "errno"), ("clone", "wait4", "mmap")


@pytest.mark.parametrize(
    ("call", "answer", "fork"),
    cover(
        itertools.product(FILTERED, ANSWERS, FORKS),  # always run is a third in which all pairs are met
        lambda call, answer, fork: not (FILTERED.index(call) + ANSWERS.index(answer) + FORKS.index(fork)) % 3,
    ),
)
def test_a_filter_of_system_calls_ends_no_process_that_is_looked_at(
    program: Program, call: str, answer: str, fork: Optional[bool]
) -> None:
    number = CALLS[os.uname().machine][call]
    with guarded(program, "seccomp", answer, number) as target:
        if fork and os.geteuid() != 0:
            with pytest.raises(TargetError, match="seccomp") as caught:
                explain_process(target.pid, fork=True)
            assert caught.value.slug == "copy-refused"
        else:
            assert_right(explain(target.pid, fork=fork))
        assert_unharmed(target)


def test_a_process_that_nobody_may_free_of_its_filter_is_held_instead(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gdbmem.linux.holding.injected_calls.SUSPEND", 1 << 30)  # which no kernel grants
    with guarded(program, "seccomp", "kill", CALLS[os.uname().machine]["clone"]) as target:
        with pytest.raises(TargetError, match="its seccomp filter could kill it"):
            explain_process(target.pid, fork=True)
        assert_right(explain(target.pid))
        assert_unharmed(target)


@AS_ROOT
@pytest.mark.parametrize("fork", [None, True])
def test_a_process_in_another_pid_namespace_keeps_no_zombie(program: Program, fork: Optional[bool]) -> None:
    with guarded(program, "namespace") as target:
        for _ in range(3):
            assert_right(explain(target.pid, fork=fork))
        assert_unharmed(target)


@AS_ROOT
def test_no_copy_becomes_the_first_process_of_a_namespace_that_would_end_with_it(program: Program) -> None:
    with guarded(program, "children-elsewhere") as target:
        with pytest.raises(TargetError, match="another PID namespace"):
            explain_process(target.pid, fork=True)
        assert_right(explain(target.pid))
        assert_unharmed(target)


@pytest.mark.parametrize("fork", [None, False])
def test_memory_that_a_userfaultfd_watches_is_waited_for_by_nobody(
    program: Program, fork: Optional[bool]
) -> None:
    with guarded(program, "watched") as target:
        assert_right(explain(target.pid, fork=fork))
        with pytest.raises(TargetError, match="userfaultfd"):
            explain_process(target.pid, fork=True)
        assert_unharmed(target)


def test_data_that_is_read_directly_arrives_while_copies_are_made(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with guarded(program, "reads", tmp_path / "data") as target:
        reason = _device_writes(process_facts(target.pid), read_smaps(target.pid))
        for _ in range(6 if reason is None else 0):
            assert_right(explain(target.pid, fork=True))
        for name, value, why in (
            ("_pins_pages", lambda: False, r"direct I/O \(aio, io_uring\), whose data"),
            ("_PINNING", frozenset[str](), r"direct I/O to a file on \w+, whose data"),
        ):
            with monkeypatch.context() as older:
                older.setattr(copying, name, value)
                with pytest.raises(TargetError, match=why):
                    explain_process(target.pid, fork=True)
                assert_right(explain(target.pid))
        assert_unharmed(target)
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("room", [True, False])
def test_a_process_that_can_not_be_copied_runs_on_once_its_memory_is_taken(
    program: Program, monkeypatch: pytest.MonkeyPatch, *, room: bool
) -> None:
    def analyses(memory: Memory, mappings: Sequence[Mapping], *more: Any) -> Recognised:
        traced.append("TracerPid:\t0" not in Path(f"/proc/{target.pid}/status").read_text())
        return recognise(memory, mappings, *more)

    traced: list[bool] = []
    monkeypatch.setattr("gdbmem.inspection.read_process.recognise", analyses)
    if not room:
        monkeypatch.setattr(live_process, "rooms_of", lambda _: [])
    with guarded(program, "watched") as target:
        ledger = explain(target.pid, fork=False)
        assert_right(ledger)
        assert_unharmed(target)
    assert traced[-1] is not room
    assert ledger.pause_seconds


def resident(pid: int) -> dict[str, int]:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return {name: int(kib) for name, kib in re.findall(r"^(Rss|Swap):\s+(\d+) kB", text, re.M)}


def settled(pid: int) -> dict[str, int]:
    """Return the figures once the kernel has written out what it does."""
    before: dict[str, int] = {}
    now = resident(pid)
    while now != before:
        time.sleep(0.3)
        before, now = now, resident(pid)
    return now


def test_what_is_swapped_out_is_read_in_the_copy_and_stays_out(program: Program) -> None:
    with guarded(program, "swapped") as target:
        before = settled(target.pid)
        if not before["Swap"]:
            pytest.skip("there is no swap here")
        assert_right(explain(target.pid))
        held = explain(target.pid, fork=False)
        assert held.heap is None and "swapped-unread" in slugs(held)
        assert resident(target.pid)["Swap"] == before["Swap"]
        assert resident(target.pid)["Rss"] <= before["Rss"] + 64
        assert_right(explain(target.pid, fork=False, swapped=True))
        assert resident(target.pid)["Swap"] < before["Swap"]


def test_a_process_that_waits_long_does_so_after_that_was_announced(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class Held(Freeze):
        def __enter__(self) -> Held:
            events.append("held")
            super().__enter__()
            return self

    def slowly(pid: int, areas: Sequence[tuple[int, int]]) -> tuple[Ranges, bool]:
        time.sleep(0.06)
        return resident_ranges(pid, areas)

    monkeypatch.setattr(live_process, "Freeze", Held)
    monkeypatch.setattr(live_process, "resident_ranges", slowly)

    with running([program("heap_known"), "none"]) as target:
        explain(target.pid, fork=False, say=events.append)
    assert [event if event == "held" else "said" for event in events] == ["held", "said", "held"]
    assert "is stopped for more than 50 ms while" in events[1]


def test_a_large_process_is_copied_and_a_longer_wait_is_reported_before() -> None:
    code = "x = bytearray(1 << 30); x[::4096] = bytes(len(x[::4096])); print('ready', flush=True); input()"
    with running(["python3", "-c", code]) as target:
        done = gdbmem("explain", target.pid)
    assert re.search(
        r"^gdbmem: process \d+ \(python3.*\) is stopped for about [\d.]+ m?s"
        r"(?: \(on this busy machine [\d.]+ m?s or longer\))?"
        r" while its 1\.0 GiB are copied",
        done.stderr,
    )
    assert "waited" in done.stdout or "was stopped for" in done.stdout


def test_many_looks_at_once_all_answer_and_leave_nothing(program: Program) -> None:
    with running([program("heap_known"), "pairs"]) as target:
        words = [GDBMEM, "explain", "--json", str(target.pid)]
        looks = [subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(4)]
        for look in looks:
            assert look.communicate(timeout=60)[1] == b""
            assert look.returncode == 0
        assert children(target.pid) == ""


def test_a_process_that_is_killed_while_its_copy_is_read_is_reported_to_have_ended(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kills(*_: object, **__: object) -> None:
        os.kill(target.pid, signal.SIGKILL)
        target.process.wait()
        raise TargetError("/proc/1/smaps can't be read", slug="process-forbidden")

    monkeypatch.setattr(live_process, "fill_reading", kills)
    with running([program("heap_known"), "none"]) as target, pytest.raises(TargetError) as caught:
        explain_process(target.pid, fork=True)
    assert caught.value.slug == "process-ended"
    assert str(target.pid) in caught.value.message


def test_a_process_does_not_stand_still_while_its_mappings_are_decoded(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs_meanwhile(function: str) -> None:
        decode = getattr(live_process, function)

        def decodes(*given: Any) -> Any:
            assert "TracerPid:\t0" in Path(f"/proc/{target.pid}/status").read_text(), function
            return decode(*given)

        monkeypatch.setattr(live_process, function, decodes)

    for function in ("parse_maps", "uncopied_areas", "find_call_sites"):
        runs_meanwhile(function)
    with running([program("heap_known"), "none"]) as target:
        assert explain_process(target.pid, fork=True).pause_seconds


def test_a_part_of_an_entry_is_no_larger_than_the_entry() -> None:
    code = (
        "import ctypes, threading, time; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p\n"
        "def work():\n"
        "    one = c.malloc(ctypes.c_size_t(100_000)); c.free(ctypes.c_void_p(one)); done.wait(); time.sleep(60)\n"
        "done = threading.Barrier(7)\n"
        "for _ in range(6): threading.Thread(target=work, daemon=True).start()\n"
        "done.wait(); print('ready', flush=True); input()"
    )
    with running(["python3", "-c", code]) as target:
        ledger = explain(target.pid)
    ends = [entry for entry in ledger.entries if "top_bytes" in entry.detail]
    assert ends
    assert [entry for entry in ends if entry.detail["top_bytes"] > entry.resident_bytes] == []


def test_shared_memory_is_named_on_the_screen() -> None:
    code = (
        "import mmap, os; f = os.memfd_create('frames'); os.ftruncate(f, 8 << 20);"
        " m = mmap.mmap(f, 8 << 20); m[:] = bytes([1]) * len(m); print('ready', flush=True); input()"
    )
    with running(["python3", "-c", code]) as target:
        done = gdbmem("explain", target.pid)
    assert re.search(r"  shared  .*/memfd:frames .*8\.0 MiB", done.stdout), done.stdout


def test_the_wait_that_is_announced_is_that_on_a_machine_as_busy_as_this(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for load, said, announced in (
        (0.1, "about 20 ms", False),
        (8.0, "about 20 ms (on this busy machine 80 ms or longer)", True),
    ):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert (wait_text(0.02), is_long(0.02)) == (said, announced)


@AS_ROOT
def test_a_busy_machine_does_not_keep_a_process_waiting_for_each_step_of_its_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 14 stops of a worker of 200 MiB at load 13 the longest took 36 ms, and 334 ms without it."""

    def told(*_: object) -> object:
        raise TargetError(f"policy {os.sched_getscheduler(0)}", slug="policy", hint="")

    before = os.sched_getscheduler(0)
    with ahead_of_others():
        is_possible = os.sched_getscheduler(0) != before
        pid = os.fork()
        if not pid:
            os._exit(os.sched_getscheduler(0))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == os.SCHED_OTHER
    assert os.sched_getscheduler(0) == before
    if not is_possible:
        pytest.skip("no process can be run ahead of others here")
    monkeypatch.setattr(live_process, "_copied", told)
    ahead = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
    with subprocess.Popen(["sleep", "600"]) as target:
        try:
            with pytest.raises(TargetError, match=rf"policy {ahead}$"):
                explain_process(target.pid, fork=True)
        finally:
            target.kill()


def test_a_user_who_may_not_run_ahead_of_others_reads_processes_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with ahead_of_others():
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
