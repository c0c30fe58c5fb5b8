"""`membfc` in gdb: the pools of a stopped process and of its core, found by themselves or by an expression."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.live.user import GDBMEM, shell
from tests.unit.sources import ROOT

pytestmark = pytest.mark.needs("gdb")
_STOP = "tsl::BFCAllocator::print"


def gdb(program: Path, scratch: Path, *commands: str) -> str:
    (scratch / "in").write_text("new 67108864 1 0 0 60 9\n")
    words = ["gdb", "-nx", "-q", "-batch", "-ex", f"source {ROOT}/gdbinit/gdbmem"]
    for command in ("set width 0", f"break {_STOP}", f"run < {scratch}/in > {scratch}/out", *commands):
        words += ["-ex", command]
    done = subprocess.run([*words, str(program)], capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


def test_a_pool_found_by_itself_by_a_pointer_and_by_its_address_is_one(
    program: Program, scratch: Path
) -> None:
    built = program("bfc_pool", "-DLAYOUT=2024")
    questions = ["", "::pool", "*::pool", "(long)::pool", "this"]
    outputs = [scratch / f"{number}.json" for number in range(len(questions))]
    text = gdb(built, scratch, *(f"membfc --json -o {o} {q}" for q, o in zip(questions, outputs)))
    documents = [json.loads(output.read_text()) for output in outputs]
    pools = [document["allocators"][0] for document in documents]
    assert len({(one["address"], one["in_use_bytes"], one["pool_bytes"]) for one in pools}) == 1, text
    assert pools[0]["name"] == "the_pool_of_a_test" and pools[0]["violations"] == []
    assert {one["class"] for one in pools} == {"tsl::BFCAllocator", ""}  # an address alone has no type


def test_what_becomes_of_a_request_is_reported_at_the_prompt(program: Program, scratch: Path) -> None:
    text = gdb(program("bfc_pool", "-DLAYOUT=2026"), scratch, "membfc --request 1GiB")
    assert "64.0 MiB limit, " in text
    assert "a request of 1.0 GiB fails: only " in text


def test_a_core_has_the_same_pool(program: Program, scratch: Path) -> None:
    built = program("bfc_pool", "-DLAYOUT=2024")
    text = gdb(
        built, scratch, f"membfc --json -o {scratch}/live.json", f"generate-core-file {scratch}/core", "kill"
    )
    live = json.loads((scratch / "live.json").read_text())["allocators"][0]
    done = shell(GDBMEM, "bfc", f"{scratch}/core", "--json")
    assert done.returncode == 0, done.stderr + text
    core = json.loads(done.stdout)["allocators"][0]
    for key in ("name", "class", "pool_bytes", "in_use_bytes", "requested_bytes", "regions", "bins"):
        assert core[key] == live[key]
    words = ["gdb", "-nx", "-q", "-batch", "-ex", f"source {ROOT}/gdbinit/gdbmem", "-ex", "membfc"]
    opened = subprocess.run(
        [*words, str(built), f"{scratch}/core"], capture_output=True, text=True, check=False
    )
    assert opened.stdout.count("the_pool_of_a_test: 64.0 MiB limit") == 1, opened.stderr


def test_a_point_of_a_recipe_tells_of_the_pool_and_keeps_it(program: Program, scratch: Path) -> None:
    (scratch / "in").write_text("new 67108864 1 0 0 60 9\n")
    recipe = f"""\
program: {program("bfc_pool", "-DLAYOUT=2024")}
stdin: in
engine: none
points:
  - at: {_STOP}
    name: filled
    do: [ledger, {{gdb: membfc --request 60MiB}}, {{gdb: membfc --json -o {scratch}/pools.json}}]
"""
    (scratch / "pool.yaml").write_text(recipe)
    command = [str(GDBMEM), "launch", "--recipe", "pool.yaml"]
    played = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=300, check=True)
    assert "filled: gdb: the_pool_of_a_test: 64.0 MiB limit, " in played.stderr
    assert "a request of 60.0 MiB fails" in played.stderr
    kept = json.loads((scratch / "pools.json").read_text())
    printed = next(line for line in played.stdout.splitlines() if line.startswith("pool "))
    pool = kept["allocators"][0]
    assert printed.split()[1:3] == [str(pool["pool_bytes"]), str(pool["in_use_bytes"])]


def test_what_is_no_pool_is_one_sentence(program: Program, scratch: Path) -> None:
    text = gdb(
        program("bfc_pool", "-DLAYOUT=2024"), scratch, "membfc 0x10", "membfc 5+", "membfc &room[2000]"
    )
    assert "memory at 0x10 can't be read" in text
    assert "membfc can't use 5+" in text
    assert "Traceback" not in text
