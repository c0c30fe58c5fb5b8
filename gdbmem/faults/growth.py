"""Net growth by call path: pages made resident that were not resident before and still are."""

import math
import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Optional

from gdbmem.linux.faults.readings import LARGEST_FOLIO, Reading
from gdbmem.linux.memory.maps import PAGE
from gdbmem.model.faults import FaultStack

_BLOCK_BYTES = 1 << 20
_SAMPLES_A_BLOCK = 64
DOUBT = 3.0  # standard errors
_TOLERANCE = 1.1
_BATCH_BYTES = 32 * PAGE * (os.cpu_count() or 1)  # percpu_counter_batch
_ROUNDING = 1e-9
SURELY_SAMPLED = 5  # periods: after so many faults without a sample, samples were lost


class WeighedFault(NamedTuple):
    """One sampled fault, or several of one place that touched neighbouring pages one after the other."""

    time: int
    pid: int
    tid: int
    address: int
    page_bytes: int
    weight: float  # faults that each of its pages represents
    path: int
    pages: int = 1
    doubt: float = 0.0  # variance beyond that of sampling, by the square of what it represents
    until: int = 0  # when the last of several pages was touched; 0: as the first
    path_doubt: float = 0.0  # variance that is due to the path, by the square of what it represents

    @property
    def page(self) -> tuple[int, int]:
        """Start and end of its pages."""
        size = self.page_bytes or PAGE
        start = self.address // size * size
        return start, start + self.pages * size

    @property
    def ended(self) -> int:
        """When its last page was touched."""
        return self.until or self.time

    @property
    def faults(self) -> float:
        """The faults that it represents."""
        return self.weight * self.pages

    @property
    def bytes(self) -> float:
        """The bytes that it represents."""
        return self.weight * self.pages * (self.page_bytes or PAGE)

    @property
    def relative_variance(self) -> float:
        """The variance of what it represents, by the square of that."""
        return self.doubt + ((1.0 - 1.0 / self.weight) / self.pages if self.weight > 1 else 0.0)


class Span(NamedTuple):
    """The resident memory of a process at the two ends of a recording."""

    before: Reading
    after: Optional[Reading]  # the last one
    is_root: bool = True  # not born of another one in the recording, or it has executed a program since

    peak_bytes: Optional[int] = None  # resident, of a process that has ended
    largest_bytes: int = 0  # resident and in hugetlbfs, of all sizes that were read alone,
    sized: int = 0  # the last of them at this time (CLOCK_MONOTONIC, ns); 0: none
    counts_later: bool = True  # what became resident after that counts as grown

    @property
    def most_bytes(self) -> int:
        """Return the resident bytes at the end, or at their maximum."""
        return max(self.peak_bytes or 0, self.after.rss_bytes if self.after is not None else 0)

    @property
    def room_bytes(self) -> int:
        """Return by how much it has grown by the kernel's count, pages of hugetlbfs included."""
        hugetlb = self.after.hugetlb_bytes if self.after is not None else 0
        return self.most_bytes + hugetlb - self.before.held_bytes

    @property
    def last(self) -> int:
        """Return when its memory was read last (CLOCK_MONOTONIC, ns); 0: never."""
        return self.after.time if self.after is not None else 0

    @property
    def until(self) -> int:
        """Return when that reading was complete."""
        return max(self.after.until, self.after.time) if self.after is not None else 0


class _PathSums:
    def __init__(self) -> None:
        self.seen = self.grown = 0.0
        self.samples = 0
        self.seen_variance = self.grown_variance = 0.0
        self.seen_path_variance = self.grown_path_variance = 0.0


def scaled(one: WeighedFault, factor: float) -> WeighedFault:
    """Return a fault that represents *factor* times as many."""
    return one if abs(factor - 1.0) < _ROUNDING else one._replace(weight=one.weight * factor)


def by_process(samples: Sequence[WeighedFault]) -> Mapping[int, Sequence[int]]:
    """Return the numbers of the samples of each process."""
    found: dict[int, list[int]] = defaultdict(list)
    for number, one in enumerate(samples):
        found[one.pid].append(number)
    return found


def unsampled(faults: Sequence[WeighedFault], counted: Mapping[int, int], period: int) -> Mapping[int, int]:
    """Return the counts of those processes in *counted* all of whose samples were lost.

    *period* is the longest number of faults per sample. A process with few faults may have no sample by chance.
    """
    sampled = {one.pid for one in faults}
    return {pid: n for pid, n in counted.items() if pid not in sampled and n > SURELY_SAMPLED * period}


def shared_out(
    faults: Sequence[WeighedFault], counted: Mapping[int, int], lost: Mapping[int, int]
) -> list[WeighedFault]:
    """Return *faults* with the weights of the processes in *counted* in proportion to their own counts.

    *counted* is the number of faults of each process by the kernel's count; it includes some that no event counts, so
    only the proportion is used. The processes in *lost* have no sample: the others do not get their part.
    """
    weights: dict[int, float] = defaultdict(float)
    for one in faults:
        if counted.get(one.pid):
            weights[one.pid] += one.faults
    every = sum(counted[pid] for pid in weights) + sum(lost.values())
    factors = {
        pid: counted[pid] / every * sum(weights.values()) / weight
        for pid, weight in weights.items()
        if weight
    }
    return [scaled(one, factors.get(one.pid, 1.0)) for one in faults]


def within_counts(
    faults: Sequence[WeighedFault], counted: Mapping[int, int], in_kernel: Optional[int]
) -> list[WeighedFault]:
    """Return *faults*, of user mode only, limited to the possible number of each process in *counted*.

    *counted* is the total number of faults of each process by the kernel's count; *in_kernel* is how many of those,
    over all processes, were in kernel mode; None: unknown. The faults of a process in user mode are at most its total,
    and at least its total less all in kernel mode. Lost samples are attributed to the other processes.
    """
    weights: dict[int, float] = defaultdict(float)
    for one in faults:
        if one.pid in counted:
            weights[one.pid] += one.faults
    whole = sum(weights.values())
    most = {pid: float(counted[pid]) for pid in weights}
    least = {pid: max(most[pid] - in_kernel, 0.0) if in_kernel is not None else 0.0 for pid in weights}
    if not sum(least.values()) <= whole <= sum(most.values()):
        return list(faults)  # processes that ended or started between the counts
    bounded = {pid: min(max(weight, least[pid]), most[pid]) for pid, weight in weights.items()}
    missing = whole - sum(bounded.values())
    rooms = {pid: (most[pid] if missing > 0 else least[pid]) - size for pid, size in bounded.items()}
    room = sum(rooms.values())
    factors = {
        pid: (size + (rooms[pid] * missing / room if room else 0.0)) / weights[pid]
        for pid, size in bounded.items()
    }
    return [scaled(one, factors.get(one.pid, 1.0)) for one in faults]


def without_zero_pages(
    faults: Sequence[WeighedFault], spans: Mapping[int, Span]
) -> tuple[list[WeighedFault], Mapping[int, float]]:
    """Return those of *faults* that made a page resident, and the bytes of the others by process.

    A fault that only reads fresh memory shows the kernel's zero page.
    """
    resident: list[WeighedFault] = []
    zero: dict[int, float] = defaultdict(float)
    for one in faults:
        span = spans.get(one.pid)
        if span is not None and span.after is not None and one.address in span.after.zero:
            zero[one.pid] += one.bytes
        else:
            resident.append(one)
    return resident, zero


def grown_bytes(
    samples: Sequence[WeighedFault],
    spans: Mapping[int, Span],
    began: Mapping[int, int],
    doubts: Optional[dict[int, float]] = None,
) -> list[float]:
    """Return, for each of *samples*, how many of the bytes that it represents stayed resident.

    *began* is when the memory of a process was new. *doubts* receives the relative variances, by the number of the
    sample, of those that the sizes of their process limit. Pages made resident after the last reading of a process are
    assumed to stay, and so are those made resident during it and missing in it, because their place was read before.
    """
    grown = [0.0] * len(samples)
    for pid, numbers in by_process(samples).items():
        span = spans.get(pid)
        if span is None:
            continue
        first, last = began.get(pid, 0), span.last
        counted = [number for number in numbers if first <= samples[number].time <= span.until]
        for number in counted:
            grown[number] = _still_resident(samples[number], span)
        # Of a run of pages, some may have come after the reading.
        later = [n for n in numbers if samples[n].ended > last and not _is_whole(samples[n], grown[n])]
        if not span.counts_later:
            later = [n for n in later if samples[n].time <= span.sized or grown[n]]
        after = set(later)
        counted = [number for number in counted if number not in after]
        _without_repeats(samples, counted, span, grown)
        if span.is_root:
            _calibrate(samples, counted, span, grown)
            if later:
                _grow_later(samples, numbers, later, span, grown, {} if doubts is None else doubts)
    return grown


def within_peaks(
    faults: Sequence[WeighedFault],
    grown: list[float],
    spans: Mapping[int, Span],
    doubts: Mapping[int, float] = MappingProxyType({}),
) -> list[WeighedFault]:
    """Return *faults*, with *doubts* as grown_bytes gives them; *grown* is limited to the peaks of ended processes.

    The kernel adds up pages in batches for each processor, so a peak may lack some: that is in the errors.
    """
    limited = dict(doubts)
    for pid, numbers in by_process(faults).items():
        span = spans.get(pid)
        excess = sum(grown[n] for n in numbers) - span.room_bytes if span is not None else 0.0
        if span is not None and span.peak_bytes and excess > 0:
            room = float(span.room_bytes)
            _limit(faults, numbers, grown, room, min(excess, float(_BATCH_BYTES)), limited)
    changed = list(faults)
    for number, more in limited.items():
        changed[number] = faults[number]._replace(doubt=faults[number].doubt + more)
    return changed


def _limit(
    faults: Sequence[WeighedFault],
    numbers: Sequence[int],
    grown: list[float],
    limit_bytes: float,
    error_bytes: float,
    doubts: dict[int, float],
) -> None:
    """Limit what *numbers* grew by to *limit_bytes*, with an error of *error_bytes* of the whole."""
    _scale(grown, numbers, limit_bytes)
    error = error_bytes / max(limit_bytes, 1.0)
    of_path: dict[int, float] = defaultdict(float)
    for n in numbers:
        of_path[faults[n].path] += grown[n]
    for n in numbers:
        if grown[n] > 0:
            doubts[n] = doubts.get(n, 0.0) + error**2 * of_path[faults[n].path] / grown[n]


def _is_whole(one: WeighedFault, stays: float) -> bool:
    return stays > 0 and (one.pages == 1 or stays >= one.bytes)


def _grow_later(
    samples: Sequence[WeighedFault],
    numbers: Sequence[int],
    later: Sequence[int],
    span: Span,
    grown: list[float],
    doubts: dict[int, float],
) -> None:
    """Charge the faults after the last reading, *later* among *numbers*, until the last size was read with no more
    than that grew by.
    """
    at_reading = sum(grown[number] for number in numbers)
    # How far a folio reaches is known by the reading alone, not by where the next sample is.
    known = {n for n in numbers if grown[n] and PAGE < samples[n].page_bytes <= LARGEST_FOLIO}
    for number in later:
        grown[number] = samples[number].bytes
    charged = [number for number in numbers if grown[number]]
    _charge_once(samples, [number for number in charged if number not in known], grown)
    sized = [number for number in charged if samples[number].time <= span.sized]
    read = span.after if span.after is not None else span.before
    room = max(float(max(span.largest_bytes, span.peak_bytes or 0) - read.held_bytes), 0.0) + at_reading
    excess = sum(grown[number] for number in sized) - room
    if excess > 0:
        # Pages that the kernel has not added up yet are missing in both sizes, or in the last one alone.
        _limit(samples, sized, grown, room, min(excess, float(_BATCH_BYTES)), doubts)


def _charge_once(samples: Sequence[WeighedFault], numbers: Sequence[int], grown: list[float]) -> None:
    """Charge memory without a reading to the fault that made it resident last: it had left before that.

    A sample represents no more pages than there are up to the next one that was sampled.
    """
    starts = sorted({samples[number].page[0] for number in numbers})
    if len(starts) == len(numbers):  # none came twice
        return
    charged: set[int] = set()
    for number in sorted(numbers, key=lambda n: samples[n].time, reverse=True):
        one = samples[number]
        start, end = one.page
        after = bisect_left(starts, end)
        reach = end + max(round(one.bytes) - (end - start), 0)
        reach = min(reach, starts[after]) if after < len(starts) else reach
        pages, before = range(start // PAGE, reach // PAGE), len(charged)
        charged.update(pages)
        grown[number] = min(grown[number], float((len(charged) - before) * PAGE))


def with_huge_pages(
    faults: Sequence[WeighedFault], grown: list[float], spans: Mapping[int, Span]
) -> list[WeighedFault]:
    """Return *faults*, with those of huge pages weighted to their actual number; *grown* is changed as well.

    They are few compared with those of small pages, and each is worth hundreds: sampling misses or repeats them by
    chance. Small pages that the kernel has merged into a huge page are not among them. Those of hugetlbfs are counted
    apart.
    """
    changed = list(faults)
    for pid, numbers in by_process(faults).items():
        span = spans.get(pid)
        if span is None or span.after is None:
            continue
        before, after = span.before, span.after
        joined = sum(
            grown[n] for n in numbers if faults[n].page_bytes <= PAGE and faults[n].address in after.huge
        )
        came = max(after.huge.size_bytes - before.huge.size_bytes - joined, 0.0)
        of_files = max(after.hugetlb.size_bytes - before.hugetlb.size_bytes, 0)
        for there, areas in ((came, after.huge), (of_files, after.hugetlb)):
            counted = [
                n for n in numbers if grown[n] and faults[n].page_bytes > PAGE and faults[n].address in areas
            ]
            sampled = sum(grown[n] for n in counted)
            for n in counted if there else ():
                changed[n] = faults[n]._replace(weight=faults[n].weight * there / sampled)
                grown[n] *= there / sampled
    return changed


def _still_resident(one: WeighedFault, span: Span) -> float:
    assert span.after is not None
    return one.weight * max(span.after.within(*one.page) - span.before.within(*one.page), 0)


def _without_repeats(
    samples: Sequence[WeighedFault], numbers: Sequence[int], span: Span, grown: list[float]
) -> None:
    """Charge a page that became resident repeatedly to the latest fault.

    If the faults represent clearly more than has become resident, the latest ones in each block of addresses are
    charged up to the bytes that became resident there.
    """
    if span.after is None:
        return
    size = _block_bytes(samples, numbers)
    blocks: dict[int, list[int]] = defaultdict(list)
    for number in numbers:
        if grown[number]:
            blocks[samples[number].address // size].append(number)
    rooms = {block: _room(span, block * size, (block + 1) * size) for block in blocks}
    every = [number for members in blocks.values() for number in members]
    whole = max(float(span.room_bytes), sum(rooms.values()))
    if _exceeds(samples, every, grown, whole):
        for block, members in blocks.items():
            room = rooms[block]
            if not _exceeds(samples, members, grown, room):
                continue
            for number in sorted(members, key=lambda n: samples[n].time, reverse=True):
                grown[number] = min(grown[number], room)
                room -= grown[number]
    elif sum(grown[number] for number in every) <= whole:
        return
    # However few the samples: no more than that can have stayed resident.
    _scale(grown, every, whole)


def _scale(grown: list[float], numbers: Sequence[int], whole: float) -> None:
    left = sum(grown[number] for number in numbers)
    for number in numbers if left else ():
        grown[number] *= whole / left


def _calibrate(
    samples: Sequence[WeighedFault], numbers: Sequence[int], span: Span, grown: list[float]
) -> None:
    """Adjust growth of anonymous memory to the bytes that have become resident, which are exact.

    Samples that represent only themselves are exact, too: the others share the difference by their variances. Only if
    it is within the sampling error: a larger one has another cause and is reported.
    """
    if span.after is None or span.after.huge.size_bytes or span.before.huge.size_bytes:
        return
    after, before = span.after.anonymous, span.before.anonymous
    exact = after.size_bytes - sum(before.within(start, end) for start, end in after.items)
    members = [n for n in numbers if grown[n] and samples[n].address in after]
    estimate = sum(grown[n] for n in members)
    doubt = standard_error(samples, members, grown)
    if doubt and abs(estimate - exact) <= DOUBT * doubt:
        for n in members:
            share = grown[n] ** 2 * samples[n].relative_variance / doubt**2
            grown[n] = max(grown[n] + (exact - estimate) * share, 0.0)


def standard_error(samples: Sequence[WeighedFault], members: Sequence[int], grown: Sequence[float]) -> float:
    """Return the standard error of the bytes charged to *members*."""
    return math.sqrt(sum(grown[n] ** 2 * samples[n].relative_variance for n in members))


def _room(span: Span, start: int, end: int) -> float:
    assert span.after is not None
    return max(float(span.after.within(start, end) - span.before.within(start, end)), 0.0)


def _exceeds(
    samples: Sequence[WeighedFault], members: Sequence[int], grown: Sequence[float], room: float
) -> bool:
    """Return whether *members* are charged with clearly more than *room*."""
    doubt = standard_error(samples, members, grown)
    return sum(grown[n] for n in members) > room * _TOLERANCE + DOUBT * doubt


def _block_bytes(samples: Sequence[WeighedFault], numbers: Sequence[int]) -> int:
    """Return a block size with many samples per block, however many faults each of them represents."""
    largest = max((samples[n].bytes for n in numbers), default=0.0)
    return 1 << int(max(_BLOCK_BYTES, _SAMPLES_A_BLOCK * largest)).bit_length()


def stacks_of(samples: Sequence[WeighedFault], grown: Sequence[float]) -> list[FaultStack]:
    """Return the sums of *samples* by thread and path."""
    sums: dict[tuple[int, int, int], _PathSums] = defaultdict(_PathSums)
    for one, stays in zip(samples, grown):
        entry = sums[one.path, one.pid, one.tid]
        entry.seen += one.bytes
        entry.grown += stays
        entry.samples += one.pages
        entry.seen_variance += one.bytes**2 * one.relative_variance
        entry.grown_variance += stays**2 * one.relative_variance
        entry.seen_path_variance += one.bytes**2 * one.path_doubt
        entry.grown_path_variance += stays**2 * one.path_doubt
    return [
        FaultStack(
            path,
            pid,
            tid,
            one.seen,
            one.grown,
            one.samples,
            one.seen_variance,
            one.grown_variance,
            one.seen_path_variance,
            one.grown_path_variance,
        )
        for (path, pid, tid), one in sums.items()
    ]
