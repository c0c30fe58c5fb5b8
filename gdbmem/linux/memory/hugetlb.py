"""The pages of hugetlbfs that several processes use together: the kernel has no PSS of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping as MappingOf
from collections.abc import Sequence

from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import Mapping, Ranges, mappings_of, resident_ranges


class SharedHugetlb:
    """Counts the pages of hugetlbfs of a tree, a page that several processes share once."""

    def __init__(self) -> None:
        self._devices: set[str] = set()  # of hugetlbfs, as far as mappings have been seen

    def used(self, sizes: MappingOf[int, int]) -> int | None:
        """Return the bytes that processes have mapped together; None: unknown. *sizes*: of each, by pid.

        Pages of shared mappings are told apart by their place in the file. Of private ones, shared since a fork, as
        many are counted as the process has that shares most.
        """
        files: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        alone = since_fork = 0
        try:
            for pid, size in sizes.items():
                shared, private = self._mappings(pid, size)
                for mapping, places in shared:
                    files[mapping.device, mapping.inode] += places
                alone += sum(one.hugetlb_private_bytes for one in private)
                since_fork = max(
                    since_fork, sum(one.hugetlb_bytes - one.hugetlb_private_bytes for one in private)
                )
        except (OSError, TargetError):
            return None
        return alone + since_fork + sum(Ranges(pieces).size_bytes for pieces in files.values())

    def _mappings(
        self, pid: int, size: int
    ) -> tuple[list[tuple[Mapping, list[tuple[int, int]]]], Sequence[Mapping]]:
        """Return the shared mappings with the places of their pages in the file, and the private ones with sizes."""
        known = [one for one in mappings_of(pid) if one.device in self._devices]
        if all(one.permissions[3] == "s" for one in known):  # smaps takes some times as long
            found = [(one, _places(pid, one)) for one in known]
            if sum(end - start for _, places in found for start, end in places) == size:
                return found, []
        used = [one for one in mappings_of(pid, "smaps") if one.hugetlb_bytes]
        self._devices |= {one.device for one in used}
        shared = [(one, _places(pid, one)) for one in used if one.permissions[3] == "s"]
        return shared, [one for one in used if one.permissions[3] != "s"]


def _places(pid: int, mapping: Mapping) -> list[tuple[int, int]]:
    shift = mapping.offset - mapping.start
    resident, _ = resident_ranges(pid, [(mapping.start, mapping.end)])
    return [(start + shift, end + shift) for start, end in resident.items]
