"""The memory of a live process, through /proc/PID/mem."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Optional

from gdbmem.errors import TargetError
from gdbmem.linux.maps import Mapping
from gdbmem.linux.pages import Ranges
from gdbmem.model.memory import Buffer, Memory, MemoryUnreadable


class CarefulMemory:
    """A `Memory` that is read around an address only where no file is mapped.

    A page of a file that is read comes to be resident: looking at a process would make it larger.
    """

    def __init__(self, memory: Memory, mappings: Iterable[Mapping]) -> None:
        self.read, self.read_into = memory.read, memory.read_into
        self._files = Ranges((m.start, m.end) for m in mappings if m.is_file)

    def read_around(self, address: int, size: int) -> bytes:
        if self._files.within(address, address + size):
            raise MemoryUnreadable(address, "a file is mapped there")
        return self.read(address, size)


class ProcMemory:
    """A `Memory` over /proc/PID/mem; a descriptor that is already open may be given instead of a pid."""

    def __init__(self, pid: int, descriptor: Optional[int] = None) -> None:
        try:
            self.descriptor = (
                os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else descriptor
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
