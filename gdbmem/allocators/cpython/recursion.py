"""Offset of the call depth in a thread's state: CPython 3.8 to 3.13 (Include/cpython/pystate.h).

Up to 3.9 a thread that has overflowed may make 50 more calls until it is back far below its limit, and one more ends
the process; in later versions only while the error is created. In all versions the count is next to the word that
leads to the frames.
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

    overflowed: int  # of a byte that is 0 unless the thread may exceed its limit now
    remaining: tuple[int, ...] = ()  # of 32 bits: the remaining calls
    made: Optional[int] = None  # of 32 bits, if there are no *remaining* ones: the current depth

    def is_plausible(self, memory: Memory, thread: int) -> bool:
        """Return whether the state of *thread* has plausible numbers there. Raises MemoryUnreadable."""
        overflowed = memory.read(thread + self.overflowed, 1)[0]
        places = self.remaining if self.made is None else (self.made,)
        counts = [int.from_bytes(memory.read(thread + at, 4), "little", signed=True) for at in places]
        return overflowed <= _MOST_OVERFLOWS and all(-_LARGEST < count < _LARGEST for count in counts)


def call_depth(
    memory: Memory, threads: Iterable[int], frame: int, *, is_record: bool, is_3_11: bool
) -> Optional[CallDepth]:
    """Return the offsets, given the offset *frame* of the word that leads to the frames; None if not recognised.

    *is_record*: it points to a record with the frame's address, or is the frame's address itself since 3.13.
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
