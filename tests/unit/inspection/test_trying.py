"""Functions that do not return in a copy are called in further copies, three at most, and then said not to have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from gdbmem.allocators.own_functions import OwnFunction, Step
from gdbmem.inspection.trying import (
    Outcome,
    Returned,
    Trying,
    _Work,
    nothing_to_try,
    try_again,
    work_in_copy,
)
from gdbmem.linux.holding.copying import Awaiting, Copy, KeeperEndedError
from gdbmem.model.ledger import Ledger, Tried

PURGE = OwnFunction("jemalloc", "/lib/j.so", 0x1000, [Step("purge()", ())], (), ())
CLEAN = OwnFunction("tbbmalloc", "/lib/t.so", 0x2000, [Step("clean()", ())], (), ())
LOCKED = Outcome((), "it waits for a lock")
LEDGER = Ledger("a", 1, 0, [], [], None)


class Copies:
    """Keepers of copies, with the outcomes of the functions that each calls."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.asked: list[list[str]] = []

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *_: object) -> None: ...

    def serve(self, request: object) -> object:
        assert isinstance(request, _Work)
        self.asked.append([one.allocator for one in request.functions])
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def results(*answers: object) -> tuple[list[Tried], list[list[str]]]:
    copies, trying = Copies(*answers), Trying("all")
    trying.functions = [PURGE, CLEAN]
    trying.ask(copies)
    try_again(trying, lambda: copies)
    return trying.results(LEDGER), copies.asked


def test_a_copy_that_waits_for_a_lock_is_replaced_and_what_has_returned_is_not_called_again() -> None:
    rows, asked = results([Outcome([Returned(5, 0)]), LOCKED], [Outcome([Returned(7, 0)])])
    assert [(row.returned_bytes, row.copies, row.why_not) for row in rows] == [(5, 1, ""), (7, 2, "")]
    assert asked == [["jemalloc", "tbbmalloc"], ["tbbmalloc"]]


def test_after_three_copies_it_is_unknown_and_the_next_function_has_its_own_three() -> None:
    rows, asked = results([LOCKED], [LOCKED], KeeperEndedError(), [Outcome([Returned(7, 0)])])
    assert [(row.returned_bytes, row.copies) for row in rows] == [(None, 3), (7, 1)]
    assert rows[0].why_not == "the process that had the copy was killed"
    assert asked[-1] == ["tbbmalloc"]


def test_a_copy_that_can_not_be_made_is_not_counted() -> None:
    trying = Trying("all")
    trying.functions = [PURGE._replace(steps=[Step("decay()", (), returns_all=False), *PURGE.steps])]
    trying.refuse("no copy can be made")
    (row,) = trying.results(LEDGER)
    assert (row.why_not, row.copies, row.call) == ("no copy can be made", 0, "purge()")
    assert not trying.unanswered


def test_a_copy_that_the_kernel_has_killed_ends_no_explain() -> None:
    copy = SimpleNamespace(pid=1 << 30, sites=object())  # no process has such a number
    work = _Work([PURGE], (), "")
    assert work_in_copy(cast("Copy", copy), work, cast("Awaiting", None)) == [
        Outcome((), "the copy was killed")
    ]


def test_a_process_without_any_such_function_is_told_so_in_one_sentence() -> None:
    assert Trying("all").results(LEDGER) == []
    (notice,) = nothing_to_try([])
    assert notice.message.startswith("nothing was tried: no allocator")
    assert nothing_to_try([Tried("musl", "", "", why_not="it has no function")]) == []
