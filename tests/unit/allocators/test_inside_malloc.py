"""A thread counts as inside malloc when it can return there, not by a word that an earlier call left."""

from __future__ import annotations

import struct
from typing import cast

import pytest

from gdbmem.allocators.glibc import bins
from gdbmem.linux.elf.objects import Image
from gdbmem.model.memory import Memory, MemoryUnreadable, ThreadPointers

MALLOC, WAITS, SIGRETURN, STACK = 0x100000, 0x200000, 0x300000, 0x400000
READ, BRK, FUTEX, NONE = 0, 12, 202, (1 << 64) - 1


class Pieces:
    """Memory of a few pieces."""

    def __init__(self, pieces: dict[int, bytes]) -> None:
        self._pieces = pieces

    def read(self, address: int, size: int) -> bytes:
        for start, content in self._pieces.items():
            if start <= address and address + size <= start + len(content):
                return content[address - start : address - start + size]
        raise MemoryUnreadable(address)


def inside_malloc(monkeypatch: pytest.MonkeyPatch, *words: int, call: int, counter: int = WAITS + 2) -> int:
    monkeypatch.setattr(bins, "exported", lambda *_: {"malloc": MALLOC, "free": MALLOC + 0x500})
    stack = struct.pack("<512Q", *words, *[0] * (512 - len(words)))
    memory = Pieces(
        {
            WAITS: b"\x0f\x05".ljust(16, b"\x90"),
            SIGRETURN: b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05".ljust(16),
            STACK: stack,
        }
    )
    thread = ThreadPointers(1, 0, STACK, "", counter, call)
    return bins.threads_inside(
        cast(Memory, memory), cast(Image, type("One", (), {"start": 0, "bias": 0})), [thread]
    )


@pytest.mark.parametrize("call", [READ, FUTEX])
def test_what_an_earlier_call_left_on_a_waiting_threads_stack_is_no_malloc(
    call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert inside_malloc(monkeypatch, WAITS + 8, MALLOC + 254, call=call) == 0


@pytest.mark.parametrize("call", [BRK, NONE, -1])
def test_a_thread_that_asks_the_kernel_for_memory_or_runs_may_be_in_malloc(
    call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert inside_malloc(monkeypatch, WAITS + 8, MALLOC + 254, call=call) == 1


def test_malloc_that_a_signal_interrupted_is_seen_behind_the_handler_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert inside_malloc(monkeypatch, WAITS + 8, SIGRETURN, MALLOC + 254, call=READ) == 1
    assert inside_malloc(monkeypatch, WAITS + 8, MALLOC + 254, SIGRETURN, call=READ) == 0


def test_a_thread_that_runs_in_mallocs_own_code_is_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inside_malloc(monkeypatch, call=NONE, counter=MALLOC + 8) == 1


def test_a_signed_return_address_leads_where_it_does_without_its_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signed = 0x00B5 << 48 | MALLOC + 254
    monkeypatch.setattr(bins, "_ADDRESS", (1 << 64) - 1)
    assert inside_malloc(monkeypatch, signed, call=BRK) == 0, "no address on x86-64"
    monkeypatch.setattr(bins, "_ADDRESS", (1 << 48) - 1)
    assert inside_malloc(monkeypatch, signed, call=BRK) == 1
