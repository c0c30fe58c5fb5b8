"""The contents, at the end of a recording of page faults, of the memory that lines made resident."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Callable, NamedTuple

from gdbmem.errors import Notice, TargetError
from gdbmem.faults.growth import WeighedFault
from gdbmem.inspection.live_process import explain_process
from gdbmem.ledger.ledger import ProcessImage, resident_by_entry
from gdbmem.linux.memory.maps import PAGE, Ranges
from gdbmem.model.calltree import Frame
from gdbmem.model.faults import HeldNow, SiteHoldings
from gdbmem.model.ledger import PYMALLOC
from gdbmem.model.memory import Memory
from gdbmem.profiles.own_code import own_frame
from gdbmem.symbols.call_paths import Samples
from gdbmem.text import plural

# The present contents of memory that was made resident: pages of samples, divided like a process in a ledger.


class GrownPage(NamedTuple):
    """A page in a sample, and the bytes that it represents."""

    address: int
    page_bytes: int
    bytes: float


def held_now(image: ProcessImage, pages: Iterable[GrownPage]) -> list[HeldNow]:
    """Return the contents of *pages* in the process of *image*, the largest part first.

    They represent further pages, some more than others: those of about the same weight are divided together.
    """
    sums: dict[tuple[str, str], float] = defaultdict(float)
    classes: dict[int, float] = defaultdict(float)
    for group in _by_weight(pages):
        touched = Ranges((_start(page), _start(page) + page.page_bytes) for page in group)
        there = _only(image, touched)
        parts = resident_by_entry(there)
        scale = sum(page.bytes for page in group) / touched.size_bytes
        for key, size in parts.items():
            sums[key] += size * scale
        sums["", ""] += max(touched.size_bytes - sum(parts.values()), 0) * scale
        for block_bytes, size in _of_classes(image, there.resident).items():
            classes[block_bytes] += size * scale
    pools = {f"pools of {size}-byte blocks": held for size, held in classes.items()}
    rows = [HeldNow(*key, size, pools if key[0] == PYMALLOC else {}) for key, size in _joined(sums).items()]
    return sorted((row for row in rows if round(row.bytes)), key=lambda row: -row.bytes)


def together(parts: Iterable[Sequence[HeldNow]]) -> list[HeldNow]:
    """Return the parts of several processes as one list, the largest first."""
    found: dict[tuple[str, str], HeldNow] = {}
    for one in (one for several in parts for one in several):
        known = found.get((one.category, one.label))
        if known is None:
            found[one.category, one.label] = one
            continue
        pools = {
            name: known.pools.get(name, 0.0) + one.pools.get(name, 0.0)
            for name in {**known.pools, **one.pools}
        }
        found[one.category, one.label] = one._replace(bytes=known.bytes + one.bytes, pools=pools)
    return sorted(found.values(), key=lambda one: -one.bytes)


def _joined(sums: Mapping[tuple[str, str], float]) -> Mapping[tuple[str, str], float]:
    """Return *sums* with all of pymalloc as one entry, because its pools are listed by the sizes of their blocks."""
    joined: dict[tuple[str, str], float] = defaultdict(float)
    for (category, label), size in sums.items():
        joined[category, "" if category == PYMALLOC else label] += size
    return joined


def _start(page: GrownPage) -> int:
    return page.address // page.page_bytes * page.page_bytes


def _by_weight(pages: Iterable[GrownPage]) -> Iterable[Sequence[GrownPage]]:
    groups: dict[tuple[int, int], list[GrownPage]] = defaultdict(list)
    for page in pages:
        if page.bytes > 0:
            groups[page.page_bytes, round(math.log2(page.bytes))].append(page)
    return groups.values()


def _only(image: ProcessImage, touched: Ranges) -> ProcessImage:
    """Return *image* as if nothing but *touched* were resident."""
    pieces = Ranges(piece for start, end in touched.items for piece in image.resident.overlaps(start, end))
    mappings = []
    for one in image.mappings:
        inside = touched.within(one.start, one.end) if one.rss_bytes else 0
        size = pieces.within(one.start, one.end) if one.is_anonymous else inside
        private = size if one.anonymous_bytes else 0
        mappings.append(
            one._replace(rss_bytes=size, anonymous_bytes=private, lazily_freed_bytes=0, hugetlb_bytes=0)
        )
    part = copy(image)
    part.mappings, part.resident = mappings, pieces
    return part


def _of_classes(image: ProcessImage, resident: Ranges) -> Mapping[int, int]:
    """Return the bytes of *resident* in pools of Python's small objects, by the size of their blocks."""
    found: dict[int, int] = defaultdict(int)
    for arena in image.others.python.arenas:
        if not resident.within(arena.address, arena.end):
            continue
        for pool in arena.pools:
            if pool.live:
                found[pool.block_bytes] += resident.within(pool.address, pool.address + arena.pool_bytes)
    return {size: held for size, held in found.items() if held}


# The contents, at the end of a recording of page faults, of the memory that each line made resident.


_MOST_IMAGES = 8  # processes that are inspected at the end
_MOST_SITES = 5  # lines whose memory is described


class Images:
    """Images of the processes, read at the end of the recording."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._images: dict[int, ProcessImage] = {}
        self.notices: list[Notice] = []

    def take(self, pids: Sequence[int]) -> None:
        """Read processes *pids*, a moment after the recording ended."""
        for pid in pids[:_MOST_IMAGES]:
            try:
                explain_process(pid, look=self._keep, say=self._say)
            except TargetError as error:
                text = f"the contents of process {pid} could not be inspected: {error.message}"
                self.notices.append(Notice("faults-unexplained", text))
        if len(pids) > _MOST_IMAGES or not pids:
            left = plural(len(pids) - _MOST_IMAGES, "further process", "further processes")
            what = left if pids else "the process, which has ended,"
            self.notices.append(Notice("faults-unexplained", f"the contents of {what} were not inspected"))

    def _keep(self, image: ProcessImage, memory: Memory) -> None:
        if image.pid is not None:
            self._images[image.pid] = image

    def held(
        self,
        samples: Samples,
        named: Mapping[int, Sequence[Frame]],
        rows: Sequence[WeighedFault],
        grown: Sequence[float],
    ) -> list[SiteHoldings]:
        """Return the contents of the memory of the lines that grew most, in the inspected processes."""
        pages: dict[Frame, dict[int, list[GrownPage]]] = {}
        sites: dict[int, Frame] = {}
        for row, size in zip(rows, grown):
            if size and row.pid in self._images:
                if row.path not in sites:
                    frames = [frame for number in samples.paths[row.path] for frame in named[number]]
                    sites[row.path] = frames[own_frame(frames)] if frames else Frame()
                of_site = pages.setdefault(sites[row.path], {})
                one, each = row.page_bytes or PAGE, size / row.pages
                pages_of_row = (GrownPage(row.page[0] + n * one, one, each) for n in range(row.pages))
                of_site.setdefault(row.pid, []).extend(pages_of_row)
        found = []
        for site, by_pid in pages.items():
            every = [page for members in by_pid.values() for page in members]
            found.append((sum(page.bytes for page in every), len(every), site, by_pid))
        return [
            SiteHoldings(
                site, size, count, together(held_now(self._images[pid], mine) for pid, mine in by_pid.items())
            )
            for size, count, site, by_pid in sorted(found, key=lambda one: -one[0])[:_MOST_SITES]
        ]
