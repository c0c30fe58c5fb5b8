"""The ring buffers that the kernel writes records into, one per processor."""

from __future__ import annotations

import mmap
import struct

from gdbmem.linux.memory.resident import PAGE_BYTES

_AT_HEAD, _AT_TAIL = 1024, 1032  # in the ring's first page; the data follows it
HEADER = struct.Struct("<IHH")  # type, misc, size


class Ring:
    """The ring of one event, mapped here."""

    def __init__(self, descriptor: int, pages: int) -> None:
        """Map the ring of *descriptor* with so many pages of data, a power of two. Raises OSError."""
        self.descriptor = descriptor
        self.size_bytes = pages * PAGE_BYTES
        self._memory = mmap.mmap(descriptor, self.size_bytes + PAGE_BYTES)

    def take(self) -> bytes:
        """Return all complete records written since the last call, in order, and release their space."""
        size = self.size_bytes
        head, tail = struct.unpack_from("<QQ", self._memory, _AT_HEAD)
        start, end = PAGE_BYTES + tail % size, PAGE_BYTES + head % size
        if head == tail:
            return b""
        data = self._memory[start:end] if start < end else self._memory[start:] + self._memory[PAGE_BYTES:end]
        struct.pack_into("<Q", self._memory, _AT_TAIL, head)
        return data

    def close(self) -> None:
        """Unmap it."""
        self._memory.close()
