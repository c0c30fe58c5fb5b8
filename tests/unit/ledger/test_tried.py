"""Calls that were tried in a copy: the first sentence, the table, and both figures side by side."""

from __future__ import annotations

import io
import json

import pytest

from gdbmem.ledger.answer import answer_ledger
from gdbmem.ledger.document import ledger_json
from gdbmem.ledger.text import print_ledger
from gdbmem.model.ledger import (
    FREE_PAGES,
    IN_CACHES,
    IN_SLABS,
    LIVE,
    BlockSize,
    Entry,
    Ledger,
    OtherMalloc,
    Share,
    Tried,
)
from gdbmem.terminal.console import make_console

MIB = 1 << 20
CATEGORY = "allocator.jemalloc"
PARTS = {LIVE: 5 * MIB, IN_CACHES: MIB, IN_SLABS: 32 * MIB, FREE_PAGES: 5 * MIB}
PURGE = Tried("jemalloc", "/usr/bin/redis-server", 'mallctl("arena.4096.purge", …)', MIB, MIB, copies=1)


def ledger_of(*tried: Tried) -> Ledger:
    sizes = [BlockSize(48, 9300, 0, 70000, 1204, 30 * MIB)]
    malloc = OtherMalloc(
        CATEGORY, "", "5.3", "/usr/bin/redis-server", 5 * MIB, 9300, MIB, 4, 32 * MIB, MIB, 0, 0, 0, sizes
    )
    parts = {(CATEGORY, label): size for label, size in PARTS.items()}
    rss = sum(PARTS.values())
    entries = [Entry(*key, size) for key, size in parts.items()]
    ledger = Ledger(
        "redis-server",
        1,
        rss,
        entries,
        [Share(0, rss, "", rss, parts)],
        None,
        mallocs=[malloc],
        tried=tried,
    )
    ledger.check()
    return ledger


def text_of(ledger: Ledger) -> str:
    stream = io.StringIO()
    print_ledger(ledger, make_console(stream))
    return stream.getvalue()


def test_free_pages_of_a_pool_of_arrow_are_returned_by_arrows_function() -> None:
    ledger = ledger_of()
    (malloc,) = ledger.mallocs
    assert 'mallctl("arena.4096.purge", …) returns them' in answer_ledger(ledger)
    arrow = malloc._replace(file="/site-packages/pyarrow/libarrow.so.2600")
    said = answer_ledger(ledger._replace(mallocs=[arrow]))
    assert "pyarrow.jemalloc_memory_pool().release_unused()" in said and "mallctl" not in said


def test_the_first_sentence_says_what_a_purge_returns_and_what_it_can_not() -> None:
    assert answer_ledger(ledger_of(PURGE)) == (
        "43.0 MiB resident; jemalloc has 5.0 MiB of live blocks in 38.0 MiB of pages in use:"
        ' mallctl("arena.4096.purge", …) returns 1.0 MiB (tried in a copy); 32.0 MiB are holes in slabs, 30.0 MiB of'
        " them in 1,204 slabs that 9,300 live blocks of 48 bytes share: moving live blocks (CONFIG SET activedefrag"
        " yes) or a restart returns these"
    )


@pytest.mark.parametrize(("read", "is_as_read"), [(MIB, True), (MIB + (1 << 19), True), (2 * MIB, False)])
def test_figures_that_differ_by_more_than_half_a_mib_are_said_to(read: int, is_as_read: bool) -> None:
    row = PURGE._replace(read_bytes=read)
    assert row.is_as_read == is_as_read
    assert ("although by reading it is 2.0 MiB" in answer_ledger(ledger_of(row))) != is_as_read
    assert ("the two differ" in text_of(ledger_of(row))) != is_as_read


def test_what_was_not_tried_is_unknown_and_not_nothing() -> None:
    why = "it waits for a lock that a thread of the process held"
    row = PURGE._replace(returned_bytes=None, copies=3, why_not=why)
    assert row.is_as_read is None
    said = " ".join(text_of(ledger_of(row)).split())
    assert "not tried 1.0 MiB jemalloc (redis-server)" in said
    assert "a thread of the process held (3 copies)" in said
    assert "tried in a copy" not in answer_ledger(ledger_of(row))
    (document,) = json.loads(ledger_json(ledger_of(row)))["tried"]
    assert (document["returned_bytes"], document["why_not_tried"]) == (None, why)
