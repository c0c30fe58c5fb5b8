"""Traps that a process and its user set for its inspector: no data of others is read, written or waited for.

docs/reliability.md has the table. GDBMEM_TRIES is how often a race is run; from 1,000 on each attack is made by itself.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Callable

import pytest

import gdbmem
from gdbmem.errors import TargetError
from gdbmem.linux.files.target_files import TargetFiles, TargetSide
from tests.conftest import Program
from tests.live.roots import AS_MALLORY, MALLORY, contained, make_root
from tests.live.test_own_roots import mount_over, ready
from tests.live.user import GDBMEM, environment, skip_where_others_cannot_run_gdbmem

pytestmark = [
    pytest.mark.needs("gdb", "gcc", "setpriv", "unshare"),
    pytest.mark.usefixtures("no_process_left"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has somebody else to be"),
]

TRIES = int(os.environ.get("GDBMEM_TRIES", "100"))
SECRET = b"SECRET of root"
_MAIN = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); from gdbmem.cli.main import main; sys.exit(main())"


@pytest.fixture
def secret(scratch: Path) -> Path:
    """Return a file that root alone may read."""
    scratch.chmod(0o755)
    path = scratch / "secret"
    path.write_bytes(SECRET * 500)
    path.chmod(0o600)
    return path


def looked_at_by(who: str, folder: Path, *words: object) -> subprocess.CompletedProcess[bytes]:
    """Return what gdbmem with *words* came to, typed by root or by the user whose process it is."""
    command = [GDBMEM]
    if who == "its user":
        skip_where_others_cannot_run_gdbmem()
        python = f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
        if not os.access(python, os.X_OK):
            pytest.skip(f"no {python}, which every user can execute")
        packages = [
            str(Path(gdbmem.__file__).parent.parent),
            *(path for path in sys.path if "site-packages" in path),
        ]
        command = [*AS_MALLORY, python, "-I", "-c", _MAIN, ":".join(packages)]
        os.chown(folder, MALLORY, MALLORY)
    changes = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    return subprocess.run(
        [*command, *map(str, words)], cwd=folder, env=environment(**changes), capture_output=True,
        timeout=100, check=False,
    )  # fmt: skip


# -- in place of the files that are loaded ----------------------------------------------------------------


def vast(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def endless_tables(path: Path) -> None:
    """An ELF file with 65,535 symbol tables, each of the file's 1 TiB."""
    head = bytearray(64)
    head[:20] = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x3e\x00"
    head[40:48], head[58:62] = (64).to_bytes(8, "little"), b"\x40\x00\xff\xff"
    table = bytearray(64)
    table[4:8], table[32:40] = b"\x02\x00\x00\x00", (1 << 39).to_bytes(8, "little")
    path.write_bytes(bytes(head) + bytes(table) * 0xFFFF)
    os.truncate(path, 1 << 40)


OVER: dict[str, Callable[[Path], object]] = {
    "a fifo": os.mkfifo,
    "a device": lambda path: os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5)),
    "a file of 1 TiB": vast,
    "an ELF file of endless tables": endless_tables,
    "a file of root's": lambda path: path.write_bytes(SECRET * 500),
}


@pytest.mark.parametrize("who", ["root", "its user"])
@pytest.mark.parametrize("what", OVER if TRIES >= 1000 else ["one of each"])
def test_what_is_mounted_over_the_files_of_a_process_is_neither_waited_for_nor_read(
    what: str, who: str, program: Program, scratch: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = make_root(scratch / "root", program("block_types", "-fno-rtti"))
    files = [f"/{path.relative_to(root)}" for path in root.rglob("*") if path.is_file()]
    made = []
    for number, (kind, make) in enumerate(OVER.items()):
        if what in (kind, "one of each"):
            made.append(f"/tmp/over{number}")
            make(root / made[-1][1:])
            (root / made[-1][1:]).chmod(0o600 if kind.endswith("root's") else 0o666)
    folder = scratch / "here"
    folder.mkdir()
    with contained("a user's", root, "wait") as (outer, pid):
        ready(outer)
        for over, file in zip(itertools.cycle(made), files):
            mount_over(pid, over, file)
        for words in (("explain", "--types", pid), ("snap", pid)):
            done = looked_at_by(who, folder, *words)
            assert done.returncode in (0, 1) and b"report this" not in done.stderr, done.stderr
            assert SECRET not in done.stdout + done.stderr
            assert words[0] == "snap" or b"resident" in done.stdout, done.stderr
        assert outer.poll() is None
    assert not any(SECRET in path.read_bytes() for path in folder.rglob("*") if path.is_file())


# -- races ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def changing(path: Path, secret: Path) -> Iterator[None]:
    """Put one thing after the other in the place of *path*, without end."""
    above = path.parent
    names = []
    ways: list[Callable[[Path], object]] = [
        lambda one: one.write_bytes(b"mallory's"), os.mkfifo, lambda one: one.symlink_to(secret), Path.mkdir, vast,
        lambda one: one.symlink_to(f"/proc/{os.getpid()}/root{secret}"),
    ]  # fmt: skip
    for number, make in enumerate(ways):
        make(above / str(number))
        names.append(above / str(number))
        os.chown(names[-1], MALLORY, MALLORY, follow_symlinks=False)
    ended = threading.Event()

    def change() -> None:
        for name in itertools.cycle(names):
            if ended.is_set():
                return
            with contextlib.suppress(OSError):
                (path.rmdir if path.is_dir() and not path.is_symlink() else path.unlink)()
            with contextlib.suppress(OSError):
                name.rename(path)
                path.rename(name) if name.name in "13" else os.link(path, name, follow_symlinks=False)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_no_race_for_a_name_gives_what_its_user_may_not_read(secret: Path, scratch: Path) -> None:
    own = scratch / "own"
    own.mkdir()
    os.chown(own, MALLORY, MALLORY)
    path = own / "file"
    right = 0
    with subprocess.Popen([*AS_MALLORY, "sleep", "1000"], cwd="/") as target:
        try:
            while os.readlink(f"/proc/{target.pid}/exe").endswith("setpriv"):  # noqa: PTH115
                pass
            with TargetSide(target.pid) as side, TargetFiles(target.pid) as files, changing(path, secret):
                deadline = (
                    time.monotonic() + 60
                )  # on a busy machine the right file is there only now and then
                tries = 0
                while tries < TRIES or (not right and time.monotonic() < deadline):
                    tries += 1
                    for way in (by_descriptor, by_copy, by_pieces):
                        with contextlib.suppress(TargetError, OSError):
                            data = way(side, files, str(path))
                            assert not data.strip(b"\0").replace(b"mallory's", b""), data[:40]
                            right += data == b"mallory's"
        finally:
            target.kill()
    assert secret.read_bytes() == SECRET * 500 and secret.stat().st_uid == 0
    assert right, "the right file was never met"


def by_descriptor(side: TargetSide, files: TargetFiles, path: str) -> bytes:
    with open(side.open(path), "rb") as stream:  # noqa: PTH123  (a descriptor)
        return stream.read(1000)


def by_copy(side: TargetSide, files: TargetFiles, path: str) -> bytes:
    stream = BytesIO()
    side.copy(path, stream)
    return stream.getvalue()


def by_pieces(side: TargetSide, files: TargetFiles, path: str) -> bytes:
    with files.open(path) as stream:
        return stream.read(1000)


# -- names ------------------------------------------------------------------------------------------------


NAMES = ["n\npython open('pwned','w')", "x;!touch pwned", 'q"q', "-ex=quit", "a b", "é\x1b[2J"]


@pytest.mark.parametrize("name", NAMES if TRIES >= 1000 else NAMES[:2])
def test_a_programs_name_is_no_command_of_gdbs(
    name: str, program: Program, scratch: Path, tmp_path: Path
) -> None:
    root = make_root(scratch / "root", program("block_types"))
    (root / "app/program").rename(root / "app" / name)
    (root / "app/program").symlink_to(name)
    with contained("a user's", root, "wait", name=name) as (outer, pid):
        ready(outer)
        done = looked_at_by("root", tmp_path, "snap", pid)
        assert b"has no heap profiler" in done.stderr and b"\x1b" not in done.stderr, done.stderr
    assert list(tmp_path.rglob("pwned")) == []
