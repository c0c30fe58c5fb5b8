"""`gdbmem heap` of many threads, arenas and holders of one block, of a block of 2 GiB, and of cores with holes."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program
from tests.live.explaining import Running, gdbmem, running

pytestmark = pytest.mark.needs("gdb", "gcc")

_SEGMENT = struct.Struct(
    "<IIQQQQQQ"
)  # type, flags, offset, address, physical address, size in file, size, alignment


def graph_of(*words: object) -> dict[str, Any]:
    done = gdbmem("heap", "--json", *words)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def retained(document: dict[str, Any], name: str) -> int:
    """Return what the variable retains, which is one row."""
    (size,) = [one["retained_bytes"] for one in document["holders"] if one["name"] == name]
    return int(size)


def counted(target: Running, name: str) -> list[int]:
    """Return what the program said of *name*."""
    (line,) = [line for line in target.output.splitlines() if line.startswith(f"{name} ")]
    return [int(word) for word in line.split()[1:]]


def check(document: dict[str, Any], target: Running) -> None:
    """Compare holders and lost blocks with what the program counted."""
    (lists,), (holders,) = counted(target, "lists"), counted(target, "holders")
    assert retained(document, "lists") == lists
    # A register may still lead to a few of the blocks; the header of a large array, mapped by itself, is longer.
    assert -10_000 <= retained(document, "holders") - holders <= 16
    count, size = counted(target, "lost")
    leaks = document["leaks"]
    assert (
        (leaks["least_blocks"], leaks["least_bytes"])
        == (count, size)
        == (leaks["most_blocks"], leaks["most_bytes"])
    )


def segments(core: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield where each loaded segment's size in the file stands in *core*, its address, and its size in the file."""
    start, count = struct.unpack_from("<Q", core, 32)[0], struct.unpack_from("<H", core, 56)[0]
    for at in range(start, start + count * _SEGMENT.size, _SEGMENT.size):
        kind, _, _, address, _, in_file, _, _ = _SEGMENT.unpack_from(core, at)
        if kind == 1 and in_file:
            yield at + 32, address, in_file


def check_core_with_holes(core: Path, target: Running) -> None:
    """No block is certainly lost if memory that may lead to it is missing from the core."""
    whole = core.read_bytes()
    heap, data, stack, threads = list[int](), list[int](), list[int](), list[int]()
    for row in Path(f"/proc/{target.pid}/maps").read_text(encoding="utf-8").splitlines():
        start, end = (int(part, 16) for part in row.split()[0].split("-"))
        if row.split()[1].startswith("rw"):
            heap += [start] * row.endswith("[heap]")
            data += [start] * ("heap_wide" in row)
            stack += [start] * row.endswith("[stack]")
            # At the end of a thread's stack is its thread-local memory, which leads to its tcache. Since glibc 2.42 the
            # guard is in the same mapping.
            threads += [start] * (end - start in (128 << 10, 132 << 10))
    assert heap and data and stack and threads
    lost = counted(target, "lost")[0]
    for missing in (heap, data, stack, threads[:1], threads):
        some = bytearray(whole)
        for at, address, _ in segments(whole):
            if address in missing:
                struct.pack_into("<Q", some, at, 0)
        core.write_bytes(some)
        done = gdbmem("heap", "--core", core, "--json")
        assert "Traceback" not in done.stderr
        if done.returncode == 0:
            leaks = json.loads(done.stdout)["leaks"]
            assert leaks["least_blocks"] <= (0 if missing != threads[:1] else lost), (missing, leaks)
            assert missing == heap or leaks["most_blocks"] >= lost


def test_variables_over_two_mappings_many_threads_and_a_block_of_2_gib_retain_what_the_program_counts(
    program: Program, tmp_path: Path
) -> None:
    with running(
        [program("heap_wide", "-no-pie", "-pthread", "-ldl"), 500, 20_000], {"LARGE": "1"}
    ) as target:
        document = graph_of(target.pid)
        check(document, target)
        block, inside = counted(target, "large")
        assert retained(document, "large") - block - inside in (0, 8)  # the header of glibc 2.43 is longer
        if "next to another: 0\n" in target.output:
            pytest.skip("the kernel has made one mapping of the block and what follows it")


def test_no_block_is_certainly_lost_where_a_core_lacks_memory_that_may_lead_to_it(
    program: Program, tmp_path: Path
) -> None:
    with running([program("heap_wide", "-no-pie", "-pthread", "-ldl"), 12, 2000]) as target:
        command = ["gcore", "-o", str(tmp_path / "core"), str(target.pid)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        (core,) = tmp_path.glob("core.*")
        leaks = graph_of("--core", core)["leaks"]
        # gcore writes zeros for all of a mapping with a page that can't be read.
        assert leaks["least_blocks"] in (0, 7)
        assert leaks["most_blocks"] >= 7
        assert leaks["least_blocks"] == leaks["most_blocks"] == 7 or "nothing but zeros" in leaks["doubt"]
        check_core_with_holes(core, target)


@pytest.mark.thorough
def test_500_threads_and_a_million_holders_of_a_block(program: Program) -> None:
    with running([program("heap_wide", "-no-pie", "-pthread", "-ldl"), 500, 1_000_000]) as target:
        check(graph_of(target.pid), target)
