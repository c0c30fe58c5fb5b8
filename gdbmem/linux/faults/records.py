"""The records in a ring: samples of page faults, and events of processes and their mappings."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Union

from gdbmem.errors import TargetError
from gdbmem.linux.faults.ring import HEADER

MMAP2, COMM, FORK, SAMPLE, LOST, EXIT = 10, 3, 7, 9, 2, 4
_BY_EXEC = 1 << 13  # PERF_RECORD_MISC_COMM_EXEC
_TRAILER = struct.Struct("<IIQQ")  # of every record but samples: pid, tid, time, identifier
_FIXED = struct.Struct("<QQIIQQQ")  # identifier, ip, pid, tid, time, address, length of the call chain
_WORD = struct.Struct("<Q")
_TIME_OF_SAMPLE = struct.Struct("<32xQ")  # header, identifier, ip, pid and tid precede it
_USER_END = 1 << 63  # addresses from here on are the kernel's, or context markers


class FaultSample(NamedTuple):
    """One page fault per period, with the location of the thread."""

    ring: int
    time: int  # CLOCK_MONOTONIC, ns
    pid: int
    tid: int
    ip: int  # of the instruction; in the kernel if that touched the page
    address: int  # touched
    event: int  # the identifier of the event, which determines the period
    page_bytes: int  # of the page that is there now; 0: unknown
    chain: tuple[int, ...]  # the user's call path by frame pointers, innermost first
    registers: tuple[int, ...]  # as requested, ascending; () for a thread without a user stack
    stack: bytes  # from the stack pointer on


class Mapped(NamedTuple):
    """Code was mapped."""

    time: int
    pid: int
    start: int
    size_bytes: int
    offset: int
    inode: int
    name: str


class Executed(NamedTuple):
    """A process executes another program: all its mappings are gone."""

    time: int
    pid: int
    name: str


class Named(NamedTuple):
    """A thread has a new name."""

    time: int
    pid: int
    tid: int
    name: str


class Born(NamedTuple):
    """A process or a thread was created."""

    time: int
    pid: int
    parent: int
    tid: int


class Ended(NamedTuple):
    """A thread has ended."""

    time: int
    pid: int
    tid: int


class LostRecords(NamedTuple):
    """The ring had no room for some records, mostly samples, which precede this one."""

    time: int
    records: int


Record = Union[FaultSample, Mapped, Executed, Named, Born, Ended, LostRecords]


class Turn(NamedTuple):
    """The records taken out of the rings at once, and the counts of faults just after."""

    records: Sequence[tuple[int, bytes]]  # by processor
    faults: Mapping[int, int]  # since the beginning, by processor; {}: not counted in this turn


class SampleLayout(NamedTuple):
    """The layout of the samples of one recording."""

    registers: int  # how many
    has_page_size: bool


class Taken(NamedTuple):
    """Raw records, the number of samples in them and lost, and births of processes and threads."""

    data: bytes
    samples: int
    lost: int
    births: int
    nanoseconds: int  # from the first sample to the last


def trimmed(pieces: Iterable[Union[bytes, memoryview]], layout: SampleLayout) -> Taken:
    """Return the records in *pieces* without the unused part of each copied stack."""
    kept = bytearray()
    samples = lost = births = first = last = 0
    try:
        for data in pieces:
            at, end = 0, len(data)
            while at < end:
                kind, _, size = HEADER.unpack_from(data, at)
                _check(HEADER.size <= size <= end - at)
                if kind == SAMPLE:
                    samples += 1
                    last = _TIME_OF_SAMPLE.unpack_from(data, at)[0]
                    first = first or last
                    _keep_sample(data, at, size, layout, kept)
                else:
                    lost += _WORD.unpack_from(data, at + 16)[0] if kind == LOST else 0
                    births += kind == FORK
                    kept += data[at : at + size]
                at += size
    except _UNREADABLE:
        raise _unreadable() from None
    return Taken(bytes(kept), samples, lost, births, last - first)


_UNREADABLE = (struct.error, OverflowError, ValueError)


def _unreadable() -> TargetError:
    """Return the error for an invalid record, after which nothing can be decoded."""
    return TargetError(
        "a record of page faults does not have the kernel's format: the rest can't be read",
        slug="faults-records",
        hint="record again; if it happens twice, report it with the kernel's version",
    )


def _check(agrees: bool) -> None:
    if not agrees:
        raise ValueError


def _keep_sample(
    data: Union[bytes, memoryview], at: int, size: int, layout: SampleLayout, kept: bytearray
) -> None:
    after = at + size
    where = at + 8 + _FIXED.size + 8 * _WORD.unpack_from(data, at + _FIXED.size)[0]
    where += 8 + (8 * layout.registers if _WORD.unpack_from(data, where)[0] else 0)
    room = _WORD.unpack_from(data, where)[0]
    _check(where + 16 + room <= after if room else where + 8 <= after)
    if not room:
        kept += data[at:after]
        return
    filled = min(_WORD.unpack_from(data, where + 8 + room)[0] + 7 & ~7, room)
    kept += HEADER.pack(SAMPLE, 0, size - room + filled)
    kept += data[at + 8 : where]
    kept += _WORD.pack(filled)
    kept += data[where + 8 : where + 8 + filled]
    kept += _WORD.pack(filled)
    kept += data[after - 8 : after] if layout.has_page_size else b""


def records_in(data: bytes, ring: int, layout: SampleLayout) -> Iterator[Record]:
    """Decode the records *data* of *ring*; those of other kinds are skipped."""
    at, end = 0, len(data)
    while at < end:
        try:
            kind, misc, size = HEADER.unpack_from(data, at)
            _check(HEADER.size <= size <= end - at)
            if kind == SAMPLE:
                found: Iterable[Record] = (_sample(data, at + 8, at + size, ring, layout),)
            else:
                found = tuple(_other(kind, misc, data[at : at + size]))
        except _UNREADABLE:
            raise _unreadable() from None
        yield from found
        at += size


def _sample(data: bytes, at: int, end: int, ring: int, layout: SampleLayout) -> FaultSample:
    event, ip, pid, tid, time, address, length = _FIXED.unpack_from(data, at)
    at += _FIXED.size
    _check(8 * length <= end - at)
    chain = struct.unpack_from(f"<{length}Q", data, at)
    at += 8 * length
    (abi,) = struct.unpack_from("<Q", data, at)
    at += 8
    registers: tuple[int, ...] = ()
    if abi:
        registers = struct.unpack_from(f"<{layout.registers}Q", data, at)
        at += 8 * layout.registers
    (room,) = struct.unpack_from("<Q", data, at)
    _check(at + 16 + room <= end if room else at + 8 <= end)
    stack = b""
    if room:
        (filled,) = struct.unpack_from("<Q", data, at + 8 + room)
        stack = data[at + 8 : at + 8 + min(filled, room)]
    page = struct.unpack_from("<Q", data, end - 8)[0] if layout.has_page_size else 0
    user = tuple(one for one in chain if 0 < one < _USER_END)
    return FaultSample(ring, time, pid, tid, ip, address, event, page, user, registers, stack)


def _other(kind: int, misc: int, data: bytes) -> Iterator[Record]:
    _check(len(data) >= HEADER.size + _TRAILER.size)
    pid, tid, time, _ = _TRAILER.unpack_from(data, len(data) - _TRAILER.size)
    if kind == MMAP2:
        _, _, start, size, offset, _, _, inode, _, _, _ = struct.unpack_from("<IIQQQIIQQII", data, 8)
        yield Mapped(time, pid, start, size, offset, inode, _text(data[8 + 64 :]))
    elif kind == COMM:
        pid, tid = struct.unpack_from("<II", data, 8)
        name = _text(data[16:])
        if misc & _BY_EXEC:
            yield Executed(time, pid, name)
        yield Named(time, pid, tid, name)
    elif kind in (FORK, EXIT):
        pid, parent, tid, _, time = struct.unpack_from("<IIIIQ", data, 8)
        yield Born(time, pid, parent, tid) if kind == FORK else Ended(time, pid, tid)
    elif kind == LOST:
        yield LostRecords(time, _WORD.unpack_from(data, 16)[0])


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
