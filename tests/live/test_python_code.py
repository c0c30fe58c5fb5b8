"""Code injected into a running Python: it runs once, reports its result, and the program continues undisturbed."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from gdbmem.allocators.cpython import frames
from gdbmem.inspection.stacks import frame_reader
from gdbmem.linux.holding.copying import spared_for_want_of_memory
from gdbmem.linux.holding.ptrace import Freeze
from gdbmem.linux.memory.maps import read_maps
from gdbmem.linux.memory.process_memory import WritableMemory
from tests.cover import cover
from tests.live.explaining import Running, gdbmem, running
from tests.live.python_programs import pythons, version
from tests.live.python_targets import AT_ITS_LIMIT, BLOCKED, BUSY, DEEP, MALLOC, SLEEP
from tests.live.user import GDBMEM
from tests.zoo.keeping import wait_until

# PYTHON_INJECTIONS=200 makes as many in each kind of program, spread over the versions.
INJECTIONS = int(os.environ.get("PYTHON_INJECTIONS", "4"))
MANY = 20


def change(action: str, pid: int, *words: object) -> Any:
    done = gdbmem("python", action, "--json", *words, pid)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ends_well(target: Running) -> None:
    assert target.type("\n").read() == "ended well\n"
    assert target.process.wait(20) == 0


def test_at_the_limit_of_recursion_the_program_lives_and_the_outcome_is_reported() -> None:
    # Up to 3.9 code that runs there could end it.
    older = [one for one in pythons() if version(one) <= (3, 9)] or pythons()
    for python in older[:1] if INJECTIONS < MANY else older:
        with running([python, "-c", DEEP]) as target:
            for action in ("start", "stop", "start"):
                done = gdbmem("python", action, target.pid)
                assert done.returncode == 0 or "[python-code-too-deep]" in done.stderr
            ends_well(target)


def test_a_program_that_overflows_again_after_code_was_placed_at_its_limit_is_not_ended() -> None:
    older = [one for one in pythons() if version(one) < (3, 10)]
    newer = (
        [sys.executable] if sys.version_info < (3, 14) else []
    )  # from then on it runs the code at a safe place
    for python in [*(older[-1:] if INJECTIONS < MANY else older), *newer]:
        with running([python, "-c", AT_ITS_LIMIT]) as target:
            done = gdbmem("python", "start", target.pid)
            assert "[python-code-too-deep]" in done.stderr, python
            ends_well(target)


def tracing(pid: int) -> bool:
    return gdbmem("python", "traces", pid).returncode == 0


def maps_of(pid: int) -> int:
    return len(Path(f"/proc/{pid}/maps").read_text().splitlines())


@pytest.mark.parametrize("kind", cover(BUSY, lambda kind: kind in ("malloc", "asyncio")))
def test_tracing_goes_on_and_off_in_a_busy_program_that_goes_on_unharmed(kind: str) -> None:
    interpreters = [one for one in pythons() if version(one) >= (3, 9)]
    if INJECTIONS < MANY:
        # Each kind of program meets half of the interpreters, each interpreter half of the kinds.
        interpreters = interpreters[list(BUSY).index(kind) % 2 :: 2]
    each = max(1, math.ceil(INJECTIONS / len(interpreters) / 2))
    for python in interpreters:
        with running([python, "-c", BUSY[kind]]) as target:
            for number in range(each + (python == interpreters[0])):
                on = change("start", target.pid, "--frames", 3)
                assert (on["was_tracing"], on["is_tracing"], on["frames"]) == (False, True, 3), number
                off = change("stop", target.pid)
                assert (off["was_tracing"], off["is_tracing"]) == (True, False), number
            ends_well(target)


@pytest.mark.thorough
@pytest.mark.parametrize("python", [one for one in pythons() if version(one) >= (3, 9)])
def test_code_placed_again_and_again_in_a_blocked_program_is_each_time_taken_back(python: str) -> None:
    with running([python, "-c", BLOCKED]) as target:
        for number in range(max(34, INJECTIONS // 5)):  # more than the list of pending calls has places
            done = gdbmem("python", "start", "--wait", "0.1", target.pid)
            assert done.returncode == 1, number
            assert "waits in read; it was withdrawn" in done.stderr, number
        assert not tracing(target.pid)
        ends_well(target)


# A thread queues calls of the program's own, as many as there is room for, while the main thread is blocked.
QUEUES = """
import ctypes, os, select, signal, threading
api, noted = ctypes.pythonapi, []
def queue():
    signal.sigwait([signal.SIGUSR1])
    while len(noted) < 100 and api.Py_AddPendingCall(api.PyErr_CheckSignals, None) == 0: noted.append(1)
    os.write(1, b"%d\\n" % len(noted))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
threading.Thread(target=queue).start()
os.write(1, b"ready\\n")
assert os.read(0, 1) == b"\\n"
while not select.select([0], [], [], 0.02)[0]: pass
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="nothing is queued from then on")
def test_calls_that_were_taken_back_leave_the_program_room_for_its_own() -> None:
    with running([sys.executable, "-c", QUEUES]) as target:
        for _ in range(3):
            assert gdbmem("python", "start", "--wait", "0.05", target.pid).returncode == 1
        command = [GDBMEM, "python", "start", "--wait", "20", str(target.pid)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
            assert wait_until(lambda: texts_queued(target.pid) == [True], 20)
            os.kill(target.pid, signal.SIGUSR1)
            assert target.process.stdout is not None
            room = int(target.process.stdout.readline())
            target.type("\n")
            assert "tracemalloc is on" in waiting.communicate(timeout=20)[0]
        assert tracing(target.pid)
        assert texts_queued(target.pid) == []
    assert room >= 30  # the list has room for 31 calls or 32


def texts_queued(pid: int) -> list[bool]:
    """Return for each call that is queued in a process whether it has a text to run."""
    found = []
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            words = line.split()
            if words[1:2] == ["r-xp"] and len(words) == 5:
                memory.seek(int(words[0].partition("-")[2], 16))
                found.append(memory.read(17)[16] != 0)
    return found


def test_what_was_started_can_be_read_from_outside_and_leaves_no_pages() -> None:
    with running([sys.executable, "-c", MALLOC]) as target:
        before = maps_of(target.pid)
        assert change("start", target.pid)["is_tracing"]
        assert abs(maps_of(target.pid) - before) <= 2  # tracemalloc's own tables
        assert tracing(target.pid)
        again = gdbmem("python", "start", "--frames", 9, target.pid)
        assert "was already on" in again.stdout
        assert "with 1 frame" in again.stdout
        change("stop", target.pid)
        assert not tracing(target.pid)
        ends_well(target)


def wait_for_read(pid: int) -> None:
    """Wait until a process that has said it is ready sleeps: in its read, however busy the machine is."""
    assert wait_until(lambda: ") S " in Path(f"/proc/{pid}/stat").read_text(), 20)


def test_a_blocked_main_thread_is_named_with_its_call_and_the_code_taken_back() -> None:
    with running([sys.executable, "-c", BLOCKED]) as target:
        wait_for_read(target.pid)
        done = gdbmem("python", "start", "--wait", "0.3", target.pid)
        assert done.returncode == 1
        assert "its main thread waits in read; it was withdrawn" in done.stderr
        assert done.stderr.count("\n") == 1
        ends_well(target)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "SIGKILL"])
def test_who_ends_it_while_it_waits_has_the_code_taken_back(number: int, tmp_path: Path) -> None:
    code = BLOCKED + "\nimport _tracemalloc\nassert not _tracemalloc.is_tracing()\n"
    with running([sys.executable, "-c", code]) as target:
        command = [GDBMEM, "python", "start", "--wait", "60", str(target.pid)]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        waiting = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert wait_until(lambda: any(tmp_path.iterdir()), 20)
        waiting.send_signal(number)
        _, errors = waiting.communicate(timeout=20)
        assert waiting.returncode == (130 if number == signal.SIGINT else -number)
        assert "Traceback" not in errors
        assert wait_until(lambda: not any(tmp_path.iterdir()), 20)
        ends_well(target)


def test_who_has_a_thread_call_is_not_ended_for_want_of_memory_just_then() -> None:
    score = Path("/proc/self/oom_score_adj")
    before = score.read_text()
    words = ["sh", "-c", "echo -1000 > /proc/self/oom_score_adj"]
    may = subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode == 0
    with spared_for_want_of_memory():
        assert score.read_text() == ("-1000\n" if may else before)
    assert score.read_text() == before


def test_a_signal_that_comes_meanwhile_is_not_lost() -> None:
    code = (
        SLEEP.replace(
            'os.write(1, b"ready\\n")',
            "import signal\ncount = []\nsignal.signal(signal.SIGUSR1, lambda *_: count.append(1))\n"
            'os.write(1, b"ready\\n")',
        )
        .replace('b"ended well', 'b"%d signals\\nended well')
        .replace('well\\n")', 'well\\n" % len(count))')
    )
    with running([sys.executable, "-c", code]) as target:
        for action in ("start", "stop"):
            placing = subprocess.Popen([GDBMEM, "python", action, str(target.pid)], stdout=subprocess.DEVNULL)
            while placing.poll() is None:
                os.kill(target.pid, signal.SIGUSR1)
                time.sleep(0.01)
            assert placing.returncode == 0
        assert re.fullmatch(r"[1-9]\d* signals\nended well\n", target.type("\n").read())


# Each delivery writes a byte into the pipe, and the kernel queues signals of this kind one by one.
COUNTS_SIGNALS = """
import os, select, signal, time
read, write = os.pipe()
os.set_blocking(read, False), os.set_blocking(write, False)
for number in (signal.SIGRTMIN, signal.SIGRTMIN + 1): signal.signal(number, lambda *_: None)
signal.set_wakeup_fd(write)
count = 0
def look():
    global count
    try: count += len(os.read(read, 1 << 20))
    except BlockingIOError: pass
os.write(1, b"ready\\n")
while not select.select([0], [], [], 0)[0]: look()
time.sleep(0.3)
look()
os.write(1, b"%d\\n" % count)
"""


@pytest.mark.parametrize("words", [("python", "start"), ("explain", "--fork")], ids=" ".join)
def test_of_a_flood_of_signals_none_is_lost_while_a_thread_is_made_to_call(words: Sequence[str]) -> None:
    with running([sys.executable, "-c", COUNTS_SIGNALS]) as target:
        looking, sent = subprocess.Popen([GDBMEM, *words, str(target.pid)], stdout=subprocess.DEVNULL), 0
        while looking.poll() is None:
            for number in (signal.SIGRTMIN, signal.SIGRTMIN + 1):
                os.kill(target.pid, number)
                sent += 1
            time.sleep(0.0005)
        assert looking.returncode == 0
        assert target.process.stdin is not None
        assert target.process.stdout is not None
        target.process.stdin.write("\n")
        target.process.stdin.flush()
        assert int(target.process.stdout.read()) == sent


def test_a_result_that_cannot_be_written_is_reported_and_the_program_lives(tmp_path: Path) -> None:
    code = ("import os\nreal = os.open\ndef refuse(*words): raise PermissionError\n" + SLEEP).replace(
        'os.write(1, b"ready\\n")', 'os.open = refuse\nos.write(1, b"ready\\n")'
    )
    with running([sys.executable, "-c", code]) as target:
        done = gdbmem("python", "start", target.pid)
        assert done.returncode == 1
        assert "[python-code-no-result]" in done.stderr
        ends_well(target)


def test_another_users_rights_and_a_core_are_refused_in_a_sentence() -> None:
    done = gdbmem("python", "start", 1 << 22)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for words in (
        ["--frames", "0", "1"],
        ["--wait", "nan", "1"],
        ["--wait", "-1", "1"],
        ["x"],
        [],
        [__file__],
    ):
        done = gdbmem("python", "start", *words)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "--core" not in done.stderr
    with running(["/bin/sh", "-c", "echo ready; read line"]) as target:
        assert "no Python is loaded" in gdbmem("python", "stop", target.pid).stderr


def python_3_14() -> Optional[str]:
    """Return a CPython 3.14 or later among those of this machine."""
    return next((one for one in pythons() if version(one) >= (3, 14)), None)


def test_from_3_14_on_the_process_is_never_stopped_and_may_refuse() -> None:
    python = python_3_14()
    if python is None:
        pytest.skip("there is no CPython 3.14 here: name one with GDBMEM_PYTHON_3_14")
    with running([python, "-c", MALLOC]) as target:
        for _ in range(5):
            on = change("start", target.pid)
            assert (on["way"], on["pause_seconds"], on["is_tracing"]) == ("remote-exec", 0, True)
            change("stop", target.pid)
        ends_well(target)
    with running([python, "-c", MALLOC], {"PYTHON_DISABLE_REMOTE_DEBUG": "1"}) as target:
        done = gdbmem("python", "start", target.pid)
        assert "remote debugging is disabled in it" in done.stderr
        ends_well(target)
    with running([python, "-c", BLOCKED]) as target:
        wait_for_read(target.pid)
        done = gdbmem("python", "start", "--wait", "0.3", target.pid)
        assert "waits in read; it was withdrawn" in done.stderr
        ends_well(target)


def test_the_place_of_the_frames_is_not_one_that_only_looked_like_it_while_the_program_was_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running([sys.executable, "-c", BUSY["asyncio"]]) as target, WritableMemory(target.pid) as memory:
        deduce, later = frames._layout_by_shape, iter([True])

        def deduced(*words: Any) -> Any:
            layout = deduce(*words)
            return layout._replace(frame=layout.frame + 8) if layout and next(later, False) else layout

        monkeypatch.setattr(frames, "_layout_by_shape", deduced)
        reader = frame_reader(memory, read_maps(target.pid), target.pid)
        with Freeze(target.pid):
            assert any(one.frames for one in reader.threads(memory))
        ends_well(target)
