"""Threads with the registers that malloc's readers need."""

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
    system_call: int = -1  # number of the system call that the thread is in; -1: unknown
