"""Two moments of one pool of memory."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.model.bfc.pools import Allocator
from gdbmem.records import dataclass


@dataclass(frozen=True)
class PoolChange:
    """Chunks in use of one size or one owner, before and after; sizes are bytes."""

    name: str  # an owner, a stranger's word; "" of a size
    size_bytes: int  # of each of them; 0 of an owner's
    before: int  # chunks
    after: int
    before_bytes: int
    after_bytes: int

    @property
    def delta_bytes(self) -> int:
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True)
class PoolDiff:
    """The changes of one pool. Where chunks are missing on a side, so are its sizes and owners."""

    before: Allocator
    after: Allocator
    sizes: Sequence[PoolChange]  # those that changed, the largest change first
    owners: Sequence[PoolChange]  # none if neither side knows owners

    @property
    def is_complete(self) -> bool:
        return self.before.is_complete and self.after.is_complete
