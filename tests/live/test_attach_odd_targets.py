"""gdbmem attach and snap on processes that are odd: one sentence or one snapshot, and the process as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gdbmem.errors import TargetError
from gdbmem.launch.attached import find_target
from tests.conftest import Program
from tests.libraries import needs_library, skip_without_library
from tests.live.test_attach import PRELOADS, served, snap
from tests.live.user import GDBMEM, SECONDS, shell
from tests.processes import without_main_thread

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]


def status(pid: int, key: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{key}:"))


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + SECONDS
    while not status(pid, "State").startswith("T"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def attach(folder: Path, pid: int, *commands: str) -> subprocess.CompletedProcess[str]:
    words = [word for command in (*commands, "quit") for word in ("--ex", command)]
    return shell(GDBMEM, "attach", str(pid), *words, folder=folder)


def refusal(pid: int) -> TargetError:
    with pytest.raises(TargetError) as caught:
        find_target(pid)
    return caught.value


def test_a_stopped_process_is_snapped_as_it_stands_and_stays_stopped(
    program: Program, tmp_path: Path
) -> None:
    needs_library("jemalloc")
    with served(program, tmp_path, PRELOADS["jemalloc"]) as process:
        stop(process.pid)
        done = snap(tmp_path, process.pid, "before")
        assert "snapshot before: heap" in done.stdout, done.stderr
        assert status(process.pid, "State").startswith("T")
        shown = attach(tmp_path, process.pid, "memsnap after").stdout
        assert "it was stopped before and stays stopped" in shown and "snapshot after: heap" in shown
        assert (status(process.pid, "State")[0], status(process.pid, "TracerPid")) == ("T", "0")
        os.kill(process.pid, signal.SIGCONT)
        process.grow(200)
        assert process.end() == 7


@pytest.mark.needs("valgrind")
@pytest.mark.parametrize("verb", ["snap", "attach"])
def test_a_stopped_valgrind_is_refused_at_once_as_it_would_never_answer(
    verb: str, program: Program, tmp_path: Path
) -> None:
    with served(program, tmp_path, {}, "valgrind", "-q", f"--vgdb-prefix={tmp_path}/v") as process:
        stop(process.pid)
        done = shell(GDBMEM, verb, str(process.pid), folder=tmp_path)
        assert done.returncode == 1 and f"kill -CONT {process.pid}" in done.stderr
        assert status(process.pid, "State").startswith("T")
        os.kill(process.pid, signal.SIGCONT)
        assert process.end() == 7
    assert list(tmp_path.glob("gdbmem.*")) == []


@pytest.mark.needs("valgrind")
def test_a_tool_of_valgrinds_that_takes_no_snapshots_is_named(program: Program, tmp_path: Path) -> None:
    words = ["valgrind", "-q", "--tool=none", f"--vgdb-prefix={tmp_path}/v"]
    with served(program, tmp_path, {}, *words) as process:
        done = snap(tmp_path, process.pid)
        assert done.returncode == 1
        assert "runs under valgrind's none, which takes no heap snapshots" in done.stderr
        assert process.end() == 7
    assert list(tmp_path.glob("gdbmem.*")) == []


def test_a_program_whose_file_was_deleted_or_replaced_still_has_its_profiler(
    program: Program, tmp_path: Path
) -> None:
    needs_library("jemalloc")
    copy = tmp_path / "upgraded"
    copy.write_bytes(program("grows_when_asked").read_bytes())
    copy.chmod(0o755)
    with served(lambda name: copy, tmp_path, PRELOADS["jemalloc"]) as process:
        copy.unlink()
        assert "snapshot before: heap" in snap(tmp_path, process.pid, "before").stdout
        process.grow(200)
        shown = attach(tmp_path, process.pid, "memsnap after")
        assert "upgraded (process" in shown.stdout and "has jemalloc" in shown.stdout
        assert "grew most at grows_when_asked.c" in shown.stdout or "(keep)" in shown.stdout
        (run,) = tmp_path.glob("gdbmem.*")
        assert run.name == f"gdbmem.upgraded.{process.pid}"
        assert process.end() == 7


def test_a_threads_number_stands_for_its_process(program: Program, tmp_path: Path) -> None:
    with served(program, tmp_path) as process:
        (other,) = {int(name) for name in os.listdir(f"/proc/{process.pid}/task")} - {process.pid}  # noqa: PTH208
        assert find_target(other).pid == process.pid
        assert process.end() == 7


def test_a_process_without_a_profiler_is_offered_what_works_where_it_was_asked(
    program: Program, tmp_path: Path
) -> None:
    with served(program, tmp_path) as process:
        assert f"'gdbmem explain {process.pid}' needs none" in snap(tmp_path, process.pid).stderr
        shown = attach(tmp_path, process.pid, "memsnap a")
        assert "'memexplain' needs none" in shown.stderr + shown.stdout
        assert "Snapshots go to" not in shown.stdout and "massif-snap" not in shown.stdout
        assert process.end() == 7
    assert list(tmp_path.glob("gdbmem.*")) == []


def test_a_tcmalloc_without_a_profiler_is_named(program: Program, tmp_path: Path) -> None:
    skip_without_library("tcmalloc_minimal")
    with served(program, tmp_path, {"LD_PRELOAD": "libtcmalloc_minimal.so.4"}) as process:
        said = snap(tmp_path, process.pid).stderr
        assert "libtcmalloc_minimal is gperftools' malloc without it" in said
        assert process.end() == 7


def test_a_jemalloc_that_was_not_made_ready_is_refused_and_goes_on(program: Program, tmp_path: Path) -> None:
    needs_library("jemalloc")
    with served(program, tmp_path, {"LD_PRELOAD": "libjemalloc.so.2"}) as process:
        done = snap(tmp_path, process.pid)
        assert done.returncode == 1 and "can't be turned on later" in done.stderr
        process.grow(200)
        assert process.end() == 7


def test_a_process_that_ends_while_gdb_holds_it_is_no_unreadable_address(
    program: Program, tmp_path: Path
) -> None:
    needs_library("jemalloc")
    with served(program, tmp_path, PRELOADS["jemalloc"]) as process:
        done = attach(
            tmp_path, process.pid, f"shell kill -KILL {process.pid}", "memsnap a", "memexplain", "continue"
        )
        said = done.stdout + done.stderr
        assert f"process {process.pid} has ended while gdb held it; type 'continue'" in said
        assert "has ended and is a zombie" in said and "Cannot access memory" not in said
        assert "terminated with signal SIGKILL" in said


def test_a_process_whose_main_thread_has_gone_is_no_zombie_but_gdb_can_not_have_it() -> None:
    with without_main_thread() as pid:
        error = refusal(pid)
        assert error.slug == "main-thread-ended" and f"gdbmem explain {pid}" in str(error.hint)


def test_a_32_bit_program_is_distinguished_from_a_64_bit_one(tmp_path: Path) -> None:
    source, binary = tmp_path / "pauses.c", tmp_path / "pauses"
    source.write_text('void _start(void) { for (;;) __asm__ volatile("int $0x80" ::"a"(29)); }\n')
    made = ["gcc", "-m32", "-nostdlib", "-static", "-o", str(binary), str(source)]
    if subprocess.run(made, capture_output=True, check=False).returncode != 0:
        pytest.skip("this compiler makes no 32-bit programs")
    with subprocess.Popen([str(binary)]) as process:
        try:
            assert refusal(process.pid).slug == "process-32-bit"
        finally:
            process.kill()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(("own", "reason"), [(False, "belongs to another user"), (True, "its own user")])
def test_a_user_learns_whose_process_it_is_and_how_to_get_at_it(own: bool, reason: str) -> None:
    code = (
        "import os, sys, ctypes; OWN and os.setresuid(65534, 65534, 65534);"
        "ctypes.CDLL(None).prctl(4, 0); print(flush=True); sys.stdin.read()"  # PR_SET_DUMPABLE
    )
    words = [sys.executable, "-c", code.replace("OWN", str(own))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setresuid(65534, 65534, 65534)
            try:
                find_target(process.pid)
            except TargetError as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with open(reader) as said:  # noqa: PTH123
            text = said.read()
        process.stdin.close()
    assert reason in text and 'sudo "$(command -v gdbmem)"' in text
