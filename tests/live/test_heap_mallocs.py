"""`gdbmem heap` where malloc is not glibc's: the same holders hold as many blocks, and what was lost is found."""

from __future__ import annotations

import shutil
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


OF_MUSL = """
#include <stdio.h>
#include <stdlib.h>
static struct link { struct link *next; char rest[40]; } *chain, **table;
static __thread struct link *own;
static struct link *links(int count) {
    struct link *first = NULL;
    for (int i = 0; i < count; i++) { struct link *one = calloc(1, sizeof *one); one->next = first; first = one; }
    return first;
}
int main(void) {
    free(malloc(1)); /* else musl links a malloc without free() */
    chain = links(30000);
    own = links(2000);
    table = calloc(5000, sizeof *table);
    for (int i = 0; i < 5000; i++) table[i] = links(1);
    puts("ready");
    fflush(stdout);
    return getchar();
}
"""


@pytest.mark.parametrize("how", ["-static", "-dynamic"])
def test_variables_beside_musls_memory_of_the_first_thread_hold_what_is_theirs(
    how: str, tmp_path: Path
) -> None:
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-gcc missing: scripts/setup installs it")
    source = tmp_path / "links.c"
    source.write_text(OF_MUSL)
    subprocess.run(["musl-gcc", "-static", source, "-o", tmp_path / "links"], check=True)
    with running([tmp_path / "links"]) as target:
        document = viewed(target.pid)
    assert document["allocator"] == "musl"
    assert held_by(document, "chain") == 30_000
    assert held_by(document, "table") == 5_001
    rest = [one for one in document["holders"] if one["name"] not in ("chain", "table")]
    assert sum(one["retained_blocks"] for one in rest) == pytest.approx(2_000, abs=3)  # own, and libc's
