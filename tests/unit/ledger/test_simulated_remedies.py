"""Remedies: nothing is predicted that the walk leaves open, and the best is the one that returns most."""

from __future__ import annotations

import io
import json
from typing import Optional

import pytest

from gdbmem.allocators.glibc.arenas import ArenaState
from gdbmem.allocators.glibc.caches import Caches
from gdbmem.allocators.glibc.heap import ArenaReading, HeapReading
from gdbmem.allocators.glibc.layout import PARAMETERS, STATES, Found, MallocLayout, Parameters
from gdbmem.allocators.glibc.tallies import FASTBIN, FREE, LIVE, PAGE, TCACHE, HeapTally
from gdbmem.formats.documents import read_ledger
from gdbmem.ledger.document import ledger_json
from gdbmem.ledger.remedies import conclusion, measured_json, print_remedies, remedies_json, simulate_remedies
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.ledger import (
    AT_REST,
    TRIM,
    Entry,
    Ledger,
    MeasuredRemedies,
    MeasuredRemedy,
    OtherMalloc,
    Remedy,
    best_first,
    best_remedy,
)
from gdbmem.terminal.console import make_console

KIB, MIB = 1 << 10, 1 << 20
START = 0x7F0000000000
ACTUAL = Parameters(0, 0, 0, 0, 0, trim_threshold=128 * KIB, top_pad=128 * KIB, mmap_threshold=128 * KIB)


def heap_of(
    *pieces: tuple[int, int], threads: int = 1, parameters: Optional[Parameters] = ACTUAL
) -> HeapReading:
    """Return a heap of one arena whose regions are *pieces* of (state, bytes), the last of them being its top."""
    size = sum(piece[1] for piece in pieces)
    tally, at = HeapTally(START, START + size), START
    for kind, length in pieces:
        tally.add_range(kind, at, at + length)
        tally.bytes[kind] += length
        tally.sizes.setdefault(length, [0] * 4)[kind] += 1
        at += length
    top = pieces[-1][1]
    state = ArenaState(0, 1, START + size - top, top, size, locked=False, fastbins=())
    found = Found(1, MallocLayout(STATES[0][1], PARAMETERS[0][1]), 2, "layouts")
    heap, arena = HeapReading(found, parameters, Caches()), ArenaReading(state)
    heap.caches.arena_of = dict.fromkeys(range(threads), 1)
    heap.arenas, arena.tallies = [arena], [tally]
    return heap


def simulated(heap: HeapReading, *, trimmed: int = 0, resident: Optional[Ranges] = None) -> dict[str, Remedy]:
    tally = heap.arenas[0].tallies[0]
    freed = sum(tally.bytes[state] for state in (FREE, TCACHE, FASTBIN))
    ledger = Ledger("p", 1, freed, [Entry("heap.free.cached", "", freed)], [], trimmed)
    everything = resident or Ranges([(tally.start, tally.end)])
    return {r.setting.rpartition("glibc.malloc.")[2]: r for r in simulate_remedies(heap, everything, ledger)}


def test_what_a_tcache_keeps_at_the_end_of_a_heap_would_have_been_trimmed_with_what_lies_below_it() -> None:
    heap = heap_of((LIVE, PAGE), (FREE, 8 * MIB), (TCACHE, PAGE), (FREE, 32 * KIB))
    found = simulated(heap)["tcache_count=0"]
    assert found.predicted_bytes == pytest.approx(8 * MIB, rel=0.05)
    assert found.low_bytes < 8 * MIB - 128 * KIB < found.high_bytes


def test_a_live_block_behind_it_keeps_it_all_the_same() -> None:
    heap = heap_of((LIVE, PAGE), (FREE, 8 * MIB), (TCACHE, PAGE), (LIVE, PAGE), (FREE, 32 * KIB))
    found = simulated(heap)["tcache_count=0"]
    assert (found.predicted_bytes, found.high_bytes) == (None, round(PAGE * 1.1))


@pytest.mark.parametrize("below", [PAGE, PAGE + 3600], ids=["one-page", "two-pages"])
def test_a_tcache_that_malloc_made_at_the_end_for_the_first_freed_block_would_not_be_there(
    below: int,
) -> None:
    heap = heap_of((LIVE, PAGE), (FREE, 8 * MIB), (TCACHE, below), (LIVE, 768), (FREE, 32 * KIB))
    assert simulated(heap)["tcache_count=0"].predicted_bytes is None
    heap.caches.late_tcaches = [(START + PAGE + 8 * MIB + below, 768)]
    found = simulated(heap)["tcache_count=0"]
    assert found.predicted_bytes == pytest.approx(8 * MIB, rel=0.05)


def test_blocks_in_fastbins_are_not_believed_to_be_joined() -> None:
    heap = heap_of((LIVE, PAGE), (FASTBIN, 8 * MIB), (TCACHE, PAGE), (FREE, 32 * KIB))
    assert simulated(heap)["tcache_count=0"].predicted_bytes is None


@pytest.mark.parametrize(("threads", "is_known"), [(1, False), (8, True)])
def test_what_tcaches_hold_is_shared_only_where_an_arena_has_several_threads(
    threads: int, is_known: bool
) -> None:
    pieces = [piece for _ in range(8) for piece in ((LIVE, PAGE), (TCACHE, 256 * KIB))]
    heap = heap_of(*pieces, (LIVE, PAGE), (FREE, 4 * KIB), threads=threads)
    found = simulated(heap)["tcache_count=0"]
    assert (found.predicted_bytes is not None) == is_known
    assert found.high_bytes <= 8 * 256 * KIB + 4 * KIB


def test_a_page_that_is_not_resident_gives_nothing_back() -> None:
    heap = heap_of((LIVE, PAGE), (FREE, 8 * MIB), (TCACHE, PAGE), (FREE, 32 * KIB))
    assert simulated(heap, resident=Ranges([(START, START + PAGE)]))["tcache_count=0"].high_bytes == 0


def test_only_where_the_thresholds_have_risen_setting_them_is_predicted_to_help() -> None:
    risen = ACTUAL._replace(trim_threshold=64 * MIB, mmap_threshold=32 * MIB)
    pieces = ((LIVE, PAGE), (FREE, 20 * MIB))
    assert simulated(heap_of(*pieces, parameters=risen))[
        "trim_threshold=131072"
    ].predicted_bytes == pytest.approx(20 * MIB, rel=0.02)
    as_it_was = simulated(heap_of(*pieces))
    assert as_it_was["trim_threshold=131072"].predicted_bytes == 0
    assert as_it_was["mmap_threshold=131072"].predicted_bytes == 0


def test_no_interval_is_wider_than_half_of_its_prediction() -> None:
    for free in (64 * KIB, 192 * KIB, 512 * KIB, 8 * MIB):
        heap = heap_of((LIVE, PAGE), (FREE, free), (TCACHE, PAGE), (FREE, 32 * KIB), threads=3)
        for remedy in simulated(heap, trimmed=free).values():
            assert remedy.low_bytes <= remedy.high_bytes
            if remedy.predicted_bytes is not None:
                assert remedy.high_bytes - remedy.low_bytes <= remedy.predicted_bytes / 2
                assert remedy.low_bytes <= remedy.predicted_bytes <= remedy.high_bytes


def test_from_a_heap_in_doubt_nothing_is_predicted() -> None:
    heap = heap_of((LIVE, PAGE), (FREE, 8 * MIB), (TCACHE, PAGE), (FREE, 32 * KIB))
    heap.has_gaps = True
    assert all(remedy.predicted_bytes is None for remedy in simulated(heap, trimmed=8 * MIB).values())


def test_the_best_is_the_one_that_is_predicted_to_give_back_most() -> None:
    heap = heap_of((LIVE, PAGE), (FREE, 8 * MIB), (TCACHE, PAGE), (FREE, 32 * KIB))
    for trimmed, best in ((8 * MIB + 16 * KIB, TRIM), (MIB, "glibc.malloc.tcache_count=0")):
        found = best_remedy(tuple(simulated(heap, trimmed=trimmed).values()))
        assert found is not None
        assert found.setting == best
    assert best_remedy(()) is None


def test_what_is_listed_is_what_json_has_and_a_saved_ledger_keeps_it() -> None:
    remedies = (
        Remedy(TRIM, 5 * MIB, 5 * MIB, 5 * MIB, "a price"),
        Remedy("glibc.b=2", None, 0, MIB, "another"),
    )
    ledger = Ledger("p", 1, 0, [], [], 5 * MIB, remedies=remedies)
    stream = io.StringIO()
    print_remedies(ledger, make_console(stream))
    assert "5.0 MiB  " in stream.getvalue()
    assert "unknown until measured, at most 1.0 MiB" in stream.getvalue()
    document = json.loads(remedies_json(ledger))
    assert document["kind"] == "remedies"
    assert [one["predicted_bytes"] for one in document["remedies"]] == [5 * MIB, None]
    assert read_ledger(ledger_json(ledger), "x").remedies == remedies


def test_remedies_of_a_large_jemalloc_are_pointed_to_though_glibc_has_some_beside_it() -> None:
    malloc = OtherMalloc("allocator.jemalloc", "", "5.3", "/usr/bin/app", 9 * MIB, 9, 0, 1, 0, 0, 0, 0, 0, ())
    for remedies in ((), (Remedy(TRIM, MIB, MIB, MIB, "a price"),)):
        stream = io.StringIO()
        print_remedies(
            Ledger("p", 1, 0, [], [], MIB, remedies=remedies, mallocs=(malloc,)),
            make_console(stream, width=200),
        )
        assert "'gdbmem compare --remedies -- PROGRAM' measures settings of jemalloc" in stream.getvalue()


@pytest.mark.parametrize("width", [60, 92, 100])
def test_a_gain_is_broken_into_two_lines_only_where_the_screen_is_narrow(width: int) -> None:
    costly = [Remedy(f"glibc.malloc.{'m' * 22}", None, 0, 11 * MIB, "a long sentence on its cost, " * 3)] * 2
    stream = io.StringIO()
    print_remedies(Ledger("p", 1, 0, [], [], 0, remedies=tuple(costly)), make_console(stream, width=width))
    shown = stream.getvalue()
    assert ("unknown until measured, at most 11.0 MiB  glibc." in shown) == (width > 90)


# -- measured ---------------------------------------------------------------------------------------------


def row(name: str, gained: Optional[int], predicted: Optional[int], spread: int = 8 * KIB) -> MeasuredRemedy:
    low, high = (predicted - MIB, predicted + MIB) if predicted is not None else (0, 20 * MIB)
    remedy = Remedy(name, predicted, low, high, "some cost")
    if gained is None:
        return MeasuredRemedy(remedy, why_not="no gdb")
    return MeasuredRemedy(remedy, gained, gained - spread, gained + spread)


def test_which_of_equal_remedies_is_named_first_is_not_left_to_chance() -> None:
    luckiest = row("mmap_threshold", 20 * MIB + 8 * KIB, None)
    rows = [luckiest, row("top_pad", 20 * MIB, 20 * MIB), row(TRIM, 20 * MIB - 4 * KIB, 20 * MIB + 1)]
    for order in (rows, rows[::-1]):
        found = best_first(order, 24 * MIB)
        assert [one.remedy.setting for one in found] == [TRIM, "top_pad", "mmap_threshold"]
    ledger = Ledger("p", 1, 24 * MIB, [], [], 0)
    said = conclusion(ledger, MeasuredRemedies(("p",), AT_REST, 24 * MIB, 2, best_first(rows, 24 * MIB)))
    assert f"{TRIM} returns most: 20.0 MiB, as predicted (" in said
    assert said.endswith("; top_pad, mmap_threshold give as much")


def test_what_gives_back_more_is_best_though_nobody_predicted_it() -> None:
    rows = [row("top_pad", 17 * MIB, 17 * MIB), row("mmap_threshold", 20 * MIB, None), row(TRIM, None, 3)]
    found = MeasuredRemedies(("p",), AT_REST, 24 * MIB, 2, best_first(rows, 24 * MIB))
    assert [one.remedy.setting for one in found.remedies] == ["mmap_threshold", "top_pad", TRIM]
    assert found.equals_of_best == ()


def test_remedies_that_noisy_runs_cannot_tell_apart_are_equal_only_where_they_are_near() -> None:
    noisy = [
        row("a", 20 * MIB, None, 9 * MIB),
        row("b", 19 * MIB, 19 * MIB, 9 * MIB),
        row("c", 15 * MIB, 15 * MIB, 9 * MIB),
    ]
    assert [one.remedy.setting for one in best_first(noisy, 24 * MIB)] == ["b", "a", "c"]


def test_workers_that_were_not_measured_are_reported() -> None:
    ledger = Ledger("p", 1, 24 * MIB, [], [], 0)
    document = json.loads(measured_json(ledger, MeasuredRemedies(("p",), AT_REST, 24 * MIB, 2, (), 3)))
    assert document["children"] == 3
    assert "the program had started 3 other processes" in document["warnings"][-1]["message"]
    alone = json.loads(measured_json(ledger, MeasuredRemedies(("p",), AT_REST, 24 * MIB, 2, ())))
    assert alone["warnings"] == []
