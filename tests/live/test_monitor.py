"""`gdbmem monitor` on real processes, and everything that can happen to both."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import pexpect
import pytest

from gdbmem.linux.monitoring.children import listen
from gdbmem.linux.process.process import has_ended
from gdbmem.model.series import TREE
from gdbmem.runs.run import DATABASE
from gdbmem.series.store import Recording
from tests.conftest import Program
from tests.live.user import GDBMEM, SECONDS, at_terminal, environment, shell

pytestmark = pytest.mark.usefixtures("no_process_left")

SLEEPS = [sys.executable, "-c", "import time\nwhile True: time.sleep(0.05)"]
LEAKS = """
import sys, time
kept = []
pace = float(sys.argv[2]) if len(sys.argv) > 2 else 0.02  # seconds for each MiB
begin = time.monotonic()
for number in range(int(sys.argv[1])):
    kept.append(bytearray(b'x' * (1 << 20)))
    if number % 10 == 0:
        print('epoch', number, time.monotonic(), flush=True)
    # By the clock: otherwise its rate changes with what else runs.
    time.sleep(max(begin + pace * (number + 1) - time.monotonic(), 0))
"""


def monitor(*words: str, folder: Path, status: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `gdbmem monitor` in *folder* and check its status."""
    done = shell(GDBMEM, "monitor", *words, folder=folder, **options)
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture
def starts(scratch: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that starts a process in the scratch folder; it is killed afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(words, cwd=scratch, **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()


def awake(starts: Callable[..., subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start one of SLEEPS and wait for it to have started: its beginning is not level."""
    target = starts(SLEEPS[0], "-c", "print('ready', flush=True)\n" + SLEEPS[2], stdout=subprocess.PIPE)
    assert target.stdout is not None
    assert target.stdout.readline() == b"ready\n"
    return target


def wait_until(holds: Callable[[], bool], watching: Optional[subprocess.Popen[bytes]] = None) -> None:
    """Wait until it *holds*, or for the end of the monitor that is to bring it about."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert watching is None or watching.poll() is None, f"it ended with {watching.returncode}"
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def wait_for(words: bytes, process: subprocess.Popen[bytes]) -> None:
    assert process.stderr is not None
    assert any(words in line for line in process.stderr), f"it never said {words!r}"


def samples_in(folder: Path) -> int:
    if not (folder / DATABASE).exists():
        return 0
    try:
        return sum(1 for _ in Recording(folder).samples())
    except Exception:  # noqa: BLE001  (it is just being made)
        return 0


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 137),
        (["/nowhere/program"], 127),
        (["/etc/passwd"], 126),
        (["true"], 0),
    ],
)
def test_the_programs_exit_status_is_passed_on(scratch: Path, words: list[str], status: int) -> None:
    monitor("-q", "--", *words, folder=scratch, status=status)


def test_a_leak_is_called_growing_and_fails_a_build(scratch: Path) -> None:
    words = ["-q", "--interval", "20ms", "--fail-on", "growing:1MiB/s", "--json"]
    for attempt in range(10):  # a program that pauses and catches up, on a busy machine, is not judged
        done = shell(
            GDBMEM, "monitor", *words, "--run", f"run{attempt}", "--", sys.executable, "-c", LEAKS, "150",
            folder=scratch,
        )  # fmt: skip
        document = json.loads(done.stdout)
        if document["verdict"]["kind"] != "inconclusive":
            break
    assert (document["verdict"]["kind"], done.returncode) == ("growing", 4)
    assert "gdbmem: not met: " in done.stderr and document["verdict"]["evidence"] in done.stderr
    assert document["next"][0].startswith("gdbmem grow -- ")
    said = (scratch / f"run{attempt}" / "stdout").read_text()
    assert said.startswith("epoch 0 "), "with --json the program's output is kept aside"
    # The program's own clock: on a busy machine it pauses, and catches up.
    times = [float(line.split()[2]) for line in said.splitlines()]
    rates = [(10 << 20) / (after - before) for before, after in zip(times, times[1:])]
    assert 0.8 * min(rates) < document["verdict"]["slope_bytes_per_second"] < 1.2 * max(rates)


@pytest.mark.parametrize(
    ("how", "end"),
    [("kill -SEGV $$", "was ended by SIGSEGV (status 139)"), ("exit 7", "ended with status 7")],
)
def test_a_build_does_not_pass_because_the_program_died(scratch: Path, how: str, end: str) -> None:
    # A slope, because the PSS of a program at rest grows where others end that share its pages.
    words = ["-q", "--interval", "20ms", "--run", "run", "--fail-on", "growing:1GiB/h"]
    done = monitor(*words, "--", "sh", "-c", f"sleep 1.5; {how}", folder=scratch, status=125)
    assert f"could not be judged: the program {end}" in done.stderr
    again = monitor("run", "--json", "--fail-on", "growing", folder=scratch, status=125)
    (judgement,) = json.loads(again.stdout)["judgements"]
    assert judgement["judged"] == "not_judged"
    assert end in judgement["unseen"][0]["message"]
    compared = [GDBMEM, "compare", "run", "run", "--fail-on", "growing"]
    assert shell(*compared, folder=scratch).returncode == 125


@pytest.mark.needs("gdb")
def test_beside_the_verdict_stands_which_lines_grow(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    leak = starts(sys.executable, "-c", LEAKS, "100000", stdout=subprocess.DEVNULL)
    done = monitor("-q", "--grow", "--for", "1s", "--run", "run", str(leak.pid), folder=scratch)
    assert "\nresident growth: " in done.stdout, done.stdout + done.stderr
    shown = shell(GDBMEM, "show", "--json", "run/grown.faults", folder=scratch, check=True)
    assert json.loads(shown.stdout)["snapshots"][0]["total_bytes"] > 10 << 20
    assert leak.poll() is None


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def counts_events(pid: int) -> bool:
    """Return whether the kernel counts events for a process: it has one of their files."""
    with contextlib.suppress(FileNotFoundError):  # it opens and closes others
        return any(
            str(link.readlink()) == "anon_inode:[perf_event]" for link in Path(f"/proc/{pid}/fd").iterdir()
        )
    return False


@pytest.mark.needs("gdb")
def test_when_the_monitor_is_killed_the_lines_that_grow_are_kept_and_nobody_records_on(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    leak = starts(sys.executable, "-c", LEAKS, "100000", stdout=subprocess.DEVNULL)
    words = [GDBMEM, "monitor", "-q", "--grow", "--run", "run", str(leak.pid)]
    with subprocess.Popen(words, cwd=scratch, stdout=subprocess.DEVNULL) as killed:
        wait_until(lambda: any(counts_events(child) for child in children(killed.pid)))
        time.sleep(1)
        (recorder,) = children(killed.pid)
        killed.kill()
    wait_until(lambda: has_ended(recorder))
    shown = shell(GDBMEM, "show", "run/grown.faults", folder=scratch)
    assert shown.returncode == 0, shown.stderr
    assert leak.poll() is None


def test_a_gate_that_could_not_judge_states_why_even_where_its_output_goes_into_a_file(scratch: Path) -> None:
    words = ["-q", "--fail-on", "growing", "-o", "said", "--", "sleep", "0.3"]
    done = monitor(*words, folder=scratch, status=125)
    # In a container there is also a note that the kernel's process events can't be read.
    said = [line for line in done.stderr.splitlines() if "process events" not in line]
    assert len(said) == 1 and said[0].startswith("gdbmem: not judged: sleep: inconclusive: only "), (
        done.stderr
    )


def test_a_level_program_passes(scratch: Path) -> None:
    done = monitor(
        "-q", "--interval", "20ms", "--for", "2s", "--fail-on", "growing", "--", *SLEEPS, folder=scratch
    )
    assert "plateau: " in done.stdout


def test_the_total_of_a_family_is_the_kernels_sum_of_pss(
    scratch: Path, program: Program, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    parent = starts(str(program("family")), "200", "4", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    try:
        done = monitor("-q", "--for", "1s", "--json", str(parent.pid), folder=scratch)
        truth = 0
        for pid in (str(parent.pid), *children):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            truth += int(re.findall(r"^Pss: +(\d+)", rollup, re.M)[0]) * 1024
    finally:
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
    document = json.loads(done.stdout)
    totals = [sample for sample in document["samples"] if sample["line"] == 0]
    assert totals[-1]["pss_bytes"] == pytest.approx(truth, rel=0.02)
    assert {sample["rss_bytes"] for sample in totals} == {None}, "a sum of RSS would count 200 MiB five times"
    assert len(document["processes"]) == 5


def test_five_thousand_short_lived_children_are_followed_without_a_line_each(
    scratch: Path, program: Program
) -> None:
    monitor("-q", "--interval", "50ms", "--", str(program("many_children")), "5000", folder=scratch)
    (run,) = scratch.glob("gdbmem.*")
    assert len(Recording(run).lines) < 50


def test_what_is_started_elsewhere_on_the_machine_neither_delays_a_sample_nor_adds_one(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    starts("sh", "-c", "while :; do /bin/true; done")
    sleeper = starts("sleep", "60")
    words = (
        "-q",
        "--pss-budget",
        "0",
        "--interval",
        "0.25s",
        "--for",
        "3s",
        "--run",
        "run",
        str(sleeper.pid),
    )
    monitor(*words, folder=scratch)
    recording = Recording(scratch / "run")
    looks = recording.looks()
    assert [line.name for line in recording.lines] == ["sleep"]
    assert 4 <= len(looks) <= 14, "one each interval, fewer on a busy machine"
    recording.close()


def test_threads_that_live_for_less_than_an_interval_are_counted(scratch: Path, program: Program) -> None:
    events = listen()
    if events is None:
        pytest.skip("process events can't be read here: the count would be a lower bound")
    events.close()
    done = monitor("-q", "--json", "--", str(program("makes_threads")), "1000", folder=scratch)
    document = json.loads(done.stdout)
    assert document["threads_started"] == 1000
    assert document["threads_started_is_exact"]


@pytest.mark.parametrize("beneath", [[], ["sh", "-c", '"$@"; exit', "sh"]], ids=["itself", "a child"])
def test_the_processor_time_before_the_first_and_after_the_last_look_at_a_program_of_ours_is_counted(
    scratch: Path, beneath: list[str]
) -> None:
    code = """
import os, sys, time
while time.process_time() < 0.4: pass
time.sleep(1)
while time.process_time() < 0.7: pass
print(sum(os.times()[:4]), flush=True)
os._exit(0)  # what Python does at its end takes time, too
"""
    words = [
        "-q",
        "--json",
        "--interval",
        "700ms",
        "--run",
        "run",
        "--",
        *beneath,
        sys.executable,
        "-c",
        code,
    ]
    document = json.loads(monitor(*words, folder=scratch).stdout)
    truth = float((scratch / "run" / "stdout").read_text())
    assert document["cpu_seconds"] == pytest.approx(truth, abs=0.05), "once, also if the shell ends with it"


def test_the_processor_time_of_children_shorter_than_an_interval_is_counted_as_the_kernel_does(
    scratch: Path,
) -> None:
    code = """
import os, time
for _ in range(20):
    if not os.fork():
        end = time.process_time() + 0.03
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
print(sum(os.times()[:4]), flush=True)
time.sleep(2.5)
os._exit(0)
"""
    words = ["-q", "--json", "--interval", "500ms", "--run", "run", "--", sys.executable, "-c", code]
    document = json.loads(monitor(*words, folder=scratch).stdout)
    truth = float((scratch / "run" / "stdout").read_text())
    assert truth > 0.5
    assert document["cpu_seconds"] == pytest.approx(truth, abs=0.04)
    text = monitor("run", folder=scratch).stdout
    assert re.search(r"^CPU: (at least )?\d\.\d s \(\d+ % of one CPU\)$", text, re.M), text


def test_kill_9_of_the_monitor_loses_one_interval_and_resume_goes_on(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    target = starts(*SLEEPS)
    watching = starts(GDBMEM, "monitor", "-q", "--interval", "50ms", "--run", "run", str(target.pid))
    run = scratch / "run"
    wait_until(lambda: samples_in(run) >= 20, watching)
    before = samples_in(run)
    watching.kill()
    watching.wait()
    recording = Recording(run)
    kept = samples_in(run)
    assert kept >= before
    last = recording.last(0)
    assert last is not None
    monitor("-q", "--resume", "run", "--for", "1s", folder=scratch)
    assert samples_in(run) > kept + 10
    recording = Recording(run)
    assert [line.pid for line in recording.lines] == [target.pid], "the same process goes on on its line"
    times = [t for t, _ in recording.points(0, "rss_bytes")]
    assert times == sorted(times)


def test_a_second_monitor_on_one_run_is_refused(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    target = starts(*SLEEPS)
    starts(GDBMEM, "monitor", "-q", "--run", "run", str(target.pid))
    wait_until(lambda: samples_in(scratch / "run") > 2)
    done = monitor("-q", "--resume", "run", folder=scratch, status=1)
    assert "another monitor is writing" in done.stderr


def test_a_damaged_series_is_set_aside_and_a_new_one_begins(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    target = starts(*SLEEPS)
    monitor("-q", "--for", "500ms", "--run", "run", str(target.pid), folder=scratch)
    (scratch / "run" / DATABASE).write_bytes(b"\0garbage" * 5000)
    done = monitor("-q", "--resume", "run", "--for", "500ms", folder=scratch)
    assert "series.damaged-1.sqlite" in done.stderr
    assert samples_in(scratch / "run") > 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_monitor_with_a_verdict_and_leaves_the_target_alone(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]], number: signal.Signals
) -> None:
    target = awake(starts)
    watching = starts(
        GDBMEM, "monitor", "-q", "--interval", "50ms", "--run", "run", str(target.pid), stdout=subprocess.PIPE
    )
    wait_until(lambda: samples_in(scratch / "run") > 40)
    watching.send_signal(number)
    output, _ = watching.communicate(timeout=20)
    assert watching.returncode == 0
    assert b"plateau: " in output
    assert target.poll() is None


def test_sigterm_ends_the_program_too_that_the_monitor_started(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    watching = starts(GDBMEM, "monitor", "-q", "--run", "run", "--", *SLEEPS, stdout=subprocess.DEVNULL)
    wait_until(lambda: samples_in(scratch / "run") > 2)
    watching.send_signal(signal.SIGTERM)
    assert watching.wait(20) == 128 + signal.SIGTERM


def test_what_a_program_does_while_it_is_being_ended_is_no_part_of_the_series(scratch: Path) -> None:
    script = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        "    kept = b'x' * (200 << 20); time.sleep(1); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "while True: time.sleep(0.05)\n"
    )
    words = ["-q", "--interval", "50ms", "--for", "1500ms", "--run", "run"]
    done = monitor(*words, "--", sys.executable, "-c", script, folder=scratch, status=3)
    assert max(value for _, value in Recording(scratch / "run").points(0, "rss_bytes")) < 100 << 20
    assert "growing: " not in done.stdout


def test_marks_come_from_output_from_a_signal_and_from_another_shell(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    code = "print('epoch 7', flush=True)\nprint('other', flush=True)\n" + SLEEPS[2]
    words = [
        GDBMEM,
        "monitor",
        "-q",
        "--mark",
        "^epoch",
        "--run",
        "watched",
        "--",
        sys.executable,
        "-c",
        code,
    ]
    watching = starts(*words, stdout=subprocess.PIPE)
    wait_until(lambda: samples_in(scratch / "watched") > 2)
    watching.send_signal(signal.SIGUSR1)
    shell(GDBMEM, "mark", "from a shell", folder=scratch, check=True)
    wait_until(lambda: len(Recording(scratch / "watched").marks) == 3)
    watching.send_signal(signal.SIGTERM)
    output, _ = watching.communicate(timeout=20)
    assert {mark.text for mark in Recording(scratch / "watched").marks} == {
        "epoch 7",
        "SIGUSR1",
        "from a shell",
    }
    assert output.startswith(b"epoch 7\nother\n"), "the output still reaches the user"


@pytest.mark.parametrize("fires", [False, True], ids=["without a trigger", "after a trigger"])
def test_a_mark_from_another_shell_takes_nothing_from_the_recording(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]], *, fires: bool
) -> None:
    # SQLite's locks are those of the process, which loses them when it closes any descriptor of the file.
    when = "rss > 1KiB" if fires else "rss > 1GiB"
    words = ["--interval", "100ms", "--when", when, "--do", "explain", "--run", "run", str(awake(starts).pid)]
    watching = starts(GDBMEM, "monitor", "-q", *words, stdout=subprocess.DEVNULL)
    glances, log = scratch / "run" / "series.glances", scratch / "run" / f"{DATABASE}-wal"
    wait_until(lambda: glances.exists() and b"@" in glances.read_bytes(), watching)
    wait_until(lambda: (scratch / "run" / "triggers").exists() or not fires, watching)
    # No reader in this process: its lock would keep the file, too.
    shell(GDBMEM, "mark", "--run", "run", "from a shell", folder=scratch, check=True)
    assert log.exists(), "the monitor goes on writing into a file that has been removed"
    (mark,) = (each.t for each in Recording(scratch / "run").marks if each.text == "from a shell")
    wait_until(lambda: Recording(scratch / "run").looks()[-1] > mark + 2.5, watching)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_program_whose_lines_set_marks_loses_no_output_when_the_monitor_is_killed(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]], number: int
) -> None:
    code = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda *_: None)
for line in range(400):
    print("epoch", line, flush=True)
    time.sleep(0.005)
open('finished', 'w').close()
"""
    words = [GDBMEM, "monitor", "-q", "--mark", "^epoch 3", "--run", "run", "--", sys.executable, "-c", code]
    watching = starts(*words, stdout=subprocess.PIPE)
    assert watching.stdout is not None
    assert watching.stdout.readline() == b"epoch 0\n"
    watching.send_signal(number)
    output = watching.stdout.read()
    assert [line for line in output.splitlines() if line.startswith(b"epoch")] == [
        b"epoch %d" % line for line in range(1, 400)
    ]
    wait_until((scratch / "finished").exists)
    # The last is that of a program which has not ended 10 s after the signal and is left running: on a busy machine.
    assert watching.wait(20) in (0, -number, 128 + number)


def test_the_last_line_before_the_end_sets_its_mark_and_a_prompt_is_seen_at_once(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    words = ["sh", "-c", "printf 'name? '; read name; printf \"end of $name\""]
    words = [GDBMEM, "monitor", "-q", "--mark", "^name. end of", "--run", "run", "--", *words]
    watching = starts(*words, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert watching.stdout is not None
    assert watching.stdin is not None
    assert watching.stdout.read(6) == b"name? "
    watching.communicate(b"all\n")
    assert [mark.text for mark in Recording(scratch / "run").marks] == ["name? end of all"]


def test_a_mark_without_a_monitor_is_one_sentence(scratch: Path) -> None:
    done = shell(GDBMEM, "mark", "lost", folder=scratch)
    assert done.returncode == 1
    assert "no monitor is recording in this folder" in done.stderr


def test_a_stopped_monitor_leaves_a_gap_that_is_reported(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    target = starts(*SLEEPS)
    watching = starts(
        GDBMEM, "monitor", "-q", "--interval", "50ms", "--run", "run", str(target.pid), stdout=subprocess.PIPE
    )
    wait_until(lambda: samples_in(scratch / "run") > 20, watching)
    watching.send_signal(signal.SIGSTOP)
    time.sleep(1.5)  # as a suspended machine would
    watching.send_signal(signal.SIGCONT)
    more = samples_in(scratch / "run") + 20
    wait_until(lambda: samples_in(scratch / "run") > more, watching)
    watching.send_signal(signal.SIGINT)
    output, _ = watching.communicate(timeout=20)
    assert b"note: nothing was recorded for " in output


def test_a_full_disk_is_reported_once_and_the_samples_wait(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))

    target = starts(*SLEEPS)
    watching = starts(
        GDBMEM, "monitor", "--plain", "--interval", "5ms", "--run", "run", str(target.pid),
        preexec_fn=small_files, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    wait_for(b"can't be written at present", watching)
    held = samples_in(scratch / "run")
    resource.prlimit(watching.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    wait_for(b"is being written again; no writes were lost", watching)
    wait_until(lambda: samples_in(scratch / "run") > held)
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=20)
    assert watching.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has somebody else to be")
def test_another_users_process_is_watched_by_rss_and_that_is_reported_once(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    def without_ptrace() -> None:
        drop_capability, sys_ptrace, sys_admin, perfmon = 24, 19, 21, 38  # prctl(2), capabilities(7)
        for capability in (sys_ptrace, sys_admin, perfmon):
            assert ctypes.CDLL(None).prctl(drop_capability, capability, 0, 0, 0) == 0

    target = starts("sleep", "60", preexec_fn=lambda: os.setuid(65534))
    done = monitor("--plain", "--for", "1s", str(target.pid), folder=scratch, preexec_fn=without_ptrace)
    assert done.stderr.count("their PSS and USS can't be read") == 1
    assert "RSS: " in done.stdout


def test_a_process_that_does_not_exist_is_one_sentence(scratch: Path) -> None:
    done = monitor("999999999", folder=scratch, status=1)
    assert done.stderr.startswith("gdbmem: there is no process 999999999; ")
    assert not list(scratch.iterdir()), "nothing was made"


def test_the_starter_of_the_monitor_is_not_found_by_its_pattern(scratch: Path) -> None:
    pattern = "no-program-has-this-name"
    words = ["timeout", "30", GDBMEM, "monitor", "-q", "--for", "500ms", "--run", "run", "--name", pattern]
    subprocess.run(words, cwd=scratch, check=True, timeout=60)
    with contextlib.closing(Recording(scratch / "run")) as recording:
        assert recording.lines == []


def test_processes_are_found_by_name_whenever_they_come_and_a_new_one_takes_the_line(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    shutil.copy(shutil.which("sleep") or "sleep", scratch / "worker-of-this")
    watching = starts(
        GDBMEM, "monitor", "-q", "--interval", "50ms", "--name", "^worker-of-this$", "--run", "run",
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until(lambda: (scratch / "run" / DATABASE).exists())
    for _ in range(2):
        worker = starts(str(scratch / "worker-of-this"), "60")
        wait_until(lambda pid=worker.pid: pid in {line.pid for line in Recording(scratch / "run").lines})  # type: ignore[misc]
        worker.kill()
        worker.wait()
    watching.send_signal(signal.SIGINT)
    assert watching.wait(20) == 0
    (line,) = Recording(scratch / "run").lines
    assert (line.pid, line.respawns) == (worker.pid, 1)


def test_a_run_is_drawn_and_judged_again_and_exported(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]]
) -> None:
    target = awake(starts)
    for name in ("one", "two"):
        monitor("-q", "--interval", "50ms", "--for", "3s", "--run", name, str(target.pid), folder=scratch)
    done = monitor("--plot", "both.html", "one", "two", folder=scratch)
    assert done.stdout.count("plateau: ") == 2
    assert (scratch / "both.html").read_text().count("<path ") == 2
    for kind in ("csv", "json"):
        shell(GDBMEM, "export", "one", "--to", kind, "-o", f"one.{kind}", folder=scratch, check=True)
    assert json.loads((scratch / "one.json").read_text())["kind"] == "series"
    assert (scratch / "one.csv").read_text().startswith("seconds,line,pid,name,rss_bytes,")
    words = ["compare", "one", "two", "--fail-on", "growing", "--json"]
    compared = shell(GDBMEM, *words, folder=scratch, check=True)
    assert json.loads(compared.stdout)["kind"] == "comparison"


def test_two_commands_are_run_in_turn_and_compared(scratch: Path) -> None:
    small, large = (
        f"{sys.executable} -c \"import time; x = b'x' * {size}; time.sleep(0.5)\""
        for size in (10, 50_000_000)
    )
    words = ["compare", "--runs", "2", "--interval", "20ms", "-q", "--", small, "--vs", large]
    done = shell(GDBMEM, *words, folder=scratch, check=True)
    assert re.search(r"^they differ: peak \+4\d\.\d MiB", done.stdout, re.M), done.stdout


def test_a_closed_standard_output_is_no_crash_and_nothing_else_takes_its_place(scratch: Path) -> None:
    words = 'exec "$0" monitor -q --interval 20ms --run run -- sh -c "sleep 0.3; echo lost" >&- <&-'
    done = subprocess.run(["sh", "-c", words, GDBMEM], cwd=scratch, stderr=subprocess.PIPE, text=True)
    said = [
        line for line in done.stderr.splitlines() if "process events can't be read" not in line
    ]  # without root
    assert (done.returncode, said) == (0, [])
    assert samples_in(scratch / "run") > 2


def test_where_the_numbers_cant_be_served_the_program_is_not_started(scratch: Path) -> None:
    pytest.importorskip("prometheus_client", reason="an optional dependency")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = monitor(
            "--prometheus",
            f":{port}",
            "--",
            "sh",
            "-c",
            "touch started; sleep 60",
            folder=scratch,
            status=125,
        )
    assert "Address already in use" in done.stderr
    assert not list(scratch.iterdir()), "neither a run nor what the program makes"


@pytest.mark.parametrize("how", ["removed", "renamed"])
def test_a_run_folder_that_goes_is_reported_at_once_and_not_called_a_full_disk(
    scratch: Path, starts: Callable[..., subprocess.Popen[bytes]], how: str
) -> None:
    target = starts(*SLEEPS)
    watching = starts(
        GDBMEM, "monitor", "--plain", "--interval", "20ms", "--run", "run", str(target.pid),
        stderr=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    wait_until(lambda: samples_in(scratch / "run") > 20, watching)
    before = samples_in(scratch / "run")
    (scratch / "run").rename(scratch / "renamed")
    if how == "removed":
        shutil.rmtree(scratch / "renamed")
    wait_for(b"the run folder has been removed, renamed or replaced", watching)
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=20)
    assert watching.returncode == 1
    assert said.count(b"\n") == 1 and b"has been removed, renamed or replaced" in said
    assert how == "removed" or samples_in(scratch / "renamed") > before, "it goes on there"


def test_a_program_that_cant_be_started_leaves_no_run(scratch: Path) -> None:
    monitor("--", "./nothing-here", folder=scratch, status=127)
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    "words",
    [[], ["1", "--name", "x"], ["--name", "("], ["--interval", "0", "1"], ["--plot", "a.png", "1"],
     ["--mark", "x", "1"], ["--fail-on", "bigger", "1"], ["--"], ["nonsense"]],
)  # fmt: skip
def test_wrong_words_are_a_usage_error_before_anything_starts(scratch: Path, words: list[str]) -> None:
    done = monitor(*words, folder=scratch, status=2)
    assert done.stderr.startswith("gdbmem: ")
    assert not list(scratch.iterdir())


def test_on_a_terminal_there_is_a_chart_that_survives_a_resize_and_keys_work(scratch: Path) -> None:
    words = [GDBMEM, "monitor", "--interval", "50ms", "--run", "run", str(os.getpid())]
    with at_terminal(words, scratch, environment(TERM="xterm"), rows=40) as user:
        user.see("q quit")
        user.see("┤", "q quit")  # in 40 rows
        user.child.setwinsize(20, 60)
        user.see("┤", "q quit")
        user.child.send("p")
        user.see("PAUSED")
        user.child.send("pm")
        user.see("q quit")
        user.child.send("q")
        user.see("recorded in run")
        user.child.expect_exact(b"\n")
    assert [mark.text[:4] for mark in Recording(scratch / "run").marks] == ["key "]


def test_beside_a_program_that_prints_to_the_terminal_there_is_a_chart_below_its_output(
    scratch: Path,
) -> None:
    # In one write each: print() makes two, between which a drawing may fall.
    code = "import os, time\nfor n in range(30): os.write(1, b'word %d\\n' % n); time.sleep(0.1)"
    words = [GDBMEM, "monitor", "--interval", "50ms", "--run", "run", "--", sys.executable, "-c", code]
    with at_terminal(words, scratch, environment(TERM="xterm"), rows=24) as user:
        user.see("\x1b[1;9r", "┤", "Ctrl-C ends it")
        user.child.setwinsize(40, 80)
        user.see("\x1b[1;15r", "┤", "Ctrl-C ends it")
        user.see("\x1b[r")
        user.end()
        shown = user.text
    assert shown.rindex("\x1b[r") < shown.index("recorded in run"), "the whole terminal scrolls again"
    output = re.sub(r"\x1b7.*?\x1b8", "", shown, flags=re.DOTALL)
    assert [f"word {n}" in output for n in range(30)] == [True] * 30, "all of it, outside the drawings"
    assert not re.search("[┤│].*word|word.*[┤│]", output)


def test_beside_a_program_that_reads_single_keys_nothing_is_drawn(scratch: Path) -> None:
    code = "import time, tty; tty.setcbreak(0); time.sleep(1)"
    words = [GDBMEM, "monitor", "--interval", "50ms", "--run", "run", "--", sys.executable, "-c", code]
    with at_terminal(words, scratch, environment(TERM="xterm"), rows=24) as user:
        before, _, after = user.end().partition("recorded in run")
    assert after and before.count("Ctrl-C ends it") < 4, "until it set the mode"


def test_after_a_stop_and_in_the_background_a_monitor_goes_on_and_its_keys_come_back(scratch: Path) -> None:
    with at_terminal(["bash", "--norc"], scratch, environment(TERM="xterm", PS1="$ "), rows=40) as user:
        user.see("$ ")
        user.child.sendline(f"'{GDBMEM}' monitor --interval 50ms --run run {os.getpid()}")
        user.see("q quit")
        user.child.send("\x1a")
        user.see("Stopped", "$ ")
        user.child.sendline("bg")
        user.see("$ ")
        held = samples_in(scratch / "run")
        wait_until(lambda: samples_in(scratch / "run") > held + 10)
        user.child.sendline("jobs")
        user.see("Running", "$ ")
        user.child.sendline("fg")
        user.see("q quit")
        user.child.send("q")
        user.see("recorded in run", "$ ")
        user.child.sendline(f"'{GDBMEM}' monitor --interval 50ms --run behind {os.getpid()} &")
        user.see("$ ")
        wait_until(lambda: samples_in(scratch / "behind") > 10)
        user.child.sendline("kill -INT $!; wait; exit")
        user.see("recorded in behind")
        user.child.expect(pexpect.EOF)


def test_a_monitor_that_is_a_child_of_what_it_watches_leaves_itself_out(scratch: Path) -> None:
    script = 'sleep 100 & "$0" monitor -q --json -o series.json --interval 20ms --for 0.5s $$; kill $!'
    subprocess.run(["sh", "-c", script, GDBMEM], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    names = [line["name"] for line in json.loads((scratch / "series.json").read_text())["processes"]]
    assert sorted(names) == ["sh", "sleep"]


# A trough lasts until the monitor has looked, but not as long as its interval.
BRIEF_TROUGHS = """
import glob, os, time
def written():
    return [os.stat(name).st_mtime_ns for name in sorted(glob.glob("r/series.*"))]
for epoch in range(5):
    held = bytearray(40 << 20)
    time.sleep(1.2)
    held, last, until = None, written(), time.monotonic() + 0.35
    print("epoch", epoch, flush=True)
    while written() == last and time.monotonic() < until: time.sleep(0.005)
    time.sleep(0.02)
"""


def test_a_trough_at_a_mark_that_is_shorter_than_the_interval_is_seen(scratch: Path) -> None:
    run = scratch / "r"
    command = ["-q", "--interval", "1s", "--pss-budget", "0", "--mark", "^epoch", "--run", str(run), "--"]
    monitor(*command, sys.executable, "-c", BRIEF_TROUGHS, folder=scratch)
    with contextlib.closing(Recording(run)) as recording:
        marks, sizes = [mark.t for mark in recording.marks], list(recording.points(TREE, "rss_bytes"))
    seen = [any(mark <= t < mark + 0.4 and size < 40 << 20 for t, size in sizes) for mark in marks]
    assert len(marks) == 5
    assert sum(seen) >= 4, (marks, sizes)  # by chance two
