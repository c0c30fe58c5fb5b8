"""gdbmem attach and gdbmem snap: processes that run already, left as they were found."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.conftest import Program
from tests.cover import cover
from tests.libraries import needs_library
from tests.live.user import GDBMEM, at_terminal, environment, shell

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]

PRELOADS = {
    "gperftools": {"LD_PRELOAD": "libtcmalloc.so.4", "HEAPPROFILE": "prof"},  # in the program's own folder
    "jemalloc": {"LD_PRELOAD": "libjemalloc.so.2", "MALLOC_CONF": "prof:true,lg_prof_sample:0"},
    "nothing": {},
}
KEPT = 100 * 1000  # bytes, at each '+'


class Served:
    """A running grows_when_asked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.said = ""

    def see(self, text: str) -> None:
        assert self._process.stdout is not None
        while text not in self.said:
            line = self._process.stdout.readline()
            assert line, self.said
            self.said += line

    def grow(self, holds: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("+")
        self._process.stdin.flush()
        self.see(f"holds {holds}\n")

    def end(self) -> int:
        """Close its input; return its status."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self.said += self._process.stdout.read()
        return self._process.wait()


@contextlib.contextmanager
def served(
    program: Program, folder: Path, variables: Optional[dict[str, str]] = None, *before: str
) -> Iterator[Served]:
    with subprocess.Popen(
        [*before, str(program("grows_when_asked"))], cwd=folder, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**environment(), **(variables or {})},
    ) as process:  # fmt: skip
        try:
            one = Served(process)
            one.see("holds 100\n")
            yield one
        finally:
            process.kill()


def snap(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return shell(GDBMEM, "snap", *map(str, words), folder=folder)


def difference(folder: Path, *words: str) -> dict[str, Any]:
    done = shell(GDBMEM, "diff", *words, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def guilty(diff: dict[str, Any]) -> str:
    return next((str(f["function"]) for f in diff["paths"][0]["frames"] if f["function"] == "keep"), "")


@pytest.mark.parametrize("engine", ["gperftools", "jemalloc"])
def test_two_snaps_of_a_process_name_what_it_kept_between_them(
    engine: str, program: Program, tmp_path: Path
) -> None:
    needs_library(engine)
    with served(program, tmp_path, PRELOADS[engine]) as process:
        first = snap(tmp_path, process.pid, "before")
        assert first.returncode == 0, first.stderr
        assert f"process {process.pid} (" in first.stderr.splitlines()[0], "its wait is said before it begins"
        assert "is stopped, usually" in first.stderr.splitlines()[0]
        assert "snapshot before: heap" in first.stdout and "the process was stopped for" in first.stdout
        process.grow(200)
        second = json.loads(snap(tmp_path, process.pid, "after", "--json").stdout)
        assert (second["kind"], second["snapshot"]["name"]) == ("snap", "after") and second[
            "pause_seconds"
        ] > 0
        (run,) = tmp_path.glob("gdbmem.*")
        assert second["run"] == str(run), "both in one run"
        diff = difference(tmp_path, f"{run}:before", f"{run}:after")
        size = KEPT if engine == "gperftools" else 100 * 1024  # jemalloc's class for 1000 bytes
        assert diff["paths"][0]["delta_bytes"] == size and guilty(diff) == "keep"
        assert process.end() == 7
        assert "input ended with 0" in process.said and "cut short" not in process.said


@pytest.mark.parametrize("engine", cover(["gperftools", "jemalloc"], lambda engine: engine == "jemalloc"))
def test_a_profiler_that_attach_has_switched_on_is_off_again_when_gdb_has_left(
    engine: str, program: Program, tmp_path: Path
) -> None:
    needs_library(engine)
    variables = {"LD_PRELOAD": PRELOADS[engine]["LD_PRELOAD"]}
    if engine == "jemalloc":
        variables["MALLOC_CONF"] = "prof:true,prof_active:false"
    with served(program, tmp_path, variables) as process:
        for leaving in ("detach", "quit"):
            words = ["--engine", engine, "--ex", leaving, "--ex", "quit"]
            done = shell(GDBMEM, "attach", str(process.pid), *words, folder=tmp_path)
            # As it was off, it is switched on each time.
            assert "on now: it counts" in done.stderr or "is active now: it counts" in done.stderr, (
                done.stderr
            )
            assert f"the heap profiler of {engine} is off again" in done.stdout
        assert process.end() == 7


@pytest.mark.needs("valgrind")
@pytest.mark.parametrize("tool", cover(["massif", "memcheck"], lambda tool: tool == "massif"))
def test_under_valgrind_the_snaps_come_through_vgdb(tool: str, program: Program, tmp_path: Path) -> None:
    words = ["valgrind", "-q", f"--tool={tool}", f"--vgdb-prefix={tmp_path}/a b"]
    words += [f"--massif-out-file={tmp_path}/out"] if tool == "massif" else []
    with served(program, tmp_path, {}, *words) as process:
        before = json.loads(snap(tmp_path, process.pid, "before", "--run", "kept", "--json").stdout)
        assert before["snapshot"]["name"] == "before"
        process.grow(200)
        done = snap(tmp_path, process.pid, "after", "--run", "kept")
        assert "+97.7 KiB since before" in done.stdout, done.stderr
        assert f"process {process.pid} (" in done.stderr
        assert f"({tool}-" not in done.stderr, "the program is meant, not its valgrind"
        ledger = json.loads(
            shell(str(GDBMEM), "explain", "--json", str(process.pid), folder=tmp_path, check=True).stdout
        )
        assert ledger["program"] == "grows_when_asked"
        told = shell(str(GDBMEM), "monitor", "--for", "200ms", str(process.pid), folder=tmp_path, check=True)
        said = told.stdout + told.stderr
        assert "grows_when_asked" in said and f"{tool}-" not in said, said
        diff = difference(tmp_path, "kept:before", "kept:after")
        assert diff["delta_bytes"] == KEPT and guilty(diff) == "keep"
        assert process.end() == 7


@pytest.mark.needs("valgrind")
def test_what_a_program_under_valgrind_forked_is_snapped_where_valgrind_follows_children(
    program: Program, tmp_path: Path
) -> None:
    forks = program("forks", "-DCHILD_ENDS=(void)pause(),_exit")
    words = [
        "valgrind",
        "-q",
        "--tool=massif",
        f"--vgdb-prefix={tmp_path}/v",
        f"--massif-out-file={tmp_path}/%p",
    ]
    for follow, text in (("no", "was forked by a program under valgrind's massif"), ("yes", "heap 205.")):
        with subprocess.Popen(
            [*words, f"--trace-children={follow}", str(forks)], stdout=subprocess.DEVNULL
        ) as parent:
            try:
                child = child_of(parent.pid)
                done = snap_when(tmp_path, child, text)
                os.kill(child, signal.SIGKILL)
            finally:
                parent.kill()
        assert text in done.stdout + done.stderr
        assert ("--trace-children" in done.stderr) == (follow == "no")
        assert "'gdbmem launch'" not in done.stderr


def child_of(pid: int) -> int:
    """Wait until process *pid* has forked, and return its child."""
    until = time.monotonic() + 60
    while not (found := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        assert time.monotonic() < until, f"{pid} forked nothing"
        time.sleep(0.05)
    return int(found[0])


def snap_when(folder: Path, pid: int, text: str) -> subprocess.CompletedProcess[str]:
    """Snap process *pid* until the output has *text*, at most for a minute; return the last output."""
    until = time.monotonic() + 60
    while text not in (done := snap(folder, pid, "worker")).stdout + done.stderr:
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    return done


@pytest.mark.needs("valgrind", "setpriv")
@pytest.mark.skipif(os.getuid() != 0, reason="only root may have another user's process")
def test_root_snaps_another_users_valgrind_and_nobody_else_does(program: Program, scratch: Path) -> None:
    scratch.chmod(0o777)
    copy = scratch / "grows_when_asked"
    copy.write_bytes(program("grows_when_asked").read_bytes())
    copy.chmod(0o755)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    words = [*nobody, "valgrind", "-q", f"--vgdb-prefix={scratch}/v"]
    with served(lambda name: copy, scratch, {"HOME": str(scratch)}, *words) as process:
        done = snap(scratch, process.pid, "before")
        assert "snapshot before: heap" in done.stdout, done.stderr
        process.grow(200)
        assert "+97.7 KiB since before" in snap(scratch, process.pid, "after").stdout
        assert process.end() == 7


@pytest.mark.needs("valgrind", "unshare")
@pytest.mark.skipif(os.getuid() != 0, reason="a PID namespace needs root")
def test_a_valgrind_in_a_container_is_not_taken_for_one_without_its_gdbserver(
    program: Program, scratch: Path
) -> None:
    words = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "valgrind",
        "-q",
        f"--vgdb-prefix={scratch}/v",
    ]
    with served(program, scratch, {}, *words) as process:
        (inside,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        done = snap(scratch, inside)
        assert done.returncode == 1 and "in another PID namespace (a container)" in done.stderr


def test_a_profiler_that_is_off_is_turned_on_and_that_is_reported(program: Program, tmp_path: Path) -> None:
    needs_library("gperftools")
    with served(program, tmp_path, {"LD_PRELOAD": "libtcmalloc.so.4"}) as process:
        assert "was off and is on now" in snap(tmp_path, process.pid, "a").stderr
        process.grow(200)
        again = snap(tmp_path, process.pid, "b")
        assert "was off" not in again.stderr and "heap 97.7 KiB" in again.stdout
        assert process.end() == 7


def test_a_process_that_is_always_inside_its_allocator_is_let_out_of_it_first(
    program: Program, tmp_path: Path
) -> None:
    needs_library("jemalloc")
    variables = {**environment(), **PRELOADS["jemalloc"]}
    with subprocess.Popen([str(program("always_allocates"))], env=variables) as process:
        try:
            for _ in range(2):
                done = snap(tmp_path, process.pid)
                assert done.returncode == 0, done.stderr
            assert process.poll() is None
        finally:
            process.kill()


@pytest.mark.parametrize("verb", ["snap", "attach"])
def test_a_current_folder_that_is_gone_is_one_sentence(verb: str, program: Program, tmp_path: Path) -> None:
    needs_library("jemalloc")
    with served(program, tmp_path, PRELOADS["jemalloc"]) as process:
        command = f'mkdir gone && cd gone && rmdir ../gone && exec "{GDBMEM}" {verb} {process.pid}'
        ended = shell("/bin/sh", "-c", command, folder=tmp_path)
        assert ended.returncode > 0
        assert "the current folder is gone" in ended.stderr and "Traceback" not in ended.stderr
        assert process.end() == 7, "the process goes on as if nothing had been asked"


def test_what_cannot_be_snapped_is_refused_with_the_reason(program: Program, tmp_path: Path) -> None:
    refusals = {"there is no process": 4_000_000, "is not a process id": -3}
    second = Path("/proc/2/comm")  # not in a container
    if second.exists() and second.read_text() == "kthreadd\n":
        refusals["is a kernel thread"] = 2
    for reason, pid in refusals.items():
        done = snap(tmp_path, "--", pid)
        assert done.returncode in (1, 2) and reason in done.stderr, done.stderr
    with served(program, tmp_path) as process:
        assert "has no heap profiler" in snap(tmp_path, process.pid).stderr
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert "is a zombie" in snap(tmp_path, child).stderr
        os.waitpid(child, 0)
        with subprocess.Popen(
            ["gdb", "-q", "-nx", "-p", str(process.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.STDOUT,
        ) as gdb:  # fmt: skip
            assert gdb.stdin is not None and gdb.stdout is not None
            gdb.stdin.write("echo here\\n\n")
            gdb.stdin.flush()
            while "here" not in gdb.stdout.readline():
                pass
            assert f"traced by process {gdb.pid} (gdb)" in snap(tmp_path, process.pid).stderr
            gdb.stdin.write("quit\n")
            gdb.stdin.close()
            gdb.stdout.read()
        assert process.end() == 7
    assert list(tmp_path.glob("gdbmem.*")) == [], "a refusal leaves nothing behind"


@pytest.mark.parametrize(
    "engine",
    cover(["gperftools", "massif", "memcheck", "nothing"], lambda engine: engine in ("memcheck", "nothing")),
)
def test_attach_leaves_the_process_running_as_it_was(engine: str, program: Program, tmp_path: Path) -> None:
    words: list[str] = []
    if engine == "gperftools":
        needs_library(engine)
    elif engine == "massif":
        words = ["valgrind", "-q", "--tool=massif", f"--massif-out-file={tmp_path}/out"]
    elif engine == "memcheck":
        words = ["valgrind", "-q"]
    with served(program, tmp_path, PRELOADS.get(engine), *words) as process:
        with at_terminal([GDBMEM, "attach", str(process.pid)], tmp_path) as user:
            assert engine in user.prompt() or engine == "nothing"
            if engine == "nothing":
                assert "has no heap profiler" in user.type("memsnap a")
                assert "resident" in user.type("memexplain")
            else:
                assert "snapshot a: heap" in user.type("memsnap a")
                user.type("membreak --name kept --after keep")
                user.send("continue")
                user.see("Continuing")
                process.grow(200)
                user.see("snapshot kept: heap", "grew most at grows_when_asked.c")
                user.press("c")
                user.prompt()
            said = user.quit()
            assert ("the run is kept in" in said) == (engine != "nothing")
        process.grow(300 if engine != "nothing" else 200)
        assert process.end() == 7


def test_gdb_that_is_ended_from_outside_lets_the_process_go(program: Program, tmp_path: Path) -> None:
    with served(program, tmp_path) as process:
        with at_terminal([GDBMEM, "attach", str(process.pid)], tmp_path) as user:
            user.prompt()
            os.kill(user.pid, signal.SIGTERM)
            user.end()
        process.grow(200)
        assert process.end() == 7


def test_attaching_complains_of_nothing_and_leaves_no_name_in_gdbs_python(
    program: Program, tmp_path: Path
) -> None:
    with served(program, tmp_path) as process:
        words = (
            "--ex",
            "python print([name for name in globals() if name.startswith('_g')])",
            "--ex",
            "quit",
        )
        done = shell(GDBMEM, "attach", str(process.pid), *words, folder=tmp_path)
        assert "Traceback" not in done.stderr and "Error while" not in done.stderr
        assert "\n[]\n" in done.stdout
        assert process.end() == 7
