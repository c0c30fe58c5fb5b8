"""Calls that a stopped thread makes: where they are made, and how their end is awaited."""

from __future__ import annotations

import os
import time

import pytest

from gdbmem.linux.holding import ptrace, returning_thread
from gdbmem.linux.holding.returning_thread import RESTORER, CallSites, find_call_sites
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.linux.process import process
from gdbmem.model.memory import Buffer

CALL_AND_RETURN = b"\x0f\x05\xc3"
CRYPTO, LIBC = 0x10000000, 0x20000000
SIZE = 1 << 21


class Code:
    """The code of two libraries; it notes which addresses are read."""

    def __init__(self) -> None:
        self.libraries = {CRYPTO: bytearray(SIZE), LIBC: bytearray(SIZE)}
        self.libraries[LIBC][0x1000:0x1009] = RESTORER
        self.libraries[LIBC][0x2000:0x2003] = CALL_AND_RETURN
        self.read_bytes: dict[int, int] = {}

    def read(self, address: int, size: int) -> bytes:
        base = CRYPTO if address < LIBC else LIBC
        self.read_bytes[base] = self.read_bytes.get(base, 0) + size
        return bytes(self.libraries[base][address - base : address - base + size])

    def read_into(self, address: int, buffer: Buffer) -> None:
        raise NotImplementedError


@pytest.mark.skipif(ptrace.machine() is not ptrace.X86_64, reason="only x86-64 has such instructions")
def test_a_copy_of_a_program_with_libcrypto_is_not_delayed_by_a_search_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(returning_thread, "resident_ranges", lambda _, areas: (Ranges(areas), True))
    mappings = [
        Mapping(start, start + SIZE, "r-xp", 0, "08:01", number, f"/usr/lib/{name}")
        for number, (start, name) in enumerate([(CRYPTO, "libcrypto.so.3"), (LIBC, "libc.so.6")], 1)
    ]
    code = Code()
    assert find_call_sites(1, code, mappings) == CallSites(LIBC + 0x1000, LIBC + 0x2000)
    assert CRYPTO not in code.read_bytes
    assert code.read_bytes[LIBC] < SIZE  # the rest is not looked at


def test_waiting_for_a_clone_of_many_gigabytes_costs_no_look_at_the_thread_every_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    looks: list[int] = []

    def lives(_: int, tid: int) -> bool:
        looks.append(tid)
        return True

    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(os, "waitpid", lambda tid, _: (tid if sum(slept) > 0.2 else 0, 0x57F))
    monkeypatch.setattr(process, "thread_lives", lives)
    assert ptrace.wait_for(4711) == 0x57F
    assert len(slept) > 400  # it notices the end of the call at once
    assert 1 <= len(looks) <= 4


def test_a_thread_that_was_killed_during_a_call_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(os, "waitpid", lambda *_: (0, 0))
    monkeypatch.setattr(process, "thread_lives", lambda *_: False)
    assert ptrace.wait_for(4711) is None
    assert sum(slept) < 0.1
