"""Names that a process gives itself, its threads and its cgroup end no command, and lead to no file of its user's."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdbmem.linux.process.process import own_tid
from gdbmem.linux.process.threads import activities, faults_by_thread, is_ending
from gdbmem.series.store import Recording
from tests.cover import cover
from tests.live.user import GDBMEM, SECONDS

pytestmark = pytest.mark.usefixtures("no_process_left")

NAMED = r"""
import ctypes, threading, time
libc = ctypes.CDLL(None)
def named(name): libc.prctl(15, name, 0, 0, 0)
def rest():
    named(b"\xff)\nUid:\t0 0 0")
    print("ready", flush=True)
    time.sleep(1000)
named(b"\xff\xfe)\n R 1 (")
kept = [bytes(1000) for _ in range(10_000)]
threading.Thread(target=rest, daemon=True).start()
time.sleep(1000)
"""
CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def named() -> Iterator[subprocess.Popen[str]]:
    """Yield a process with names that are not UTF-8, and look like other lines of the kernel's files."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", NAMED], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def typed(folder: Path, *words: object) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [GDBMEM, *map(str, words)], cwd=folder, capture_output=True, timeout=60, check=False
    )
    said = done.stdout + done.stderr
    assert b"report this" not in said and b"\xff" not in said and b"\x1b" not in said, said
    return done


def test_a_name_that_is_no_utf_8_ends_no_recording_and_no_page(
    named: subprocess.Popen[str], scratch: Path
) -> None:
    done = typed(scratch, "monitor", "-q", "--for", "1s", "--run", "run", named.pid)
    assert done.returncode == 0, done.stderr
    with contextlib.closing(Recording(scratch / "run")) as recording:
        assert [line.name for line in recording.lines] == ["\\udcff\\udcfe)\n R 1 ("]
    assert typed(scratch, "report", "run", "-o", "page.html").returncode == 0
    assert json.loads(typed(scratch, "show", "--json", "run").stdout)["kind"] == "series"


def test_a_name_that_is_no_utf_8_hides_no_thread(named: subprocess.Popen[str]) -> None:
    threads = {int(path.name) for path in Path(f"/proc/{named.pid}/task").iterdir()}
    assert len(threads) == 2
    assert activities(named.pid).keys() == faults_by_thread(named.pid).keys() == threads
    assert not is_ending(named.pid)
    assert {own_tid(named.pid, tid) for tid in threads} == threads


@pytest.mark.needs("gdb")
@pytest.mark.parametrize(
    "words",  # explain without an option goes one of the next two ways
    [
        pytest.param(("explain",), marks=pytest.mark.thorough),
        ("explain", "--hold"),
        ("explain", "--fork"),
        ("snap",),
    ],
)
def test_a_process_with_odd_names_is_looked_at(
    words: tuple[str, ...], named: subprocess.Popen[str], scratch: Path
) -> None:
    done = typed(scratch, *words, named.pid)
    if words == ("snap",):
        assert done.returncode == 1 and b"has no heap profiler" in done.stderr, done.stderr
    else:
        assert done.returncode == 0 and b"resident" in done.stdout, done.stderr
    assert named.poll() is None


MAPPED = """
import mmap, sys, time
file = open(sys.argv[1], "rb")
kept = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
print("ready", flush=True)
time.sleep(1000)
"""


@pytest.mark.needs("gdb")
@pytest.mark.parametrize(
    ("size", "count"),
    cover([(0, 1), (1, 65535), (55, 2), (65535, 65535)], lambda size, _: size in (0, 65535)),
)
def test_a_mapped_file_with_an_odd_elf_header_ends_nothing(size: int, count: int, scratch: Path) -> None:
    header = bytearray(4096)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 32, 64)
    struct.pack_into("<HH", header, 54, size, count)
    (scratch / "odd").write_bytes(header)
    words = [sys.executable, "-I", "-S", "-c", MAPPED, str(scratch / "odd")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            done = typed(scratch, "explain", process.pid)
            assert done.returncode == 0 and b"resident" in done.stdout, done.stderr
        finally:
            process.kill()


# -- cgroups -----------------------------------------------------------------------------------------------

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a cgroup")


@contextlib.contextmanager
def in_cgroup(*names: str) -> Iterator[int]:
    """Yield the pid of a process in a memory cgroup of such names."""
    above = CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS
    made = []
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            for name in names:
                above = above / name
                above.mkdir()
                made.append(above)
            (above / "cgroup.procs").write_text(str(process.pid))
            yield process.pid
        except PermissionError as error:
            pytest.skip(f"no memory cgroup can be made here: {error.strerror}")
        finally:
            process.kill()
            process.wait()
            for folder in reversed(made):
                with contextlib.suppress(OSError):
                    folder.rmdir()


def cgroup_of(pid: int, *before: str) -> str:
    code = f"from gdbmem.linux.monitoring.cgroup import cgroup_of; print(ascii(str(cgroup_of({pid}))))"
    done = subprocess.run(
        [*before, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
        cwd="/",
    )
    return done.stdout.strip() or done.stderr


@needs_root
def test_a_cgroup_whose_name_is_no_utf_8_is_found(scratch: Path) -> None:
    with in_cgroup(f"gdbmem-test-{os.getpid()}-\udcff") as pid:
        assert cgroup_of(pid).endswith("-\\udcff'")
        assert typed(scratch, "monitor", "-q", "--for", "500ms", "--run", "run", pid).returncode == 0


@needs_root
@pytest.mark.needs("unshare")
def test_the_path_of_a_cgroup_outside_ours_leads_to_no_file_of_anybodys(scratch: Path) -> None:
    # Seen from a namespace of cgroups three deeper, its path is /../../../tmp/…: not one below /sys/fs.
    trap = scratch.resolve()
    for name in ("memory.current", "memory.usage_in_bytes"):
        (trap / name).write_text("1")
    with in_cgroup(*trap.parts[1:]) as pid, in_cgroup(f"gdbmem-{os.getpid()}", "b", "c") as ours:
        enter = f'echo $$ > /proc/{ours}/root$1/cgroup.procs; shift; exec unshare -C "$@"'
        place = Path(cgroup_of(ours).strip("'"))
        found = cgroup_of(pid, "sh", "-c", enter, "sh", str(place))
    assert found == "'None'", found


# -- an early death ------------------------------------------------------------------------------------------

KILLED = """
import os, sys
from pathlib import Path
from gdbmem.launch import attached, job
from gdbmem.launch.child import runtime_folder
from gdbmem.launch.vgdb import Sentinel

with Sentinel() as sentinel, runtime_folder(Path("/"), tell=sentinel.remove) as folder:
    print(folder, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_the_runtime_folder_of_a_launcher_that_is_killed_at_once_goes_too(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    folder = Path(done.stdout.strip())
    assert folder.name.startswith("gdbmem-")
    until = time.monotonic() + SECONDS
    while folder.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not folder.exists()
