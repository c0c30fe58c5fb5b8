"""The ring buffers that the kernel writes records into, one per processor."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator

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
        self._view = memoryview(self._memory)

    def take(self) -> Iterator[memoryview]:
        """Yield all complete records written since the last call, in order, as pieces of the ring itself.

        Their space is released when all are taken; the pieces must not be used after that.
        """
        size, data = self.size_bytes, self._view[PAGE_BYTES:]
        head, tail = struct.unpack_from("<QQ", self._memory, _AT_HEAD)
        if head == tail:
            return
        start, end = tail % size, head % size
        if start < end:
            yield data[start:end]
        else:
            whole = _end_of_whole_records(data, start)
            yield data[start:whole]
            beyond = 0
            if whole < size:  # a record that wraps around
                beyond = whole + HEADER.unpack_from(data, whole)[2] - size
                yield memoryview(bytes(data[whole:]) + bytes(data[:beyond]))
            yield data[beyond:end]
        struct.pack_into("<Q", self._memory, _AT_TAIL, head)

    def close(self) -> None:
        """Unmap it."""
        self._view.release()
        self._memory.close()


def _end_of_whole_records(data: memoryview, at: int) -> int:
    """Return the end of the last complete record in *data* that begins at or after *at*."""
    while at < len(data):
        after = at + HEADER.unpack_from(data, at)[2]
        if after > len(data):
            break
        at = after
    return at
