"""A thread is made to call something only where no filter of it could end its process for what that asks the kernel."""

from __future__ import annotations

import platform
import struct
from collections.abc import Sequence

import pytest

from gdbmem.linux.holding.seccomp import is_harmless

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the numbers of calls are those of x86-64"
)

KILL, TRAP, NOTIFY, TRACE = 0x80000000, 0x00030000, 0x7FC00000, 0x7FF00000
FAIL, LOG, ALLOW = 0x00050001, 0x7FFC0000, 0x7FFF0000
LOAD, STORE, LOAD_KEPT, EQUAL, ABOVE, ANY_BIT, AND, RETURN, RETURN_VALUE = (
    0x20, 0x02, 0x60, 0x15, 0x25, 0x45, 0x54, 0x06, 0x16,
)  # fmt: skip
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
X86_64 = 0xC000003E
MMAP, CLONE, PERSONALITY, OPENAT = 9, 56, 135, 257


def code(*rows: Sequence[int]) -> bytes:
    return b"".join(struct.pack("=HBBI", *(*row, 0, 0, 0)[:4]) for row in rows)


def answering(answer: int, *calls: int, otherwise: int = ALLOW) -> bytes:
    rows = [(LOAD, 0, 0, NUMBER)]
    for call in calls:
        rows += [(EQUAL, 0, 1, call), (RETURN, 0, 0, answer)]
    return code(*rows, (RETURN, 0, 0, otherwise))


@pytest.mark.parametrize("answer", [KILL, 0, TRAP, NOTIFY, TRACE])
def test_a_filter_that_ends_or_asks_somebody_for_mmap_is_no_harmless_one(answer: int) -> None:
    assert not is_harmless(answering(answer, MMAP))
    assert is_harmless(answering(answer, CLONE)), "no allocator asks for that"


def test_a_containers_filter_has_what_it_does_not_know_fail() -> None:
    assert is_harmless(answering(ALLOW, *range(60), otherwise=FAIL))
    assert is_harmless(answering(LOG, MMAP, otherwise=FAIL))
    assert not is_harmless(answering(ALLOW, *range(60), otherwise=KILL)), "it doesn't list openat"


def test_an_answer_that_depends_on_an_argument_counts_as_the_worst_one() -> None:
    by_argument = [
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (ANY_BIT, 0, 1, 4),
        (RETURN, 0, 0, KILL),
        (RETURN, 0, 0, ALLOW),
    ]
    assert not is_harmless(
        code((LOAD, 0, 0, NUMBER), (EQUAL, 0, 4, MMAP), *by_argument, (RETURN, 0, 0, ALLOW))
    )
    assert is_harmless(
        code((LOAD, 0, 0, NUMBER), (EQUAL, 0, 4, PERSONALITY), *by_argument, (RETURN, 0, 0, ALLOW))
    )


def test_the_architecture_and_the_numbers_of_another_one_are_distinguished() -> None:
    rows = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, X86_64), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    assert is_harmless(code(*rows, (ABOVE, 0, 1, 0x3FFFFFFF), (RETURN, 0, 0, KILL), (RETURN, 0, 0, ALLOW)))


def test_what_is_kept_and_computed_on_the_way_is_followed() -> None:
    rows = [(LOAD, 0, 0, NUMBER), (STORE, 0, 0, 3), (LOAD, 0, 0, FIRST_ARGUMENT), (LOAD_KEPT, 0, 0, 3)]
    rows.append((AND, 0, 0, 0xFF))
    assert not is_harmless(
        code(*rows, (EQUAL, 0, 1, OPENAT & 0xFF), (RETURN, 0, 0, KILL), (RETURN, 0, 0, ALLOW))
    )
    assert is_harmless(code(*rows, (EQUAL, 0, 1, CLONE), (RETURN, 0, 0, KILL), (RETURN, 0, 0, ALLOW)))


def test_a_program_that_is_cut_or_returns_what_nobody_knows_is_no_harmless_one() -> None:
    assert not is_harmless(code((LOAD, 0, 0, NUMBER)))
    assert not is_harmless(b"")
    assert not is_harmless(code((LOAD, 0, 0, FIRST_ARGUMENT), (RETURN_VALUE, 0, 0, 0)))
