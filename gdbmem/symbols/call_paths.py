"""The samples of a recording with their call paths, turn by turn."""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from operator import sub
from typing import Callable, NamedTuple, Optional, TypeVar

from gdbmem.errors import Notice, TargetError
from gdbmem.faults.growth import DOUBT
from gdbmem.formats.addresses import Binary, Symbols
from gdbmem.linux.faults.event import (
    Born,
    Executed,
    LostRecords,
    Mapped,
    Named,
    Record,
    SampleLayout,
    SmallSamples,
    StackSample,
    Turn,
    small_records,
    stack_samples,
)
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.memory.maps import PAGE
from gdbmem.linux.process.process import own_tid
from gdbmem.model.calltree import Frame
from gdbmem.symbols.unwinder import (
    MACHINES,
    AddressSpace,
    CodeRegion,
    OpenTable,
    Unwinder,
    code_in,
    code_region,
)

_NEAR = 32  # faults before, and after, that stand for those lost in between
_LONGEST_RUN = 64  # pages
_IN_STEP = 0.05  # by which equal distances differ at most
_UNSEEN = 2  # times that a caller may have come and gone at one place between two copied stacks


class Place(NamedTuple):
    """The location of a frame: in a file, or in memory that no file backs."""

    binary: Optional[Binary]
    offset: int  # in the file; without one the address
    pid: int = 0  # of the process, without a file


class Samples:
    """Samples as columns, in about the order of time: each is a run of pages that one place touched one by one."""

    def __init__(self) -> None:
        self.time = array("Q")  # CLOCK_MONOTONIC, ns
        self.pid = array("l")
        self.tid = array("l")
        self.address = array("Q")
        self.page_bytes = array("Q")  # 0: unknown
        self.pages = array("l")  # of the run
        self.until = array("Q")  # when its last page was touched
        self.weight = array("d")  # faults that each of its pages stands for
        # The variance of what it stands for beyond sampling, by its square: lost samples may all be of one path.
        self.doubt = array("d")
        self.path = array("l")
        # The variance that is due to the path, by the square of what it stands for: another one may have touched it.
        self.path_doubt = array("d")
        self.places: list[Place] = []
        self.paths: list[tuple[int, ...]] = []  # numbers of places, innermost first
        self.broken = 0  # samples whose path ends early
        self.assumed = 0  # samples that have the path of another one
        self.lost_faults = 0.0  # that lost samples stood for
        self.thread_names: dict[int, str] = {}
        self.began: dict[int, int] = {}  # pid → when its memory was new: birth, or last exec
        self.executed: set[int] = set()  # processes that have executed a program, and so inherited no memory

    def __len__(self) -> int:
        return len(self.time)


class _Seen:
    """The call paths that were seen at one place, in the order of time."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.paths: list[int] = []
        self.addresses: list[int] = []  # touched
        self.changes = 0  # of the path, from one to the next

    def add(self, time: int, address: int, path: int) -> None:
        """Add a fault whose stack was copied."""
        self.changes += bool(self.paths) and self.paths[-1] != path
        self.times.append(time)
        self.paths.append(path)
        self.addresses.append(address)

    def nearest(self, time: int, address: int) -> tuple[int, bool]:
        """Return the number of the fault seen nearest to *time*, and whether it is the one at *address*."""
        at = bisect_left(self.times, time)
        if at and self.addresses[at - 1] == address:  # its stack was copied before it was served
            return at - 1, True
        if at == len(self.times) or (at and time - self.times[at - 1] < self.times[at] - time):
            at -= 1
        return at, False


class _Assumed:
    """The samples at one place: those whose own stack was not copied have the path of the one nearest in time."""

    def __init__(self, seen: _Seen) -> None:
        self.seen = seen
        # Bytes touched by those, by the number in seen
        self.represented: defaultdict[int, float] = defaultdict(float)
        self.samples: defaultdict[int, list[int]] = defaultdict(list)  # by path


class _Gap:
    """Lost samples, and the numbers of those around them."""

    def __init__(
        self, faults: float, each: float, near: Sequence[int] = (), *, is_even: bool = False
    ) -> None:
        """*is_even*: they are as likely of each sample in *near*, however many pages it represents."""
        self.is_even = is_even
        self.faults = faults
        self.each = each  # of them that a page around it represents
        self.near = list(near)


class CallPaths:
    """Goes through the records of a recording in the order of time, and keeps what is mapped where.

    Small samples get the call path of a sample with a stack: of the same thread at the same instruction with the same
    stack pointer, seen at the nearest time; else of the process at that instruction; else the instruction alone.
    """

    def __init__(
        self, layout: SampleLayout, periods: Mapping[int, Sequence[tuple[int, int]]], open_table: OpenTable
    ) -> None:
        """*periods* are faults a sample, each with the time since when, by the event's identifier."""
        self.samples = Samples()
        self._layout, self._periods = layout, periods
        self._unwinder = Unwinder(open_table)
        machine = MACHINES.get(os.uname().machine)
        sampled = machine.sampled if machine is not None else ()
        self._pointer = sampled.index(machine.sp) if machine is not None else 0
        self._counter = sampled.index(machine.pc) if machine is not None else 0
        self._spaces: dict[int, AddressSpace] = {}
        self._counts: list[tuple[int, Mapping[int, int]]] = []  # samples so far, and faults by processor
        self._settled: Mapping[int, int] = {}  # at the count before which all samples are weighed
        self._owed: dict[int, float] = {}  # those of them that no sample stands for yet
        self._rings: list[int] = []  # of the samples that are not weighed yet
        self._period_of: dict[int, int] = {}  # the latest sample's, by ring
        self._gaps: list[_Gap] = []  # since the last time
        self._open: dict[int, tuple[_Gap, int]] = {}  # by ring: what the next samples are to stand for
        self._weighed = 0  # samples
        self._stretched = 0.0  # faults that samples stand for beyond their period
        self._where: list[
            tuple[int, int]
        ] = []  # of the samples without a path yet: instruction, stack pointer
        self._pathless = 0  # the first of them
        self._seen: dict[
            tuple[int, ...], _Seen
        ] = {}  # by thread, instruction and pointer; by process and instruction
        # Addresses touched by samples with a stack in the latest turn, and in the latest two: the small samples of some
        # come in the next.
        self._seen_now: set[int] = set()
        self._seen_at: set[int] = set()
        self._broken: set[int] = set()  # paths that end early
        self._known_places: dict[Place, int] = {}
        self._known_paths: dict[tuple[int, ...], int] = {}

    def start_with(self, pid: int, maps: bytes) -> None:
        """Begin with the code in *maps*, the text of /proc/PID/maps."""
        self._spaces[pid] = code_in(maps)

    def add(self, turn: Turn) -> None:
        """Take the records of one turn."""
        rows: list[tuple[Record, int]] = []
        for ring, data in turn.records:
            rows += [(record, ring) for record in small_records(data, self._layout)]
        for data in turn.stacks:
            rows += [(record, -1) for record in stack_samples(data, self._layout)]
        rows.sort(key=_when)
        stacks = {record.address for record, _ in rows if isinstance(record, StackSample)}
        self._seen_at, self._seen_now = self._seen_now | stacks, stacks
        for record, ring in rows:
            if isinstance(record, LostRecords):
                self._make_up(ring, record.records)
            elif isinstance(record, SmallSamples):
                self._add_runs(record, ring)
            else:
                self._take(record)
        if turn.faults:
            self._counts.append((len(self.samples), turn.faults))

    def finish(self) -> Samples:
        """Return the samples, weighed and with their paths; more turns may follow."""
        self._find_paths()
        self._weigh()
        self._doubt_gaps()
        return self.samples

    @property
    def missed_faults(self) -> float:
        """Return how many faults were counted so far that should have had samples and have none.

        The kernel speaks of samples that it lost when it writes the next one.
        """
        return self._stretched + sum(self._owed.values())

    def _make_up(self, ring: int, lost: int) -> None:
        """Make the samples just before and just after lost ones represent those, too."""
        faults = float(lost * self._period_of.get(ring, 1))
        self.samples.lost_faults += faults
        before, room = [], _NEAR
        for number in range(len(self.samples) - 1, self._weighed - 1, -1):
            if self._rings[number - self._weighed] == ring:
                before.append((number, min(self.samples.pages[number], room)))
                room -= before[-1][1]
                if room <= 0:
                    break
        gap = _Gap(faults, faults / (2 * _NEAR - room))
        for number, pages in before:
            self._add_faults(gap, number, pages)
        self._gaps.append(gap)
        self._open[ring] = gap, _NEAR

    def _add_faults(self, gap: _Gap, number: int, pages: int) -> None:
        """Make so many *pages* of a sample represent faults in *gap*."""
        self.samples.weight[number] += gap.each * pages / self.samples.pages[number]
        gap.near.append(number)

    def _doubt_gaps(self) -> None:
        """Enlarge the error of the paths around each gap: all that was lost may be of one of them, or of none."""
        samples = self.samples
        for gap in self._gaps:
            of_path: dict[int, list[int]] = {}
            for number in gap.near:
                of_path.setdefault(samples.path[number], []).append(number)
            for numbers in of_path.values():
                mine, every = (
                    [1 if gap.is_even else samples.pages[n] for n in of] for of in (numbers, gap.near)
                )
                share = sum(mine) / sum(every)
                last = numbers[-1]
                represented = max(samples.weight[last] * samples.pages[last], 1.0)
                samples.doubt[last] += share * (1 - share) * (gap.faults / represented) ** 2
        self._gaps = []

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
        weight, pages = self.samples.weight, self.samples.pages
        sums = [sum(weight[number] * pages[number] for number in turn) for turn in turns]
        owed = self._owed.pop(ring, 0.0)
        for turn, total, missing in zip(turns, sums, _unsampled(faults, sums)):
            owed += missing
            if not turn:
                continue
            if owed > 0:
                self._stretched += owed
                self._gaps.append(self._gap_in(turn, owed, total))
            for number in turn:
                weight[number] *= max(total + owed, 0.0) / total
            owed = min(total + owed, 0.0)
        if owed:
            self._owed[ring] = owed

    def _gap_in(self, turn: Sequence[int], faults: float, total: float) -> _Gap:
        """Return the gap of *faults* among the samples *turn* of one processor, which stand for *total* others.

        If they are few, a thread that came from another processor may have gone on with what it did there.
        """
        last, tid = turn[0] - 1, self.samples.tid
        if faults <= total or last < self._weighed or tid[last] != tid[turn[0]]:
            return _Gap(faults, 0.0, turn)
        return _Gap(faults, 0.0, (last, turn[-1]), is_even=True)

    def close(self) -> None:
        """Release the unwind tables."""
        self._unwinder.close()

    def _take(self, record: Record) -> None:
        if isinstance(record, StackSample):
            self._see(record)
        elif isinstance(record, Mapped):
            end = record.start + record.size_bytes
            region = code_region(record.start, end, record.offset, record.name, record.inode)
            self._space(record.pid).add(region)
        elif isinstance(record, Executed):
            self._spaces[record.pid] = AddressSpace()
            self.samples.began[record.pid] = record.time
            self.samples.executed.add(record.pid)
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

    def _see(self, one: StackSample) -> None:
        """Keep the call path of *one* for the small samples at its place."""
        if not one.registers:
            return
        number = self._path(one.pid, one.registers, one.stack, one.chain)
        counter, pointer = one.registers[self._counter], one.registers[self._pointer]
        for key in ((one.tid, counter, pointer), (one.pid, counter)):
            seen = self._seen.get(key)
            if seen is None:
                seen = self._seen[key] = _Seen()
            seen.add(one.time, one.address, number)

    def _path(self, pid: int, registers: Sequence[int], stack: bytes, chain: Sequence[int]) -> int:
        space = self._space(pid)
        path = self._unwinder.path(space, registers, stack, chain)
        addresses = tuple([spot.address for spot in path.spots])
        number = space.paths.get(addresses)
        if number is None:
            places = tuple(self._place(spot.region, spot.address, pid) for spot in path.spots)
            number = space.paths[addresses] = _number(self._known_paths, self.samples.paths, places)
        if not path.is_whole:
            self._broken.add(number)
        return number

    def _add_runs(self, block: SmallSamples, ring: int) -> None:
        """Add the samples of *block*, neighbouring pages that one place touched one after the other together.

        Where a stack was copied, others begin: its caller may be another one.
        """
        samples = self.samples
        periods = self._periods_of(block)
        before: tuple[int, ...] = ()
        end = 0
        for period, thread, time, address, pointer, counter, page in zip(
            periods,
            block.thread,
            block.time,
            block.address,
            block.stack_pointer,
            block.counter,
            block.page_bytes,
        ):
            where = (thread, pointer, counter, page, period)
            if (
                address // PAGE == end
                and where == before
                and address not in self._seen_at
                and samples.pages[-1] < _LONGEST_RUN
            ):
                samples.pages[-1] += 1
                samples.until[-1] = time
                end += 1
                continue
            before, end = where, address // PAGE + 1 if page == PAGE and period == 1 else 0
            self._close_gap(ring)
            last = len(samples) - 1
            if last >= self._weighed and samples.tid[last] == thread >> 32 and samples.weight[last] < period:
                # The period was lengthened: what came before this sample may still be of the path of the last one.
                self._gaps.append(_Gap(period - samples.weight[last], 0.0, (last, last + 1), is_even=True))
            samples.time.append(time)
            samples.pid.append(thread & 0xFFFFFFFF)
            samples.tid.append(thread >> 32)
            samples.address.append(address)
            samples.page_bytes.append(page)
            samples.pages.append(1)
            samples.until.append(time)
            samples.weight.append(period)
            samples.doubt.append(0.0)
            samples.path_doubt.append(0.0)
            samples.path.append(self._fallback(thread & 0xFFFFFFFF, counter))
            self._where.append((counter, pointer))
            self._rings.append(ring)
        self._close_gap(ring)
        if periods:
            self._period_of[ring] = periods[-1]

    def _close_gap(self, ring: int) -> None:
        """Make the sample that is complete now represent what was lost before it."""
        if ring not in self._open:
            return
        number = len(self.samples) - 1
        gap, room = self._open[ring]
        if number < self._weighed or number in gap.near or self._rings[number - self._weighed] != ring:
            return
        pages = min(self.samples.pages[number], room)
        self._add_faults(gap, number, pages)
        self._open[ring] = gap, room - pages
        if room <= pages:
            del self._open[ring]

    def _fallback(self, pid: int, counter: int) -> int:
        """Return the path of the instruction *counter* alone."""
        space = self._space(pid)
        number = space.alone.get(counter)
        if number is None:
            number = space.alone[counter] = self._path(pid, (), b"", (counter,) if counter else ())
        return number

    def _find_paths(self) -> None:
        """Give the samples without a path that of the sample with a stack that is nearest to them."""
        samples, seen = self.samples, self._seen
        places: dict[int, _Assumed] = {}
        for number, (counter, pointer) in enumerate(self._where, self._pathless):
            found = seen.get((samples.tid[number], counter, pointer)) or seen.get(
                (samples.pid[number], counter)
            )
            if found is not None:
                which, is_it = found.nearest(samples.time[number], samples.address[number])
                samples.path[number] = found.paths[which]
                assumed = samples.pages[number] - is_it
                samples.assumed += assumed
                place = places.get(id(found))
                if place is None:
                    place = places[id(found)] = _Assumed(found)
                place.samples[found.paths[which]].append(number)
                if assumed:
                    place.represented[which] += self._bytes_of(number, assumed)
            if samples.path[number] in self._broken:
                samples.broken += samples.pages[number]
        self._pathless, self._where = len(samples), []
        for place in places.values():
            self._doubt_paths(place)

    def _bytes_of(self, number: int, pages: int) -> float:
        """Return the bytes that so many *pages* of a sample represent."""
        samples = self.samples
        return pages * samples.weight[number] * (samples.page_bytes[number] or PAGE)

    def _doubt_paths(self, place: _Assumed) -> None:
        """Enlarge the error of the paths at one place by what others of these paths may have touched.

        As often as the path changes from one stack to the next, one is wrong for the faults that it represents. Stacks
        at equal distances count as one: the program's loop may be in step with the kernel, and show it one path. Beside
        that, other paths may have touched all between two stacks, and have none there: DOUBT standard errors include
        the largest such places.
        """
        sizes, seen = place.represented, place.seen
        if not sizes:
            return
        squares = {which: size * sizes_in_step for which, size, sizes_in_step in _in_step(sizes)}
        whole = sum(squares.values())
        wrong = min(seen.changes * whole / sum(sizes.values()) ** 2, 0.5)
        between = sorted(size + sizes.get(which + 1, 0.0) for which, size in sizes.items())
        most = min(sum(between[-_UNSEEN:]), sum(sizes.values())) / DOUBT
        stacks = Counter(seen.paths)
        own: dict[int, float] = defaultdict(float)
        for which, square in squares.items():
            own[seen.paths[which]] += square
        for path, numbers in place.samples.items():
            touched = [self._bytes_of(number, self.samples.pages[number]) for number in numbers]
            size_of_path = sum(touched)
            came = wrong * stacks[path] / len(seen.paths)
            variance = wrong * (1 - wrong) * own[path] + came * (1 - came) * (whole - own[path]) + most**2
            for number, size in zip(numbers, touched):
                self.samples.path_doubt[number] = variance / (size * size_of_path)

    def _periods_of(self, block: SmallSamples) -> Sequence[int]:
        """Return the number of faults per sample of each of the samples in *block*."""
        of_others = self._periods.get(0, ((0, 1),))
        known = {event: self._periods.get(event, of_others) for event in set(block.event)}
        first = block.time[0]
        if all(len(changes) == 1 or changes[-1][0] <= first for changes in known.values()):
            latest = {event: changes[-1][1] for event, changes in known.items()}
            return [latest[event] for event in block.event]
        return [_period_at(known[event], time) for event, time in zip(block.event, block.time)]

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


def _in_step(sizes: Mapping[int, float]) -> Iterator[tuple[int, float, float]]:
    """Yield each of *sizes*, those between successive stacks, with the sum of those about equal that it is among."""
    group: list[int] = []
    for which in [*sorted(sizes), None]:
        if group and (
            which != group[-1] + 1 or abs(sizes[which] - sizes[group[0]]) > _IN_STEP * sizes[group[0]]
        ):
            together = sum(sizes[one] for one in group)
            yield from ((one, sizes[one], together) for one in group)
            group = []
        if which is not None:
            group.append(which)


def _number(known: dict[_Key, int], table: list[_Key], key: _Key) -> int:
    number = known.setdefault(key, len(table))
    if number == len(table):
        table.append(key)
    return number


def _period_at(changes: Sequence[tuple[int, int]], time: int) -> int:
    for since, period in reversed(changes):
        if time >= since:
            return period
    return 1


def _when(row: tuple[Record, int]) -> int:
    record = row[0]
    return record.time[0] if isinstance(record, SmallSamples) else record.time


# Names of the places in code that recorded call paths go through.


_NO_FILE = "memory without a file"
# py::function:/path/file.py of Python, JS:*function /path/file.js:2:17 of node
_IN_NAMES = (
    re.compile(r"py::(?P<function>[^\n]+):(?P<file>[^\n:]+)"),
    re.compile(
        r"(?:JS|Function|LazyCompile|Eval|Script):[*^~+]?(?P<function>\S+)"
        r" (?P<file>[^\n]+):(?P<line>\d{1,9}):\d{1,9}"
    ),
)


def name_places(
    places: Sequence[Place],
    symbols: Symbols,
    may_open: Callable[[Binary], bool],
    jit: Mapping[tuple[int, int], str],
) -> tuple[list[Sequence[Frame]], Sequence[Notice]]:
    """Return the frames of each of *places*, innermost first, and notices.

    Files that *may_open* refuses are not read. *jit* names places in no file, by process and address.
    """
    wanted: dict[Binary, set[int]] = {}
    for place in places:
        if place.binary is not None and place.binary.path.startswith("/") and may_open(place.binary):
            wanted.setdefault(place.binary, set()).add(place.offset)
    found, notices = symbols.frames(wanted) if wanted else ({}, ())
    chains: list[Sequence[Frame]] = []
    for place in places:
        if place.binary is None:
            chains.append((_jit_frame(jit.get((place.pid, place.offset)), place.offset),))
        else:
            plain = Frame(f"0x{place.offset:x}", object=place.binary.path)
            chains.append(found.get((place.binary, place.offset)) or (plain,))
    return chains, notices


def _jit_frame(name: Optional[str], address: int) -> Frame:
    """Return the frame of code that no file holds: Python and node include the source in the name."""
    for pattern in _IN_NAMES:
        match = pattern.fullmatch(name or "")
        if match:
            line = match.groupdict().get("line")
            return Frame(match["function"], match["file"], int(line) if line else None)
    return Frame(name or f"0x{address:x}", object=_NO_FILE)


# Names of the code that a JIT compiler made: /tmp/perf-PID.map, which node, Java, Python and others write.
#
# Source: Linux, tools/perf/Documentation/jit-interface.txt: lines ``START SIZE NAME``, hexadecimal.


_LARGEST_BYTES = 64 << 20
_LONGEST_NAME = 1000
_LINE = re.compile(rb"^(?:0x)?([0-9a-f]{1,16}) (?:0x)?([0-9a-f]{1,16}) ([^\n]+)$", re.M | re.I)


def jit_names(pid: int, addresses: Iterable[int]) -> dict[int, str]:
    """Return the names of those of *addresses* that the map of process *pid* has.

    The file is one that the process may change: it is read with the process's own rights, if it is a regular file.
    """
    with suppress(OSError, TargetError), TargetFiles(pid) as files:
        with files.open(f"/tmp/perf-{own_tid(pid)}.map") as stream:
            data = stream.read(_LARGEST_BYTES)
        return _named(data, addresses)
    return {}


def _named(data: bytes, addresses: Iterable[int]) -> dict[int, str]:
    rows = [(int(m[1], 16), int(m[2], 16), m[3]) for m in _LINE.finditer(data)]
    # If two overlap, the one written later is valid.
    last = {start: (size, name) for start, size, name in rows}
    starts = sorted(last)
    names = {}
    for address in addresses:
        at = bisect_right(starts, address) - 1
        if at >= 0 and address < starts[at] + last[starts[at]][0]:
            names[address] = last[starts[at]][1][:_LONGEST_NAME].decode("utf-8", "surrogateescape")
    return names
