"""The decision of a BFC allocator on a request, with its reasons: it fits, extends the pool or fails.

The steps are those of the published design, in its order: best fit, extension with back-off, merging of chunks that
are pending on the device, garbage collection of idle regions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import compress
from typing import NamedTuple, Optional

from gdbmem.model import bfc
from gdbmem.text import format_size, plural

# The smallest set of chunks in use whose release makes a hole large enough for a request.


def smallest_obstacle(allocator: bfc.Allocator, need_bytes: int) -> Optional[bfc.Obstacle]:
    """Return the run of adjacent chunks of *need_bytes* with the fewest bytes in use; None if none is so large.

    Among several with as few bytes, it is the one with fewer chunks in use; then the first.
    """
    windows = (one for region in allocator.regions for one in _windows(allocator, region, need_bytes))
    best = min(windows, default=None)
    if best is None:
        return None
    used, _, first, last = best
    chunks = allocator.chunks
    in_use = tuple(index for index in range(first, last + 1) if chunks.state[index] != bfc.FREE)
    return bfc.Obstacle(first, last, in_use, used, sum(chunks.size[first : last + 1]))


def _windows(allocator: bfc.Allocator, region: bfc.Region, need: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield bytes and chunks in use, first and last chunk of a window that slides over *region*.

    It is never larger than necessary.
    """
    size, state = allocator.chunks.size, allocator.chunks.state
    start, total, used, count = region.first, 0, 0, 0
    for index in region.indices:
        total += size[index]
        if state[index] != bfc.FREE:
            used += size[index]
            count += 1
        while total - size[start] >= need:
            total -= size[start]
            if state[start] != bfc.FREE:
                used -= size[start]
                count -= 1
            start += 1
        if total >= need:
            yield used, count, start, index


_DEFAULT_SPLIT_ABOVE = 128 << 20
_LEAST_BACKPEDAL = 8 << 10  # below this onnxruntime requests nothing from the device
_MOST_RETRIES = 1000


class Request(NamedTuple):
    """A request to an allocator; sizes are bytes."""

    bytes: int
    alignment: int = bfc.SMALLEST
    end: int = bfc.LOWER  # of a pool that is filled from both ends
    stream: Optional[int] = None  # onnxruntime: only chunks of this stream, or of none, may be taken
    has_failed: bool = False  # the allocator is known to have failed to serve it
    device_bytes: Optional[int] = None  # all memory of the device, for advice about its share


def decide(allocator: bfc.Allocator, request: Request) -> bfc.Decision:
    """Return the outcome of *request*, by the rules of *allocator* and its chunks."""
    base = bfc.Decision(request.bytes, request.alignment, bfc.rounded(request.bytes), bfc.UNDECIDED)
    if request.bytes == 0:
        return base._replace(
            outcome=bfc.NOTHING, steps=["0 bytes are requested: it returns nullptr without a search"]
        )
    if not allocator.is_complete and request.has_failed:
        return _by_bar(allocator, base)
    search = _Search(allocator, request, base)
    return search.fit() or search.extend() or search.merge() or search.collect() or search.fail()


def _by_bar(allocator: bfc.Allocator, base: bfc.Decision) -> bfc.Decision:
    """Return why a request failed if chunks of the pool are missing, as far as the bar of its log shows."""
    pool, bar = allocator.counters.pool_bytes or allocator.limit_bytes, allocator.bar
    if not bar or pool is None or allocator.available_bytes:
        return base._replace(outcome=bfc.FAILS, steps=["the reason is unknown: chunks are missing here"])
    free = pool * bar.count("_") // len(bar)
    longest = pool * max(map(len, re.findall("_+", bar)), default=0) // len(bar)
    steps = [
        f"by the bar, with {format_size(pool // len(bar))} per character,"
        f" about {format_size(free)} are free, the longest stretch about {format_size(longest)}"
    ]
    character = pool // len(bar)
    need = base.rounded_bytes
    if need > free + character:
        return base._replace(outcome=bfc.FAILS, cause=bfc.FULL, steps=steps)
    is_split = need < free - character and need > longest + character
    return base._replace(outcome=bfc.FAILS, cause=bfc.FRAGMENTATION if is_split else "", steps=steps)


class _Search:
    """The simulation of one request."""

    def __init__(self, allocator: bfc.Allocator, request: Request, base: bfc.Decision) -> None:
        self.allocator = allocator
        self.request = request
        self.base = base
        self.need = base.rounded_bytes
        self.steps: list[str] = []

    def fit(self) -> Optional[bfc.Decision]:
        """Take the smallest free chunk that is large enough, the first of several by address."""
        index = self._best(self.request)
        if index is None and not self.allocator.is_complete:
            self.steps.append("unknown whether a free chunk fits: chunks are missing here")
            return self._done(outcome=bfc.UNDECIDED)
        if index is None:
            largest = self.allocator.largest_free_bytes
            self.steps.append(f"no free chunk fits {self._need()}: the largest has {format_size(largest)}")
            return None
        chunks = self.allocator.chunks
        padding = self._padding(index, self.request.alignment)
        splits = self._splits(index, padding)
        taken = self.need if splits else chunks.size[index] - padding
        how = "splits it" if splits else "takes it whole"
        waste = (
            f", {format_size(taken - self.request.bytes)} of it unused" if taken != self.request.bytes else ""
        )
        self.steps.append(
            f"the smallest free chunk that fits, at 0x{chunks.address[index]:x}, has {format_size(chunks.size[index])}:"
            f" it {how}{waste}"
        )
        return self._done(outcome=bfc.FITS, chunk=index, is_split=splits, taken_bytes=taken)

    def extend(self, more_bytes: int = 0) -> Optional[bfc.Decision]:
        """Request a region from the device if the limit allows it; *more_bytes* were returned before."""
        available = self.allocator.available_bytes
        if available is None:
            self.steps.append("unknown whether it may grow: its limit is unknown")
            return self._done(outcome=bfc.UNDECIDED)
        available += more_bytes
        if self.need > available:
            self.steps.append(
                f"the limit leaves {format_size(available)} to request from the device: less than {self._need()}"
            )
            return None
        size = extension_bytes(self.allocator, self.need, available)
        if size is None:
            self.steps.append("unknown by how much it would grow: the size of its next region is unknown")
            return self._done(outcome=bfc.EXTENDS, gives_back_bytes=more_bytes)
        retries = list(backpedal(self.allocator, size, self.need))
        text = f"it requests from the device a region of {format_size(size)}"
        if retries:
            text += f"; refused, for less, {plural(len(retries), 'time')}, down to {format_size(retries[-1])}"
        self.steps.append(text)
        run = self._free_run() if self._has_waiting else None
        if run is not None:
            text = "unless the device has finished with freed chunks: these are merged first, into one of"
            self.steps.append(f"{text} {format_size(run)}")
        if self.request.has_failed:
            self.steps.append(
                "the device refused all of these: its remaining memory is held by others, or fragmented"
            )
            return None
        splits = is_split(self.allocator, size, self.need)
        return self._done(
            outcome=bfc.EXTENDS,
            is_split=splits,
            taken_bytes=self.need if splits else size,
            extends_bytes=size,
            retries=retries,
            gives_back_bytes=more_bytes,
        )

    def merge(self) -> Optional[bfc.Decision]:
        """Merge freed chunks that were kept separate until the device has finished with them."""
        if not self._has_waiting:
            return None
        run = self._free_run()
        if run is None:
            self.steps.append("merging the freed chunks that wait for the device makes no chunk large enough")
            return None
        self.steps.append(
            f"freed chunks that wait for the device are merged, until one of {format_size(run)} is large enough"
        )
        return self._done(outcome=bfc.FITS, is_split=is_split(self.allocator, run, self.need))

    @property
    def _has_waiting(self) -> bool:
        freed_at = self.allocator.chunks.freed_at
        return freed_at is not None and any(compress(freed_at, self.allocator.where(bfc.FREE)))

    def _free_run(self) -> Optional[int]:
        """Return the size of the first adjacent free chunks that together are large enough; None if there are none."""
        chunks = self.allocator.chunks
        for region in self.allocator.regions:
            run = 0
            for index in region.indices:
                run = run + chunks.size[index] if chunks.state[index] == bfc.FREE else 0
                if run >= self.need:
                    return run
        return None

    def collect(self) -> Optional[bfc.Decision]:
        """Return unused regions to the device, and request a larger one."""
        if not self.allocator.options.garbage_collection:
            return None
        idle = sum(region.size_bytes for region in self.allocator.idle_regions())
        if not idle:
            self.steps.append("garbage collection finds no region without chunks in use")
            return None
        self.steps.append(f"garbage collection returns idle regions of {format_size(idle)} to the device")
        return self.extend(idle)

    def fail(self) -> bfc.Decision:
        """Find the cause of a failure: the first one that applies."""
        allocator, available = self.allocator, self.allocator.available_bytes or 0
        idle = sum(region.size_bytes for region in allocator.idle_regions())
        free = allocator.free_bytes
        obstacle = None
        if self._best(self.request._replace(alignment=bfc.SMALLEST)) is not None:
            cause = bfc.ALIGNMENT
        elif self._best(self.request._replace(end=bfc.LOWER + bfc.UPPER - self.request.end)) is not None:
            cause = bfc.OTHER_END
        elif self.allocator.chunks.stream is not None and self._free_run() is not None:
            cause = bfc.OTHER_STREAM
        elif self.need <= available:
            cause = bfc.DEVICE
        elif idle and idle + available >= self.need:
            cause = bfc.IDLE_REGIONS
        elif free + available >= self.need:
            cause = bfc.FRAGMENTATION
        else:
            cause = bfc.FULL
        if cause in (bfc.FRAGMENTATION, bfc.FULL, bfc.IDLE_REGIONS):
            obstacle = smallest_obstacle(allocator, self.need)
        return self._done(outcome=bfc.FAILS, cause=cause, obstacle=obstacle)

    def _done(self, **what: object) -> bfc.Decision:
        return self.base._replace(steps=tuple(self.steps), **what)  # type: ignore[arg-type]  # fields by name

    def _need(self) -> str:
        return format_size(self.need)

    def _best(self, request: Request) -> Optional[int]:
        """Return the index of the chunk that best fit takes: holes of the request's end, then the gap."""
        chunks = self.allocator.chunks
        best: Optional[tuple[int, int, int]] = None
        gap: Optional[int] = None
        for index in compress(range(len(chunks)), self.allocator.where(bfc.FREE)):
            size = chunks.size[index]
            if size < self.need or (best is not None and size > best[0]):
                continue
            if size < self.need + self._padding(index, request.alignment):
                continue
            if not _may_take(self.allocator, index, request):
                continue
            if chunks.tag is not None and chunks.tag[index] == bfc.GAP:
                gap = index
                continue
            found = (size, chunks.address[index], index)
            best = found if best is None else min(best, found)
        return best[2] if best is not None else gap

    def _padding(self, index: int, alignment: int) -> int:
        """Return the bytes before the first place in the chunk that is aligned as asked; behind the last one, where it
        is taken from the upper end.
        """
        if alignment <= bfc.SMALLEST or not self.allocator.options.honours_alignment:
            return 0
        start = self.allocator.chunks.address[index]
        if self.request.end == bfc.UPPER:
            return (start + self.allocator.chunks.size[index] - self.need) % alignment
        return bfc.rounded(-start % alignment)

    def _splits(self, index: int, padding: int) -> bool:
        usable = self.allocator.chunks.size[index] - padding
        if self.request.end == bfc.UPPER:  # which takes the top of the chunk, and no more
            return usable > self.need
        return is_split(self.allocator, usable, self.need)


def _may_take(allocator: bfc.Allocator, index: int, request: Request) -> bool:
    chunks = allocator.chunks
    if chunks.tag is not None and chunks.tag[index] not in (bfc.GAP, request.end):
        return False
    if chunks.stream is not None and request.stream is not None:
        return chunks.stream[index] in (0, request.stream)
    return True


def is_split(allocator: bfc.Allocator, size: int, need: int) -> bool:
    """Return whether a free chunk of *size* bytes is split for a request of *need*."""
    most = allocator.options.split_above_bytes
    return size >= 2 * need or size - need >= (_DEFAULT_SPLIT_ABOVE if most is None else most)


def extension_bytes(allocator: bfc.Allocator, need: int, available: int) -> Optional[int]:
    """Return the size of the region that it would request first from the device; None if unknown."""
    options = allocator.options
    if options.grows_as_requested:
        return need
    size = options.next_region_bytes
    if not size:
        return None
    while size < need:
        size *= 2
    if options.largest_extension_bytes is not None:
        size = max(need, min(size, options.largest_extension_bytes))
    return min(size, available)


def backpedal(allocator: bfc.Allocator, size: int, need: int) -> Iterator[int]:
    """Yield the sizes that it requests next, each time the device refuses."""
    if allocator.options.backpedals_once and allocator.options.started_backpedal:
        return
    for _ in range(_MOST_RETRIES):
        less = bfc.rounded(int(_single(_single(size) * _single(0.9))))
        size = less if less < size else size - bfc.SMALLEST
        if size < need or (allocator.kind == bfc.ONNXRUNTIME and size < _LEAST_BACKPEDAL):
            return
        yield size


def _single(value: float) -> float:
    """Return *value* rounded to C's float, in which the allocators multiply."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
