"""`gdbmem explain --try`: what a copy returned is what the process then returns itself, which is not changed before."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from ctypes.util import find_library
from pathlib import Path

import pytest

from gdbmem.inspection.live_process import Held, Moment, ask_process
from gdbmem.linux.elf.objects import exported, images
from gdbmem.linux.holding import copying
from gdbmem.linux.holding import ptrace as tracing
from gdbmem.linux.holding.copying import make_copy
from gdbmem.linux.holding.ptrace import Freeze
from gdbmem.linux.holding.returning_thread import find_call_sites
from gdbmem.linux.holding.running_copy import CallFailed, RunningCopy
from gdbmem.linux.memory.maps import read_maps, read_smaps
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.model.ledger import Tried
from gdbmem.model.memory import Memory
from tests.conftest import Program
from tests.cover import cover
from tests.libraries import needs_library, skip_without_library
from tests.live.explaining import Running, explain, gdbmem, running
from tests.live.test_explain_copy import children, is_held
from tests.live.test_keeper_killed import KilledAfter
from tests.live.test_memexplain import document as document_in
from tests.live.test_memexplain import gdb
from tests.live.user import GDBMEM

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="functions are called on x86-64 only")

LIBRARIES = {
    "jemalloc": "jemalloc",
    "tcmalloc": "tcmalloc_minimal",
    "mimalloc": "mimalloc",
    "tbbmalloc": "tbbmalloc_proxy",
    "glibc": "",
}
CLONE, SECCOMP, PRCTL, MMAP, YIELD = "56", "317", "157", "9", "24"


def preloaded(allocator: str) -> dict[str, str]:
    if allocator == "tcmalloc":
        needs_library("gperftools")
    elif allocator == "jemalloc":
        needs_library("jemalloc")
    elif allocator in ("mimalloc", "tbbmalloc"):
        skip_without_library(LIBRARIES[allocator])
    name = LIBRARIES[allocator]
    return {"LD_PRELOAD": find_library(name) or ""} if name else {}


def state_of(target: Running) -> tuple[object, ...]:
    """Return what a call in the process itself would change."""
    status = Path(f"/proc/{target.pid}/status").read_text()
    kept = ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "TracerPid", "Threads", "Seccomp", "NoNewPrivs")
    fields = [line for line in status.splitlines() if line.startswith(kept)]
    descriptors = sorted(str(one.readlink()) for one in Path(f"/proc/{target.pid}/fd").iterdir())
    return fields, descriptors, children(target.pid)


def whole(rows: list[Tried], allocator: str) -> Tried:
    (row,) = [one for one in rows if one.allocator == allocator and one.returns_all]
    assert row.returned_bytes is not None, row.why_not
    return row


@pytest.mark.parametrize("allocator", LIBRARIES)
def test_what_a_copy_returns_is_what_the_process_returns_then(program: Program, allocator: str) -> None:
    with running([program("returns_memory")], preloaded(allocator)) as target:
        before = state_of(target)
        done = gdbmem("explain", target.pid, "--try", "--json")
        assert state_of(target) == before
        document = json.loads(done.stdout)
        (row,) = [one for one in document["tried"] if one["allocator"] == allocator and one["returns_all"]]
        assert row["why_not_tried"] is None
        own = int(target.type("purge\n").readline())
        assert abs(row["returned_bytes"] - own) <= max(0.01 * own, 1 << 19)
        if row["read_bytes"] is not None:
            assert abs(row["read_bytes"] - own) <= max(0.01 * own, 1 << 19)


CALLS = {
    "jemalloc": 'mallctl("arena.4096.purge", …)',
    "tcmalloc": "MallocExtension_ReleaseFreeMemory()",
    "mimalloc": "mi_collect(true)",
    "tbbmalloc": "scalable_allocation_command(TBBMALLOC_CLEAN_ALL_BUFFERS, NULL)",
    "glibc": "malloc_trim(0)",
}


@pytest.mark.needs("gdb")
@pytest.mark.parametrize("allocator", LIBRARIES)
def test_memtrim_announces_the_function_of_the_allocator_and_returns_what_the_kernel_counts(
    program: Program, tmp_path: Path, allocator: str
) -> None:
    with running([program("returns_memory")], preloaded(allocator)) as target:
        before = sum(mapping.rss_bytes for mapping in read_smaps(target.pid))
        commands = f"attach {target.pid}", "memtrim --json -o trim.json", "detach"
        done = gdb(tmp_path, program("returns_memory"), *commands)
        after = sum(mapping.rss_bytes for mapping in read_smaps(target.pid))
        assert f"gdbmem: calling {CALLS[allocator]} in the program" in done.stderr
        returned = document_in(tmp_path / "trim.json")["returned_bytes"]
        assert returned > 1 << 20 or allocator == "mimalloc"  # release 2.0 has nothing to return here
        assert abs(before - after - returned) <= max(0.01 * returned, 1 << 19)
        assert int(target.type("purge\n").readline()) < 1 << 19  # nothing is left for the function


@pytest.mark.parametrize("allocator", cover(LIBRARIES, lambda name: name == "jemalloc"))
def test_threads_that_allocate_without_pause_do_not_make_a_copy_wait_for_a_lock(
    program: Program, allocator: str
) -> None:
    with running([program("returns_memory")], preloaded(allocator)) as target:
        assert target.type("busy\n").readline() == "busy\n"
        trial = whole(list(explain(target.pid, tried="all").tried), allocator)
        assert 1 <= trial.copies <= 3
        assert children(target.pid) == ""


@pytest.mark.parametrize("allocator", cover(LIBRARIES, lambda name: name in ("jemalloc", "glibc")))
def test_threads_that_sleep_inside_an_allocator_leave_an_answer_or_the_reason_why_there_is_none(
    program: Program, allocator: str
) -> None:
    with running([program("returns_memory")], preloaded(allocator)) as target:
        assert target.type("busy\n").readline() == "busy\n"
        time.sleep(0.3)
        assert target.type("halt\n").readline() == "halted\n"
        before = state_of(target)
        ledger = explain(target.pid, tried="all")
        (row,) = [row for row in ledger.tried if row.allocator == allocator and row.returns_all]
        assert (row.returned_bytes is None) == bool(row.why_not)
        assert row.copies <= 3
        assert [notice.slug for notice in ledger.notices].count("arena-locked") <= 1  # not one for each arena
        assert state_of(target) == before


def test_a_copier_killed_in_the_middle_of_a_call_leaves_no_copy_and_no_harm(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running([program("returns_memory")]) as target:
        before = state_of(target)
        unanswered = 0
        for calls in range(21, 60, 1 if "ALL_STEPS" in os.environ else 9):
            monkeypatch.setattr(tracing, "_libc", KilledAfter(calls))
            (row,) = explain(target.pid, tried="trim").tried
            unanswered += "was killed" in row.why_not
            assert state_of(target) == before, calls
        assert unanswered > 1
        monkeypatch.setattr(tracing, "_libc", None)
        assert whole(list(explain(target.pid, tried="trim").tried), "glibc").returned_bytes


LATER = [0.0, 0.05, 0.1, 0.2, 0.4, 0.8]  # seconds after the process was stopped first


@pytest.mark.parametrize("later", cover(LATER, lambda seconds: seconds == 0.2))
def test_ctrl_c_during_a_try_leaves_no_copy_and_the_process_as_it_was(program: Program, later: float) -> None:
    with running([program("returns_memory")], preloaded("jemalloc")) as target:
        before = state_of(target)
        with subprocess.Popen(
            [GDBMEM, "explain", str(target.pid), "--try", "all"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # nohup hands down that it is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        ) as trying:
            while trying.poll() is None and not is_held(target.pid) and not children(target.pid):
                time.sleep(0.0005)
            time.sleep(later)
            trying.send_signal(signal.SIGINT)
            _, said = trying.communicate(timeout=60)
        assert trying.returncode in (0, 130, -signal.SIGINT), said  # 0: it was done; killed: as Python ended
        assert "Traceback" not in said
        assert state_of(target) == before
        assert int(target.type("purge\n").readline()) > 0


@pytest.mark.parametrize("calls", [(CLONE,), (SECCOMP, PRCTL), (MMAP,)])
def test_a_filter_that_kills_for_the_calls_of_a_copy_kills_neither_it_nor_the_process(
    program: Program, calls: tuple[str, ...]
) -> None:
    if os.geteuid():
        pytest.skip("only root can suspend a filter")
    with running([program("guarded"), "seccomp", "kill", *calls]) as target:
        row = whole(list(explain(target.pid, tried="trim").tried), "glibc")
        assert row.is_as_read
        assert target.type("x\n").readline() == "alive 1\n"


STATES = {
    "stopped": "dirty_decay_ms:-1",
    "in a PID namespace": "dirty_decay_ms:-1",
    "another user's": "dirty_decay_ms:-1",
    "a background thread": "background_thread:true,dirty_decay_ms:100000",
    "divided huge pages": "hpa:true",
}


@pytest.mark.parametrize("state", STATES)
def test_a_copy_of_a_jemalloc_program_answers_in_whatever_state_the_program_is(
    program: Program, state: str
) -> None:
    environment = {**preloaded("jemalloc"), "MALLOC_CONF": STATES[state]}
    within = {
        "in a PID namespace": ["unshare", "-p", "-f"],
        "another user's": ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
    }.get(state, [])
    if within and (os.geteuid() or shutil.which(within[0]) is None):
        pytest.skip(f"only root can start a process {state}, with {within[0]}")
    with running([*within, program("returns_memory")], environment) as target:
        pid = int(children(target.pid)) if within[:1] == ["unshare"] else target.pid
        if state == "stopped":
            os.kill(pid, signal.SIGSTOP)
        ledger = explain(pid, tried="purge")
        if state == "stopped":
            os.kill(pid, signal.SIGCONT)
        row = whole(list(ledger.tried), "jemalloc")
        (malloc,) = ledger.mallocs
        assert row.returned_bytes is not None and row.returned_bytes > 1 << 20
        own = int(target.type("purge\n").readline())
        assert abs(row.returned_bytes - own) <= max(0.01 * own, 1 << 19)
        assert malloc.live_blocks >= 60 + 6  # of 200 bytes, and of 1 MiB


def test_where_no_copy_can_be_made_the_ledger_says_why_nothing_was_tried(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "SILENT_SECONDS", 0)
    said: list[str] = []
    with running([program("guarded"), "watched"]) as target:
        if target.output.startswith("impossible"):
            pytest.skip(target.output)
        (row,) = explain(target.pid, tried="all", say=said.append).tried
        assert "a userfaultfd watches its memory" in row.why_not
        assert row.copies == 0
        assert "a userfaultfd watches its memory" in said[-1]  # and not an option that nobody gave
        assert target.type("x\n").readline() == "alive 1\n"


SHARES = """
import ctypes, mmap, os, sys
shared = mmap.mmap(-1, 4096)
shared[:8] = bytes(8)
print(f"pid {os.getpid()}")
print(f"at {ctypes.addressof(ctypes.c_char.from_buffer(shared))}")
print("ready", flush=True)
for line in sys.stdin:
    print(shared[:8].hex(), flush=True)
"""


@contextlib.contextmanager
def calling_copy(target: Running, names: Sequence[str]) -> Iterator[tuple[RunningCopy, Mapping[str, int]]]:
    """Yield a copy of *target*, and where the functions with these *names* of its C library are."""
    with ProcMemory(target.pid) as memory:
        mappings = read_maps(target.pid)
        sites = find_call_sites(target.pid, memory, mappings)
        (libc,) = [one for one in images(memory, mappings) if re.search(r"/libc[.-][^/]*$", one.name)]
        found = exported(memory, libc.start, libc.bias, names)
    assert sites is not None
    with Freeze(target.pid) as freeze:
        copy = make_copy(freeze, mappings, sites, lambda _: None)
    try:
        copy.limit()
        calls = RunningCopy(copy, sites, lambda: False)
        yield calls, found
        calls.close()
    finally:
        copy.kill()


class Limits:
    """The question what the kernel does with the copy."""

    def of_process(self, held: Held) -> tuple[int, str]:
        raise AssertionError("it was not copied")

    def of_copy(self, moment: Moment, memory: Memory) -> tuple[int, str]:
        pid = moment.copy.pid
        return resource.prlimit(pid, resource.RLIMIT_CORE)[0], Path(f"/proc/{pid}/oom_score_adj").read_text()


def test_a_copy_leaves_no_core_and_is_killed_before_the_program_when_memory_is_short() -> None:
    with running([sys.executable, "-c", SHARES]) as target:
        # A copy that a filter kills must not be reported as the program's crash: 1 starts no program for cores either.
        assert ask_process(target.pid, lambda _: Limits(), fork=True)[0] == (1, "1000\n")


def test_a_function_that_a_copy_calls_reaches_neither_shared_memory_nor_other_processes() -> None:
    with running([sys.executable, "-c", SHARES]) as target:
        at = int(re.findall(r"^at (\d+)", target.output, re.M)[0])
        with calling_copy(target, ("strtol", "kill", "getppid", "labs")) as (calls, found):
            assert calls.call(found["labs"], [7]) == 7
            assert calls.call(found["strtol"], [b"12\0", 0, 10]) == 12
            with pytest.raises(CallFailed, match="SIGSEGV"):
                calls.call(found["strtol"], [b"12\0", at, 10])
            with pytest.raises(CallFailed, match="system call 62, which is denied"):
                calls.call(found["kill"], [target.pid, 9])
            with pytest.raises(CallFailed, match="system call 110, which is denied"):
                calls.call(found["getppid"])
        assert target.type("x\n").readline() == "0" * 16 + "\n"
        assert children(target.pid) == ""


def test_a_call_for_which_a_filter_would_kill_the_program_says_so(program: Program) -> None:
    if os.geteuid():
        pytest.skip("only root can suspend a filter")
    with running([program("guarded"), "seccomp", "kill", YIELD]) as target:
        with calling_copy(target, ("sched_yield",)) as (calls, found), pytest.raises(CallFailed) as caught:
            calls.call(found["sched_yield"])
        assert str(caught.value) == "its seccomp filter kills for that"
        assert target.type("x\n").readline() == "alive 1\n"
