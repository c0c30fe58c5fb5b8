"""Where a thread's state counts how deep it is in calls: CPython 3.8 to 3.13 (Include/cpython/pystate.h).

Up to 3.9 a thread that has overflowed may make 50 more calls until it is back far below its limit, and one more than
that ends the process; later that is so only while the error is made. In all of them the count stands beside what leads
to the frames.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from gdbmem.model.memory import Memory, MemoryUnreadable
from gdbmem.records import dataclass

_LARGEST = 1 << 30  # of a limit
_MOST_OVERFLOWS = 8  # one within the other


@dataclass(frozen=True)
class CallDepth:
    """Offsets in a thread's state."""

    overflowed: int  # of a byte that is 0 unless the thread may go beyond its limit now
    remaining: tuple[int, ...] = ()  # of 32 bits: how many calls it may still make
    made: Optional[int] = None  # of 32 bits, where there are no *remaining* ones: how many it has made

    def is_plausible(self, memory: Memory, thread: int) -> bool:
        """Tell whether the state of *thread* has such numbers there. Raises MemoryUnreadable."""
        overflowed = memory.read(thread + self.overflowed, 1)[0]
        places = self.remaining if self.made is None else (self.made,)
        counts = [int.from_bytes(memory.read(thread + at, 4), "little", signed=True) for at in places]
        return overflowed <= _MOST_OVERFLOWS and all(-_LARGEST < count < _LARGEST for count in counts)


def call_depth(
    memory: Memory, threads: Iterable[int], frame: int, *, is_record: bool, is_3_11: bool
) -> Optional[CallDepth]:
    """Return the offsets, the word at *frame* leading to the frames; None where those aren't recognised.

    *is_record*: it leads to a record with the frame's address, or the frame's address stands there since 3.13.
    """
    if not is_record:
        found = CallDepth(overflowed=frame + 12, made=frame + 8)
    elif is_3_11:
        found = CallDepth(overflowed=frame - 16, remaining=(frame - 24,))
    else:
        found = CallDepth(overflowed=frame - 16, remaining=(frame - 28, frame - 20))
    try:
        return found if all(found.is_plausible(memory, thread) for thread in threads) else None
    except MemoryUnreadable:
        return None
