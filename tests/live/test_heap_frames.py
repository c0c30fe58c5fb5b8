"""`gdbmem heap`: variables of functions, registers and threads are holders with their names and types."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gdbmem.symbols.unwind_tables import can_unwind
from tests.conftest import Program
from tests.live.explaining import Running, gdbmem, running
from tests.live.test_heap import EXACT, viewed
from tests.live.test_memexplain import gdb

pytestmark = [
    pytest.mark.needs("gdb", "g++"),
    pytest.mark.skipif(not can_unwind(), reason="libdw is not installed"),
]

COUNT = 2000
TYPES = {
    "everywhere": (None, "std::map<int, Task>", COUNT),
    "tasks": ("work", "std::map<int, Task>", COUNT),
    "numbers": ("work", "std::list<long>", COUNT),
    "lines": ("run", "std::vector<std::string>", COUNT),
    "buffer": ("serve", "Task *", None),
}


class Known(NamedTuple):
    """What a program says that its variables hold."""

    bytes: dict[str, int]

    def check(self, document: dict[str, Any]) -> None:
        found = {one["name"]: one for one in document["holders"]}
        for name, (function, type_, elements) in TYPES.items():
            one = found[f"{function}: {name}" if function else name]
            assert one["retained_bytes"] == pytest.approx(self.bytes[name], rel=0.01), name
            assert (one["type"], one["elements"]) == (type_, elements)
            assert (one["frame"] is None) == (function is None)


def test_type_lists_the_variables_of_one_type_only(program: Program) -> None:
    with running([program("heap_frames", "-O0"), COUNT]) as target:
        sizes = known(target).bytes
        document = viewed(target.pid, "--type", "std::map<int, Task>")
        refused = gdbmem("heap", target.pid, "--type", "std::map<int, Tusk>")
    assert {one["name"] for one in document["holders"]} >= {"everywhere", "work: tasks"}
    for one in document["holders"]:
        assert one["type"] == "std::map<int, Task>"
        if one["name"] in ("everywhere", "work: tasks"):
            size = sizes[one["name"].removeprefix("work: ")]
            assert one["retained_bytes"] == pytest.approx(size, rel=0.01)
    assert refused.returncode == 1 and "[no-such-type]" in refused.stderr


def known(target: Running) -> Known:
    return Known({name: int(size) for name, size in re.findall(r"^holds (\w+) (\d+)", target.output, re.M)})


def core_of(target: Running, folder: Path) -> Path:
    command = ["gcore", "-o", str(folder / "core"), str(target.pid)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return next(folder.glob("core.*"))


@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_a_variable_of_a_function_is_named_with_its_type_and_retains_what_it_made_live_and_in_a_core(
    program: Program, tmp_path: Path, level: str
) -> None:
    with running([program("heap_frames", "-g", level), COUNT], EXACT) as target:
        held = known(target)
        held.check(viewed(target.pid, "--top", 40))
        text = gdbmem("heap", target.pid).stdout
        core = core_of(target, tmp_path)
        again = viewed(target.pid, "--top", 40)
    held.check(viewed("--core", core, "--top", 40))
    held.check(again)  # what is asked of gdb is kept
    tasks = r"work: tasks \(heap_frames, thread \d+ \(heap_frames\)\): std::map<int, Task> of 2,000 nodes of 72\s+bytes"
    assert re.search(re.sub(" ", r"\\s+", tasks), text), text


def test_without_debug_information_a_frame_is_a_place_in_its_object_and_all_frames_retain_as_much(
    program: Program, tmp_path: Path
) -> None:
    stripped = tmp_path / "stripped"
    shutil.copy(program("heap_frames", "-g", "-O2"), stripped)
    subprocess.run(["strip", "-s", str(stripped)], check=True)
    with running([stripped, COUNT], EXACT) as target:
        held = known(target).bytes
        document = viewed(target.pid, "--top", 40)
        core = viewed("--core", core_of(target, tmp_path), "--top", 40)
        without = viewed(target.pid, "--top", 40, "--without", f"stack of thread {target.pid} (stripped)")
    for found in (document, core):
        of_frames = [one for one in found["holders"] if one["frame"] is not None]
        own = [one for one in found["holders"] if (one["object"] or "").startswith("stripped")]
        assert all(one["type"] is None and one["elements"] is None for one in own)
        mine = [one for one in of_frames if one["name"].startswith("stripped+0x")]
        sizes = [one["retained_bytes"] for one in mine]
        assert held["numbers"] + held["tasks"] == pytest.approx(
            max(sizes), rel=0.01
        )  # of one frame, by its place and number
        assert any(re.fullmatch(r"stripped\+0x[0-9a-f]+: frame \d", one["name"]) for one in mine)
        assert sum(sizes) == pytest.approx(sum(held.values()) - held["everywhere"], rel=0.01)
    left = [
        one for one in without["holders"] if one["frame"] is not None and str(target.pid) in one["object"]
    ]
    assert not left


def test_pointers_that_no_word_shows_are_named_by_the_type_that_hides_them(program: Program) -> None:
    with running([program("heap_frames", "-O2"), COUNT], EXACT) as target:
        document = viewed(target.pid)
        text = gdbmem("heap", target.pid).stdout
    assert document["leaks"]["least_blocks"] == 8  # of ten, but for the first two
    assert document["unseen"] == [
        {"type": "XorList", "keeps": "the XOR of two addresses", "holder": "crossed"}
    ]
    assert (
        "XorList, the type of crossed, keeps the XOR of two addresses: such words don't count as pointers"
        in text
    )


def test_no_type_hides_pointers_where_none_is_met(program: Program) -> None:
    with running([program("heap_owners"), COUNT]) as target:
        assert viewed(target.pid)["unseen"] == []


def test_memheap_names_the_variables_of_functions_too(program: Program, tmp_path: Path) -> None:
    done = gdb(
        tmp_path, program("heap_frames", "-g", "-O0"), "tbreak fgets", f"run {COUNT} < /dev/null > out",
        "memheap --json -o live.json --top 40", "generate-core-file core.here", "kill", "core-file core.here",
        "memheap --json -o core.json --top 40", environment=EXACT,
    )  # fmt: skip
    held = {
        name: int(size)
        for name, size in re.findall(r"^holds (\w+) (\d+)", (tmp_path / "out").read_text(), re.M)
    }
    for name in ("live.json", "core.json"):
        assert (tmp_path / name).exists(), done.stdout + done.stderr
        Known(held).check(json.loads((tmp_path / name).read_text()))
