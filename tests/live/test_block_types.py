"""memexplain --types: as many objects of each class as the program made, with any compiler and options."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program
from tests.live.explaining import running
from tests.live.test_memexplain import gdb
from tests.live.user import GDBMEM, shell

pytestmark = pytest.mark.needs("gdb", "g++")

COUNTS = {
    ("class", "shapes::Circle"): 3000,
    ("class", "shapes::Box<long>"): 2000,
    ("class", "(anonymous namespace)::Hidden"): 100,
    ("tree", None): 701,
    ("list", None): 600,
    ("vector", None): 1,
}


def counts(document: dict[str, Any]) -> dict[tuple[str, Any], int]:
    found = {(one["kind"], one["name"]): one["blocks"] for one in document["types"]}
    assert found.pop(("unknown", None)) >= 500  # the program's own, and the libraries'
    heap = document["heap"]
    live = sum(arena["live_chunks"] for arena in heap["arenas"]) + heap["mmapped_chunks"]
    assert sum(one["blocks"] for one in document["types"]) == live
    return found


@pytest.mark.parametrize(
    ("build", "python"),
    [
        pytest.param("plain", None, id="worker"),
        pytest.param("plain", "", id="gdb", marks=pytest.mark.thorough),
        pytest.param("stripped", None, id="stripped"),
        pytest.param(
            "clang", None, id="clang-worker", marks=[pytest.mark.needs("clang++"), pytest.mark.thorough]
        ),
        pytest.param("clang", "", id="clang-gdb", marks=pytest.mark.needs("clang++")),
    ],
)
def test_each_class_has_as_many_blocks_as_the_program_made_objects(
    build: str, python: Any, program: Program, tmp_path: Path
) -> None:
    path = program("block_types")
    if build == "clang":  # without type information, so by symbols alone; and nodes as libc++ has them
        path = program("block_types", "-stdlib=libc++", "-fno-rtti", compiler="clang++")
    elif build == "stripped":
        path = tmp_path / "stripped"
        subprocess.run(["strip", "-o", path, program("block_types")], check=True)
    done = gdb(
        tmp_path, path, "set breakpoint pending on", "break pause", "run wait",
        "memexplain --types --json -o 1.json", "memexplain --types",
        environment={"GDBMEM_PYTHON": sys.executable if python is None else python},
    )  # fmt: skip
    assert (tmp_path / "1.json").exists(), done.stderr
    assert counts(json.loads((tmp_path / "1.json").read_text())) == COUNTS
    assert re.search(r"3,000 .*shapes::Circle", done.stdout)


def test_the_shell_command_names_the_same(program: Program) -> None:
    with running([program("block_types"), "wait"]) as process:
        words = [GDBMEM, "explain", str(process.pid), "--types", "--json", "--fork"]
        done = shell(*words)
    assert counts(json.loads(done.stdout)) == COUNTS, done.stderr


def test_a_process_whose_malloc_is_not_glibcs_is_a_sentence(program: Program, tmp_path: Path) -> None:
    done = gdb(tmp_path, program("block_types"), "starti", "memexplain --types")
    assert "single blocks can't be examined: " in done.stderr
