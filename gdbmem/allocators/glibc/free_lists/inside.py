"""Threads in the middle of malloc, whose data may be temporarily inconsistent."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbmem.linux.elf.elf_symbols import exported
from gdbmem.model.memory import Memory, MemoryUnreadable

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.thread_pointers import ThreadPointers
    from gdbmem.linux.elf.headers import Image

_FUNCTIONS = ("malloc", "free", "calloc", "realloc", "memalign", "malloc_trim", "malloc_info", "mallopt")
_BEFORE, _AFTER = 0x5000, 0x1000  # the non-exported functions of malloc.c are mostly before these
_STACK = 0x1000  # bytes of a thread's stack that are searched for return addresses
_ABORT_BYTES = 0x400
# On aarch64 the upper bits of an address on the stack may be its signature (pointer authentication).
_ADDRESS = (1 << 48) - 1 if platform.machine() == "aarch64" else (1 << 64) - 1
_NONE = 1 << 16  # no system call has a number so high: the kernel writes -1 for none
_SYSCALL, _SVC = b"\x0f\x05", b"\x01\x00\x00\xd4"
# mov, then the call
_SIGRETURN = (b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", b"\x68\x11\x80\xd2\x01\x00\x00\xd4")
# mmap mprotect munmap brk mremap madvise prctl: in these malloc changes its heap. It waits for an arena in futex, where
# the thread that has it is the one that changes something, and that arena is locked.
_CALLS = {_SYSCALL: {9, 10, 11, 12, 25, 28, 157}, _SVC: {222, 226, 215, 214, 216, 233, 167}}


def threads_inside(memory: Memory, image: Image, threads: Sequence[ThreadPointers]) -> int:
    """Return how many *threads* run in malloc's code, or return to it, except those aborting the process there.

    In a static program without symbols a thread counts as inside if it is not in a system call.
    """
    known = exported(memory, image.start, image.bias, (*_FUNCTIONS, "abort"))
    abort = known.pop("abort", -_ABORT_BYTES)
    if not known:
        return sum(not _in_system_call(memory, thread.program_counter) for thread in threads)
    low, high = min(known.values()) - _BEFORE, max(known.values()) + _AFTER
    count = 0
    for thread in threads:
        places = [thread.program_counter, *_returns(memory, thread.stack_pointer)]
        if any(abort <= place < abort + _ABORT_BYTES for place in places):
            continue
        first = next((index for index, place in enumerate(places) if low <= place < high), None)
        if first is not None and _may_change(memory, thread, places[:first]):
            count += 1
    return count


def _may_change(memory: Memory, thread: ThreadPointers, below: Sequence[int]) -> bool:
    """Return whether *thread* can be in malloc, with a return address into malloc above the words *below* of its stack.

    That word may be left over from an earlier call, in a frame of a function that waits for something else.
    """
    for instruction, numbers in _CALLS.items():
        known = 0 <= thread.system_call < _NONE and thread.system_call not in numbers
        if known and _ends_with(memory, thread.program_counter, instruction):
            return any(_returns_from_signal(memory, place) for place in below)
    return True


def _returns_from_signal(memory: Memory, place: int) -> bool:
    try:
        return memory.read(place, len(_SIGRETURN[0])).startswith(_SIGRETURN)
    except (MemoryUnreadable, OverflowError):
        return False


def _returns(memory: Memory, stack_pointer: int) -> list[int]:
    start = stack_pointer & -8
    for size in (_STACK, 4096 - start % 4096):
        try:
            return [word & _ADDRESS for word in memoryview(memory.read(start, size)).cast("Q")]
        except MemoryUnreadable:
            continue
    return []


def _in_system_call(memory: Memory, program_counter: int) -> bool:
    return any(_ends_with(memory, program_counter, instruction) for instruction in _CALLS)


def _ends_with(memory: Memory, program_counter: int, instruction: bytes) -> bool:
    try:
        return bytes(memory.read(program_counter - len(instruction), len(instruction))) == instruction
    except (MemoryUnreadable, OverflowError):
        return False
