"""`gdbmem grow`: which line makes a running process bigger, beside what the program and the kernel count themselves."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gdbmem.api.growth import record_growth, record_program_growth
from gdbmem.linux.faults.watch import FaultWatch
from tests.conftest import Program
from tests.cover import cover
from tests.live.growing import GROW, Grown, grow, program_at_work, wait_for
from tests.live.user import Word, at_terminal, environment
from tests.processes import without_main_thread

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]

MIB = 1 << 20
SIZE = 64 * MIB


def grown(program: Program, kind: str, *options: str, until: str = "grew") -> tuple[int, Grown]:
    with program_at_work([program("makes_resident"), kind]) as target:
        return target.pid, grow(target, *options, until=until)


def check(one: Grown, pid: int, *, within: float = 0.05) -> None:
    """Explained and unexplained growth add up to the growth of the program's own resident set.

    On a busy machine some samples are counted for more pages than they stand for: 2 % were seen.
    """
    account = one.account(pid)
    delta = account["after_bytes"] - account["before_bytes"]
    assert one.said_bytes is not None and abs(delta - one.said_bytes) < MIB
    assert sum(one.unseen(pid).values()) + account["grown_bytes"] == pytest.approx(delta, abs=4096)
    assert account["grown_bytes"] == pytest.approx(delta, rel=within)


@pytest.mark.parametrize("kind", ["lazily", "threads"])
def test_the_line_that_touches_memory_is_named_not_the_one_that_reserved_it(
    program: Program, kind: str
) -> None:
    pid, one = grown(program, kind)
    assert one.first["site"]["function"] == "touch"
    assert one.first["delta_bytes"] > 0.95 * SIZE
    check(one, pid)
    assert not any("reserve" in str(path["frames"]) for path in one.result["sites"]["paths"])


def test_huge_pages_count_as_what_they_are(program: Program) -> None:
    if "never" in re.findall(r"\[(\w+)\]", Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()):
        pytest.skip("huge pages are off here")
    pid, one = grown(program, "huge")
    assert one.first["site"]["function"] == "touch" and one.result["totals"]["faults"] < 1000
    check(one, pid)


def test_who_has_called_what_touched_huge_pages_is_known_though_few_faults_were_needed(
    program: Program,
) -> None:
    if "never" in re.findall(r"\[(\w+)\]", Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()):
        pytest.skip("huge pages are off here")
    command = [*GROW, "--json", "--", str(program("makes_resident")), "huge", "64"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as ran:
        assert ran.stdin is not None and ran.stdout is not None
        assert ran.stdout.readline() == "ready\n"
        time.sleep(0.5)  # the many faults of its start are some turns ago
        ran.stdin.write("go\n")
        ran.stdin.flush()
        assert ran.stdout.readline().startswith("grew ")
        ran.stdin.write("end\n")
        ran.stdin.close()
        text = ran.stdout.read()
    paths = json.loads(text[text.index("{") :])["paths"]
    callers = sum(
        one["grown_bytes"] for one in paths if any(frame["function"] == "huge" for frame in one["frames"])
    )
    assert callers == pytest.approx(SIZE, rel=0.1)


@contextlib.contextmanager
def folios_of_64_kib() -> Iterator[None]:
    """Let the kernel use such folios where programs advise it to; skips if it doesn't."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled")
    if not os.access(setting, os.W_OK):
        pytest.skip("root only may set the sizes of folios, since Linux 6.8")
    with setting.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time on this machine, from whatever checkout
        before = re.findall(r"\[(\w+)\]", setting.read_text())[0]
        setting.write_text("madvise")
        try:
            yield
        finally:
            setting.write_text(before)


@pytest.mark.thorough  # a setting of the whole machine
def test_a_fault_that_brings_sixteen_pages_counts_as_sixteen(program: Program) -> None:
    with folios_of_64_kib():
        pid, one = grown(program, "folios")
    account = one.account(pid)
    assert account["after_bytes"] - account["before_bytes"] == pytest.approx(SIZE / 2, rel=0.02)
    assert one.result["totals"]["faults"] < SIZE / 2 / 4096 / 8
    assert one.first["site"]["function"] == "touch"
    check(one, pid)


def test_callers_of_malloc_are_found_in_a_libc_without_frame_pointers(program: Program) -> None:
    pid, one = grown(program, "malloc")
    assert one.first["site"]["function"] == "fill_blocks"
    check(one, pid)


def test_memory_that_a_line_made_resident_is_divided_into_live_and_freed_but_pinned(
    program: Program,
) -> None:
    pid, one = grown(program, "holes", "--ledger")
    check(one, pid, within=0.05)
    assert sum(row["bytes"] for row in one.result["held"]) == pytest.approx(SIZE, rel=0.1)
    parts: dict[str, int] = {}
    for part in (part for row in one.result["held"] for part in row["holds"]):
        parts[part["category"]] = parts.get(part["category"], 0) + part["bytes"]
    # Of each sampled page the shares are exact; how many of them are the heap's is an estimate.
    heap = sum(parts[category] for category in ("heap.live", "heap.free.pinned", "heap.metadata"))
    assert heap == pytest.approx(SIZE, rel=0.2)
    # The program keeps 200 bytes of each fourth block of 208.
    assert parts["heap.live"] == pytest.approx(heap / 4 * 200 / 208, rel=0.03)
    assert parts["heap.free.pinned"] == pytest.approx(heap * 3 / 4, rel=0.03)


def test_what_left_again_is_not_growth(program: Program) -> None:
    pid, one = grown(program, "back", "--period", "61")
    account = one.account(pid)
    assert account["seen_bytes"] == pytest.approx(SIZE, rel=0.05)
    assert account["grown_bytes"] == pytest.approx(SIZE / 4, rel=0.05)


def test_memory_that_comes_and_goes_grows_once(program: Program) -> None:
    pid, one = grown(program, "again")
    assert one.account(pid)["seen_bytes"] == pytest.approx(8 * SIZE, rel=0.05)
    check(one, pid, within=0.1)


def test_memory_that_is_touched_while_the_events_are_opened_is_not_told_as_populated(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = FaultWatch.start
    with program_at_work([program("makes_resident"), "lazily"]) as target:

        def late(watch: FaultWatch) -> None:  # as where thousands of threads, or a busy machine, delay it
            assert target.stdin is not None
            target.stdin.write("\n")
            target.stdin.flush()
            wait_for(target.stdout, "grew")
            start(watch)

        monkeypatch.setattr(FaultWatch, "start", late)
        recorded = record_growth([target.pid], seconds=0.0)
    causes = {part.kind: part.bytes for part in recorded.totals.accounts[0].unseen}
    assert causes.pop("unwatched") == pytest.approx(SIZE, rel=0.02)
    assert sum(map(abs, causes.values())) < MIB, causes


_PARENT = """
import mmap, os, sys
start, go = os.pipe()
print("ready", flush=True)
sys.stdin.readline()
if not os.fork():
    print("born", flush=True)
    os.read(start, 1)
    kept = mmap.mmap(-1, 32 << 20)
    kept.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, len(kept), 4096):
        kept[at] = 1
    print("grew", flush=True)
    os.read(start, 1)
sys.stdin.readline()
os.write(go, b"1")
sys.stdin.readline()
"""


def test_a_child_that_is_born_while_the_events_of_its_parent_are_opened_anew_is_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with program_at_work([sys.executable, "-c", _PARENT]) as target, FaultWatch([target.pid]) as watch:
        assert target.stdin is not None
        listed = FaultWatch._with_children

        def late(pids: Sequence[int]) -> tuple[int, ...]:
            monkeypatch.setattr(FaultWatch, "_with_children", staticmethod(listed))
            found = listed(pids)
            print(file=target.stdin, flush=True)
            wait_for(target.stdout, "born")
            return found

        watch.start()
        monkeypatch.setattr(FaultWatch, "_with_children", staticmethod(late))
        watch._reopen([target.pid], 3, time.monotonic())
        print(file=target.stdin, flush=True)
        wait_for(target.stdout, "grew")
        assert sum(watch.count().values()) >= (32 * MIB) // 4096


@pytest.mark.parametrize("kind", ["populated", "locked", "moved"])
def test_pages_without_a_page_fault_are_told_with_their_cause_and_no_other(
    program: Program, kind: str
) -> None:
    pid, one = grown(program, kind)
    sees_kernel_mode = one.result["totals"]["sees_kernel_mode"]
    cause = "moved" if kind == "moved" else "populated" if sees_kernel_mode else "kernel-mode"
    if kind == "locked" and not sees_kernel_mode:
        pytest.skip("ordinary users may lock less")
    causes = one.unseen(pid)
    assert causes.pop(cause) == pytest.approx(SIZE, rel=0.02)
    assert sum(map(abs, causes.values())) < MIB, causes


@pytest.mark.skipif(os.geteuid() != 0, reason="before Linux 6.7 ordinary users can't tell zero pages")
def test_fresh_memory_that_is_only_read_is_not_made_resident(program: Program) -> None:
    pid, one = grown(program, "only-read")
    account = one.account(pid)
    assert one.said_bytes is not None and one.said_bytes < MIB
    # On a busy machine some samples are counted for more pages than they stand for.
    assert account["seen_bytes"] < 0.05 * SIZE and account["zero_bytes"] == pytest.approx(SIZE, rel=0.05)


def test_shared_memory_is_charged_to_the_line_too(program: Program) -> None:
    pid, one = grown(program, "shared")
    assert one.first["site"]["function"] == "touch"
    check(one, pid)


def test_pages_of_a_file_that_come_by_the_dozen_are_an_entry_of_their_own(program: Program) -> None:
    pid, one = grown(program, "file")
    account = one.account(pid)
    delta = account["after_bytes"] - account["before_bytes"]
    assert delta == pytest.approx(SIZE, rel=0.05)
    assert account["grown_bytes"] + one.unseen(pid)["files"] == pytest.approx(delta, rel=0.05)


def test_children_are_followed(program: Program) -> None:
    parent, one = grown(program, "children")
    touched = {a["pid"]: a["grown_bytes"] for a in one.result["totals"]["accounts"] if a["pid"] != parent}
    assert len(touched) == 3
    for pid in touched:
        # On a busy machine, and in an ordinary user's small buffers, the kernel may find no room for samples of one.
        told = ("lost", "rest") if one.result["totals"]["lost_samples"] else ()
        touched[pid] += sum(one.unseen(pid).get(kind, 0) for kind in told)
    assert list(touched.values()) == pytest.approx([SIZE / 4] * 3, rel=0.1)
    assert one.first["site"]["function"] == "touch"


def test_what_a_child_executes_is_explained_as_fully_as_the_program_itself() -> None:
    # A shell's job, a compiler behind its driver. What it maps of files comes by its own faults, none is inherited.
    code = "held = bytearray(32 << 20); import time; time.sleep(0.3)"
    recorded = record_program_growth(["sh", "-c", f"{sys.executable} -I -S -c '{code}'; exit 0"])
    child = max(recorded.totals.accounts, key=lambda one: one.grown_bytes)
    assert child.after_bytes is not None and child.grown_bytes > 32 * MIB
    causes = {part.kind: part.bytes for part in child.unseen}
    assert causes["files"] > 4 * MIB and "inherited" not in causes
    # Counted as before, all of the files would be in it; the samples of a short program have an error of their own.
    assert abs(causes["rest"]) < 3 * MIB, causes


@pytest.mark.skipif(os.geteuid() != 0, reason="others are not told of faults in kernel mode")
def test_workers_that_fill_at_once_and_end_are_charged_by_their_own_counts(program: Program) -> None:
    words = [*GROW, "--json", "--", str(program("workers_fill_at_once"))]
    result = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    workers = [one for one in result["totals"]["accounts"] if (one["after_bytes"] or 0) > 8 * MIB]
    assert len(workers) == 4
    # If all samples of a process are lost, the lost faults are reported instead of grown memory.
    told = [
        one["grown_bytes"] + sum(part["bytes"] for part in one["unseen"] if part["kind"] == "lost")
        for one in workers
    ]
    assert min(told) >= 0.75 * 16 * MIB and max(told) <= 1.1 * 17 * MIB, told


def test_a_thousand_children_that_come_and_go_are_counted(program: Program) -> None:
    _, one = grown(program, "many-children")
    assert one.said_bytes is not None and one.said_bytes < 4 * MIB
    assert len(one.result["totals"]["accounts"]) > 500
    made = [p for p in one.result["paths"] if any(f["function"] == "touch" for f in p["frames"])]
    assert sum(p["made_resident_bytes"] for p in made) == pytest.approx(1000 * 16 * 4096, rel=0.4)


def test_five_hundred_threads_that_come_and_go_are_seen(program: Program) -> None:
    pid, one = grown(program, "many-threads")
    assert one.first["site"]["function"] == "touch"
    check(one, pid, within=0.08)


def test_a_burst_before_the_faults_of_many_threads_have_been_counted_changes_no_period(
    program: Program,
) -> None:
    with program_at_work([program("makes_resident"), "lazily"]) as target, FaultWatch([target.pid]) as watch:
        watch.samples = 1000
        watch.adapt([target.pid])
        assert watch.period == 1


def test_a_process_that_ends_is_answered_for_by_what_was_last_seen_of_it(program: Program) -> None:
    pid, one = grown(program, "ends", until="")
    account = one.account(pid)
    assert account["ended_seconds_after"] is not None
    assert account["grown_bytes"] == pytest.approx(SIZE, rel=0.1)
    assert one.first["site"]["function"] == "touch"


def test_after_an_exec_only_the_new_programs_memory_counts(program: Program) -> None:
    pid, one = grown(program, "exec", "--for", "1.5s", until="")
    account = one.account(pid)
    assert account["seen_bytes"] > 0.9 * SIZE and account["grown_bytes"] <= account["after_bytes"] < 4 * MIB
    assert account["before_bytes"] == 0


def test_a_sample_of_many_gives_the_same_answer_with_its_error(program: Program) -> None:
    pid, one = grown(program, "lazily", "--period", "101")
    assert one.result["totals"]["longest_period"] == 101
    assert one.first["site"]["function"] == "touch"
    assert 0 < one.first["standard_error_bytes"] < 0.2 * SIZE
    check(one, pid, within=0.05)


def test_faults_in_kernel_mode_are_seen_by_root_and_told_to_others(program: Program) -> None:
    pid, one = grown(program, "read")
    if one.result["totals"]["sees_kernel_mode"]:
        assert one.first["site"]["function"] == "by_read"
        check(one, pid)
    else:
        assert one.unseen(pid)["kernel-mode"] == pytest.approx(SIZE, rel=0.05)


def test_a_program_is_started_and_its_status_passed_on(program: Program, tmp_path: Path) -> None:
    words = [
        *GROW,
        "--json",
        "-o",
        str(tmp_path / "out.json"),
        "--",
        str(program("makes_resident")),
        "lazily",
        "64",
        "x",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "grew" in done.stdout
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["sites"]["paths"][0]["site"]["function"] == "touch"
    done = subprocess.run([*GROW, "--", "sh", "-c", "exit 7"], capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    done = subprocess.run([*GROW, "--", "/nonexistent"], capture_output=True, text=True, check=False)
    assert done.returncode == 127 and "[program-not-found]" in done.stderr


def test_a_recording_that_was_kept_is_shown_compared_and_exported(program: Program, tmp_path: Path) -> None:
    gdbmem = GROW[:-1]
    for name, size in (("a", "64"), ("b", "128")):
        words = ["--profile", f"{name}.faults", "--", str(program("makes_resident")), "lazily", size, "x"]
        subprocess.run([*GROW, *words], check=True, capture_output=True, cwd=tmp_path)
    shown = subprocess.run(
        [*gdbmem, "show", "b.faults"], check=True, capture_output=True, text=True, cwd=tmp_path
    ).stdout
    assert shown.startswith("resident growth: ") and "touch" in shown
    compared = subprocess.run(
        [*gdbmem, "diff", "--json", "a.faults", "b.faults"],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    ).stdout
    first = json.loads(compared)["paths"][0]
    assert first["delta_bytes"] == pytest.approx(SIZE, rel=0.25)
    subprocess.run(
        [*gdbmem, "export", "b.faults", "--to", "folded", "-o", "b.folded"], check=True, cwd=tmp_path
    )
    assert "touch" in (tmp_path / "b.folded").read_text()
    made = subprocess.run(
        [*gdbmem, "show", "b.faults", "--metric", "made-resident"],
        check=True, capture_output=True, text=True, cwd=tmp_path,
    ).stdout  # fmt: skip
    assert made.startswith("memory made resident: ")


def test_a_process_whose_main_thread_has_ended_is_recorded() -> None:
    with without_main_thread() as pid:
        done = subprocess.run(
            [*GROW, "--json", "--for", "0.5s", str(pid)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        (one,) = json.loads(done.stdout)["totals"]["accounts"]
        assert one["after_bytes"] > MIB


def test_a_shell_that_copies_the_same_pages_for_each_child_does_not_grow_by_them() -> None:
    words = ["bash", "-c", "for i in $(seq 300); do /bin/true; done; sleep 0.2"]
    done = subprocess.run([*GROW, "--json", "--", *words], capture_output=True, text=True, check=True)
    account = json.loads(done.stdout)["totals"]["accounts"][0]
    assert account["seen_bytes"] > 8 * MIB and account["grown_bytes"] < account["after_bytes"] + MIB


@pytest.mark.parametrize("one, also", [("1", "101"), ("101", "1"), ("1", "1"), ("65", "101")])
def test_two_at_once_see_the_same(program: Program, one: str, also: str) -> None:
    with program_at_work([program("makes_resident"), "lazily"]) as target:
        words = [*GROW, "--json", "--period", also, str(target.pid)]
        other = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(other.stderr, "gdbmem: recording")
        first = grow(target, "--period", one)
        other.send_signal(signal.SIGINT)
        second = Grown(first.said_bytes, json.loads(other.communicate()[0]))
    check(first, target.pid)
    check(second, target.pid)


def test_a_killed_recorder_leaves_nothing_in_the_process(program: Program) -> None:
    with program_at_work([program("makes_resident"), "lazily"]) as target:
        tool = subprocess.Popen([*GROW, str(target.pid)], stderr=subprocess.PIPE, text=True)
        wait_for(tool.stderr, "gdbmem: recording")
        tool.kill()
        tool.wait()
        status = Path(f"/proc/{target.pid}/status").read_text()
        assert "TracerPid:\t0" in status and "SigPnd:\t0000000000000000" in status
        one = grow(target)
    check(one, target.pid)


@pytest.mark.parametrize(
    "words, slug, status",
    [
        (["4190001"], "no-such-process", 1),
        (["2"], "process-kernel", 1),
        (["x"], "usage", 2),
        ([], "usage", 2),
        (["--period", "0", "1"], "bad-count", 2),
    ],
)
def test_what_cannot_be_recorded_is_one_sentence(words: list[str], slug: str, status: int) -> None:
    if words == ["2"] and (not Path("/proc/2/comm").exists() or os.geteuid()):
        pytest.skip("no kernel thread is visible here")
    done = subprocess.run([*GROW, *words], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert f"[{slug}]" in done.stderr and "Traceback" not in done.stderr


NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def as_nobody(folder: Path) -> list[str]:
    """The words of a `gdbmem grow` of an ordinary user, in a Python that this one may execute."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    package = Path(__file__).parents[2]
    for python in (sys.executable, "/usr/bin/python3"):
        environment = ["env", f"HOME={folder}", f"PYTHONPATH={package}"]
        words = [*NOBODY, *environment, python]
        tried = subprocess.run(
            [*words, "-c", "import gdbmem.cli.commands.grow"], capture_output=True, check=False
        )
        if not tried.returncode:
            return [*words, "-m", "gdbmem.cli.main", "grow"]
    pytest.skip("nobody may not read gdbmem here")


def as_ordinary_user(scratch: Path, binary: Path) -> tuple[Path, list[str]]:
    """Return a copy of *binary* that an ordinary user may record, and the words of their `gdbmem grow`.

    It may lock no more memory than kernel.perf_event_mlock_kb.
    """
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) > 2:
        pytest.skip("ordinary users may not sample here")
    scratch.chmod(0o755)
    command = ["prlimit", "--memlock=65536", *as_nobody(scratch)]
    copied = scratch / binary.name
    copied.write_bytes(binary.read_bytes())
    copied.chmod(0o755)
    return copied, command


def test_recordings_of_one_user_share_what_the_kernel_locks_for_them_and_the_last_is_told(
    program: Program, scratch: Path
) -> None:
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) > 2:
        pytest.skip("ordinary users may not sample here")
    scratch.chmod(0o755)
    command = as_nobody(scratch)
    copied = scratch / "makes_resident"
    copied.write_bytes(program("makes_resident").read_bytes())
    copied.chmod(0o755)
    # Room for two large rings beside what the user has, for one that is used up; and then for none.
    with program_at_work([*NOBODY, copied, "lazily"]) as target, contextlib.ExitStack() as others:
        for locked_kib in (8192, 8192, 0):
            words = ["prlimit", f"--memlock={locked_kib << 10}", *command, "--json", str(target.pid)]
            other = others.enter_context(
                subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            )
            others.callback(other.kill)
            assert other.stderr is not None
            said = other.stderr.readline()
            assert ("[faults-no-buffers]" if not locked_kib else "gdbmem: recording") in said


def test_an_ordinary_user_records_an_own_process_and_learns_of_what_is_not_seen(
    program: Program, scratch: Path
) -> None:
    scratch.chmod(0o755)
    command = as_nobody(scratch)
    copied = scratch / "makes_resident"
    copied.write_bytes(program("makes_resident").read_bytes())
    copied.chmod(0o755)
    level = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    if level > 2:
        pytest.skip("ordinary users may not sample here")
    with program_at_work([*NOBODY, copied, "read"]) as target:
        one = grow(target, command=command)
    assert one.result["totals"]["sees_kernel_mode"] == (level < 2)
    if level == 2:
        assert one.unseen(target.pid)["kernel-mode"] == pytest.approx(SIZE, rel=0.05)
    with program_at_work([*NOBODY, copied, "lazily"]) as target:
        one = grow(target, command=command)
    check(one, target.pid)
    assert one.first["site"]["function"] == "touch"


@pytest.mark.parametrize("user", ["own", "ordinary"])
def test_each_fault_of_a_programs_first_milliseconds_is_counted_at_its_line(
    program: Program, scratch: Path, user: str
) -> None:
    bursts, command = program("bursts"), GROW
    if user == "ordinary":
        bursts, command = as_ordinary_user(scratch, bursts)
    words = [*command, "--json", "--stdout", os.devnull, "--", str(bursts), "two"]
    errors: list[float] = []
    missed: list[object] = []  # one run of twenty may be outside of the interval
    # A busy machine loses samples, which widens it.
    while len(errors) < 6 and len(missed) < 2 and min(errors, default=1.0) > 0.15:
        result = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        lines = {row["site"]["function"]: row for row in result["sites"]["paths"] if row["site"]}
        totals = result["totals"]
        if totals["samples"] < 0.9 * totals["faults"]:
            errors.append(1.0)
            continue
        errors.append(0.0)
        for function, size in (("first", MIB), ("second", 8 * MIB)):
            row = lines[function]
            is_within = abs(row["delta_bytes"] - size) <= 3 * (row["standard_error_bytes"] or 0)
            missed += [] if is_within else [row]
            errors[-1] = max(errors[-1], (row["standard_error_bytes"] or 0) / size if is_within else 1.0)
    assert len(missed) < 2, missed
    assert min(errors) <= 0.15, errors


PACES = ("at-once", "slowly", "later", "loop")
OFTEN = {("own", True, "at-once"), ("own", True, "later"), ("ordinary", True, "loop"), ("own", False, "loop")}
CALLERS = cover(
    [
        (user, is_started, pace)
        for user in ("own", "ordinary")
        for is_started in (True, False)
        for pace in PACES
    ],
    lambda *cell: cell in OFTEN,
)


@pytest.mark.parametrize(("user", "is_started", "pace"), CALLERS)
def test_the_pages_that_a_function_touches_for_each_of_its_callers_are_within_the_error_of_that_caller(
    program: Program, scratch: Path, user: str, *, is_started: bool, pace: str
) -> None:
    touching, command = (
        (program("three_callers"), GROW)
        if user == "own"
        else as_ordinary_user(scratch, program("three_callers"))
    )
    options = ["--by", "path", "--metric", "made-resident", "--top", "500"]
    if is_started:
        words = [*command, "--json", "-o", str(scratch / "out.json"), *options, "--", str(touching), pace]
        scratch.chmod(0o777)
        counts = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        result = json.loads((scratch / "out.json").read_text())
    else:
        prefix = NOBODY if user == "ordinary" else []
        with program_at_work([*prefix, touching, pace, "wait"]) as target:
            result = grow(target, *options, until="", command=command).result
            assert target.stdout is not None
            counts = target.stdout.read()
    said = {line.split()[0]: 4096 * int(line.split()[1]) for line in counts.splitlines()}
    charged: dict[str, list[tuple[int, int]]] = {one: [] for one in (*said, "unknown")}
    for row in result["sites"]["paths"]:
        functions = [frame["function"] for frame in row["frames"]]
        if functions[:1] == ["touch"]:
            caller = next((one for one in said if one in functions), "unknown")
            charged[caller].append((row["delta_bytes"], row["standard_error_bytes"] or 0))
    unknown = sum(size for size, _ in charged.pop("unknown"))
    every = max(error for rows in charged.values() for _, error in [*rows, (0, 0)])
    for caller, rows in charged.items():
        size = sum(size for size, _ in rows)
        # One that was never observed has no row: its pages are in the error of others.
        error = math.hypot(*(error for _, error in rows)) if rows else every
        assert abs(size - said[caller]) <= unknown + 3 * (error + 0.5), (caller, said, charged, unknown)


def test_the_growth_of_a_short_program_is_never_more_than_its_peak(program: Program, tmp_path: Path) -> None:
    words = [*GROW, "--json", "-o", "out.json", "--", str(program("bursts")), "again"]
    peak = 1024 * int(subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path).stdout)
    result = json.loads((tmp_path / "out.json").read_text())
    # The kernel adds up a process's anonymous and its file pages in batches of 32 for each processor: its peak may
    # lack so many of either.
    batches = 2 * 32 * os.sysconf("SC_PAGE_SIZE") * (os.cpu_count() or 1)
    assert result["grown_bytes"] <= peak + batches
    assert result["seen_bytes"] == pytest.approx(64 * MIB, rel=0.1)


def test_another_users_process_is_refused_to_an_ordinary_user(scratch: Path) -> None:
    done = subprocess.run(
        [*as_nobody(scratch), str(os.getpid())], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "[process-forbidden]" in done.stderr, done.stderr


def test_a_program_that_another_user_can_change_is_not_opened_by_root(
    program: Program, scratch: Path
) -> None:
    if os.geteuid():
        pytest.skip("only root can become another user")
    scratch.chmod(0o777)
    copied = scratch / "makes_resident"
    copied.write_bytes(program("makes_resident").read_bytes())
    copied.chmod(0o777)
    with program_at_work([*NOBODY, copied, "lazily"]) as target:
        one = grow(target)
    assert "faults-unopened" in [warning["slug"] for warning in one.result["warnings"]]
    check(one, target.pid)


SLOW_GDB = """#!/bin/sh
touch "$(dirname "$0")/asked"
exec sleep 100
"""


def slow_gdb(folder: Path) -> Path:
    """Return a gdb that takes long for names; there is a file "asked" beside it once it is asked."""
    (folder / "slow-gdb").write_text(SLOW_GDB)
    (folder / "slow-gdb").chmod(0o755)
    return folder / "slow-gdb"


def wait_until_there(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"there never was a {path}"
        time.sleep(0.02)


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("kept_before", [False, True])
def test_a_second_ctrl_c_ends_the_naming_at_once_and_states_that_the_recording_is_lost(
    program: Program, tmp_path: Path, *, kept_before: bool
) -> None:
    profile = tmp_path / "grown.faults"
    if kept_before:
        profile.write_text("an earlier one")
    with program_at_work([program("makes_resident"), "lazily"]) as target:
        tool = subprocess.Popen(
            [*GROW, str(target.pid), "--profile", str(profile), "--force"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "GDBMEM_GDB": str(slow_gdb(tmp_path))},
        )  # fmt: skip
        try:
            wait_for(tool.stderr, "gdbmem: recording")
            assert target.stdin is not None
            target.stdin.write("\n")
            target.stdin.flush()
            wait_for(target.stdout, "grew")
            tool.send_signal(signal.SIGINT)
            wait_until_there(tmp_path / "asked")
            tool.send_signal(signal.SIGINT)
            output, errors = tool.communicate(timeout=30)
        finally:
            tool.kill()
            tool.wait()
        assert target.poll() is None
    assert (tool.returncode, output) == (130, "")
    assert errors.splitlines()[-2:] == [
        "gdbmem: the samples had not been named yet, so the recording is discarded",
        "gdbmem: interrupted",
    ]
    assert profile.read_text() == "an earlier one" if kept_before else not profile.exists()
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith(".gdbmem")) == []


@pytest.mark.usefixtures("own_cache")
def test_ctrl_c_while_memgrow_names_its_samples_gives_the_prompt_back_and_states_what_is_lost(
    program: Program, tmp_path: Path
) -> None:
    loader = Path(__file__).parents[2] / "gdbinit/gdbmem"
    slow = {"GDBMEM_GDB": str(slow_gdb(tmp_path))}
    # Not typed: gdb 10 may throw away what is typed right after a stop.
    lines = ("set pagination off", "set confirm off", f"source {loader}", "break mark", "run", "memgrow")
    words: list[Word] = ["gdb", "-nx", "-q", *(word for line in lines for word in ("-ex", line))]
    with at_terminal([*words, program("resident_steps")], tmp_path, environment(**slow)) as user:
        wait_until_there(tmp_path / "asked")
        user.press("c")
        said = user.prompt()
        assert "the samples had not been named yet, so the recording is discarded" in said
        assert "memgrow: interrupted" in said
        assert "mark" in user.type("backtrace 1")


def test_memgrow_in_gdb_names_the_line_that_made_memory_resident_between_two_stops(
    program: Program, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    loader = Path(__file__).parents[2] / "gdbinit/gdbmem"
    script.write_text(
        f"set pagination off\nsource {loader}\nbreak touch\nrun lazily 64 x\ndelete\nbreak resident_pages\n"
        "memgrow --json -o grown.json --profile grown.faults\nmemgrow --top 0\n"
    )
    done = subprocess.run(
        ["gdb", "-nx", "-q", "-batch", "-x", str(script), str(program("makes_resident"))],
        capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120,
    )  # fmt: skip
    result = json.loads((tmp_path / "grown.json").read_text())
    assert result["sites"]["paths"][0]["site"]["function"] == "touch", done.stdout
    assert result["grown_bytes"] == pytest.approx(SIZE, rel=0.05)
    assert (tmp_path / "grown.faults").exists()
    assert "[bad-count]" in done.stderr and "Traceback" not in done.stderr
