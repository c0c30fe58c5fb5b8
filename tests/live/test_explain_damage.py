"""`gdbmem explain` where the program has overwritten malloc's data: reported first, with the damaged block."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gdbmem.allocators.glibc import heap as glibc_heap
from gdbmem.allocators.glibc import lockstep
from gdbmem.ledger.answer import answer_ledger
from tests.conftest import Program
from tests.live.explaining import Running, explain, running, slugs

OVERWRITTEN = (
    "size-4141414141414141", "size-800001", "size-1a1", "size-271", "size-11", "size-0", "size-79",
    "prev-inuse", "arena", "mmapped", "other-arena", "overflow", "zeros",
    "foot", "prev-inuse-set", "free-size",
    "fd-wild", "fd-live", "fd-zero", "bk-wild", "small-bk", "fd-next-size",
    "tcache-link", "tcache-circle", "tcache-size", "tcache-entry",
    "fastbin-link", "fastbin-circle", "fastbin-live", "fastbin-ended",
)  # fmt: skip


@pytest.mark.parametrize("mode", [*OVERWRITTEN, "top"])
def test_what_was_overwritten_is_named_in_the_first_sentence_and_nothing_is_promised(
    program: Program, mode: str
) -> None:
    with running([program("heap_damaged"), mode]) as target:
        if mode.startswith("fastbin") and "fast" not in target.output and not _has_fastbins(target.pid):
            pytest.skip("this glibc has no fastbins")
        ledger = explain(target.pid)
        answer = answer_ledger(ledger)
    assert slugs(ledger) & {"heap-corrupt"} or (mode == "top" and "malloc-unknown" in slugs(ledger)), answer
    assert "inconsistent" in answer or mode == "top", answer
    assert ledger.releasable_bytes is None
    assert ledger.heap is None or not ledger.heap.is_exact
    if mode not in ("tcache-entry", "top"):
        block = int(re.findall(r"damaged (\w+)", target.output)[0], 16)
        named = {int(word, 16) for word in re.findall(r"0x([0-9a-f]+)", answer)}
        assert any(block - 112 <= address <= block + 112 for address in named), (hex(block), answer)


@pytest.mark.parametrize("mode", ["fastbin-link", "fastbin-circle", "fastbin-live"])
def test_a_link_that_is_overwritten_deep_in_a_long_list_is_named_too(program: Program, mode: str) -> None:
    target, answer = _answer_of(program("heap_damaged"), mode, "5000")
    block = int(re.findall(r"damaged (\w+)", target.output)[0], 16)
    named = {int(word, 16) for word in re.findall(r"0x([0-9a-f]+)", answer)}
    assert any(block - 112 <= address <= block + 112 for address in named), (hex(block), answer)


def test_a_long_list_that_ends_at_a_live_block_of_another_size_is_no_sound_one(program: Program) -> None:
    _, answer = _answer_of(program("heap_damaged"), "fastbin-ended", "5000")
    # Before glibc 2.32 pointers in lists are as they are, and this one leads to nothing.
    assert re.search(
        r"the block at 0x\w+, with the size word 0x71, is in a fastbin for blocks of another"
        r"|the fastbin of arena 0 for blocks of 24 bytes leads from 0x\w+ to 0x\w+, and from there to no block",
        answer,
    )


def _answer_of(path: Path, *words: str) -> tuple[Running, str]:
    with running([path, *words]) as target:
        if not _has_fastbins(target.pid):
            pytest.skip("this glibc has no fastbins")
        ledger = explain(target.pid)
    assert "heap-corrupt" in slugs(ledger)
    assert ledger.heap is not None
    assert not ledger.heap.is_exact
    return target, answer_ledger(ledger)


def _has_fastbins(pid: int) -> bool:
    heap = explain(pid).heap
    return heap is None or bool(heap.fastbin_chunks)


@pytest.mark.parametrize("mode", ["prev-inuse", "foot", "fd-wild", "arena", "other-arena", "size-271"])
def test_the_plain_walk_finds_the_same(program: Program, mode: str) -> None:
    with running([program("heap_damaged"), mode]) as target:
        quick, plain = (explain(target.pid, walker=walker) for walker in (lockstep.walk, glibc_heap.walk))
    assert quick.notices == plain.notices


def test_a_sound_heap_with_blocks_of_each_kind_is_exact(program: Program) -> None:
    with running([program("heap_damaged"), "none"]) as target:
        ledger = explain(target.pid)
    assert ledger.heap is not None
    assert ledger.heap.is_exact
    assert not ledger.notices
