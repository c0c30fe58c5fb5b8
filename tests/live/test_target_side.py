"""root's snap of an untrusted process: its traps can damage at most its own files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdbmem.linux.files.target_files import TargetSide
from gdbmem.linux.process.process import stat_of
from tests.conftest import Program
from tests.cover import diagonals
from tests.libraries import needs_library
from tests.live.test_attach import PRELOADS, Served, served, snap
from tests.live.user import SECONDS, environment

pytestmark = [
    pytest.mark.needs("gdb", "gcc", "setpriv", "unshare"),
    pytest.mark.usefixtures("no_process_left"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has somebody else to be"),
]

MALLORY = 65531
TRIES = int(os.environ.get("GDBMEM_TRIES", "40"))
AS_MALLORY = ["setpriv", f"--reuid={MALLORY}", f"--regid={MALLORY}", "--clear-groups"]


@pytest.fixture
def victim(scratch: Path) -> Path:
    """Return a folder that only root may enter, with a file in it."""
    scratch.chmod(0o755)
    folder = scratch / "victim"
    folder.mkdir(mode=0o700)
    (folder / "secret.0001.heap").write_text("root's")
    (folder / "secret.0001.heap").chmod(0o600)
    return folder


def unharmed(victim: Path) -> bool:
    facts = victim.stat()
    return (facts.st_uid, facts.st_mode & 0o777) == (0, 0o700) and [
        path.read_text() for path in victim.iterdir()
    ] == ["root's"]


def folders_there() -> list[str]:
    """Return the folders of gdbmem's that are left in /tmp; other tests make some, which go."""
    until = time.monotonic() + 15
    while True:
        found = []
        for path in Path("/tmp").glob("gdbmem-*"):
            with contextlib.suppress(FileNotFoundError):
                found += [path.name] if path.stat().st_uid == MALLORY else []
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)


def copied(binary: Path, folder: Path) -> Path:
    """Return a copy of *binary* that everybody may execute."""
    copy = folder / binary.name
    copy.write_bytes(binary.read_bytes())
    copy.chmod(0o755)
    return copy


@contextlib.contextmanager
def mallory(*words: object, before: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """Yield the process of *words*, which has printed that it is ready."""
    with subprocess.Popen(
        [*AS_MALLORY, *before, *map(str, words)], stdout=subprocess.PIPE, text=True, env=environment(),
        cwd="/",
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def test_a_folder_mounted_over_what_root_makes_there_is_neither_emptied_nor_given_away(
    victim: Path, program: Program, tmp_path: Path, scratch: Path
) -> None:
    binary = copied(program("binds_over_tmp"), scratch)
    with mallory(binary, victim, before=("unshare", "-Urm")) as process:
        for _ in range(2):
            assert "has no heap profiler" in snap(tmp_path, process.pid).stderr
        assert process.poll() is None
    assert unharmed(victim) and folders_there() == []


def test_mallory_wins_no_race_for_the_folder(victim: Path, program: Program, scratch: Path) -> None:
    with mallory(copied(program("binds_over_tmp"), scratch), victim, before=("unshare", "-Urm")) as process:
        for _ in range(TRIES):
            with TargetSide(process.pid) as side, contextlib.suppress(Exception):
                side.make_folder()
    assert unharmed(victim) and folders_there() == []


@pytest.mark.parametrize(
    "way", ["its path", "a link", "a link on the way", "a folder", "a fifo", "a vast file"]
)
def test_a_file_that_the_programs_memory_names_is_only_what_its_user_could_read(
    way: str, program: Program, victim: Path, tmp_path: Path, scratch: Path
) -> None:
    own = scratch / "mallory"
    own.mkdir()
    named = own / "x.0001.heap"
    if way == "its path":
        named = victim / "secret.0001.heap"
    elif way == "a link":
        named.symlink_to(victim / "secret.0001.heap")
    elif way == "a link on the way":
        (own / "link").symlink_to(victim)
        named = own / "link" / "secret.0001.heap"
    elif way == "a folder":
        named.mkdir()
    elif way == "a fifo":
        os.mkfifo(named)
    else:
        named.touch()
        os.truncate(named, 1 << 40)
    for path in (own, *own.iterdir()):
        os.chown(path, MALLORY, MALLORY, follow_symlinks=False)
    binary = copied(program("fake_profiler", "-rdynamic"), scratch)
    with mallory(binary, named) as process:
        done = snap(tmp_path, process.pid)
        refused = ("can't be reached with its own rights", "wrote no heap profile to")
        assert done.returncode == 1 and any(words in done.stderr for words in refused), done.stderr
        assert process.poll() is None
    assert unharmed(victim)
    assert list(tmp_path.rglob("*.heap")) == [], "nothing of it has come into the run"


@pytest.mark.parametrize(
    ("engine", "before"), diagonals(["gperftools", "jemalloc"], [("unshare", "-Urm"), ()], (0,)), ids=str
)
def test_root_takes_right_snapshots_of_another_users_process(
    engine: str, before: tuple[str, ...], program: Program, scratch: Path, tmp_path: Path
) -> None:
    needs_library(engine)
    with strangers(program, scratch, engine, *before) as process:
        first = snap(tmp_path, process.pid, "before")
        assert first.returncode == 0, first.stderr
        process.grow(200)
        second = snap(tmp_path, process.pid, "after")
        assert "since before" in second.stdout, second.stderr
        assert list((scratch / "home").iterdir()) == [], "the dumps that root asked for went into its run"
        assert process.end() == 7
    (run,) = tmp_path.glob("gdbmem.*")
    assert all(path.stat().st_uid == 0 for path in run.rglob("*"))


@contextlib.contextmanager
def strangers(program: Program, scratch: Path, engine: str, *before: str) -> Iterator[Served]:
    scratch.chmod(0o755)
    binary, home = copied(program("grows_when_asked"), scratch), scratch / "home"
    home.mkdir()
    os.chown(home, MALLORY, MALLORY)
    with served(lambda name: binary, home, PRELOADS[engine], *AS_MALLORY, *before) as process:
        yield process


def test_the_folder_there_goes_also_when_the_launcher_is_killed() -> None:
    with subprocess.Popen([*AS_MALLORY, "sleep", "60"]) as target:
        while Path(f"/proc/{target.pid}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        code = (
            f"import os; from gdbmem.linux.files.target_files import TargetSide; side = TargetSide({target.pid});"
            "side.make_folder(); print(side._child, flush=True); os.kill(os.getpid(), 9)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        helper = int(done.stdout)
        deadline = time.monotonic() + SECONDS
        while (stat_of(helper) is not None or folders_there()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert folders_there() == []
        target.kill()


def test_the_folder_there_goes_also_when_the_helper_is_killed() -> None:
    with mallory("/usr/bin/env", "sh", "-c", "echo ready; exec sleep 60") as process:
        with TargetSide(process.pid) as side:
            folder = Path(side.make_folder())
            (folder / "file").write_text("x")
            os.kill(side._child, signal.SIGKILL)
        assert not folder.exists()


def test_the_helper_has_the_rights_of_the_process_and_no_others() -> None:
    with subprocess.Popen(["sleep", "60"], user=MALLORY, group=MALLORY) as target:
        while Path(f"/proc/{target.pid}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        with TargetSide(target.pid) as side:
            status = Path(f"/proc/{side._child}/status").read_text()
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            assert fields["Uid"].split() == fields["Gid"].split() == [str(MALLORY)] * 4
            assert all(int(fields[name], 16) == 0 for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"))
            assert fields["NoNewPrivs"] == "1"
            assert Path(f"/proc/{side._child}/mem").stat().st_uid == 0, "its user may not look into it"
        target.kill()
