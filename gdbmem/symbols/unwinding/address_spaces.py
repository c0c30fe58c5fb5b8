"""The code mapped in the processes of a recording, and its changes."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from typing import Any, Optional

from gdbmem.formats.addresses import Binary
from gdbmem.linux.memory.maps import parse_smaps
from gdbmem.records import dataclass, field

_DELETED = " (deleted)"


@dataclass
class CodeRegion:
    """Executable memory; forked processes share their parent's."""

    start: int
    end: int
    offset: int  # of start in the file
    binary: Optional[Binary]  # None: of no file, as a JIT compiler's
    steps: dict[int, object] = field(default_factory=dict)  # by address: what an unwinder knows of it
    places: dict[int, int] = field(default_factory=dict)  # by address: the number of its place

    def offset_of(self, address: int) -> int:
        """Return where in its file *address* lies."""
        return address - self.start + self.offset


class AddressSpace:
    """The code of one process at the moment that was reached."""

    def __init__(self, regions: Iterable[CodeRegion] = ()) -> None:
        self._regions = sorted(regions, key=lambda region: region.start)
        self._starts = [region.start for region in self._regions]
        # Results by address; forgotten when the code changes.
        self.spots: dict[int, Any] = {}  # the unwinder's
        self.paths: dict[tuple[int, ...], int] = {}  # numbers of paths, by the addresses that they go through
        self.alone: dict[int, int] = {}  # and of those that are known to one address only

    def find(self, address: int) -> Optional[CodeRegion]:
        """Return the code that *address* lies in."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._regions[at].end:
            return None
        return self._regions[at]

    def add(self, region: CodeRegion) -> None:
        """Put *region* in the place of what it covers."""
        self.spots, self.paths, self.alone = {}, {}, {}
        covered = [one for one in self._regions if one.start < region.end and region.start < one.end]
        for one in covered:
            at = self._regions.index(one)
            del self._regions[at], self._starts[at]
            for start, end in ((one.start, region.start), (region.end, one.end)):
                if start < end:
                    self._insert(CodeRegion(start, end, one.offset_of(start), one.binary))
        self._insert(region)

    def _insert(self, region: CodeRegion) -> None:
        at = bisect_right(self._starts, region.start)
        self._regions.insert(at, region)
        insort(self._starts, region.start)

    def copy(self) -> AddressSpace:
        """Return that of a forked child."""
        return AddressSpace(self._regions)


def code_in(maps: bytes) -> AddressSpace:
    """Return the code that *maps*, the text of /proc/PID/maps, lists."""
    regions = []
    for mapping in parse_smaps(maps):
        if "x" in mapping.permissions:
            region = code_region(mapping.start, mapping.end, mapping.offset, mapping.name, mapping.inode)
            regions.append(region)
    return AddressSpace(regions)


def code_region(start: int, end: int, offset: int, name: str, inode: int) -> CodeRegion:
    """Return the region of code that was mapped from the file *name*, or from none."""
    if not name.startswith("/") or not inode:
        return CodeRegion(start, end, offset, Binary(name) if name.startswith("[") else None)
    path = name[: -len(_DELETED)] if name.endswith(_DELETED) else name
    return CodeRegion(start, end, offset, Binary(path, inode=inode, was_deleted=path != name))
