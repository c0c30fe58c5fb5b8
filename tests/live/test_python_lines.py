"""`gdbmem python lines`: each change of memory in the line that made it, and sums that are the whole change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cover import diagonals
from tests.live.explaining import gdbmem
from tests.live.python_programs import pythons, short_name

MIB = 1 << 20

PROGRAM = """
import asyncio, os, sys, threading
@profile
def my_func():
    a = [1] * (10 ** 6)
    b = [2] * (2 * 10 ** 7)
    del b
    return a
@profile
def steps(n):
    for i in range(n):
        held = bytearray(MIB)
        yield held
def recurse(n):
    block = bytearray(MIB)
    if n:
        return [block, recurse(n - 1)]
    return [block]
@profile
def fails():
    kept.append(bytearray(3 * MIB))
    raise ValueError
@profile
async def waits():
    kept.append(bytearray(2 * MIB))
    await asyncio.sleep(0)
    kept.append(bytearray(MIB))
@profile
def forked():
    kept.append(bytearray(4 * MIB))
MIB, kept = 1 << 20, []
kept.append(my_func())
for one in steps(5):
    kept.append(one)
    kept.append(bytearray(7 * MIB))  # between two steps: not the generator's
kept.append(recurse(4))
try: fails()
except ValueError: pass
async def both(): await asyncio.gather(waits(), waits())
asyncio.run(both())
if os.fork() == 0:
    forked()
    os._exit(0)
os.wait()
print("argument", sys.argv[1], __name__)
sys.exit(7)
"""


def recorded(script: Path, *options: object, status: int = 0) -> Any:
    done = gdbmem("python", "lines", "--json", *options, script, "--", "value")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)["processes"], done.stderr


def functions(process: Any) -> dict[str, Any]:
    return {one["function"]: one for one in process["functions"]}


def changes(function: Any) -> dict[str, float]:
    return {row["text"].strip(): (row["change_bytes"] or 0) / MIB for row in function["lines"]}


@pytest.mark.parametrize(
    ("python", "backend"), diagonals(pythons(), ["tracemalloc", "rss"], (0,)), ids=short_name
)
def test_each_change_is_in_its_line_and_the_lines_add_up(python: str, backend: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    options = ("--python", python, "--backend", backend, "--function", "recurse")
    (parent, child), errors = recorded(script, *options, status=7)
    assert "argument value __main__" in errors
    found = functions(parent)
    for one in found.values():
        assert sum(row["change_bytes"] or 0 for row in one["lines"]) == one["change_bytes"]
    close = 0.3 if backend == "tracemalloc" else 0.8  # code that is read in counts, too
    mine = changes(found["my_func"])
    assert mine["b = [2] * (2 * 10 ** 7)"] == pytest.approx(152.6, abs=close)
    assert mine["del b"] == pytest.approx(-152.6, abs=close)
    assert changes(found["steps"])["held = bytearray(MIB)"] == pytest.approx(5, abs=close)
    assert found["steps"]["change_bytes"] / MIB == pytest.approx(5, abs=close)
    assert (found["steps"]["calls"], found["recurse"]["calls"]) == (1, 5)
    assert found["recurse"]["change_bytes"] / MIB == pytest.approx(5, abs=close)
    assert found["fails"]["change_bytes"] / MIB == pytest.approx(3, abs=close)
    assert changes(found["waits"])["kept.append(bytearray(2 * MIB))"] == pytest.approx(4, abs=close)
    assert found["waits"]["calls"] == 2
    assert list(functions(child)) == ["forked"]
    assert functions(child)["forked"]["change_bytes"] / MIB == pytest.approx(4, abs=close)
    assert child["parent"] == parent["pid"]
    counts = {row["text"].strip(): row["count"] for row in found["steps"]["lines"]}
    assert (counts["for i in range(n):"], counts["yield held"]) == (6, 5)


SPAWNS = """
import multiprocessing, sys
import gdbmem
@profile
def grow(n):
    kept.append(bytearray(n << 20))
    return n
@gdbmem.profile
def other(n):
    return n
kept = []
if __name__ == "__main__":
    multiprocessing.set_start_method(%r)
    with multiprocessing.Pool(2) as pool:
        assert pool.map(grow, [8, 8, 8]) == [8, 8, 8]
    one = multiprocessing.Process(target=other, args=(7,))
    one.start()
    one.join()
    sys.exit(one.exitcode)
"""


@pytest.mark.parametrize(
    ("python", "method"), diagonals(pythons()[::2], ["spawn", "forkserver"], (0,)), ids=short_name
)
def test_processes_that_multiprocessing_starts_have_their_tables_also_without_gdbmem(
    python: str, method: str, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(SPAWNS % method)
    (parent, *children), errors = recorded(script, "--python", python)
    assert "Traceback" not in errors
    assert not parent["functions"]
    grown = [functions(one).get("grow", {"calls": 0, "change_bytes": 0}) for one in children]
    assert sum(one["calls"] for one in grown) == 3
    assert sum(one["change_bytes"] for one in grown) / MIB == pytest.approx(24, abs=2)
    assert sum(functions(one).get("other", {"calls": 0})["calls"] for one in children) == 1


def test_the_table_reads_like_memory_profilers_and_the_output_stays_the_programs(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import gdbmem\n@gdbmem.profile\ndef grow():\n    return bytearray(8 << 20)\nx = grow()\nprint('own')\n"
    )
    done = gdbmem("python", "lines", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("own\nFilename: ")
    assert "Line #      Mem usage      Increment  Occurrences   Line Contents\n" in done.stdout
    assert "grow: 8." in done.stdout
    table = tmp_path / "table"
    assert gdbmem("python", "lines", "-o", table, script).stdout == "own\n"
    assert "grow: 8." in table.read_text()


def test_the_decorator_alone_prints_at_the_end_where_gdbmem_is_installed(tmp_path: Path) -> None:
    code = "import gdbmem\n@gdbmem.profile\ndef grow():\n    return bytearray(8 << 20)\nx = grow()"
    script = tmp_path / "program.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert "return bytearray(8 << 20)" in done.stdout
    assert "grow: 8." in done.stdout


def test_threads_each_have_their_own_place_in_a_function(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import threading\nkept = []\nturn = threading.Lock()\n@profile\ndef work(n):\n    for i in range(n):\n"
        "        kept.append(bytes(1000))\n    return n\n"
        "threads = [threading.Thread(target=work, args=(50,)) for _ in range(4)]\n"
        "for one in threads: one.start()\nfor one in threads: one.join()\n"
    )
    (process,), _ = recorded(script, "--backend", "tracemalloc")
    (work,) = process["functions"]
    assert work["calls"] == 4
    assert {row["text"].strip(): row["count"] for row in work["lines"]}["kept.append(bytes(1000))"] == 200
    assert "ran at once" in gdbmem("python", "lines", script).stdout or process["threads"] == 1


def test_a_wrong_word_a_syntax_error_and_a_hostile_source_line(tmp_path: Path) -> None:
    assert "there is no script" in gdbmem("python", "lines", tmp_path / "absent.py").stderr
    assert gdbmem("python", "lines", "--python", "no-such-python", __file__).returncode == 2
    script = tmp_path / "program.py"
    script.write_text("def f(:\n")
    done = gdbmem("python", "lines", script)
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
    script.write_text("@profile\ndef f():\n    return 1 # \x1b[2J\nf()\n")
    done = gdbmem("python", "lines", script)
    assert "\x1b[2J" not in done.stdout
    script.write_text("print(1)\n")
    assert "no function with @profile was called" in gdbmem("python", "lines", script).stdout
