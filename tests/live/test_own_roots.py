"""Processes with a root folder of their own: their own symbols and bytes, and nothing that they put in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.libraries import needs_library
from tests.live.explaining import Running, explain
from tests.live.roots import AS_MALLORY, WAYS, contained, make_root
from tests.live.test_attach import PRELOADS, Served, difference, guilty, snap
from tests.live.test_explain import assert_agrees_with_the_program
from tests.live.test_target_side import copied, mallory
from tests.live.user import GDBMEM, at_terminal, shell

pytestmark = [
    pytest.mark.needs("gdb", "gcc", "setpriv", "unshare"),
    pytest.mark.usefixtures("no_process_left"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has somebody else to be"),
]


def ready(outer: subprocess.Popen[str]) -> str:
    assert outer.stdout is not None
    output = ""
    for line in outer.stdout:
        if line == "ready\n":
            break
        output += line
    return output


@pytest.mark.parametrize("way", WAYS)
def test_a_container_is_explained_as_its_program_counts(
    way: str, program: Program, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = make_root(scratch / "root", program("heap_known"))
    with contained(way, root, "half") as (outer, pid):
        target = Running(outer, ready(outer))
        for fork in (True, False):
            ledger = explain(pid, fork=fork)
            assert_agrees_with_the_program(target, ledger)
        assert outer.poll() is None
    known = list(tmp_path.rglob("*.json"))
    assert known == [], "what a stranger's libc says of itself is not kept for the libc of others"


def test_a_process_that_claims_to_have_loaded_what_is_outside_its_root_is_refused(
    program: Program, scratch: Path, tmp_path: Path
) -> None:
    root = make_root(scratch / "root", program("claims_to_have_loaded"))
    os.mkfifo(scratch / "fifo", 0o666)
    for name in (f"/..{scratch}/fifo", "fifo", "../fifo"):
        with contained("a user's", root, name) as (outer, pid):
            ready(outer)
            done = snap(tmp_path, pid)
            assert done.returncode == 1 and "outside the process's root folder" in done.stderr, done.stderr


def test_a_fifo_that_a_process_claims_to_have_loaded_keeps_neither_snap_nor_attach_waiting(
    program: Program, scratch: Path, tmp_path: Path
) -> None:
    scratch.chmod(0o755)
    os.mkfifo(scratch / "fifo", 0o666)
    binary = copied(program("claims_to_have_loaded"), scratch)
    with mallory(binary, scratch / "fifo") as process:
        began = time.monotonic()
        assert "has no heap profiler" in snap(tmp_path, process.pid).stderr
        assert time.monotonic() - began < 100, "gdb was not ended for having opened it"
        with at_terminal([GDBMEM, "attach", str(process.pid)], tmp_path) as user:
            user.prompt()
            assert "main" in user.type("info symbol main")
            user.quit()
        assert process.poll() is None


def test_a_service_whose_files_are_roots_alone_keeps_gdbs_own_ways(tmp_path: Path) -> None:
    sleep = [*AS_MALLORY, "sleep", "1000"]
    with subprocess.Popen(sleep, cwd="/") as process:
        try:
            while os.readlink(f"/proc/{process.pid}/exe").endswith("setpriv"):  # noqa: PTH115
                time.sleep(0.01)
            with at_terminal([GDBMEM, "attach", str(process.pid)], tmp_path) as user:
                user.prompt()
                assert "gdbmem" not in user.type("show sysroot")
                user.quit()
        finally:
            process.kill()


@pytest.mark.parametrize("way", WAYS)
def test_snaps_of_a_container_name_the_lines_that_kept_more(
    way: str, program: Program, scratch: Path, tmp_path: Path
) -> None:
    needs_library("gperftools")
    preloads = {**PRELOADS["gperftools"], "HEAPPROFILE": "/tmp/prof/x"}
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    library = Path(next(line.split()[-1] for line in listed.splitlines() if preloads["LD_PRELOAD"] in line))
    root = make_root(scratch / "root", program("grows_when_asked"), [library])
    with contained(way, root, variables=preloads) as (outer, pid):
        process = Served(outer)
        process.see("holds 100\n")
        first = snap(tmp_path, pid, "before")
        assert first.returncode == 0, first.stderr
        process.grow(200)
        second = snap(tmp_path, pid, "after")
        assert "since before" in second.stdout, second.stderr
        (run,) = tmp_path.glob("gdbmem.*")
        grown = difference(tmp_path, str(run))
        assert guilty(grown) == "keep", grown["paths"]
        assert not list((root / "tmp").glob("gdbmem*")), "nothing is left there"
        assert process.end() == 7


@pytest.mark.parametrize("way", WAYS)
def test_a_gdb_at_a_container_has_its_functions_and_variables(
    way: str, program: Program, scratch: Path, tmp_path: Path
) -> None:
    root = make_root(scratch / "root", program("grows_when_asked", "-g"))
    with contained(way, root) as (outer, pid):
        process = Served(outer)
        process.see("holds 100\n")
        with at_terminal([GDBMEM, "attach", str(pid)], tmp_path) as user:
            user.prompt()
            assert "count = 100" in user.type("print count").replace("$1", "count")
            assert "malloc in section .text of" in user.type("info symbol malloc")
            user.quit()
        process.grow(200)
        assert process.end() == 7


@pytest.mark.parametrize("way", ["a user's", "a chroot", "podman's"])
def test_a_gdb_at_a_container_has_the_symbols_of_what_is_loaded_later(
    way: str, program: Program, scratch: Path, tmp_path: Path
) -> None:
    root = make_root(scratch / "root", program("loads_later", "-g"))
    library = root / "app/liblater.so.1.0"
    source = b"int later_value = 4711; int later_function(void) { return later_value; }"
    subprocess.run(["gcc", "-g", "-shared", "-fPIC", "-xc", "-", "-o", library], input=source, check=True)
    (root / "app/liblater.so").symlink_to(library.name)
    with contained(way, root, "/app/liblater.so") as (outer, pid):
        ready(outer)
        assert outer.stdin is not None and outer.stdout is not None
        with at_terminal([GDBMEM, "attach", str(pid)], tmp_path) as user:
            user.prompt()
            user.type("break loaded")
            outer.stdin.write("x\n")
            outer.stdin.flush()
            assert "loaded" in user.type("continue")
            assert "= 4711" in user.type("print later_value")
            assert "later_function" in user.type("info line later_function")
            user.quit()
        assert outer.stdout.readline() == "loaded 4711\n"


def mount_over(pid: int, what: str, *files: str) -> None:
    """Make process *pid* alone see *what* in place of each of *files*, by its own names."""
    code = (
        "import ctypes, os, sys; libc = ctypes.CDLL(None); wanted = os.open(f'/proc/{sys.argv[1]}/ns/mnt', 0)\n"
        "assert libc.setns(wanted, 0) == 0\n"
        "for name in sys.argv[3:]: assert libc.mount(sys.argv[2].encode(), name.encode(), 0, 4096, 0) == 0, name"
    )
    subprocess.run([sys.executable, "-c", code, str(pid), what, *files], check=True, cwd="/")


def test_a_fifo_in_place_of_each_of_its_files_blocks_no_command(program: Program, scratch: Path) -> None:
    root = make_root(scratch / "root", program("block_types", "-fno-rtti"))
    os.mkfifo(root / "tmp/fifo", 0o666)
    with contained("a user's", root, "wait") as (outer, pid):
        ready(outer)
        files = [path for path in root.rglob("*") if path.is_file()]
        mount_over(pid, "/tmp/fifo", *(f"/{path.relative_to(root)}" for path in files))
        done = shell(GDBMEM, "explain", "--types", str(pid))
        assert done.returncode == 0 and "resident" in done.stdout, done.stderr
