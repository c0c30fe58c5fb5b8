"""`memheap` under memcheck: who holds each block, and exactly who has allocated it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROGRAMS, Program
from tests.live.user import GDBMEM, User, Word, at_terminal, shell

pytestmark = [pytest.mark.needs("gdb", "valgrind", "vgdb", "g++"), pytest.mark.usefixtures("no_process_left")]

NODE, TEXT = 48, 51  # sizeof(Node), and what each text asks for


def line_of(text: str) -> int:
    lines = (PROGRAMS / "heap_allocated.cpp").read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


@pytest.fixture
def user(program: Program, scratch: Path) -> Iterator[User]:
    """Somebody whose gdb under memcheck stands where a program with known blocks has counted them."""
    words: list[Word] = [GDBMEM, "launch", "--engine", "memcheck", program("heap_allocated"), "--", "1000"]
    with at_terminal(words, scratch) as found:
        found.see("under memcheck")
        found.prompt()
        found.type("break stop_here")
        found.type("continue")
        yield found


def heap_of(user: User, *options: str) -> dict[str, Any]:
    user.type(" ".join(["memheap", "--json", "-o", "heap.json", "--force", *options]))
    found: dict[str, Any] = json.loads((user.folder / "heap.json").read_text())
    return found


def groups_of(heap: dict[str, Any]) -> dict[str, dict[str, Any]]:
    holders = heap["holders"]
    return {
        holders[one["row"]]["name"] if one["row"] is not None else one["kind"]: one
        for one in heap["allocations"]["groups"]
    }


def by_line(group: dict[str, Any]) -> dict[int, tuple[int, int]]:
    return {
        next(frame["line"] for frame in path["frames"] if frame["line"]): (path["blocks"], path["size_bytes"])
        for path in group["paths"]
    }


def test_under_memcheck_each_holder_says_which_lines_allocated_what_it_retains_to_the_byte(
    user: User,
) -> None:
    heap = heap_of(user)
    groups = groups_of(heap)
    texts = by_line(groups["table"])
    assert texts[line_of("the line of texts")] == (1000, 1000 * TEXT)
    assert groups["table"]["blocks"] == 2000
    nodes = line_of("the line of nodes")
    assert by_line(groups["chain"]) == {nodes: (1000, 1000 * NODE)}
    assert by_line(groups["Decoder::instance_"]) == {
        line_of("the line of the decoder"): (1, 16),
        nodes: (1, NODE),
    }
    # The program loses 14 nodes; a register may still have the last ones.
    lost = groups["lost"]
    assert by_line(lost) == {nodes: (lost["blocks"], lost["blocks"] * NODE)}
    assert 12 <= lost["blocks"] <= 14


def test_under_memcheck_the_blocks_of_all_holders_and_the_lost_ones_are_all_that_memcheck_counts(
    user: User,
) -> None:
    heap = heap_of(user, "--top", "2")
    user.type("monitor leak_check summary kinds all any")
    sums = re.findall(r"(?:lost|reachable): ([0-9,]+) bytes in ([0-9,]+) blocks", user.text)
    size, blocks = (sum(int(one[n].replace(",", "")) for one in sums) for n in (0, 1))
    found = heap["allocations"]
    assert (found["size_bytes"], found["blocks"]) == (size, blocks)
    assert heap["live_blocks"] == blocks
    for key in ("blocks", "size_bytes"):
        assert sum(group[key] for group in found["groups"]) == found[key]
    assert [group["kind"] for group in found["groups"]] == ["holder", "holder", "other holders", "lost"]


def test_under_memcheck_freed_blocks_and_valgrinds_own_memory_hold_nothing(user: User) -> None:
    heap = heap_of(user)
    named = {one["name"] for one in heap["holders"]}
    assert not [name for name in named if "0x100" in name], named
    # The kernel joins the program's own executable memory to valgrind's: memcheck alone can tell them apart.
    own = [one for one in heap["holders"] if one["kind"] == "memory"]
    assert [one["retained_bytes"] for one in own] == [80], own
    assert not [one for one in heap["leaks"]["structures"] if one["block_bytes"] == 80]


def test_under_memcheck_a_block_says_who_allocated_it(user: User) -> None:
    user.type("memheap --block Decoder::instance_->first")
    assert f"heap_allocated.cpp:{line_of('the line of nodes')} (make_node), for {NODE} bytes" in user.text
    assert "Decoder::instance_" in user.text


def test_under_memcheck_a_heap_can_be_saved_and_compared(user: User) -> None:
    user.type("memheap --save first")
    user.type("continue")
    assert "No block is lost that was not before." in user.type("memheap --since first")


RECIPE = """\
program: {program}
args: ["1000"]
engine: memcheck
points:
  - {{at: stop_here, name: stop, do: [heap]}}
expect:
  - {{between: ["stop#1", stop], metric: leaked, at_most: 0}}
"""


def test_a_recipe_under_memcheck_judges_what_is_lost(program: Program, scratch: Path) -> None:
    recipe = scratch / "r.yaml"
    recipe.write_text(RECIPE.format(program=program("heap_allocated")))
    ended = shell(GDBMEM, "launch", "--recipe", recipe, folder=scratch)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "ok " in ended.stdout
