"""`gdbmem heap` on what would come back: the kernel counts so much less when the program has freed it and trimmed."""

from __future__ import annotations

import re
from typing import Optional

import pytest

from tests.conftest import Program
from tests.live.explaining import Running, gdbmem, running
from tests.live.test_heap import viewed

pytestmark = pytest.mark.needs("g++")

NAMES = ("together", "scattered", "mapped", "threads", "top", "entries", "churn")
WITHOUT_TCACHES = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
PAGE = 4096


def returned(target: Running, name: str) -> int:
    """Have the program free what *name* holds, and trim; return how much less the kernel then counts."""
    answered, size = target.type(f"{name}\n").readline().split()
    assert answered == name
    return int(size)


def check_returned(program: Program, words: tuple[str, ...], environment: Optional[dict[str, str]]) -> None:
    """Compare what the kernel takes back with what was said; without tcaches it is known to the page."""
    with running([program("heap_returns"), *words], environment) as target:
        document = viewed(target.pid, "--top", 100)
        assert returned(target, "nothing") == document["trimmed_bytes"]
        said = {one["name"]: one["given_back"] for one in document["holders"]}
        for name in NAMES:
            size, one = returned(target, name), said[name]
            assert one["least_bytes"] <= size <= one["most_bytes"], name
            if environment:
                assert size == one["most_bytes"], name
    assert document["leaks"]["least_blocks"] == 0  # not what libc keeps of the thread that has ended
    assert bool(document["trimmed_bytes"]) != bool(words)
    assert said["mapped"]["unmapped_bytes"] == said["mapped"]["most_bytes"] > 900_000
    # As much in malloc's blocks, and pages of others.
    assert said["scattered"]["malloc_bytes"] > 400_000 > 100_000 > said["scattered"]["most_bytes"]


def test_the_kernel_takes_back_what_was_said_when_a_holder_is_freed_and_the_heap_trimmed(
    program: Program,
) -> None:
    check_returned(program, (), None)


@pytest.mark.thorough
@pytest.mark.parametrize("words", [(), ("trimmed",)])
@pytest.mark.parametrize("environment", [None, WITHOUT_TCACHES])
def test_without_tcaches_what_comes_back_is_known_to_the_page(
    words: tuple[str, ...], environment: Optional[dict[str, str]], program: Program
) -> None:
    check_returned(program, words, environment)


def test_a_person_reads_what_a_holder_and_a_block_would_give_back(program: Program) -> None:
    with running([program("heap_returns")], WITHOUT_TCACHES) as target:
        whole = gdbmem("heap", target.pid).stdout
        address = next(one["address"] for one in viewed(target.pid, "--by", "root")["holders"][0]["below"])
        block = gdbmem("heap", target.pid, "--block", hex(address)).stdout
    assert re.search(r"^ +retained +to the kernel +blocks +holder$", whole, re.M)
    assert re.search(r"^ +888\.\d KiB +888\.\d KiB +4 +mapped ", whole, re.M)
    assert re.search(r"^ +468\.\d KiB +0 B to 28\.0 KiB +4,001 +scattered ", whole, re.M)
    assert re.search(r"malloc_trim\(\) would return [\d.]+ KiB to the kernel now\.", whole, re.M)
    assert re.search(
        r"^Freed with all that it retains, it gives malloc 1,015\.6 KiB, and the kernel .* after malloc_trim\(\)\.$",
        block,
        re.M,
    )
