"""Reading Python processes where something stands against it; the process lives on, and the user reads a sentence."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest

from gdbmem.errors import TargetError
from gdbmem.linux.holding import returning_thread
from gdbmem.linux.holding.copying import make_copy
from gdbmem.linux.holding.ptrace import Freeze, ptrace
from gdbmem.linux.holding.returning_thread import find_call_sites
from gdbmem.linux.memory.maps import read_smaps
from gdbmem.linux.memory.process_memory import ProcMemory
from tests.cover import cover
from tests.live.explaining import Running, gdbmem, running
from tests.live.python_programs import FORKED, PAUSE, every_third, pythons, version
from tests.live.user import GDBMEM, SECONDS

pytestmark = pytest.mark.usefixtures("no_process_left")
ACTIONS = ("objects", "arenas", "traces", "stack")
HOLDS = """
import os, sys, tracemalloc
class Held:
    pass
def wait():
    os.write(1, b"pid %d\\ntraced %d\\nready\\n" % (os.getpid(), tracemalloc.get_traced_memory()[0]))
    os.read(0, 1)
held = [Held() for _ in range(777)]
wait()
"""

HOLDS_ALONE = HOLDS.replace("tracemalloc.get_traced_memory()[0]", "0").replace("sys, tracemalloc", "sys")


def answer(*words: object) -> Any:
    done = gdbmem("python", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def is_refused(done: subprocess.CompletedProcess[str], sentence: str) -> None:
    assert (done.returncode, done.stdout) == (1, "")
    assert sentence in done.stderr
    assert re.fullmatch(PAUSE + r"gdbmem: [^\n]*\[[a-z-]+\]\n", done.stderr), done.stderr


def runs_on(target: Running) -> None:
    """Assert that the process is neither stopped nor traced, and goes on when it is asked to."""
    deadline = time.monotonic() + SECONDS
    while True:
        status = Path(f"/proc/{target.pid}/status").read_text()
        if re.search(r"^State:\s+[RS]", status, re.M) and re.search(r"^TracerPid:\s+0$", status, re.M):
            break
        assert time.monotonic() < deadline, status
        time.sleep(0.05)
    target.type("x")
    assert target.process.wait(timeout=20) == 0


@pytest.mark.needs("strip")
@every_third(1)
def test_a_python_without_any_symbols_is_read_as_others_are(python: str, tmp_path: Path) -> None:
    real = Path(python).resolve()
    home = subprocess.run(
        [python, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    stripped = tmp_path / real.name
    subprocess.run(["strip", "--strip-all", "-o", stripped, real], check=True)
    words = [stripped, "-X", "tracemalloc", "-c", HOLDS]
    with running(words, {"PYTHONHOME": home}) as target:
        objects = answer("objects", "--json", target.pid)
        (thread,) = answer("stack", "--json", target.pid)["threads"]
        traces = gdbmem("python", "traces", "--json", target.pid)
        runs_on(target)
    assert [one["count"] for one in objects["types"] if one["type"].endswith("Held")] == [777]
    assert [one["function"] for one in thread["frames"]] == ["wait", "<module>"]
    if "/3.8." not in str(real):  # whose tables of traces are not read
        (traced,) = (int(number) for number in re.findall(r"^traced (\d+)", target.output, re.M))
        assert abs(json.loads(traces.stdout)["snapshots"][0]["heap_bytes"] - traced) < 2048


@pytest.mark.needs("gcc", "gcore")
@pytest.mark.parametrize("alone", [False, True], ids=["with modules", "alone"])
def test_an_interpreter_that_is_linked_in_and_stripped_is_read_as_others_are(
    alone: bool, linked: Path, tmp_path: Path
) -> None:
    # Alone no file that it has loaded has a name of Python's.
    words = [linked, "-S", "-c", HOLDS_ALONE] if alone else [linked, "-X", "tracemalloc", "-c", HOLDS]
    with running(words, {"PYTHONHOME": sys.base_prefix}) as target:
        assert alone == ("python" not in Path(f"/proc/{target.pid}/maps").read_text())
        objects = answer("objects", "--json", target.pid)
        holders = answer("objects", "--json", "--holders", "Held", target.pid)
        (thread,) = answer("stack", "--json", target.pid)["threads"]
        traces = gdbmem("python", "traces", "--json", target.pid)
        refused = gdbmem("python", "start", "--wait", "0.1", target.pid)
        subprocess.run(["gcore", "-o", tmp_path / "core", str(target.pid)], capture_output=True, check=True)
        dead = answer("objects", "--json", "--core", tmp_path / f"core.{target.pid}")
        runs_on(target)
    assert [one["count"] for one in objects["types"] if one["type"].endswith("Held")] == [777]
    assert dead["types"] == objects["types"]
    assert "777 of them are reached through __main__.held" in holders["answer"]
    assert [one["function"] for one in thread["frames"]] == ["wait", "<module>"]
    assert "waits in read; it was withdrawn" in refused.stderr
    if alone:
        assert "[python-no-traces]" in traces.stderr
    else:
        (traced,) = (int(number) for number in re.findall(r"^traced (\d+)", target.output, re.M))
        assert abs(json.loads(traces.stdout)["snapshots"][0]["heap_bytes"] - traced) < 2048


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program of this Python's static library, without symbols but those that its modules need."""
    return link(tmp_path_factory.mktemp("linked"), *static_library())


def static_library() -> tuple[Path, Path]:
    """Return this Python's static library and the folder of its headers; skip the test without them."""
    library = Path(sysconfig.get_config_var("LIBPL") or "", sysconfig.get_config_var("LIBRARY") or "")
    headers = Path(sysconfig.get_path("include"))
    if not library.is_file() or not (headers / "Python.h").is_file():
        pytest.skip("this Python has no static library or no headers here")
    return library, headers


def link(folder: Path, library: Path, headers: Path, *words: str) -> Path:
    source, program = folder / "main.c", folder / "program"
    source.write_text("#include <Python.h>\nint main(int c, char **v) { return Py_BytesMain(c, v); }\n")
    libraries = ["-lpthread", "-ldl", "-lutil", "-lm"]
    subprocess.run(
        [
            "gcc",
            f"-I{headers}",
            source,
            "-o",
            program,
            "-s",
            "-Wl,--export-dynamic",
            *words,
            library,
            *libraries,
        ],
        check=True,
        stderr=subprocess.DEVNULL if words else None,  # "… in statically linked applications requires …"
    )
    return program


@pytest.mark.thorough
@pytest.mark.needs("gcc")
def test_a_static_interpreter_without_symbols_is_read_as_others_are(tmp_path: Path) -> None:
    library, headers = static_library()
    program = link(tmp_path, library, headers, "-static")
    with running([program, "-S", "-c", HOLDS_ALONE], {"PYTHONHOME": sys.base_prefix}) as target:
        assert "libc" not in Path(f"/proc/{target.pid}/maps").read_text()
        objects = answer("objects", "--json", target.pid)
        holders = answer("objects", "--json", "--holders", "Held", target.pid)
        (thread,) = answer("stack", "--json", target.pid)["threads"]
        is_refused(gdbmem("python", "start", target.pid), "its interpreter does not export")
        runs_on(target)
    assert [one["count"] for one in objects["types"] if one["type"].endswith("Held")] == [777]
    assert "777 of them are reached through __main__.held" in holders["answer"]
    assert [one["function"] for one in thread["frames"]] == ["wait", "<module>"]


@pytest.mark.parametrize(
    ("name", "sentence"), [("pypy3.10", "this is PyPy"), ("python3.13t", "is a free-threaded build")]
)
def test_pypy_and_free_threaded_pythons_are_refused_by_name(name: str, sentence: str, tmp_path: Path) -> None:
    program = tmp_path / name
    shutil.copy("/bin/sh", program)
    with running([program, "-c", "echo ready; read line"]) as target:
        for action in ACTIONS:
            is_refused(gdbmem("python", action, target.pid), sentence)


# The interpreter publishes in its own memory what a free-threaded one does, and has no arenas either.
PUBLISHES = (
    "import ctypes\nctypes.c_uint64.from_address(ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "
)
PUBLISHES += '"_PyRuntime")) + 16).value = 1\n'


@pytest.mark.needs("gcore")
def test_a_free_threaded_python_is_refused_whatever_its_name(tmp_path: Path) -> None:
    python = next((one for one in pythons() if version(one) == (3, 13)), None)
    if python is None:
        pytest.skip("there is no CPython 3.13 here")
    with running(
        [python, "-X", "tracemalloc", "-c", PUBLISHES + HOLDS], {"PYTHONMALLOC": "malloc"}
    ) as target:
        for action in (*ACTIONS, "cow", "start"):
            is_refused(gdbmem("python", action, target.pid), "is a free-threaded build")
        is_refused(gdbmem("python", "objects", "--holders", "Held", target.pid), "is a free-threaded build")
        subprocess.run(["gcore", "-o", tmp_path / "core", str(target.pid)], capture_output=True, check=True)
        for action in ("objects", "traces"):
            done = gdbmem("python", action, "--core", tmp_path / f"core.{target.pid}")
            is_refused(done, "is a free-threaded build")
        runs_on(target)


def test_objects_that_lie_in_mimalloc_are_unknown_and_not_none() -> None:
    python = next((one for one in pythons() if version(one) == (3, 13)), None)
    if python is None:
        pytest.skip("there is no CPython 3.13 here")
    with running([python, "-c", HOLDS_ALONE], {"PYTHONMALLOC": "mimalloc"}) as target:
        for words in (["objects"], ["objects", "--holders", "Held"], ["arenas"]):
            is_refused(gdbmem("python", *words, target.pid), "started with PYTHONMALLOC=mimalloc")
        runs_on(target)


@pytest.mark.needs("setpriv")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
@pytest.mark.parametrize("action", cover([*ACTIONS, "cow"], lambda action: action in ("objects", "cow")))
def test_a_process_that_may_not_be_traced_is_refused_in_a_sentence_and_runs_on(action: str) -> None:
    # A tracer that lacks a right of the process may not trace it.
    lacking = "-chown,-sys_ptrace"
    with running([sys.executable, "-X", "tracemalloc", "-c", HOLDS]) as target:
        done = subprocess.run(
            ["setpriv", f"--bounding-set={lacking}", f"--inh-caps={lacking}",
             GDBMEM, "python", action, str(target.pid)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        runs_on(target)
    is_refused(done, str(target.pid))


@pytest.mark.parametrize("action", cover([*ACTIONS, "cow"], lambda action: action in ("objects", "cow")))
def test_ctrl_c_leaves_the_process_as_it_was(action: str) -> None:
    # From before it is looked at until after the answer.
    for delay in (0.1, 0.4, 0.7, 1.0):
        with running([sys.executable, "-X", "tracemalloc", "-c", HOLDS]) as target:
            words = [GDBMEM, "python", action, str(target.pid)]
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as look:
                time.sleep(delay)
                look.send_signal(signal.SIGINT)
                _, said = look.communicate(timeout=60)
            assert look.returncode in (0, 1, 130, -signal.SIGINT), said
            assert "gdbmem failed" not in said
            runs_on(target)


def test_workers_that_end_while_their_copies_are_counted_are_a_sentence_or_left_out() -> None:
    for delay in (0.3, 0.6):
        with running([sys.executable, "-c", FORKED]) as target:
            children = Path(f"/proc/{target.pid}/task/{target.pid}/children").read_text().split()
            words = [GDBMEM, "python", "cow", "--json", str(target.pid)]
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as look:
                time.sleep(delay)
                for pid in children:
                    os.kill(int(pid), signal.SIGKILL)
                out, said = look.communicate(timeout=60)
            target.type("x")
            target.process.wait(timeout=20)
        if look.returncode == 0:
            document = json.loads(out)
            # What several workers still share counts once.
            copied = [one["copied_bytes"] for one in document["workers"]]
            assert max(copied, default=0) <= document["copied_bytes"] <= sum(copied)
        else:
            assert re.fullmatch(PAUSE + r"gdbmem: [^\n]*\[[a-z-]+\]\n", said), said


SEVERAL_THREADS = """
import os, threading, time
held = [(i, str(i)) for i in range(100000)]
for _ in range(4): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
os.write(1, b"pid %d\\nready\\n" % os.getpid())
os.read(0, 1)
"""


def test_a_process_of_several_threads_that_is_killed_while_it_is_copied_is_one_sentence() -> None:
    for delay in (0.2, 0.4):
        with running([sys.executable, "-c", SEVERAL_THREADS]) as target:
            words = [GDBMEM, "python", "objects", str(target.pid)]
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as look:
                time.sleep(delay)
                os.kill(target.pid, signal.SIGKILL)
                _, said = look.communicate(timeout=30)
            assert look.returncode in (0, 1), said
            assert look.returncode == 0 or re.fullmatch(PAUSE + r"gdbmem: [^\n]*\[[a-z-]+\]\n", said), said


def test_the_end_of_a_main_thread_that_is_killed_in_a_call_of_ours_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The kernel reports it only when the other threads, which are traced too, have been collected.
    def and_kill(request: int, tid: int, *words: int) -> None:
        ptrace(request, tid, *words)
        if request == returning_thread._SYSCALL:
            os.kill(target.pid, signal.SIGKILL)

    monkeypatch.setattr(returning_thread, "ptrace", and_kill)
    with running([sys.executable, "-c", SEVERAL_THREADS]) as target:
        mappings = read_smaps(target.pid)
        with ProcMemory(target.pid) as memory:
            sites = find_call_sites(target.pid, memory, mappings)
        if sites is None:
            pytest.skip("threads are made to call by another way on this architecture")
        with Freeze(target.pid) as freeze, pytest.raises(TargetError) as refused:
            assert len(freeze.threads) == 5
            make_copy(freeze, mappings, sites, lambda copy: None)
        assert refused.value.slug == "process-ended"
