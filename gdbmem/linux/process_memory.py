"""The memory of a live process, through /proc/PID/mem."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Optional

from gdbmem.errors import TargetError
from gdbmem.linux.living import memory_folder
from gdbmem.linux.maps import Mapping
from gdbmem.linux.pages import Ranges, resident_ranges, swapped_ranges
from gdbmem.model.memory import Buffer, Memory, MemoryUnreadable


class PageAbsent(MemoryUnreadable):
    """An address whose page would have to come back into memory to be read."""


class CarefulMemory:
    """A `Memory` whose reading makes the process no larger.

    A page of a file that is read comes to be resident: around an address nothing is read where a file is mapped.
    *absent* pages would come back from swap, or by whoever watches them: they are not read at all.
    """

    def __init__(self, memory: Memory, mappings: Iterable[Mapping], absent: Ranges) -> None:
        self._memory = memory
        self._files = Ranges((m.start, m.end) for m in mappings if m.is_file)
        self._absent = absent
        if not absent.items:
            self.read, self.read_into = memory.read, memory.read_into  # type: ignore[method-assign]

    def read(self, address: int, size: int) -> bytes:
        self._check(address, size)
        return self._memory.read(address, size)

    def read_into(self, address: int, buffer: Buffer) -> None:
        self._check(address, memoryview(buffer).nbytes)
        self._memory.read_into(address, buffer)

    def read_around(self, address: int, size: int) -> bytes:
        if self._files.within(address, address + size):
            raise MemoryUnreadable(address, "a file is mapped there")
        return self.read(address, size)

    def _check(self, address: int, size: int) -> None:
        if self._absent.within(address, address + size):
            raise PageAbsent(address, "it is swapped out, or another process has to supply it")


def absent_pages(pid: int, mappings: Iterable[Mapping], *, swapped: bool) -> Ranges:
    """Return the pages of *pid* whose reading would bring them into memory, or wait for another thread.

    Those that are swapped out don't count if *swapped*; missing ones that a userfaultfd supplies always do.
    """
    watched = [(m.start, m.end) for m in mappings if "um" in m.flags.split()]
    areas = [] if swapped else [(m.start, m.end) for m in mappings if m.is_anonymous and m.swap_bytes]
    missing: list[tuple[int, int]] = []
    if watched:
        present = resident_ranges(pid, watched)[0]
        missing = [piece for start, end in watched for piece in present.gaps(start, end)]
    return Ranges([*missing, *(swapped_ranges(pid, areas) if areas else ())])


class ProcMemory:
    """A `Memory` over /proc/PID/mem; a descriptor that is already open may be given instead of a pid."""

    def __init__(self, pid: int, descriptor: Optional[int] = None) -> None:
        try:
            self.descriptor = (
                os.open(f"{memory_folder(pid)}/mem", os.O_RDONLY | os.O_CLOEXEC)
                if descriptor is None
                else descriptor
            )
        except OSError as error:
            raise TargetError(
                f"the memory of process {pid} can't be read: {error.strerror}",
                slug="memory-unreadable",
                hint="run as the process's user, or as root",
            ) from error

    def read(self, address: int, size: int) -> bytes:
        try:
            data = os.pread(self.descriptor, size, address)
        except (OSError, OverflowError) as error:
            raise MemoryUnreadable(address, getattr(error, "strerror", "") or "") from None
        while 0 < len(data) < size:  # the kernel returns at most 2 GiB at once
            try:
                piece = os.pread(self.descriptor, size - len(data), address + len(data))
            except OSError:
                break
            if not piece:
                break
            data += piece
        if len(data) != size:
            raise MemoryUnreadable(address + len(data))
        return data

    def read_into(self, address: int, buffer: Buffer) -> None:
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            try:
                count = os.preadv(self.descriptor, [view[done:]], address + done)
            except (OSError, OverflowError) as error:
                raise MemoryUnreadable(address + done, getattr(error, "strerror", "") or "") from None
            if count == 0:
                raise MemoryUnreadable(address + done, "the process has ended")
            done += count

    def close(self) -> None:
        os.close(self.descriptor)

    def __enter__(self) -> ProcMemory:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
