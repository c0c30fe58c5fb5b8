"""`memheap` under memcheck: who holds each block, and exactly who has allocated it."""

from __future__ import annotations

import contextlib
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


@contextlib.contextmanager
def stopped(scratch: Path, *command: Word) -> Iterator[User]:
    """Yield somebody whose gdb under memcheck stands at stop_here() of the program in *command*."""
    words: list[Word] = [GDBMEM, "launch", "--engine", "memcheck", command[0], "--", *command[1:]]
    with at_terminal(words, scratch) as found:
        found.see("under memcheck")
        found.prompt()
        found.type("break stop_here")
        found.type("continue")
        yield found


@pytest.fixture
def user(program: Program, scratch: Path) -> Iterator[User]:
    """Somebody whose gdb under memcheck stands where a program with known blocks has counted them."""
    with stopped(scratch, program("heap_allocated"), "1000") as found:
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


def memcheck_sums(user: User) -> dict[str, tuple[int, int]]:
    """Return the bytes and blocks of each kind by memcheck's own summary."""
    user.type("monitor leak_check summary kinds all heuristics all any")
    found = re.findall(r"(\w+)(?: lost)?: ([0-9,]+) bytes in ([0-9,]+) blocks", user.text)
    return {kind: (int(size.replace(",", "")), int(blocks.replace(",", ""))) for kind, size, blocks in found}


def test_under_memcheck_what_is_lost_is_what_memcheck_finds_lost_and_no_block_that_it_reaches_stays_in_doubt(
    program: Program, scratch: Path
) -> None:
    # Eight threads, with blocks that only their thread-local memory or stack leads to; a pool whose chunks are lost.
    with stopped(scratch, program("heap_memcheck_kinds", "-pthread"), "8", "0") as user:
        heap = heap_of(user, "--leaks")
        sums = memcheck_sums(user)
        held = [one["retained_blocks"] for one in heap_of(user)["holders"] if one["name"] == "of_thread"]
    assert held == [1] * 8
    lost = tuple(map(sum, zip(sums["definitely"], sums["indirectly"])))
    read_only = (336, 1)  # held by memory that memcheck does not search
    groups = groups_of(heap)
    assert (groups["lost"]["size_bytes"], groups["lost"]["blocks"]) == (lost[0] - 336, lost[1] - 1)
    assert heap["leaks"]["least_blocks"] == heap["leaks"]["most_blocks"] == lost[1] - read_only[1]
    said = [one["message"] for one in heap["warnings"]]
    assert any(
        re.match(r"[345] blocks, .* lost by memcheck, and count as lost: only", one) for one in said
    ), said
    assert any(
        one.startswith("1 block, 336 B, is lost by memcheck, which does not search") for one in said
    ), said
    possibly = re.compile(r"([0-9]+) blocks, .* are possibly lost by memcheck")
    (blocks,) = (int(match[1]) for one in said if (match := possibly.match(one)))
    assert blocks == sums["possibly"][1]


def test_under_memcheck_a_variable_retains_blocks_whose_pointers_lead_behind_a_size(
    program: Program, scratch: Path
) -> None:
    with stopped(scratch, program("heap_memcheck_kinds", "-pthread")) as user:
        held = {one["name"]: one["retained_blocks"] for one in heap_of(user)["holders"]}
        assert (held["sized"], held["both"], held["counted"]) == (30, 2, 4)


def test_under_memcheck_a_lost_block_that_is_not_in_the_graph_leaves_the_sum_unknown(
    program: Program, scratch: Path
) -> None:
    with stopped(scratch, program("heap_memcheck_kinds", "-pthread"), "0", "8") as user:
        text = user.type("memheap --leaks")
    assert "How much is lost is unknown" in text
    assert "1 block inside of others, or at no multiple of 16 bytes" in text
