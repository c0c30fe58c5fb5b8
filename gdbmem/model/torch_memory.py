"""A snapshot of PyTorch's caching allocators: what torch.cuda.memory._dump_snapshot() writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.model.bfc import Allocator, Region
from gdbmem.model.calltree import Frame
from gdbmem.records import dataclass

# Words in the label of an allocator's region: regions of different labels never serve each other's requests.
SMALL, LARGE, EXPANDABLE, PRIVATE = "small", "large", "expandable", "pool "


def is_small(region: Region) -> bool:
    """Return whether *region* serves small requests, up to 1 MiB."""
    return region.label.startswith(SMALL)


def is_private(region: Region) -> bool:
    """Return whether *region* belongs to a private pool, as CUDA graphs have."""
    return PRIVATE in region.label


@dataclass(frozen=True)
class RefusedRequest:
    """An allocation that failed, from the history of its device."""

    device: int
    size_bytes: int
    device_free_bytes: Optional[int]  # free by the driver's count at that time
    stack: int  # index into TorchSnapshot.stacks


@dataclass(frozen=True)
class TorchSegment:
    """One region of an allocator, with what BFC's regions don't have."""

    device: int
    address: int
    size_bytes: int
    stream: int
    is_large: bool
    pool: tuple[int, int]  # (0, 0): the common one; else a private one, as CUDA graphs have
    is_expandable: bool
    stack: int


@dataclass(frozen=True)
class TorchSnapshot:
    """The file's contents: an allocator for each device, and where its blocks were allocated."""

    source: str
    allocators: Sequence[Allocator]  # by device; of each the chunks in the order of its regions
    segments: Sequence[Sequence[TorchSegment]]  # of each allocator, as its regions
    block_stacks: Sequence[Sequence[int]]  # of each allocator's chunks: indices into `stacks`
    stacks: Sequence[Sequence[int]]  # indices into `frames`, allocation site first; stack 0 has none
    frames: Sequence[Frame]
    entries: int  # of the history
    notices: Sequence[Notice]

    @property
    def has_stacks(self) -> bool:
        """True if any block has the stack that allocated it."""
        return any(any(stacks) for stacks in self.block_stacks)
