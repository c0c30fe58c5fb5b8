"""heaptrack's interpreted files, versions 1 to 3: every allocation of a run, in order.

Tens of millions of lines say "+ INDEX" or "- INDEX". They are counted as they stand, a piece of the file at a
time; only the few that define strings, addresses, traces and allocations are looked at one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.formats.heaptrack_lines import BadLineError, Events, Lines, take_apart
from gdbmem.formats.massif_tree import Data, line_number
from gdbmem.formats.stacks import (
    ALLOCATED,
    DEEPEST,
    IN_USE,
    LARGEST,
    PEAK,
    Content,
    Stack,
    StackProfile,
    choose_metric,
)
from gdbmem.model.calltree import Frame
from gdbmem.text import printable

TRUNCATED = "profile-truncated"

METRICS = (IN_USE, PEAK, ALLOCATED)
_VERSIONS = (1, 2, 3)
_PIECE_BYTES = 256 << 10  # what is worked out of a piece then stays in the processor's cache


class _Allocation(NamedTuple):
    size: int
    trace: int


@dataclass
class _Tables:
    # Indices of strings, addresses and traces count from 1, those of allocations from 0.
    version: int = 0
    command: str = ""
    strings: list[str] = field(default_factory=lambda: [""])
    chains: list[Sequence[Frame]] = field(default_factory=lambda: [()])
    traces: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])  # address, calling trace
    allocations: list[_Allocation] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # of the allocations, bytes


@dataclass(frozen=True)
class _Course:
    events: Events
    at_peak: int  # lines from the start of the counting to the peak


def read_heaptrack(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*; raises InputError, naming the line, for one that is damaged."""
    chosen = choose_metric(metric, METRICS, source)
    reader = _Reader(data, source)
    course = reader.read(wants_peak=chosen == PEAK)
    tables = reader.tables
    events = reader.events_until(course.at_peak) if chosen == PEAK else course.events
    stacks = _stacks(tables, events, chosen, source, by_size=False)
    total = sum(stack.bytes for stack in stacks)
    return StackProfile(
        source=source,
        source_format="heaptrack",
        metric=chosen,
        metrics=METRICS,
        total_bytes=total,
        load=lambda profile: _load(profile, stacks, tables, events),
        command=tables.command,
        notices=reader.notices,
    )


def _load(profile: StackProfile, stacks: Sequence[Stack], tables: _Tables, events: Events) -> Content:
    if profile.by_size:
        stacks = _stacks(tables, events, profile.metric, profile.source, by_size=True)
    return Content(_with_paths(stacks, tables, profile.source), tables.chains)


def _stacks(tables: _Tables, events: Events, metric: str, source: str, *, by_size: bool) -> list[Stack]:
    """Return one stack a trace (and size); its only "frame" is the trace's number, until its path is asked for."""
    sizes: Counter[tuple[int, int]] = Counter()
    blocks: Counter[tuple[int, int]] = Counter()
    for index, allocation in enumerate(tables.allocations):
        count = events.made[index]
        if metric != ALLOCATED:
            count -= events.freed[index]
        if count < 0:
            raise InputError(
                f"{printable(source)} frees allocation {index:x} more often than it makes it",
                slug="negative-count",
                hint="the file is damaged",
            )
        if count:
            key = (allocation.trace, allocation.size if by_size else 0)
            sizes[key] += count * allocation.size
            blocks[key] += count
    if sum(sizes.values()) > LARGEST:
        raise InputError(f"{printable(source)} counts more bytes than any memory has", slug="count-too-big")
    return [
        Stack((trace,), total, blocks[trace, size], block_bytes=size if by_size else -1)
        for (trace, size), total in sizes.items()
    ]


def _with_paths(stacks: Sequence[Stack], tables: _Tables, source: str) -> list[Stack]:
    traces = tables.traces
    found = []
    for stack in stacks:
        trace, path = stack.frames[0], []
        while trace:  # a caller stands before what it calls: this ends
            address, trace = traces[trace]
            path.append(address)
        if len(path) > DEEPEST:
            raise InputError(
                f"{printable(source)} holds a stack of {len(path)} frames", slug="stack-too-deep"
            )
        found.append(stack._replace(frames=path))
    return found


class _Reader:
    def __init__(self, data: Data, source: str) -> None:
        self.data = data
        self.source = source
        self.tables = _Tables()
        self.notices: list[Notice] = []
        self._start = 0  # of the counting: after the last "A", where heaptrack was attached
        self.end = data.rfind(b"\n") + 1
        if self.end < len(data):
            number = line_number(data, len(data) - 1)
            self.notices.append(Notice(TRUNCATED, f"{printable(source)} was cut at line {number}"))

    def read(self, *, wants_peak: bool) -> _Course:
        events = Events(Counter(), Counter())
        in_use = peak = at_peak = line = 0
        for start, end in self._pieces(0):
            piece = self.data[start:end]
            lines = take_apart(piece, whole_bytes=self.end)
            self._define(lines.definitions())
            attached = piece.rfind(b"\nA\n") + 1 or (1 if piece.startswith(b"A\n") else 0)
            if attached:
                events = Events(Counter(), Counter())
                in_use = peak = at_peak = line = 0
                self._start = start + attached
                lines = take_apart(piece[attached:], whole_bytes=self.end)
            self._count(events, lines)
            if wants_peak:
                top = lines.peak(self.tables.sizes, in_use)
                if top.highest > peak:
                    peak, at_peak = top.highest, line + top.lines
                in_use = top.last
                line += len(lines)
        return _Course(events, at_peak)

    def _count(self, events: Events, lines: Lines, first: Optional[int] = None) -> None:
        try:
            found = lines.events(len(self.tables.allocations), first)
        except BadLineError as error:
            raise self._bad(error.args[0], "'+ INDEX' or '- INDEX' of an allocation") from None
        events.made.update(found.made)
        events.freed.update(found.freed)

    def _pieces(self, at: int) -> Iterator[tuple[int, int]]:
        while at < self.end:
            stop = self.data.rfind(b"\n", at, min(at + _PIECE_BYTES, self.end)) + 1
            stop = stop or self.data.find(b"\n", at) + 1  # a line longer than a piece
            yield at, stop
            at = stop

    def events_until(self, count: int) -> Events:
        """Return the events among the first *count* lines of the counting."""
        events = Events(Counter(), Counter())
        for start, end in self._pieces(self._start):
            lines = take_apart(self.data[start:end], whole_bytes=self.end)
            self._count(events, lines, count)
            count -= len(lines)
            if count <= 0:
                break
        return events

    def _define(self, lines: Iterator[bytes]) -> None:
        readers = {115: self._string, 105: self._address, 116: self._trace, 97: self._allocation}  # s i t a
        for line in lines:
            try:
                reader = readers.get(line[0])
                if reader is not None:
                    reader(line)
                elif not self._other(line):
                    raise ValueError
            except (ValueError, IndexError):
                raise self._bad(
                    line, "a line of heaptrack's, with indices that it has given before"
                ) from None

    def _other(self, line: bytes) -> bool:
        if line.startswith(b"v "):
            self.tables.version = int(line.split()[2], 16)
            if self.tables.version not in _VERSIONS:
                raise InputError(
                    f"{printable(self.source)} is of version {self.tables.version} of heaptrack's format",
                    slug="format-unreadable",
                    hint="versions 1 to 3 can be read; heaptrack_print reads those of its own heaptrack",
                )
        elif line.startswith(b"X "):
            self.tables.command = line[2:].decode("utf-8", "surrogateescape")
        elif line[:2] in (b"x ", b"m "):
            raise InputError(
                f"{printable(self.source)} is raw data of heaptrack, without names",
                slug="format-unreadable",
                hint="pipe it through heaptrack_interpret first, as the heaptrack script does",
            )
        else:
            return line == b"A"
        return True

    def _string(self, line: bytes) -> None:
        text = line[2:]
        if self.tables.version >= 3:
            size, _, text = text.partition(b" ")
            if int(size, 16) != len(text):
                raise ValueError
        self.tables.strings.append(text.decode("utf-8", "surrogateescape"))

    def _address(self, line: bytes) -> None:
        words = [int(word, 16) for word in line[2:].split()]
        strings = self.tables.strings
        module = strings[words[1]] or None
        chain = []
        rest = words[2:]
        while rest:
            function = strings[rest[0]] or None
            file = strings[rest[1]] if len(rest) > 1 else ""
            number = rest[2] if len(rest) > 2 else None
            chain.append(Frame(function, file or None, number if file else None, module))
            rest = rest[3:]
        chain = [frame._replace(inlined=True) for frame in chain[:-1]] + chain[-1:]
        self.tables.chains.append(chain or (Frame(object=module),))

    def _trace(self, line: bytes) -> None:
        first, _, second = line[2:].partition(b" ")
        address, parent = int(first, 16), int(second, 16)
        if not 0 < address < len(self.tables.chains) or not 0 <= parent < len(self.tables.traces):
            raise IndexError
        self.tables.traces.append((address, parent))

    def _allocation(self, line: bytes) -> None:
        first, _, second = line[2:].partition(b" ")
        size, trace = int(first, 16), int(second, 16)
        if not 0 <= trace < len(self.tables.traces) or size < 0:
            raise IndexError
        if size > LARGEST >> 1:
            raise InputError(
                f"{printable(self.source)} counts more bytes than any memory has", slug="count-too-big"
            )
        self.tables.sizes.append(size)
        self.tables.allocations.append(_Allocation(size, trace))

    def _bad(self, line: bytes, expected: str) -> InputError:
        from gdbmem.formats.stacks import bad_line

        at = self.data.find(b"\n" + line + b"\n") + 1
        return bad_line(self.source, line_number(self.data, at), line, expected)
