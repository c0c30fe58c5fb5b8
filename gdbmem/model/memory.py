"""A process's memory as anything that can be read by address: a live process, a core, gdb, plain bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional, Protocol, Union

from gdbmem.errors import TargetError

Buffer = Union[bytearray, memoryview]


class MemoryUnreadable(TargetError):  # noqa: N818  (what it says is the condition)
    """An address that cannot be read."""

    def __init__(self, address: int, why: str = "") -> None:
        super().__init__(
            f"memory at 0x{address:x} can't be read{f': {why}' if why else ''}",
            slug="memory-unreadable",
            hint="does the process still exist?",
        )
        self.address = address


class Memory(Protocol):
    """Bytes by address. Both methods raise MemoryUnreadable where a byte of the range can't be read."""

    def read(self, address: int, size: int) -> bytes: ...

    def read_into(self, address: int, buffer: Buffer) -> None: ...


class BytesMemory:
    """A `Memory` over pieces of bytes: tests, and areas that were read before."""

    def __init__(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        self._pieces = sorted(pieces)

    def read(self, address: int, size: int) -> bytes:
        for start, data in self._pieces:
            if start <= address and address + size <= start + len(data):
                return data[address - start : address - start + size]
        raise MemoryUnreadable(address)

    def read_into(self, address: int, buffer: Buffer) -> None:
        memoryview(buffer).cast("B")[:] = self.read(address, memoryview(buffer).nbytes)


class WindowedMemory:
    """A `Memory` that reads another in windows and keeps the recent ones: for following pointers.

    A list whose nodes lie near each other, as malloc's do, costs one real read per window. A memory that has a
    ``read_around`` takes that into account, and may refuse data that is not itself requested.
    """

    WINDOW = 1 << 16
    KEPT = 4096

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.windows: dict[int, memoryview] = {}  # number → words; for loops that can't afford a call

    def word(self, address: int) -> int:
        """Return the 8-byte word at *address*, which must be a multiple of 8."""
        number, offset = divmod(address, self.WINDOW)
        window = self.windows.get(number)
        if window is None:
            window = self._load(number, address)
        if window.nbytes == 0:
            return word_at(self._memory, address)
        return window[offset >> 3]

    def words(self, address: int, count: int) -> list[int]:
        """Return *count* words from *address* on, which must be a multiple of 8."""
        number, offset = divmod(address, self.WINDOW)
        window = self.windows.get(number)
        if window is None or offset + 8 * count > window.nbytes:
            return [self.word(address + 8 * n) for n in range(count)]
        return window[offset >> 3 : (offset >> 3) + count].tolist()

    def _load(self, number: int, address: int) -> memoryview:
        if len(self.windows) >= self.KEPT:
            self.windows.pop(next(iter(self.windows)))
        try:
            data = getattr(self._memory, "read_around", self._memory.read)(number * self.WINDOW, self.WINDOW)
        except MemoryUnreadable:
            data = b""  # the window leaves the mapping: words are read one by one
        window = memoryview(data).cast("Q")
        self.windows[number] = window
        return window


def read_pieces(memory: Memory, start: int, end: int, size: int, overlap: int) -> Iterator[tuple[int, bytes]]:
    """Yield address and bytes of each *size* bytes from *start* to *end*, and of the *overlap* bytes behind them.

    Pieces that can't be read are left out.
    """
    for at in range(start, end, size):
        try:
            data = memory.read(at, min(size + overlap, end - at))
        except MemoryUnreadable:
            continue
        yield at, data


def read_text(memory: Memory, address: int, longest: int) -> Optional[bytes]:
    """Return the bytes from *address* to a zero; None if there is none among *longest*. Raises MemoryUnreadable."""
    data = b""
    while len(data) < longest:
        # Little at a time: it may be at the end of the readable memory.
        at = address + len(data)
        data += memory.read(at, min(longest - len(data), 64 - at % 64))
        text, end, _ = data.partition(b"\0")
        if end:
            return text
    return None


def word_at(memory: Memory, address: int) -> int:
    """Return the 8-byte word at *address*."""
    return int.from_bytes(memory.read(address, 8), "little")


def words_at(memory: Memory, address: int, count: int) -> tuple[int, ...]:
    """Return *count* 8-byte words from *address* on."""
    return struct.unpack(f"<{count}Q", memory.read(address, 8 * count))


# In the order of the kernel's register set. Source: x86's user_regs_struct.
X86_64_REGISTERS = (
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi", "orig_rax",
    "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs",
)  # fmt: skip

AARCH64_REGISTERS = (*(f"x{number}" for number in range(31)), "sp", "pc", "pstate")  # source: user_pt_regs


class ThreadPointers(NamedTuple):
    """One thread, with the registers that the analysis needs."""

    tid: int
    thread_pointer: int
    stack_pointer: int = 0
    name: str = ""
    program_counter: int = 0
    system_call: int = -1  # number of the system call that the thread is in; -1: unknown
    registers: Sequence[
        int
    ] = ()  # all of them, as X86_64_REGISTERS or AARCH64_REGISTERS; none: they are unknown
