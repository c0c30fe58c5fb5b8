"""A heap as a picture: its address space in cells of equal size, each with what lies in it."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.records import dataclass

# States of a cell's bytes, in this order. The last are not in memory: returned, or never touched.
PARTS = ("live", "cached", "pinned", "releasable", "absent")


@dataclass(frozen=True)
class MapRegion:
    """One piece of the heap; of each cell the bytes of each of PARTS."""

    name: str
    start: int
    end: int
    cells: Sequence[Sequence[int]]


@dataclass(frozen=True)
class HeapMap:
    """The regions of a heap, in order of address."""

    cell_bytes: int  # the last cell of a region may be smaller
    regions: Sequence[MapRegion]

    def totals(self) -> list[int]:
        """Return the bytes of each of PARTS."""
        return [
            sum(cell[part] for region in self.regions for cell in region.cells) for part in range(len(PARTS))
        ]
