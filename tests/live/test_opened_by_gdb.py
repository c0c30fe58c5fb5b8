"""Files named to gdb by an untrusted process: none that blocks or acts is opened, and gdb continues."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable

import psutil
import pytest

from gdbmem.launch.doorkeeper import Doorkeeper
from tests.conftest import Program
from tests.cover import diagonals
from tests.live.test_attach import snap
from tests.live.test_target_side import MALLORY, copied, mallory
from tests.live.user import GDBMEM, at_terminal

pytestmark = [
    pytest.mark.needs("gdb", "gcc", "objcopy", "setpriv"),
    pytest.mark.usefixtures("no_process_left"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has somebody else to be"),
]

TRIES = int(os.environ.get("GDBMEM_TRIES", "40"))


# -- the ways to name a FIFO to gdb --------------------------------------------------------------------------


def in_its_list(folder: Path, binary: Path) -> tuple[str, ...]:
    os.mkfifo(folder / "fifo", 0o666)
    return (str(folder / "fifo"),)


def in_its_list_beyond_any_root(folder: Path, binary: Path) -> tuple[str, ...]:
    os.mkfifo(folder / "fifo", 0o666)
    return ("/.." * 12 + str(folder / "fifo"),)


def in_its_list_by_a_relative_path(folder: Path, binary: Path) -> tuple[str, ...]:
    os.mkfifo(folder / "fifo", 0o666)
    return ("../" * 12 + str(folder / "fifo")[1:],)


def as_its_dynamic_linker(folder: Path, binary: Path) -> tuple[str, ...]:
    """Make the section .interp name a FIFO; the kernel goes by the segment of that name."""
    os.mkfifo(folder / "fifo", 0o666)
    data = bytearray(binary.read_bytes())
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    texts = struct.unpack_from("<Q", data, table + size * names + 24)[0]
    for at in range(table, table + size * count, size):
        start = texts + struct.unpack_from("<I", data, at)[0]
        if data[start : start + 8] == b".interp\0":
            name = b"/.." * 12 + os.fsencode(folder / "fifo") + b"\0"
            struct.pack_into("<QQ", data, at + 24, len(data), len(name))
            data += name
    binary.write_bytes(data)
    return ()


def as_its_debug_information(folder: Path, binary: Path) -> tuple[str, ...]:
    library = folder / "libodd.so"
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", library], check=True)
    debug = folder / "libodd.debug"
    debug.touch()
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", library], check=True)
    debug.unlink()
    os.mkfifo(debug, 0o666)
    return ()


def as_a_script_of_a_library(folder: Path, binary: Path) -> tuple[str, ...]:
    library = folder / "libodd.so"
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", library], check=True)
    for end in ("-gdb.gdb", "-gdb.py"):
        os.mkfifo(f"{library}{end}", 0o666)
    return ()


def as_split_debug_information(folder: Path, binary: Path) -> tuple[str, ...]:
    source = Path(__file__).parent.parent / "programs" / "changes_its_list.c"
    subprocess.run(["gcc", "-g", "-gsplit-dwarf", "-o", binary, source], check=True, cwd=folder)
    for path in folder.glob("*.dwo"):
        path.unlink()
        os.mkfifo(path, 0o666)
    assert list(folder.glob("*.dwo"))
    return ()


WAYS: list[Callable[[Path, Path], tuple[str, ...]]] = [
    in_its_list, in_its_list_beyond_any_root, in_its_list_by_a_relative_path, as_its_dynamic_linker,
    as_its_debug_information, as_a_script_of_a_library, as_split_debug_information,
]  # fmt: skip


@pytest.mark.parametrize(("way", "command"), diagonals(WAYS, ["attach", "snap"], (0,)))
def test_no_fifo_that_a_strangers_process_names_keeps_gdb_waiting(
    way: Callable[[Path, Path], tuple[str, ...]],
    command: str,
    program: Program,
    scratch: Path,
    tmp_path: Path,
) -> None:
    scratch.chmod(0o755)
    folder = scratch / "mallory"
    folder.mkdir()
    binary = copied(program("changes_its_list"), folder)
    arguments = way(folder, binary)
    library = folder / "libodd.so"
    before = ("env", f"LD_PRELOAD={library}") if library.exists() else ()
    for path in (folder, *folder.iterdir()):
        os.chown(path, MALLORY, MALLORY)
    with mallory(binary, *arguments, before=before) as process:
        if command == "snap":
            began = time.monotonic()
            assert "has no heap profiler" in snap(tmp_path, process.pid).stderr
            assert time.monotonic() - began < 100, "gdb was not ended for having opened it"
        else:
            with at_terminal([GDBMEM, "attach", str(process.pid)], tmp_path) as user:
                user.prompt()
                user.type("info symbol main")  # of split debug information gdb has no more than an error
                user.type("info line main")
                assert "42" in user.type("print 6 * 7")
                user.quit()
        assert process.poll() is None
        Path(f"/proc/{process.pid}/status").read_text().index("TracerPid:\t0")


# -- the doorkeeper itself -----------------------------------------------------------------------------------


def opened(*words: str) -> subprocess.CompletedProcess[str]:
    """Run *words* as gdb is run."""
    with Doorkeeper(Path("/nothing"), lambda name: None) as doorkeeper:
        return subprocess.run(
            words, preexec_fn=doorkeeper.before_exec, capture_output=True, text=True, timeout=60, check=False, cwd="/"
        )  # fmt: skip


def test_what_is_regular_is_opened_and_what_is_missing_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("right")
    (tmp_path / "link").symlink_to("file")
    code = f"import os; os.chdir({str(tmp_path)!r}); print(open('file').read(), open('link').read(), os.listdir('.'))"
    assert "right right" in opened(sys.executable, "-c", code).stdout
    assert "FileNotFoundError" in opened(sys.executable, "-c", "open('/nothing')").stderr
    mine = "import os; words = open('/proc/self/stat').read().split(); print(int(words[0]) == os.getpid())"
    assert opened(sys.executable, "-c", mine).stdout == "True\n", "its own files in /proc are its own"


@pytest.mark.parametrize(
    "name", ["/dev/tty", "/dev/kmsg", "/proc/kmsg", "/proc/self/fd/0", "/proc/self/ns/mnt", "fifo"]
)
def test_what_waits_or_acts_is_not(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    path = tmp_path / name if name == "fifo" else name
    assert "PermissionError" in opened(sys.executable, "-c", f"open({str(path)!r})").stderr


def test_no_race_for_a_name_keeps_it_waiting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("right")
    os.mkfifo(tmp_path / "fifo")
    path, ended = tmp_path / "path", threading.Event()

    def change() -> None:
        while not ended.is_set():
            for kind in ("file", "fifo"):
                (tmp_path / "new").symlink_to(kind)
                (tmp_path / "new").rename(path)

    # A changer that waits for the processor may leave the name as it is for a thousand tries.
    code = f"""
import time
met, tries, until = set(), 0, time.monotonic() + 30
while tries < {max(TRIES, 1000)} or (len(met) < 2 and time.monotonic() < until):
    tries += 1
    try:
        met.add(open({str(path)!r}).read())
    except OSError as error:
        met.add(type(error).__name__)
print(sorted(met))
"""
    thread = threading.Thread(target=change)
    thread.start()
    try:
        done = opened(sys.executable, "-c", code)
    finally:
        ended.set()
        thread.join()
    assert "'right'" in done.stdout and "'PermissionError'" in done.stdout, done.stdout + done.stderr


def test_an_opener_of_files_may_be_killed_at_any_time_and_gdb_opens_them_as_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("right")
    code = f"""
import sys, time
until = time.monotonic() + 1.5
print("begun", flush=True)
while time.monotonic() < until:
    assert open({str(tmp_path / "file")!r}).read() == "right"
print("ended")
"""
    killed = 0
    with Doorkeeper(Path("/nothing"), lambda name: None) as doorkeeper:
        words = [sys.executable, "-c", code]
        with subprocess.Popen(
            words, preexec_fn=doorkeeper.before_exec, stdout=subprocess.PIPE, text=True
        ) as opener:
            assert opener.stdout is not None and opener.stdout.readline() == "begun\n"
            while opener.poll() is None:
                serving = [
                    child
                    for keeper in psutil.Process().children()
                    for child in keeper.children()
                    if keeper.pid != opener.pid
                ]
                for child in serving:
                    with contextlib.suppress(psutil.Error):
                        child.kill()
                        killed += 1
                time.sleep(0.05)
            assert opener.stdout.read() == "ended\n"
    assert killed > 1


def test_a_process_is_let_go_though_the_doorkeeper_was_killed(
    program: Program, scratch: Path, tmp_path: Path
) -> None:
    scratch.chmod(0o755)
    binary = copied(program("changes_its_list"), scratch)
    os.chown(binary, MALLORY, MALLORY)
    with mallory(binary) as process:
        with at_terminal([GDBMEM, "attach", str(process.pid)], tmp_path) as user:
            user.prompt()
            launcher = psutil.Process(user.pid)
            helpers = [child for child in launcher.children(recursive=True) if child.name() != "gdb"]
            for helper in helpers:
                with contextlib.suppress(psutil.Error):
                    links = [path.readlink().name for path in Path(f"/proc/{helper.pid}/fd").iterdir()]
                    if any("seccomp" in link for link in links):
                        os.kill(helper.pid, signal.SIGKILL)
                        break
            else:
                raise AssertionError("no doorkeeper was found")
            user.quit()
        assert process.poll() is None
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "TracerPid:\t0" in status and "State:\tS" in status, status
