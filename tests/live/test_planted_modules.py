"""A current folder of another user: only files that the command line names are executed or obeyed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.live.test_memexplain import gdb
from tests.live.user import GDBMEM, at_terminal, environment

pytestmark = [pytest.mark.needs("gdb", "valgrind"), pytest.mark.usefixtures("no_process_left")]

PLANTED = "import os\nopen(os.environ['GDBMEM_TEST_PLANTED'], 'a').write(__name__ + '\\n')\n"
MODULES = ("numpy", "functools", "ctypes", "json", "gdbmem", "pip", "mmap")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fill the current folder with modules that record that they were run; return the file of these records."""
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(PLANTED)
    said = tmp_path / "said"
    monkeypatch.setenv("GDBMEM_TEST_PLANTED", str(said))
    return said


def test_memexplain_runs_no_code_from_the_current_folder(
    program: Program, tmp_path: Path, planted: Path, own_cache: Path
) -> None:
    done = gdb(
        tmp_path,
        program("heap_known"),
        "break read",
        "run pairs 2 </dev/zero",
        "memexplain",
        "memwatch sources",
    )
    assert "live" in done.stdout, done.stderr
    assert not planted.exists(), planted.read_text()


@pytest.mark.parametrize("words", [("doctor",), ("explain", str(os.getpid())), ("install", "--auto-load")])
def test_a_command_runs_no_code_from_the_current_folder(
    words: tuple[str, ...], tmp_path: Path, planted: Path
) -> None:
    subprocess.run([GDBMEM, *words], cwd=tmp_path, env=environment(), capture_output=True, check=False)
    assert not planted.exists(), planted.read_text()


def test_what_a_monitor_starts_runs_no_code_from_the_current_folder(tmp_path: Path, planted: Path) -> None:
    words = ["--run", "run", "--interval", "100ms", "--when", "rss > 1KiB", "--do", "explain", "--grow"]
    # One process, not a shell that forks: a trigger may name a child that has ended when it is explained.
    waits = "import os, time\nwhile not os.path.exists(said) or not os.path.getsize(said): time.sleep(0.1)"
    waits = f"said = 'run/triggers/0001/explain.txt'\n{waits}"
    done = subprocess.run(
        [GDBMEM, "monitor", *words, "--", "timeout", "300", sys.executable, "-I", "-c", waits],
        cwd=tmp_path, env=environment(), capture_output=True, check=True,
    )  # fmt: skip
    assert not planted.exists(), planted.read_text()
    assert b"resident" in (tmp_path / "run/triggers/0001/explain.txt").read_bytes(), done.stdout


def test_memgrow_runs_no_code_from_the_current_folder(
    program: Program, tmp_path: Path, planted: Path
) -> None:
    done = gdb(tmp_path, program("touches_pages"), "break main", "run", "memgrow --for 1s")
    assert not planted.exists(), planted.read_text()
    assert "page faults" in done.stdout + done.stderr


def test_a_launch_obeys_the_users_valgrindrc_and_not_the_one_of_the_current_folder(
    program: Program, tmp_path: Path, private_home: Path
) -> None:
    (tmp_path / ".valgrindrc").write_text("--massif:threshold=99\n--sim-hints=there-is-no-such-hint\n")
    (private_home / ".valgrindrc").write_text("--massif:depth=3\n--max-stackframe=3000000\n")
    (tmp_path / "leak.yaml").write_text(
        f"program: {program('leaky_map')}\npoints: [{{at: main, name: begun}}]\n"
    )
    done = subprocess.run([GDBMEM, "launch", "--recipe", "leak.yaml", "--run", "run"], cwd=tmp_path,
                          env=environment(VALGRIND_OPTS="--massif:max-snapshots=20"), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    [history] = (tmp_path / "run").glob("massif.*")
    options = history.read_text().partition("\ncmd:")[0]
    assert "--depth=3" in options and "--max-snapshots=20" in options
    assert "--threshold=99" not in options


def test_gdb_obeys_no_script_of_the_current_folder_or_beside_the_program(
    program: Program, tmp_path: Path, private_home: Path
) -> None:
    binary = tmp_path / "program"
    shutil.copy(program("changes_its_list"), binary)
    said = tmp_path / "said"
    for name in (".gdbinit", "program-gdb.gdb"):
        (tmp_path / name).write_text(f"shell echo {name} >> {said}\n")
    for name in ("program-gdb.py", "sitecustomize.py", "usercustomize.py"):
        (tmp_path / name).write_text(f"open({str(said)!r}, 'a').write({name!r})\n")
    with at_terminal([GDBMEM, "launch", "--engine", "none", "./program"], tmp_path) as user:
        user.prompt()
        assert "main" in user.type("info symbol main")
        user.quit()
    with subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/") as process:
        try:
            with at_terminal([GDBMEM, "attach", str(process.pid)], tmp_path) as user:
                user.prompt()
                assert "main" in user.type("info symbol main")
                user.quit()
            subprocess.run([GDBMEM, "snap", str(process.pid)], cwd=tmp_path, env=environment(), check=False)
        finally:
            process.kill()
    assert not said.exists(), said.read_text()
