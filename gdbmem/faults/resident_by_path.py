"""The resident memory of one process by the call path that made it resident, kept from one interval to the next."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gdbmem.errors import Notice
from gdbmem.faults.growth import WeighedFault
from gdbmem.linux.faults.readings import Reading
from gdbmem.linux.memory.maps import PAGE, Ranges
from gdbmem.model.calltree import Frame
from gdbmem.model.faults import FaultStack

_Key = tuple[int, int, int]  # path, process, thread
_DOUBT = 3.0  # standard errors
_TOLERANCE = 0.01


class _Standing:
    """The memory that one sample represents."""

    def __init__(
        self, fault: WeighedFault, pieces: Sequence[tuple[int, int]], scale: float, doubt: float
    ) -> None:
        self.fault = fault
        self.pieces = pieces  # that are resident
        self.scale = scale  # bytes that each of their pages represents
        self.doubt = doubt  # variance, by the square of the bytes

    @property
    def bytes(self) -> float:
        return self.scale * sum(end - start for start, end in self.pieces)


class _LineSums:
    """The sums of one thread and path since the recording began; variances only grow, so they can be subtracted."""

    def __init__(self) -> None:
        self.seen = 0.0
        self.samples = 0
        self.seen_variance = self.turnover_variance = 0.0  # of pages that stayed, and of those that left
        self.seen_path_variance = self.turnover_path_variance = 0.0  # that is due to the path

    def turn_over(self, size: float, one: _Standing) -> None:
        """Add the variances of *size* bytes of *one* that came or left."""
        self.turnover_variance += size**2 * one.doubt
        self.turnover_path_variance += size**2 * one.fault.path_doubt


class StandingMemory:
    """The memory that each sample represents while it is resident, bytes: a released page is deducted from its line.

    New and released pages are known exactly. Each new page of an interval is charged to the sample of that interval
    with the nearest address, as long as the samples explain that many pages; so unchanged memory makes no difference
    between two moments, however few samples there are.
    """

    def __init__(self) -> None:
        self._standing: list[_Standing] = []
        self._sums: dict[_Key, _LineSums] = {}

    def leave(self, after: Reading) -> None:
        """Remove memory that is no longer resident in *after*."""
        kept = []
        for one in self._standing:
            before = one.bytes
            one.pieces = [piece for start, end in one.pieces for piece in _resident(after, start, end)]
            self._sums[_key(one.fault)].turn_over(before - one.bytes, one)
            if one.pieces:
                kept.append(one)
        self._standing = kept

    def leave_all(self) -> None:
        """Remove everything: the process executes another program."""
        self.leave(Reading(0))

    def come(
        self,
        faults: Sequence[WeighedFault],
        grown: Sequence[float],
        before: Reading,
        after: Reading,
        *,
        lost_bytes: int = 0,
    ) -> None:
        """Add the *faults* of an interval, with the bytes *grown* of each that stayed resident.

        *lost_bytes* may belong to faults whose samples were lost.
        """
        for fault in faults:
            sums = self._sums.setdefault(_key(fault), _LineSums())
            sums.seen += fault.bytes
            sums.samples += fault.pages
            sums.seen_variance += fault.bytes**2 * fault.relative_variance
            sums.seen_path_variance += fault.bytes**2 * fault.path_doubt
        anonymous = [n for n, stays in enumerate(grown) if stays and after.anonymous.within(*faults[n].page)]
        came = _new(before.anonymous, after.anonymous)
        if _explain([(faults[n], grown[n]) for n in anonymous], came.size_bytes - lost_bytes):
            new = _nearest([faults[n] for n in anonymous], came)
            known = set(anonymous)
            new += [_of_one(faults[n], grown[n], after) for n in range(len(faults)) if n not in known]
        else:
            new = [_of_one(*one, after) for one in zip(faults, grown)]
        _limit([one for one in new if one.fault.address in after.files], _new(before.files, after.files))
        for one in new:
            if one.pieces:
                self._sums[_key(one.fault)].turn_over(one.bytes, one)
                self._standing.append(one)

    def rows(self) -> list[tuple[WeighedFault, float]]:
        """Return the samples that represent resident memory, with the bytes of each."""
        return [(one.fault, one.bytes) for one in self._standing]

    @property
    def seen_bytes(self) -> float:
        """Return the bytes made resident since the recording began."""
        return sum(one.seen for one in self._sums.values())

    def stacks(self) -> list[FaultStack]:
        """Return the sums by thread and path; the variance of the growth is that of all new and released pages."""
        grown: dict[_Key, float] = {}
        for one in self._standing:
            key = _key(one.fault)
            grown[key] = grown.get(key, 0.0) + one.bytes
        return [
            FaultStack(
                *key,
                sums.seen,
                grown.get(key, 0.0),
                sums.samples,
                sums.seen_variance,
                sums.turnover_variance,
                sums.seen_path_variance,
                sums.turnover_path_variance,
            )
            for key, sums in self._sums.items()
        ]


def _resident(after: Reading, start: int, end: int) -> Iterator[tuple[int, int]]:
    for kind in (after.anonymous, after.files, after.hugetlb):
        yield from kind.overlaps(start, end)


def _new(before: Ranges, after: Ranges) -> Ranges:
    return Ranges(gap for start, end in after.items for gap in before.gaps(start, end))


def _limit(new: Sequence[_Standing], came: Ranges) -> None:
    """Scale *new* so that they represent no more than *came*: a sample may stand for more pages than a library has."""
    charged = sum(one.bytes for one in new)
    if charged > came.size_bytes:
        for one in new:
            one.scale *= came.size_bytes / charged


def _explain(rows: Sequence[tuple[WeighedFault, float]], came_bytes: int) -> bool:
    """Return whether the samples represent that much: pages may appear without faults, or with unobserved ones."""
    estimate = sum(stays for _, stays in rows)
    doubt = math.sqrt(sum(stays**2 * fault.relative_variance for fault, stays in rows))
    return estimate >= came_bytes * (1 - _TOLERANCE) - _DOUBT * doubt


def _nearest(faults: Sequence[WeighedFault], came: Ranges) -> list[_Standing]:
    """Divide the new pages among *faults*, each to the nearest."""
    latest = {one.page[0]: one for one in sorted(faults, key=lambda one: one.time)}
    sorted_faults = [latest[start] for start in sorted(latest)]
    pages = [one.page for one in sorted_faults]
    middles = [(end + start) // 2 // PAGE * PAGE for (_, end), (start, _) in zip(pages, pages[1:])]
    lowest, highest = (came.items[0][0], came.items[-1][1]) if came.items else (0, 0)
    cells = zip([lowest, *middles], [*middles, highest])
    found = [_Standing(one, list(came.overlaps(*cell)), 1.0, 0.0) for one, cell in zip(sorted_faults, cells)]
    shares: dict[_Key, float] = {}
    for one in found:
        shares[_key(one.fault)] = shares.get(_key(one.fault), 0.0) + one.bytes
    for one in found:
        # The total is exact; the division is uncertain. After n alike the next may still differ.
        share = shares[_key(one.fault)] / max(came.size_bytes, 1) * len(found) / (len(found) + 1)
        one.doubt = one.fault.relative_variance * (1 - share)
    return found


def _of_one(fault: WeighedFault, stays: float, after: Reading) -> _Standing:
    """Return the memory that *fault* represents by its weight; it is released with its own page."""
    pieces = list(_resident(after, *fault.page))
    size = sum(end - start for start, end in pieces)
    return _Standing(fault, pieces if stays else (), stays / size if size else 0.0, fault.relative_variance)


def _key(fault: WeighedFault) -> _Key:
    return fault.path, fault.pid, fault.tid


# Growth through an interpreter that did not name its functions: the lines are the interpreter's own.


_LARGE_SHARE = 0.5


class _Interpreter(NamedTuple):
    name: str
    loop: re.Pattern[str]  # functions that run code of the language
    sources: tuple[str, ...]  # how names of its files end
    remedy: str


_INTERPRETERS = (
    _Interpreter(
        "CPython",
        re.compile(r"_?PyEval_(?:EvalFrameDefault|EvalFrameEx|EvalCode|Vector)\b[^\n]*"),
        (".py",),
        "'python -X perf' (3.12) names its functions; 'gdbmem python start PID' and 'gdbmem python traces PID' name the"
        " lines of a running process",
    ),
    _Interpreter(
        "node",
        re.compile(r"v8::internal::Execution::[^\n]*|node::\w+::Run\b[^\n]*"),
        (".js", ".mjs", ".cjs", ".ts"),
        "'node --perf-basic-prof' names its functions",
    ),
)


def unnamed_interpreters(stacks: Iterable[tuple[FaultStack, Sequence[Frame]]]) -> list[Notice]:
    """Return a notice for an interpreter that most of the growth went through without a name of its language."""
    rows = [(one.grown_bytes or one.seen_bytes, frames) for one, frames in stacks]
    whole = sum(size for size, _ in rows)
    found = []
    for one in _INTERPRETERS:
        unnamed = sum(size for size, frames in rows if _is_unnamed(one, frames))
        if whole and unnamed >= _LARGE_SHARE * whole:
            text = f"{unnamed / whole:.0%} of the memory was requested by code that {one.name} runs"
            rest = f"its functions have no names here, only the interpreter's have; {one.remedy}"
            found.append(Notice("faults-interpreter", f"{text}: {rest}"))
    return found


def _is_unnamed(interpreter: _Interpreter, frames: Sequence[Frame]) -> bool:
    if any(frame.file is not None and frame.file.endswith(interpreter.sources) for frame in frames):
        return False
    return any(frame.function and interpreter.loop.fullmatch(frame.function) for frame in frames)
