"""`gdbmem heap` where malloc is not glibc's: the same holders hold as many blocks, and what was lost is found."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program
from tests.cover import cover
from tests.live.explaining import gdbmem, running
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


# Without variables of zeros the page with the end of the program's data is the file's.
COUNTED = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
    void **kept = malloc(40000 * sizeof *kept);
    char text[64];
    int count = 1;
    for (int i = 0; i < 40000; i++) kept[i] = calloc(1, 16 + i % 200);
    for (int i = 0; i < 40000; i += 13) free(kept[i]), kept[i] = NULL;
    for (int i = 0; i < 40000; i++) count += kept[i] != NULL;
    write(1, text, snprintf(text, sizeof text, "kept %d 0\\nready\\n", count));
    while (read(0, text, 1) > 0) {}
}
"""


def test_blocks_of_musl_in_gaps_of_files_are_said_so_that_the_sum_is_the_programs_count(
    tmp_path: Path,
) -> None:
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-gcc missing: scripts/setup installs it")
    source = tmp_path / "counts.c"
    source.write_text(COUNTED)
    subprocess.run(["musl-gcc", source, "-o", tmp_path / "counts"], check=True)
    with running([tmp_path / "counts"]) as target:
        count, _ = target.figure(r"^kept (\d+) (\d+)")
        done = gdbmem("heap", "--json", target.pid)
        ledger = gdbmem("explain", target.pid)
    document = json.loads(done.stdout)
    (said,) = [one["message"] for one in document["warnings"] if one["slug"] == "blocks-in-files"]
    in_files = int(said.split()[0].replace(",", ""))
    assert document["live_blocks"] + in_files == count
    assert f"{in_files} live block" in ledger.stdout


def test_a_static_program_of_musl_that_never_frees_is_not_said_to_have_glibcs_malloc(tmp_path: Path) -> None:
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-gcc missing: scripts/setup installs it")
    source = tmp_path / "keeps.c"
    source.write_text(
        "#include <stdlib.h>\n#include <unistd.h>\nchar *kept[100]; int main(void) {"
        "for (int i = 0; i < 100; i++) kept[i] = malloc(900);"
        'write(1, "ready\\n", 6); char c; while (read(0, &c, 1) > 0) {} return !kept[0]; }\n'
    )
    subprocess.run(["musl-gcc", "-static", source, "-o", tmp_path / "keeps"], check=True)
    with running([tmp_path / "keeps"]) as target:
        heap, ledger = gdbmem("heap", target.pid), gdbmem("explain", target.pid)
    for text in (heap.stderr, ledger.stdout + ledger.stderr):
        assert "glibc" not in text
        assert "the malloc of this static program is none that gdbmem recognises" in text
