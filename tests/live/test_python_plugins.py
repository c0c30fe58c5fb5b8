"""gdbmem's pytest mark and notebook magic, as their users type them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any, Callable

import pytest

from gdbmem.notebook import load_ipython_extension

TESTS = """
import pytest, unittest
kept = []
def keep(size):
    kept.append(bytearray(size))
@pytest.mark.gdbmem(at_most="1MiB", repeat=4)
def test_leaks():
    keep(5 << 20)
@pytest.mark.gdbmem(at_most="1MiB", repeat=4)
def test_keeps_nothing(tmp_path):
    assert len(bytearray(5 << 20)) and tmp_path.is_dir()
@pytest.mark.gdbmem(at_most="1KiB", repeat=4, backend="tracemalloc")
def test_leaks_little():
    keep(3000)
@pytest.mark.gdbmem(at_most="100 B", repeat=4, backend="tracemalloc")
def test_only_the_first_call_keeps():
    if not kept_once: kept_once.append(bytearray(1 << 20))
kept_once = []
@pytest.mark.gdbmem(at_most="much")
def test_wrong_size(): pass
@pytest.mark.gdbmem(at_most="1MiB", repeat=1)
def test_wrong_number(): pass
@pytest.mark.gdbmem("1MiB")
def test_wrong_words(): pass
@pytest.mark.gdbmem(at_most="1MiB")
def test_fails_by_itself(): assert 1 == 2
def test_unmarked(): pass
@pytest.mark.gdbmem(at_most="1MiB")
async def test_never_awaited(): keep(5 << 20)
class TestOfUnittest(unittest.TestCase):
    @pytest.mark.gdbmem(at_most="1MiB")
    def test_leaks_in_a_method(self): keep(5 << 20)
    def test_unmarked_method(self): pass
"""


def test_marked_tests_fail_where_their_calls_keep_memory_and_name_the_path(tmp_path: Path) -> None:
    (tmp_path / "test_memory.py").write_text(TESTS)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "gdbmem.api.pytest_plugin",
        "-q",
        "--strict-markers",
        "-rA",
    ]
    done = subprocess.run(
        [*words, "test_memory.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    outcomes = dict(
        line.split(" ")[1::-1] for line in done.stdout.splitlines() if line.startswith(("PASSED ", "FAILED "))
    )
    passed = {name.rpartition("::")[2] for name, outcome in outcomes.items() if outcome == "PASSED"}
    assert passed == {
        "test_keeps_nothing",
        "test_only_the_first_call_keeps",
        "test_unmarked",
        "test_unmarked_method",
    }, done.stdout
    assert "each call adds +5.0 MiB ± " in done.stdout
    assert "more than 1.0 MiB" in done.stdout
    assert "+5.0 MiB a call in " in done.stdout
    assert re.search(r"test_memory\.py:5 ← \S*test_memory\.py:8$", done.stdout, re.M)
    assert "an async function is not judged" in done.stdout
    assert "methods of unittest.TestCase are not judged" in done.stdout
    assert "repeat is a number of calls from 2 on" in done.stdout
    assert "write @pytest.mark.gdbmem(at_most='1MiB'" in done.stdout
    assert "assert 1 == 2" in done.stdout


class Shell:
    """The parts of IPython's shell that the extension uses."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self.magics: dict[str, Callable[[str, str], None]] = {}

    def register_magic_function(self, function: Callable[[str, str], None], kind: str, name: str) -> None:
        assert kind == "cell"
        self.magics[name] = function


def open_statms() -> list[str]:
    files = [str(one.resolve()) for one in Path("/proc/self/fd").iterdir()]
    return [file for file in files if file.endswith("/statm")]


def test_a_cell_shows_its_lines_and_those_of_named_functions(capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell()
    load_ipython_extension(shell)
    before = open_statms()
    cell = "def fill(n):\n    return bytearray(n << 20)\nkept = fill(6)\nmore = fill(2)\n"
    shell.magics["memlines"]("--backend tracemalloc --function fill", cell)
    shown = capsys.readouterr().out
    assert len(shell.user_ns["kept"]) == 6 << 20
    rows = {line[52:].strip(): line[:52].split() for line in shown.splitlines()}
    assert not tracemalloc.is_tracing(), "all that is typed afterwards would be far slower"
    assert rows["kept = fill(6)"][3].startswith("6.00")
    assert rows["return bytearray(n << 20)"][-1] == "2"
    assert "fill: 8.00" in shown
    shell.magics["memlines"]("--backend nothing", cell)
    assert "invalid choice" in capsys.readouterr().out
    with pytest.raises(ZeroDivisionError):
        shell.magics["memlines"]("", "1 / 0")
    assert "1 / 0" in capsys.readouterr().out
    assert open_statms() == before
    assert sys.gettrace() is None or "coverage" in sys.modules
