"""Child processes are ended for certain, however they behave; real ones that ignore signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gdbmem.errors import ToolError
from gdbmem.launch.child import Child
from gdbmem.launch.program import find_program
from gdbmem.launch.supervisor import _terminate
from gdbmem.launch.valgrind import Order, Process, Valgrind, replacement
from gdbmem.launch.vgdb import Sentinel

pytestmark = pytest.mark.usefixtures("no_process_left")

# Each prints "ready" when its signals are blocked or ignored.
DEAF = "trap '' {}; echo ready; while :; do sleep 1000 & wait; done"


def start(script: str, **options: object) -> tuple[Child, int]:
    """Start a shell with *script*; return it and the end of a pipe from which its words are read."""
    end, other = os.pipe()
    try:
        child = Child(["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=other, **options)  # type: ignore[arg-type]
    finally:
        os.close(other)
    return child, end


def wait_ready(end: int) -> bytes:
    said = b""
    while b"ready" not in said:
        data = os.read(end, 100)
        assert data, "it ended before it was ready"
        said += data
    return said


@pytest.mark.parametrize(
    ("deaf_to", "needed"),
    [("HUP", "SIGTERM"), ("TERM", "SIGKILL"), ("HUP TERM INT", "SIGKILL")],
)
def test_each_rung_is_tried_until_one_works_and_that_one_is_named(deaf_to: str, needed: str) -> None:
    child, end = start(DEAF.format(deaf_to))
    wait_ready(end)
    assert child.alive
    # Short steps: a process that handles a signal ends at once.
    ladder = ((signal.SIGTERM, 0.5 if "TERM" in deaf_to else 20.0), (signal.SIGKILL, 20.0))
    assert child.stop(ladder) == needed
    assert not child.alive
    assert child.status == 128 + signal.Signals[needed]
    child.stop_stragglers()
    os.close(end)


def test_a_child_that_has_ended_needs_no_signal_and_keeps_its_status() -> None:
    child, end = start("exit 3")
    assert child.wait(20.0)
    assert (child.status, child.stop()) == (3, "")
    child.signal(signal.SIGTERM)  # harmless
    os.close(end)


def test_what_a_child_left_running_in_its_group_is_ended_too() -> None:
    child, end = start("sleep 1000 & echo $! ready; exit 0")
    said = wait_ready(end)
    assert child.wait(20.0)
    grandchild = psutil.Process(int(said.split()[0]))
    child.stop_stragglers()
    psutil.wait_procs([grandchild], timeout=20)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE
    os.close(end)


def test_a_valgrind_that_is_dying_has_not_become_another_program() -> None:
    child, end = start("echo ready; exec sleep 1000")
    wait_ready(end)
    process = psutil.Process(child.pid)
    while process.name() != "sleep":
        assert child.alive
    assert Path(replacement(child.pid)).name == Path(process.exe()).name
    process.kill()
    while process.status() != psutil.STATUS_ZOMBIE:  # its memory has gone, its parent doesn't know yet
        pass
    assert replacement(child.pid) == ""
    assert not child.alive
    os.close(end)


def test_a_child_in_its_own_session_does_not_hear_ctrl_c() -> None:
    child, end = start("echo ready; exec sleep 1000")
    wait_ready(end)
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    assert os.getpgid(child.pid) == child.pid
    child.stop()
    os.close(end)


def test_a_program_that_cannot_be_started_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="absent could not be started: No such file"):
        Child([str(tmp_path / "absent")])


LAUNCHER = """
import os, signal, sys
from pathlib import Path
from gdbmem.launch.child import Child
from gdbmem.launch.vgdb import Sentinel
sentinel = Sentinel()
sentinel.remove(Path(sys.argv[1]))
# Its output must not come between the digits below and their newline.
child = Child(["sh", "-c", sys.argv[2]], dies_with_us=None, stdout=os.open(os.devnull, os.O_WRONLY))
sentinel.guard(child.pid, reached=sys.argv[3] == "reached")
print(child.pid, flush=True)
signal.pause()
"""


@pytest.mark.usefixtures("orphans_are_ours")
@pytest.mark.parametrize(("script", "state"), [
    ("exec sleep 1000", "reached"),
    (DEAF.format("TERM"), "reached"),
    (DEAF.format("TERM"), "unreached"),
])  # fmt: skip
def test_the_sentinel_ends_what_a_killed_launcher_left_and_removes_its_folder(
    script: str, state: str, tmp_path: Path
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    (runtime / "fifo").touch()
    words = [sys.executable, "-c", LAUNCHER, str(runtime), script, state]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        try:
            child = psutil.Process(int(next(line for line in launcher.stdout if line.strip().isdigit())))
            helpers = [p for p in psutil.Process(launcher.pid).children() if p.pid != child.pid]
        finally:
            launcher.kill()
    psutil.wait_procs([child, *helpers], timeout=20)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert not runtime.exists()


def test_a_sentinel_that_is_dismissed_touches_nothing(tmp_path: Path) -> None:
    child, end = start("echo ready; exec sleep 1000")
    wait_ready(end)
    sentinel = Sentinel()
    sentinel.remove(tmp_path)
    sentinel.guard(child.pid, reached=True)
    sentinel.dismiss()
    assert child.alive
    assert tmp_path.is_dir()
    child.stop()
    os.close(end)


@pytest.mark.usefixtures("orphans_are_ours")
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_vgdb_that_waits_for_a_dead_valgrind_ends_with_its_launch_and_no_other_one_does(
    is_killed: bool, tmp_path: Path
) -> None:
    runtime, strangers = tmp_path / "runtime", tmp_path / "runtime-of-another"
    runtime.mkdir()
    vgdb = tmp_path / "vgdb"
    # As one does that opens a FIFO without a reader; the second ignores all signals except SIGKILL.
    vgdb.write_text('#!/bin/sh\ntrap "" $1\nread line < "$0.fifo"\n')
    vgdb.chmod(0o700)
    os.mkfifo(tmp_path / "vgdb.fifo")

    def start_vgdb(deaf_to: str, prefix: Path, session: Path) -> subprocess.Popen[bytes]:
        words = [str(vgdb), deaf_to, f"--vgdb-prefix={prefix}/vgdb1", "--pid=1"]
        return subprocess.Popen(words, env={**os.environ, "GDBMEM_SESSION": f"{session}/socket"})

    ours = [
        start_vgdb("HUP", runtime, strangers),
        start_vgdb("HUP TERM INT", strangers, runtime),
    ]
    other = start_vgdb("HUP", strangers, strangers)
    words = [sys.executable, "-c", VGDB_LAUNCHER, str(runtime), "killed" if is_killed else ""]
    try:
        launcher = subprocess.run(words, timeout=20, check=False)
        assert launcher.returncode == (-9 if is_killed else 0)
        assert [one.wait(20) for one in ours] == [-15, -9]
        assert other.poll() is None
    finally:
        for one in [*ours, other]:
            one.kill()
            one.wait()


VGDB_LAUNCHER = """
import os, sys
from pathlib import Path
from gdbmem.launch.vgdb import Sentinel
with Sentinel() as sentinel:
    sentinel.remove(Path(sys.argv[1]))
    if sys.argv[2]:
        os.kill(os.getpid(), 9)
"""


WAITS_FOR_VGDB = """
trap '' TERM
mkfifo vgdb1-from-vgdb-to-$$-by-me-on-here vgdb1-to-vgdb-from-$$-by-me-on-here
echo ready
: > vgdb1-to-vgdb-from-$$-by-me-on-here
"""


def test_a_valgrind_that_waits_for_a_killed_vgdb_ends_at_once(tmp_path: Path) -> None:
    child, end = start(WAITS_FOR_VGDB, folder=tmp_path)
    wait_ready(end)
    order = Order(
        Valgrind("valgrind", "vgdb"), (), find_program("true"), (), {}, run=tmp_path, runtime=tmp_path
    )
    try:
        assert _terminate(Process(order, child))
    finally:
        child.stop(((signal.SIGKILL, 5.0),))


ORPHANED = """
import os, signal
from gdbmem.launch.child import die_with_parent
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        pass
    die_with_parent(signal.SIGTERM, parent)
    print("survived", flush=True)
"""


def test_one_whose_parent_is_killed_at_its_birth_is_not_left_at_the_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHANED], capture_output=True, text=True, check=True)
    assert done.stdout == ""
