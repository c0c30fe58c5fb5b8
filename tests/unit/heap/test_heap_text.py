"""The answer of `gdbmem heap` in one sentence."""

from __future__ import annotations

import pytest

from gdbmem.heap.text import HolderWords
from gdbmem.model.heap_graph import HeapView, Holder, Leaks

MIB = 1 << 20
VARIABLE = Holder("cache", "variable", 0x1000, "", 100 << 10, 2, 0, [], ())


@pytest.mark.parametrize(
    ("holders", "lost", "said"),
    [
        ([VARIABLE], MIB, "1.0 MiB are lost, 100.0 KiB are retained by cache."),
        ([VARIABLE], 50 << 10, "1.2 MiB: 100.0 KiB are retained by cache."),
        ([], MIB, "1.2 MiB: 1.0 MiB are lost."),
        ([], 1, "no holder retains 2 % of it."),
    ],
)
def test_where_most_of_a_heap_is_lost_the_answer_does_not_name_a_small_holder_alone(
    holders: list[Holder], lost: int, said: str
) -> None:
    leaks = Leaks(lost, 9, lost, 9, [])
    view = HeapView("server", 1, 1002, MIB + (200 << 10), 0, 0, 0, "root", holders, len(holders), leaks)
    assert HolderWords({}).answer(view).endswith(said)
