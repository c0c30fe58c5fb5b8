"""`gdbmem heap` where malloc is not glibc's: the same holders hold as many blocks, and what was lost is found."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program
from tests.cover import cover
from tests.live.explaining import running
from tests.live.test_blocks_of_mallocs import ALLOCATORS, preloaded
from tests.live.test_heap import COUNT, viewed

pytestmark = pytest.mark.needs("gdb", "g++")


def held_by(document: dict[str, Any], *names: str) -> int:
    """Return how many blocks holders retain of whose names each is one of *names*."""
    return sum(
        one["retained_blocks"]
        for one in document["holders"]
        if set(one["holders"] or [one["name"]]) <= set(names)
    )


@pytest.mark.parametrize("allocator", cover(ALLOCATORS, lambda allocator: allocator == "jemalloc"))
def test_in_any_malloc_holders_hold_what_they_made_and_lost_blocks_are_found(
    allocator: str, program: Program, tmp_path: Path
) -> None:
    with running([program("heap_owners"), COUNT], preloaded(allocator)) as target:
        live = viewed(target.pid, "--top", 100)
        command = ["gcore", "-o", str(tmp_path / "core"), str(target.pid)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        core = viewed("--core", next(tmp_path.glob("core.*")), "--top", 100)
        blocks, size, structures = target.figure(r"^lost (\d+) (\d+) (\d+)")
    for document in (live, core):
        assert document["allocator"] == allocator
        leaks = document["leaks"]
        assert (leaks["least_blocks"], leaks["most_blocks"], leaks["doubt"]) == (blocks, blocks, None)
        assert leaks["least_bytes"] == size - 8 * blocks  # the program counts glibc's header
        assert sum(one["structures"] for one in leaks["structures"]) == structures
        assert held_by(document, "branches") == 4095
        assert held_by(document, "tasks", "seen") == pytest.approx(COUNT + 1, abs=3)
        assert held_by(document, "numbers") == COUNT
        assert held_by(document, "names", "texts", "cells") == pytest.approx(4 * COUNT + 4, rel=0.25)
        assert all(one["given_back"] is None for one in document["holders"])
