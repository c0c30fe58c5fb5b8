"""Threads as malloc's readers need them."""

from __future__ import annotations

from gdbmem.records import dataclass


@dataclass(frozen=True)
class ThreadPointers:
    """One thread, with the registers that the analysis needs."""

    tid: int
    thread_pointer: int
    stack_pointer: int = 0
    name: str = ""
    program_counter: int = 0
    system_call: int = -1  # its number, where the thread stands in one; -1: unknown
