"""gdbmem.api as a script uses it: the examples of docs/api.md, and that nothing is printed."""

from __future__ import annotations

import ast
import doctest
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest

import gdbmem.api
from gdbmem.api import __all__ as names

ROOT = Path(__file__).parents[2]
CAPTURES = ROOT / "tests" / "captures"


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder with the files that the page names."""
    for name, capture in {
        "massif.out.4711": "massif/shop.massif.gz",
        "before.pb.gz": "stacks/go1.pb.gz",
        "after.pb.gz": "stacks/go2.pb.gz",
    }.items():
        shutil.copy(CAPTURES / capture, tmp_path / name)
    recorded = json.loads((CAPTURES / "series" / "slow_leak.json").read_text())
    rows = [f"{t},{value}" for t, value in zip(recorded["times"], recorded["values"])]
    (tmp_path / "memory.csv").write_text("\n".join(["seconds,rss_bytes", *rows, ""]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_examples_of_the_page_give_what_it_shows(profiles: Path) -> None:
    found = doctest.testfile(str(ROOT / "docs" / "api.md"), module_relative=False)
    assert found.attempted > 20
    assert found.failed == 0


def test_every_function_is_on_the_page() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    missing = [name for name in names if name[0].islower() and f"`{name}(" not in page]
    assert not missing


def test_every_name_is_there_typed_and_documented() -> None:
    for name in names:
        value = getattr(gdbmem.api, name)
        assert value.__doc__, name
        if name[0].islower():
            assert value.__annotations__.get("return"), name
    assert set(names) <= set(dir(gdbmem.api))
    with pytest.raises(AttributeError):
        _ = gdbmem.api.no_such_name


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(gdbmem.api.__file__ or "").read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        (f"{node.module}", alias.name)
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    table = {(f"gdbmem.{home}", name) for home, found in gdbmem.api._HOMES.items() for name in found}
    assert imported == table
    assert {name for _, name in table} == set(names)


def test_using_it_prints_nothing(profiles: Path) -> None:
    script = (
        "import os; from gdbmem import api\n"
        "api.rank(api.diff('before.pb.gz', 'after.pb.gz'))\n"
        "api.summarize('memory.csv'); api.compare(['memory.csv'], ['memory.csv'])\n"
        "api.export(api.read_snapshot('massif.out.4711'), 'csv')\n"
        "try: api.explain(os.getpid())\n"
        "except api.GdbmemError: pass\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=profiles, capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("", "")


def test_importing_it_loads_no_reader_of_processes() -> None:
    script = "import sys, gdbmem.api as api; api.open_profile; sys.exit('gdbmem.inspection' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


@pytest.mark.needs("gdb", "valgrind", "vgdb", "g++")
def test_a_recipe_that_a_script_runs_is_judged(
    program: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leak.yaml").write_text(
        f"program: {program('leaky_map')}\npoints:\n  - {{at: reset, name: reset}}\n"
        "expect:\n  - {between: [reset#1, reset], at_most: 10KiB}\n"
    )
    result = gdbmem.api.run_recipe(tmp_path / "leak.yaml", run=tmp_path / "run")
    assert capfd.readouterr() == ("", "")
    assert (result.passed, result.failure, result.status) == (False, "", 0)
    (verdict,) = result.verdicts
    before, after = gdbmem.api.read_snapshots([f"{result.run}:reset#1", f"{result.run}:reset"])
    assert (
        verdict.met is False and verdict.measured == gdbmem.api.diff(before, after).delta_bytes == 200 * 136
    )
