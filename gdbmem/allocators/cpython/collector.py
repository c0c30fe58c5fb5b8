"""The state of CPython's garbage collector in an interpreter, found without symbols: CPython 3.9 to 3.15.

Three generations, each a circular list's head and two counts, are followed by the permanent generation (gc.freeze())
and by statistics of each generation: three words, or since 3.15 the address of rings of longer records
(Include/internal/pycore_gc.h, pycore_interp_structs.h; struct gc_generation, gc_generation_stats, gc_stats).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

from gdbmem.model.memory import Memory, MemoryUnreadable, word_at, words_at

LINKS_BYTES = 16  # two words before each object that can be tracked; the first is 0 while it is not
_GENERATION_BYTES = 24  # two links, threshold and count
_ALIGNMENT = 4  # of a generation: Debian 13's Python 3.13 has it at no multiple of 8
_SEARCHED = 1 << 16  # bytes of an interpreter's state
_PIECE = 1 << 12
_FLAGS = 3  # low bits of a link
_STATISTICS = 3  # words of a generation: collections, collected, uncollectable
_RINGS = (11, 3, 3)  # records of each generation since 3.15, followed by the number of the last
_RECORD, _RUNS_IN_RECORD = 8, 2  # words
_MOST_RUNS = 1 << 40
_FROZEN_AT_START = 1000


class CollectorState(NamedTuple):
    """The collector's work in one process."""

    full_collections: (
        int  # of the oldest generation, since the start of the process and of those that it descends from
    )
    has_frozen: bool  # gc.freeze() was called, so that it leaves the objects of that moment alone


class Collector(NamedTuple):
    """The addresses of the parts of a collector's state."""

    permanent: int  # generation
    statistics: int

    def state(self, memory: Memory) -> Optional[CollectorState]:
        """Return the state in *memory*, of this process or one that it forked; None if it is not one."""
        try:
            runs = _runs_in_rings(memory, word_at(memory, self.statistics)) or _runs_in_words(
                memory, self.statistics
            )
            if runs is None:
                return None
            frozen = _is_long(memory, self.permanent)
        except MemoryUnreadable:
            return None
        return CollectorState(runs[-1], frozen)


def find_collector(memory: Memory, interpreter: int) -> Optional[Collector]:
    """Return the collector of the interpreter whose state is at *interpreter*; None if it was not recognised."""
    data = b""
    try:
        while len(data) < _SEARCHED:
            data += memory.read(interpreter + len(data), _PIECE)
    except MemoryUnreadable:
        pass
    for at in range(0, len(data) - 5 * _GENERATION_BYTES, _ALIGNMENT):
        if not all(_is_head(memory, interpreter, data, at + part * _GENERATION_BYTES) for part in range(3)):
            continue
        permanent = at + 3 * _GENERATION_BYTES
        word = -(-permanent // 8) * 8
        if _word_in(data, word) == interpreter + at:  # up to 3.13 the address of the youngest is in between
            permanent = word + 8
        if not _is_head(memory, interpreter, data, permanent):
            continue
        address = interpreter + permanent
        found = Collector(address, -(-(address + _GENERATION_BYTES) // 8) * 8)
        if found.state(memory) is not None:
            return found
    return None


def _word_in(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _is_long(memory: Memory, head: int) -> bool:
    """Return whether the list at *head* has more objects than Python itself freezes at its start (375 in 3.12)."""
    at = head
    for _ in range(_FROZEN_AT_START):
        at = word_at(memory, at) & ~_FLAGS
        if at == head:
            return False
    return True


def _is_head(memory: Memory, start: int, data: bytes, at: int) -> bool:
    """Return whether a circular list begins at offset *at* of *data*, which is at *start*."""
    head = start + at
    following, before = _word_in(data, at) & ~_FLAGS, _word_in(data, at + 8) & ~_FLAGS
    if following == before == head:
        return True
    if min(following, before) < _PIECE or head in (following, before):
        return False
    try:
        return word_at(memory, following + 8) & ~_FLAGS == word_at(memory, before) & ~_FLAGS == head
    except MemoryUnreadable:
        return False


def _runs_in_words(memory: Memory, address: int) -> Optional[Sequence[int]]:
    """Return the collections of each generation by the words at *address*; None if these are not counts."""
    words = words_at(memory, address, 3 * _STATISTICS)
    return words[::_STATISTICS] if max(words) < _MOST_RUNS else None


def _runs_in_rings(memory: Memory, address: int) -> Optional[Sequence[int]]:
    """Return the collections of each generation by the records at *address*; None if these are not records."""
    runs = []
    try:
        for count in _RINGS:
            words = words_at(memory, address, count * _RECORD + 1)
            records = words[_RUNS_IN_RECORD:-1:_RECORD]
            if words[-1] & 0xFF >= count or max(records) >= _MOST_RUNS:
                return None
            runs.append(max(records))
            address += 8 * len(words)
    except MemoryUnreadable:
        return None
    return runs


# Offset of the call depth in a thread's state: CPython 3.8 to 3.13 (Include/cpython/pystate.h).
#
# Up to 3.9 a thread that has overflowed may make 50 more calls until it is back far below its limit, and one more
# ends the process; in later versions only while the error is created. In all versions the count is next to the word
# that leads to the frames.


_LARGEST = 1 << 30  # of a limit
_MOST_OVERFLOWS = 8  # one within the other


class CallDepth(NamedTuple):
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
