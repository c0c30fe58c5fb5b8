"""`--chunk` and `--bins`: one block with its neighbours, and malloc's lists, beside malloc_info and mallinfo2."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program
from tests.live.explaining import Running, gdbmem, running
from tests.live.test_memexplain import gdb

pytestmark = pytest.mark.needs("gdb", "g++")


@pytest.fixture
def target(program: Program) -> Iterator[Running]:
    with running([program("heap_lists")], {"GLIBC_TUNABLES": ""}) as started:
        yield started


def address(target: Running, name: str) -> int:
    return int(re.findall(rf"^{name} (0x\w+)$", target.output, re.M)[0], 16)


def asked(target: Running, *words: str) -> dict[str, Any]:
    done = gdbmem("explain", target.pid, "--json", *words)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def chunk_at(target: Running, where: int) -> dict[str, Any]:
    found = asked(target, "--chunk", hex(where))["chunk"]
    assert isinstance(found, dict)
    return found


def listed(text: str) -> tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]]:
    """Return how many lists of (blocks, bytes) malloc_info has in the arena of *text*, and unsorted ones."""
    figures = re.findall(r'<(size|unsorted) from="\d+" to="(\d+)" total="(\d+)" count="(\d+)"/>', text)
    both: tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]] = (Counter(), Counter())
    for kind, largest, size, count in figures:
        if int(count):
            flags = int(count) * (
                int(largest) % 16
            )  # until glibc 2.43 it adds up size words of bins, PREV_INUSE included
            both[kind == "unsorted"][int(count), int(size) - flags] += 1
    return both


def test_each_list_holds_what_malloc_info_counts(target: Running) -> None:
    bins = asked(target, "--bins")["bins"]
    theirs = re.findall(r"<heap nr=.*?</heap>", target.output, re.S)
    assert len(theirs) == len(bins["arenas"]) == 2
    for arena, text in zip(bins["arenas"], theirs):
        ours: tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]] = (Counter(), Counter())
        for one in arena["lists"]:
            ours[one["kind"] == "unsorted"][one["count"], one["bytes"]] += 1
            assert one["fault"] is None
        assert ours == listed(text)
        assert not arena["faults"]
        assert {"unsorted", "large"} <= {one["kind"] for one in arena["lists"]}
    small = any(one["kind"] == "small" for arena in bins["arenas"] for one in arena["lists"])
    assert small or 'type="fast"' not in target.output  # glibc 2.43


def test_their_sums_are_those_of_mallinfo2(target: Running) -> None:
    bins = asked(target, "--bins")["bins"]
    lists = [one for arena in bins["arenas"] for one in arena["lists"]]
    fast = [one for one in lists if one["kind"] == "fastbin"]
    tops = [arena["top_bytes"] for arena in bins["arenas"]]
    rest = [one for one in lists if one["kind"] != "fastbin"]
    assert target.figure(r"mallinfo2 (\d+) (\d+) (\d+) (\d+)") == (
        sum(one["count"] for one in rest) + len(tops),
        sum(one["count"] for one in fast),
        sum(one["bytes"] for one in fast),
        sum(one["bytes"] for one in lists) + sum(tops),
    )


def test_a_tcache_holds_no_more_than_seven_blocks_of_a_size(target: Running) -> None:
    tcaches = {cache["tid"]: cache["lists"] for cache in asked(target, "--bins")["bins"]["tcaches"]}
    assert len(tcaches) == 2
    main = {one["low_bytes"]: one["count"] for one in tcaches[target.pid]}
    assert main[416] == 1
    assert main[32] == main[48] == main[64] >= 7


def test_a_block_is_named_by_its_class_its_neighbours_and_who_points_to_it(target: Running) -> None:
    circle, name = address(target, "circle"), address(target, "name")
    found = chunk_at(target, circle)
    assert found["chunk"]["class"] == "shapes::Circle"
    assert found["chunk"]["memory"] == circle
    assert found["chunk"]["state"] == "in use"
    assert any(p["place"].startswith("the_circle of heap_lists") for p in found["pointers"])
    assert found["after"]["memory"] == name  # it was allocated next
    held = chunk_at(target, name)
    assert held["before"]["memory"] == circle
    assert [p["class"] for p in held["pointers"] if p["address"] == circle + 16] == ["shapes::Circle"]


def test_an_address_inside_of_a_block_leads_to_it(target: Running) -> None:
    text = address(target, "text")
    found = chunk_at(target, text + 500)
    assert found["chunk"]["memory"] == text
    assert found["chunk"]["size_bytes"] == 1008
    assert any(p["place"].startswith("the_table+8") for p in found["pointers"])


@pytest.mark.parametrize(
    ("name", "state", "where"),
    [("cached", "tcache", "the tcache of thread {pid}"), ("free", "free", "the unsorted bin")],
)
def test_a_freed_block_is_shown_with_the_list_that_it_is_in(
    target: Running, name: str, state: str, where: str
) -> None:
    found = chunk_at(target, address(target, name))
    assert found["chunk"]["state"] == state
    assert found["chunk"]["list"] == where.format(pid=target.pid)
    assert not found["faults"]


def test_a_block_with_its_own_mapping_is_found(target: Running) -> None:
    mapped = address(target, "mapped")
    found = chunk_at(target, mapped + 4096)
    assert found["chunk"]["memory"] == mapped
    assert found["chunk"]["state"] == "mmapped"


def test_bytes_of_a_block_are_no_commands_for_the_terminal(target: Running) -> None:
    done = gdbmem("explain", target.pid, "--chunk", hex(address(target, "text")))
    assert "|.[31mred" in done.stdout
    assert "\033" not in done.stdout


def test_where_no_block_is_that_is_reported(target: Running) -> None:
    done = gdbmem("explain", target.pid, "--chunk", "0x1000")
    assert done.returncode == 1
    assert "no block of malloc lies at 0x1000: the process has no memory there" in done.stderr
    done = gdbmem("explain", target.pid, "--chunk", "here")
    assert done.returncode == 2
    assert "here is not an address" in done.stderr


@pytest.mark.parametrize("python", [None, ""], ids=["worker", "plain"])
def test_gdb_takes_an_expression_and_shows_the_same(program: Program, tmp_path: Path, python: Any) -> None:
    done = gdb(
        tmp_path, program("heap_lists"), "set breakpoint pending on", "break read", "run",
        "memexplain --chunk the_circle", "memexplain --bins", "memexplain --chunk nothing_of_that_name",
        environment={"GDBMEM_PYTHON": sys.executable if python is None else python},
    )  # fmt: skip
    assert re.search(r"this +0x\w+ +0x\w+ +32 +in use +shapes::Circle", done.stdout), (
        done.stdout + done.stderr
    )
    assert "All lists are intact" in done.stdout
    assert "--chunk can't use nothing_of_that_name" in done.stderr


def test_the_command_that_the_sentence_names_shows_the_block_that_was_overwritten(program: Program) -> None:
    with running([program("heap_damaged"), "size-800001"]) as target:
        said = gdbmem("explain", target.pid).stdout
        word = re.findall(r"--chunk (0x\w+) shows it", said)[0]
        done = gdbmem("explain", target.pid, "--chunk", word)
        block = int(re.findall(r"damaged (\w+)", target.output)[0], 16)
        found = asked(target, "--chunk", word)["chunk"]
    assert int(word, 16) == block
    assert "its size word 0x800001 is invalid" in done.stdout
    assert found["chunk"]["size_bytes"] is None
    assert found["before"]["address"] == block - 112
    assert found["after"]["address"] == block + 112
    assert any(p["place"].startswith("live+4000") for p in found["pointers"])


@pytest.mark.parametrize(
    ("mode", "kind"), [("fd-wild", "large"), ("fastbin-link", "fastbin"), ("tcache-link", "tcache")]
)
def test_the_list_that_was_overwritten_is_named_and_the_others_are_counted(
    program: Program, mode: str, kind: str
) -> None:
    with running([program("heap_damaged"), mode]) as target:
        bins = asked(target, "--bins")["bins"]
        block = int(re.findall(r"damaged (\w+)", target.output)[0], 16)
    parts = [*bins["tcaches"], *bins["arenas"]]
    lists = [one for part in parts for one in part["lists"]]
    if kind == "fastbin" and not any(one["kind"] == kind for one in lists):
        pytest.skip("this glibc has no fastbins")
    faulty = [one for one in lists if one["fault"]]
    assert [one["kind"] for one in faulty] == [kind]
    assert f"0x{block:x}" in faulty[0]["fault"]
    # A tcache holds 7 of the 24 that the program frees, or 16 from glibc 2.42 on, and one is given out again: by 2.43's
    # tcache.
    assert sum(one["count"] for one in lists if one["kind"] == "small") in (16, 7, 8)
