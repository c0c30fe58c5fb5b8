"""The recipes in gdbinit/recipes/, adapted according to their comments, on a program with a known leak."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Callable
from xml.etree import ElementTree

import pytest

from tests.live.user import GDBMEM, shell

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "g++"),
    pytest.mark.usefixtures("no_process_left"),
]

Program = Callable[..., Path]
ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "gdbinit" / "recipes"
NODE_BYTES = 136  # of std::map<int, Entry>: 32 of the tree, 104 of the pair


def adapted(name: str, folder: Path, **changes: str) -> Path:
    """Copy recipe *name* into *folder* with each change made; each must apply."""
    text = (RECIPES / name).read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / name).write_text(text)
    return folder / name


def gdbmem(*words: str, folder: Path, typed: str = "") -> subprocess.CompletedProcess[str]:
    done = shell(GDBMEM, *words, folder=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, input=typed)
    assert "Traceback" not in done.stdout + done.stderr
    return done


def test_growth_per_call_measures_the_leak_to_the_byte(program: Program, scratch: Path) -> None:
    recipe = adapted(
        "growth-per-call.yaml",
        scratch,
        **{
            "./program": str(program("leaky_map", "-O0")),
            "args: []": "args: [30, 50]",
            "at: handle_request": "at: reset",
        },
        **{"only: [10, 100]": "only: [10, 20]"},
    )
    done = gdbmem("launch", "--recipe", str(recipe), "--json", "--junit", "j.xml", folder=scratch)
    assert done.returncode == 4, done.stderr
    document = json.loads(done.stdout)
    assert len(document["points"][0]["snapshots"]) == 2
    verdict = document["expectations"][0]
    assert (verdict["met"], verdict["measured"], verdict["limit"]) == (False, 10 * 50 * NODE_BYTES, 0)
    case = ElementTree.parse(scratch / "j.xml").getroot()[0][0]
    assert case[0].tag == "failure"
    assert "66.4 KiB more than expected" in str(case[0].get("message"))


def test_growth_over_time_finds_the_growing_path(program: Program, scratch: Path) -> None:
    recipe = adapted(
        "growth-over-time.yaml",
        scratch,
        **{"./program": str(program("leaky_map", "-O0")), "[--input, data.txt]": "[50, 10]"},
        **{"main.cpp:120": "leaky_map.cpp:34", "input_size": "count", "every: 500": "every: 5"},
        **{"Cache::insert": "remember"},
    )
    done = gdbmem("launch", "--recipe", str(recipe), "--json", folder=scratch)
    assert done.returncode == 4, done.stderr
    whole, path = json.loads(done.stdout)["expectations"]
    assert (whole["met"], path["met"]) == (True, False)
    assert path["measured"] == 7 * 5 * 10 * NODE_BYTES


def test_growth_per_call_by_hand_names_the_same_line(program: Program, scratch: Path) -> None:
    adapted("growth-per-call.gdb", scratch, handle_request="reset")
    typed = "source growth-per-call.gdb\nquit\n"
    done = gdbmem(
        "launch", "--massif", str(program("leaky_map", "-O0")), "--", "20", "50", folder=scratch, typed=typed
    )
    assert "66.4 KiB from handled#10 to handled#20" in done.stdout + done.stderr
    assert re.search(r"all of it from leaky_map\.cpp:16", done.stdout)


def test_growth_over_time_by_hand_compares_the_start_with_the_end(program: Program, scratch: Path) -> None:
    adapted(
        "growth-over-time.gdb",
        scratch,
        **{"main.cpp:100": "main", "main.cpp:120 if input_size > 0": "leaky_map.cpp:34 if count > 0"},
        **{"--every 500": "--every 5"},
    )
    typed = "source growth-over-time.gdb\nquit\n"
    done = gdbmem(
        "launch", "--massif", str(program("leaky_map", "-O0")), "--", "50", "10", folder=scratch, typed=typed
    )
    grown = (
        r"from round#7 to round#8; all of it from leaky_map\.cpp:16 .*; outside the heap, allocator overhead"
    )
    assert re.search(grown, done.stdout), done.stdout
