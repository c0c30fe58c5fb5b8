"""The samples of a recording with their call paths, turn by turn."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate
from operator import sub
from typing import NamedTuple, Optional, TypeVar

from gdbmem.formats.addresses import Binary
from gdbmem.linux.faults.records import (
    Born,
    Executed,
    FaultSample,
    LostRecords,
    Mapped,
    Named,
    Record,
    SampleLayout,
    Turn,
    records_in,
)
from gdbmem.records import dataclass, field
from gdbmem.symbols.unwinding.address_spaces import AddressSpace, CodeRegion, code_in, code_region
from gdbmem.symbols.unwinding.unwinder import OpenTable, Unwinder

_NEAR = 32  # samples before, and after, that stand for those lost in between


class Place(NamedTuple):
    """The location of a frame: in a file, or in memory that no file backs."""

    binary: Optional[Binary]
    offset: int  # in the file; without one the address
    pid: int = 0  # of the process, without a file


@dataclass
class Samples:
    """Samples as columns, in about the order of time."""

    time: array[int] = field(default_factory=lambda: array("Q"))  # CLOCK_MONOTONIC, ns
    pid: array[int] = field(default_factory=lambda: array("l"))
    tid: array[int] = field(default_factory=lambda: array("l"))
    address: array[int] = field(default_factory=lambda: array("Q"))
    page_bytes: array[int] = field(default_factory=lambda: array("Q"))  # 0: unknown
    weight: array[float] = field(default_factory=lambda: array("d"))  # faults that it stands for
    path: array[int] = field(default_factory=lambda: array("l"))
    places: list[Place] = field(default_factory=list)
    paths: list[tuple[int, ...]] = field(default_factory=list)  # numbers of places, innermost first
    broken: int = 0  # samples whose path ends early
    lost_faults: float = 0.0  # that lost samples stood for
    thread_names: dict[int, str] = field(default_factory=dict)
    began: dict[int, int] = field(default_factory=dict)  # pid → when its memory was new: birth, or last exec

    def __len__(self) -> int:
        return len(self.time)


class CallPaths:
    """Goes through the records of a recording in the order of time, and keeps what is mapped where."""

    def __init__(
        self, layout: SampleLayout, periods: Mapping[int, Sequence[tuple[int, int]]], open_table: OpenTable
    ) -> None:
        """*periods* are faults a sample, each with the time since when, by the event's identifier."""
        self.samples = Samples()
        self._layout, self._periods = layout, periods
        self._unwinder = Unwinder(open_table)
        self._spaces: dict[int, AddressSpace] = {}
        self._counts: list[tuple[int, Mapping[int, int]]] = []  # samples so far, and faults by processor
        self._settled: Mapping[int, int] = {}  # at the count before which all samples are weighed
        self._owed: dict[int, float] = {}  # those of them that no sample stands for yet
        self._rings: list[int] = []  # of the samples that are not weighed yet
        self._period_of: dict[int, int] = {}  # the latest sample's, by ring
        self._to_come: dict[
            int, list[float]
        ] = {}  # of what was lost, what the next samples stand for, by ring
        self._weighed = 0  # samples
        self._stretched = 0.0  # faults that samples stand for beyond their period
        self._known_places: dict[Place, int] = {}
        self._known_paths: dict[tuple[int, ...], int] = {}

    def start_with(self, pid: int, maps: bytes) -> None:
        """Begin with the code in *maps*, the text of /proc/PID/maps."""
        self._spaces[pid] = code_in(maps)

    def add(self, turn: Turn) -> None:
        """Take the records of one turn."""
        rows: list[tuple[Record, int]] = []
        for ring, data in turn.records:
            rows += [(record, ring) for record in records_in(data, ring, self._layout)]
        rows.sort(key=_when)
        for record, ring in rows:
            if isinstance(record, LostRecords):
                self._make_up(ring, record.records)
            else:
                self._take(record)
        if turn.faults:
            self._counts.append((len(self.samples), turn.faults))

    def finish(self) -> Samples:
        """Return the samples, weighed; more turns may follow."""
        self._weigh()
        return self.samples

    @property
    def missed_faults(self) -> float:
        """Return how many faults were counted so far that should have had samples and have none.

        The kernel speaks of samples that it lost when it writes the next one.
        """
        return self._stretched + sum(self._owed.values())

    def _make_up(self, ring: int, lost: int) -> None:
        """Make the samples just before and just after lost ones represent those, too."""
        faults = lost * self._period_of.get(ring, 1)
        self.samples.lost_faults += faults
        near: list[int] = []
        for number in range(len(self.samples) - 1, self._weighed - 1, -1):
            if self._rings[number - self._weighed] == ring:
                near.append(number)
                if len(near) == _NEAR:
                    break
        for number in near:
            self.samples.weight[number] += faults / (len(near) + _NEAR)
        self._to_come[ring] = [faults / (len(near) + _NEAR)] * _NEAR

    def _weigh(self) -> None:
        """Scale the samples since the last time to what was counted, processor by processor."""
        if not self._counts:
            return
        ends = [end for end, _ in self._counts]
        totals = [self._settled, *(counts for _, counts in self._counts)]
        of_rings: dict[int, list[int]] = {ring: [] for ring in totals[-1]}
        for number, ring in zip(range(self._weighed, ends[-1]), self._rings):
            of_rings.setdefault(ring, []).append(number)
        for ring, numbers in of_rings.items():
            counted = [total.get(ring, 0) for total in totals]
            turns = [
                numbers[bisect_left(numbers, a) : bisect_left(numbers, b)] for a, b in zip([0, *ends], ends)
            ]
            self._weigh_ring(ring, turns, [b - a for a, b in zip(counted, counted[1:])])
        del self._rings[: ends[-1] - self._weighed]
        self._settled, self._counts, self._weighed = totals[-1], [], ends[-1]

    def _weigh_ring(self, ring: int, turns: Sequence[Sequence[int]], faults: Sequence[int]) -> None:
        """Scale the samples of each of *turns* so that they also stand for those of *faults* that have none."""
        weight = self.samples.weight
        sums = [sum(weight[number] for number in turn) for turn in turns]
        owed = self._owed.pop(ring, 0.0)
        for turn, total, missing in zip(turns, sums, _unsampled(faults, sums)):
            owed += missing
            if not turn:
                continue
            self._stretched += max(owed, 0.0)
            for number in turn:
                weight[number] *= max(total + owed, 0.0) / total
            owed = min(total + owed, 0.0)
        if owed:
            self._owed[ring] = owed

    def close(self) -> None:
        """Release the unwind tables."""
        self._unwinder.close()

    def _take(self, record: Record) -> None:
        if isinstance(record, FaultSample):
            self._sample(record)
        elif isinstance(record, Mapped):
            end = record.start + record.size_bytes
            region = code_region(record.start, end, record.offset, record.name, record.inode)
            self._space(record.pid).add(region)
        elif isinstance(record, Executed):
            self._spaces[record.pid] = AddressSpace()
            self.samples.began[record.pid] = record.time
        elif isinstance(record, Born) and record.pid != record.parent:
            self._spaces[record.pid] = self._space(record.parent).copy()
            self.samples.began.setdefault(record.pid, record.time)
        elif isinstance(record, Named):
            self.samples.thread_names[record.tid] = record.name

    def _space(self, pid: int) -> AddressSpace:
        found = self._spaces.get(pid)
        if found is None:
            found = self._spaces[pid] = AddressSpace()
        return found

    def _sample(self, one: FaultSample) -> None:
        space = self._space(one.pid)
        path = self._unwinder.path(space, one.registers, one.stack, one.chain)
        samples = self.samples
        samples.broken += not path.is_whole
        samples.time.append(one.time)
        samples.pid.append(one.pid)
        samples.tid.append(one.tid)
        samples.address.append(one.address)
        samples.page_bytes.append(one.page_bytes)
        period = self._period_of[one.ring] = self._period(one)
        made_up = self._to_come.get(one.ring)
        samples.weight.append(period + (made_up.pop() if made_up else 0.0))
        self._rings.append(one.ring)
        addresses = tuple([spot.address for spot in path.spots])
        number = space.paths.get(addresses)
        if number is None:
            places = tuple(self._place(spot.region, spot.address, one.pid) for spot in path.spots)
            number = space.paths[addresses] = _number(self._known_paths, samples.paths, places)
        samples.path.append(number)

    def _period(self, one: FaultSample) -> int:
        for since, period in reversed(self._periods.get(one.event, ())):
            if one.time >= since:
                return period
        return 1

    def _place(self, region: CodeRegion, address: int, pid: int) -> int:
        known = region.places.get(address)
        if known is None:
            binary = region.binary
            place = Place(None, address, pid) if binary is None else Place(binary, region.offset_of(address))
            known = region.places[address] = _number(self._known_places, self.samples.places, place)
        return known


_Key = TypeVar("_Key", bound=Hashable)


def _unsampled(faults: Sequence[int], sampled: Sequence[float]) -> list[float]:
    """Return how many of the *faults* of each turn have no sample, beyond those *sampled*; below 0: too many have.

    The kernel counts on while the samples of a turn are taken: what is missing then, and is not later, is in the
    samples of the next turn.
    """
    missing = list(accumulate(map(sub, faults, sampled), initial=0.0))
    so_far = list(accumulate(missing, min))[1:]
    from_now = list(accumulate(reversed(missing[1:]), min))[::-1]
    lasting = list(map(max, so_far, from_now))
    return [b - a for a, b in zip([0.0, *lasting], lasting)]


def _number(known: dict[_Key, int], table: list[_Key], key: _Key) -> int:
    number = known.setdefault(key, len(table))
    if number == len(table):
        table.append(key)
    return number


def _when(row: tuple[Record, int]) -> int:
    return row[0].time
