"""`gdbmem doctor` tries each thing itself, and prints the command to type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def doctor(*words: str, **variables: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "gdbmem.cli.main", "doctor", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        timeout=100,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def checks(**variables: str) -> tuple[int, dict[str, Any]]:
    status, output = doctor("--json", **variables)
    document = json.loads(output)
    assert (document["kind"], document["format_version"]) == ("doctor", 1)
    return status, {check["name"]: check for check in document["checks"]}


Found = tuple[int, dict[str, Any]]


@pytest.fixture(scope="module")
def here() -> Found:
    """Return what is found where everything is installed."""
    return checks()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Return what is found where PATH has nothing."""
    return checks(PATH=str(tmp_path_factory.mktemp("bare")))


@pytest.mark.needs("gdb", "valgrind", "vgdb")
def test_where_everything_is_installed_all_that_is_needed_is_ok(here: Found) -> None:
    status, found = here
    assert status == 0
    for name in ("gdb", "gdb's Python", "valgrind", "massif", "vgdb", "/proc", "runtime folder"):
        assert found[name]["ok"], found[name]
    version = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True).stdout
    assert found["valgrind"]["found"].startswith(version.strip().replace("valgrind-", ""))


@pytest.mark.needs("gdb", "valgrind", "vgdb")
def test_each_line_is_ok_or_states_what_to_type() -> None:
    status, output = doctor()
    assert status == 0
    lines = output.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "-"}
    assert any(
        line.startswith("-") and "source gdbmem" in line and "type: gdbmem install" in line for line in lines
    )


@pytest.mark.needs("gdb", "valgrind", "heaptrack")
def test_each_engine_is_tried_and_a_missing_one_is_no_failure(here: Found, bare: Found) -> None:
    _, found = here
    for name in ("massif", "memcheck", "dhat", "engine gperftools", "engine jemalloc", "engine heaptrack"):
        assert found[name]["ok"], found[name]
    missing = bare[1]["engine heaptrack"]
    assert (missing["ok"], missing["needed"]) == (False, False)
    assert "heaptrack" in missing["mend"] and "the whole run" in missing["without"]


def test_without_gdb_and_valgrind_the_status_is_3_and_the_packages_are_named(bare: Found) -> None:
    status, found = bare
    assert status == 3
    assert (found["gdb"]["ok"], found["valgrind"]["ok"]) == (False, False)
    assert "gdb" in found["gdb"]["mend"]
    assert "valgrind" in found["valgrind"]["mend"]


def checks_beside_a_valgrind_that_says(complaint: str, folder: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    fake = folder / "valgrind"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo valgrind-3.99.0 && exit\n'
        f"echo 'valgrind: {complaint}' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    return checks(PATH=f"{folder}:{os.environ['PATH']}")


@pytest.mark.needs("gdb")
def test_a_valgrind_whose_massif_does_not_run_is_found_out(tmp_path: Path) -> None:
    status, found = checks_beside_a_valgrind_that_says("failed to start tool massif", tmp_path)
    assert status == 3
    assert found["valgrind"]["found"].startswith("3.99.0")
    assert "failed to start tool massif" in found["massif"]["found"]


@pytest.mark.needs("gdb")
def test_a_stripped_loader_is_distinguished_from_a_broken_valgrind(tmp_path: Path) -> None:
    complaint = " Fatal error at startup: a function redirection"
    _, found = checks_beside_a_valgrind_that_says(complaint, tmp_path)
    assert found["massif"]["found"] == "ld.so has no symbols"


@pytest.mark.needs("gdb")
def test_an_installation_is_seen_and_packages_that_gdb_cannot_import_are_found_out(
    private_home: Path, tmp_path: Path
) -> None:
    from gdbmem.setup.gdb_packages import ensure_private_folder

    folder = ensure_private_folder()
    (folder / "pygments" / "util.py").write_text("raise ImportError('broken here')")
    (private_home / ".gdbinit").write_bytes(b"# >>> gdbmem >>>\ndirectory /x\n# <<< gdbmem <<<\n")
    _, found = checks_beside_a_valgrind_that_says("not tried here", tmp_path)
    assert found["packages for gdb"]["ok"] is False
    assert "broken here" in found["packages for gdb"]["found"]
    assert found["packages for gdb"]["mend"] == "type: gdbmem install"
    # gdb finds nothing there: that a line of the gdbinit names gdbmem proves nothing.
    assert found["source gdbmem"]["ok"] is False
    assert "No such file or directory" in found["source gdbmem"]["found"]


def test_the_report_can_go_to_a_file(tmp_path: Path) -> None:
    doctor("-o", str(tmp_path / "report"), PATH=str(tmp_path))
    assert "missing" in (tmp_path / "report").read_text()


def lines_without(folder: Path, **variables: str) -> dict[str, str]:
    """Return the lines that are not ok, by their check."""
    _, output = doctor(**variables)
    return {line[9:27].strip(): line for line in output.splitlines() if not line.startswith("ok")}


def test_each_missing_tool_states_what_it_costs_and_what_to_type(tmp_path: Path) -> None:
    found = lines_without(tmp_path, PATH=str(tmp_path))
    for name, lost in {
        "gdb": "no launch, attach or snap",
        "valgrind": "no launch --massif",
        "engine heaptrack": "no --engine heaptrack",
    }.items():
        assert f"without it {lost}" in found[name], found[name]
        assert "type: " in found[name] or "install" in found[name]


@pytest.mark.needs("gdb")
@pytest.mark.parametrize(
    ("module", "package", "lost"),
    [
        ("numpy", "numpy", "heaps are read slowly"),
        ("yaml", "pyyaml", "no recipes"),
        ("google", "protobuf", "pprof"),
    ],
)
def test_a_python_package_that_cannot_be_imported_is_a_line_with_its_command(
    module: str, package: str, lost: str, tmp_path: Path
) -> None:
    (tmp_path / f"{module}.py").write_text("raise ImportError('hidden here')")
    _, found = checks(PYTHONPATH=f"{tmp_path}:{ROOT}", PATH=str(tmp_path))
    check = found["Python packages"]
    assert not check["ok"] and f"{package}: hidden here" in check["found"]
    assert f"-m pip install {package}" in check["mend"] and lost in check["without"]


def test_a_command_whose_python_package_is_missing_states_what_to_type(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise ModuleNotFoundError(\"No module named 'yaml'\", name='yaml')")
    done = subprocess.run(
        [sys.executable, "-m", "gdbmem.cli.main", "recipe", "check", "x.yaml"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )
    assert done.returncode == 3
    assert (
        "the Python package pyyaml can't be imported" in done.stderr
        and "-m pip install pyyaml" in done.stderr
    )
    assert "report this as a bug" not in done.stderr


def test_a_gdb_without_python_is_named_with_the_package_that_has_one(tmp_path: Path) -> None:
    fake = tmp_path / "gdb"
    fake.write_text("#!/bin/sh\necho 'Python scripting is not supported in this copy of GDB.' >&2\nexit 1\n")
    fake.chmod(0o755)
    status, found = checks_beside_a_valgrind_that_says("not tried here", tmp_path)
    assert status == 3
    assert "Python scripting is not supported" in found["gdb"]["found"]
    assert "gdb-minimal" in found["gdb"]["mend"] and "no launch, attach or snap" in found["gdb"]["without"]
