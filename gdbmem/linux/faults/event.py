"""Perf events on page faults and on births of processes: opening them, their ring buffers, and the records in these."""

import contextlib
import ctypes
import errno
import fcntl
import filecmp
import mmap
import os
import stat
import struct
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Optional, Union

from gdbmem.errors import TargetError
from gdbmem.linux.elf.objects import read_elf
from gdbmem.linux.memory.resident import PAGE_BYTES
from gdbmem.linux.process.process import thread_ids, words_of

# One perf event: its attributes, opening it, and its ioctl requests.
#
# Source: linux/perf_event.h (struct perf_event_attr, 136 bytes since Linux 6.3; the kernel takes a longer one whose
# rest is zero), man 2 perf_event_open.


# PERF_COUNT_SW_…: PAGE_FAULTS_MIN and _MAJ, counted once the fault is served; PAGE_FAULTS, both, counted before that;
# and DUMMY, which counts nothing
MINOR, MAJOR, ANY, NOTHING = 5, 6, 2, 9
_SYSCALLS = {"x86_64": 298, "aarch64": 241}
_ATTR_BYTES = 112  # up to aux_sample_size, the size of Linux 5.5; older kernels accept it if the rest is zero
_SOFTWARE = 1  # PERF_TYPE_SOFTWARE

# sample_type
# PERIOD is omitted: with it an event of a fixed period takes a sample at every fault (perf_swevent_event).
_IP, _TID, _TIME, _ADDR, _CALLCHAIN = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 5
_REGS_USER, _STACK_USER, _IDENTIFIER, _PAGE_SIZE = 1 << 12, 1 << 13, 1 << 16, 1 << 22
# flags
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV, _FREQUENCY = 1 << 0, 1 << 1, 1 << 5, 1 << 6, 1 << 10
_MMAP, _COMM, _ON_EXEC, _TASK, _WATERMARK, _SAMPLE_ID_ALL = 1 << 8, 1 << 9, 1 << 12, 1 << 13, 1 << 14, 1 << 18
_EXCLUDE_KERNEL_CHAIN, _MMAP2, _COMM_EXEC, _USE_CLOCK = 1 << 21, 1 << 23, 1 << 24, 1 << 25
_BUILD_ID = 1 << 34  # the kernel reads it from the file (Linux 5.12)
_CLOCK_MONOTONIC = 1

_ENABLE, _DISABLE, _PERIOD, _SET_OUTPUT, _ID = 0x2400, 0x2401, 0x40082404, 0x2405, 0x80082407
_CLOSE_ON_EXEC = 8  # PERF_FLAG_FD_CLOEXEC


class EventSettings(NamedTuple):
    """The requested parts of every sample; the kernel may support fewer, or not allow them to this user.

    Two kinds of samples are taken: small ones of MINOR and MAJOR, which say where and what was touched, and fewer of
    ANY, with a copy of the stack. Or those of MINOR and MAJOR have the stack, too, and there is no event of ANY.
    """

    period: int  # faults per small sample
    stack_period: int  # faults per sample with a stack; 0: as many as stacks_per_second makes
    stacks_per_second: int  # the kernel adapts the period of each thread to this
    stack_bytes: int  # bytes of the user's stack, copied with each of those samples
    wakeup_bytes: int  # wake the reader when a ring has this many bytes
    registers: int  # a mask, of samples with a stack,
    where: int  # and of small ones: the stack pointer and the program counter
    kernel: bool = True  # faults in kernel mode too: read(2) into fresh memory
    page_size: bool = True  # of the page that the fault installed (Linux 5.11)
    on_exec: bool = False  # begin when the process executes a program
    whole: bool = False  # every sample has a stack
    inherit: bool = True  # future threads and children too

    @property
    def small_sample_type(self) -> int:
        """Return the bits of perf_event_attr.sample_type of small samples: all of the same size."""
        always = _IDENTIFIER | _TID | _TIME | _ADDR | _REGS_USER
        return always | (_PAGE_SIZE if self.page_size else 0)


_STACK_SAMPLE_TYPE = _IDENTIFIER | _IP | _TID | _TIME | _ADDR | _CALLCHAIN | _REGS_USER | _STACK_USER


def attributes(wishes: EventSettings, config: int) -> bytes:
    """Return the perf_event_attr of one kind of fault; that of MINOR also reports mappings, names, births and ends."""
    flags = _DISABLED | _EXCLUDE_HV | _WATERMARK | _SAMPLE_ID_ALL | _EXCLUDE_KERNEL_CHAIN | _USE_CLOCK
    flags |= 0 if wishes.kernel else _EXCLUDE_KERNEL
    if config != NOTHING:
        flags |= (_INHERIT if wishes.inherit else 0) | (_ON_EXEC if wishes.on_exec else 0)
    if config == MINOR:
        flags |= _MMAP | _MMAP2 | _COMM | _COMM_EXEC | _TASK
    rate, parts, registers, stack_bytes = wishes.period, wishes.small_sample_type, wishes.where, 0
    if config == ANY:
        rate, parts = wishes.stack_period or wishes.stacks_per_second, _STACK_SAMPLE_TYPE
        registers, stack_bytes = wishes.registers, wishes.stack_bytes
        flags |= 0 if wishes.stack_period else _FREQUENCY
    elif wishes.whole and config != NOTHING:
        parts = _STACK_SAMPLE_TYPE | (_PAGE_SIZE if wishes.page_size else 0)
        registers, stack_bytes = wishes.registers, wishes.stack_bytes
    attr = bytearray(_ATTR_BYTES)
    struct.pack_into(
        "<IIQQQQQI", attr, 0, _SOFTWARE, _ATTR_BYTES, config, rate, parts, 0, flags, wishes.wakeup_bytes
    )
    struct.pack_into("<QIi", attr, 80, registers, stack_bytes, _CLOCK_MONOTONIC)
    return bytes(attr)


def of_births(*, build_ids: bool) -> bytes:
    """Return the perf_event_attr of an event that only reports births, ends, executions and mapped code.

    With *build_ids* that of a file stands in place of its inode, if it has one.
    """
    flags = _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HV | _WATERMARK | _SAMPLE_ID_ALL | _USE_CLOCK
    flags |= _MMAP | _MMAP2 | _COMM | _COMM_EXEC | _TASK | (_BUILD_ID if build_ids else 0)
    attr = bytearray(_ATTR_BYTES)
    parts = _IDENTIFIER | _TID | _TIME
    struct.pack_into("<IIQQQQQI", attr, 0, _SOFTWARE, _ATTR_BYTES, NOTHING, 1, parts, 0, flags, 0)
    struct.pack_into("<QIi", attr, 80, 0, 0, _CLOCK_MONOTONIC)
    return bytes(attr)


def open_event(attr: bytes, pid: int, cpu: int) -> int:
    """Return a descriptor of the event *attr* of thread *pid* (0: this one) on *cpu* (-1: all). Raises OSError."""
    number = _SYSCALLS.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, "the number of perf_event_open on this machine is unknown to gdbmem")
    buffer = ctypes.create_string_buffer(attr, len(attr))
    descriptor: int = _libc().syscall(number, buffer, pid, cpu, -1, _CLOSE_ON_EXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return descriptor


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def online_processors() -> list[int]:
    """Return the numbers of the processors in use."""
    try:
        with open("/sys/devices/system/cpu/online", encoding="ascii") as stream:  # noqa: PTH123
            text = stream.read().strip()
    except OSError:
        return list(range(os.cpu_count() or 1))
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def enable(descriptor: int) -> None:
    """Begin counting and sampling."""
    fcntl.ioctl(descriptor, _ENABLE, 0)


def disable(descriptor: int) -> None:
    """End counting and sampling, in inherited copies of the event too."""
    fcntl.ioctl(descriptor, _DISABLE, 0)


def set_period(descriptor: int, period: int) -> None:
    """Set the number of faults per sample from now on; copies inherited before keep theirs."""
    fcntl.ioctl(descriptor, _PERIOD, struct.pack("<Q", period))


def identifier(descriptor: int) -> int:
    """Return the id in the samples of the event and of events inherited from it."""
    number: int = struct.unpack("<Q", fcntl.ioctl(descriptor, _ID, bytes(8)))[0]
    return number


def write_into(descriptor: int, ring: int) -> None:
    """Make the event write into the ring of the event *ring*, on the same processor."""
    fcntl.ioctl(descriptor, _SET_OUTPUT, ring)


def count(descriptor: int) -> int:
    """Return the number of faults counted, including inherited events."""
    number: int = struct.unpack("<Q", os.read(descriptor, 8))[0]
    return number


# The ring buffers that the kernel writes records into, one per processor.


_AT_HEAD, _AT_TAIL = 128, 129  # words in the ring's first page; the data follows it
HEADER = struct.Struct("<IHH")  # type, misc, size


class Ring:
    """The ring of one event, mapped here."""

    def __init__(self, descriptor: int, pages: int) -> None:
        """Map the ring of *descriptor* with so many pages of data, a power of two. Raises OSError."""
        self.descriptor = descriptor
        self.size_bytes = pages * PAGE_BYTES
        self._memory = mmap.mmap(descriptor, self.size_bytes + PAGE_BYTES)
        # The kernel uses these words at the same time, so each access must be to the whole word. struct.pack_into()
        # would write zeros first, by which the kernel could take records that were not read yet for free space.
        self._words = memoryview(self._memory)[:PAGE_BYTES].cast("Q")

    def take(self) -> bytes:
        """Return all complete records written since the last call, in order, and release their space."""
        size = self.size_bytes
        head, tail = self._words[_AT_HEAD], self._words[_AT_TAIL]
        start, end = PAGE_BYTES + tail % size, PAGE_BYTES + head % size
        if head == tail:
            return b""
        data = self._memory[start:end] if start < end else self._memory[start:] + self._memory[PAGE_BYTES:end]
        self._words[_AT_TAIL] = head
        return data

    def close(self) -> None:
        """Unmap it."""
        self._words.release()
        self._memory.close()


# The records in a ring: samples of page faults, and events of processes and their mappings.


MMAP2, COMM, FORK, SAMPLE, LOST, EXIT = 10, 3, 7, 9, 2, 4
_BY_EXEC = 1 << 13  # PERF_RECORD_MISC_COMM_EXEC
_HAS_BUILD_ID = 1 << 14  # PERF_RECORD_MISC_MMAP_BUILD_ID
_TRAILER = struct.Struct("<IIQQ")  # of every record but samples: pid, tid, time, identifier
_FIXED = struct.Struct("<QQIIQQQ")  # identifier, ip, pid, tid, time, address, length of the call chain
_WORD = struct.Struct("<Q")
_TIME_OF_SAMPLE = struct.Struct("<32xQ")  # header, identifier, ip, pid and tid precede it
_USER_END = 1 << 63  # addresses from here on are the kernel's, or context markers


class StackSample(NamedTuple):
    """A page fault with the call path of the thread."""

    time: int  # CLOCK_MONOTONIC, ns
    pid: int
    tid: int
    ip: int  # of the instruction; in the kernel if that touched the page
    address: int  # touched
    chain: tuple[int, ...]  # the user's call path by frame pointers, innermost first
    registers: tuple[int, ...]  # as requested, ascending; () for a thread without a user stack
    stack: bytes  # from the stack pointer on


class SmallSamples(NamedTuple):
    """Page faults, one per period, as columns: where the threads were, and what they touched."""

    event: Sequence[int]  # identifiers of events, which determine the periods
    thread: Sequence[int]  # the process id, and 32 bits higher the thread id
    time: Sequence[int]  # CLOCK_MONOTONIC, ns
    address: Sequence[int]  # touched
    stack_pointer: Sequence[int]  # of the user's code, in kernel mode too; 0: a thread without any
    counter: Sequence[int]  # the program counter there
    page_bytes: Sequence[int]  # of the page that is there now; 0: unknown


class Mapped(NamedTuple):
    """Code was mapped."""

    time: int
    pid: int
    start: int
    size_bytes: int
    offset: int
    inode: int  # 0 with a build_id
    name: str
    build_id: str = ""  # of the file, if the kernel was asked for it and the file has one


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


Record = Union[StackSample, SmallSamples, Mapped, Executed, Named, Born, Ended, LostRecords]


class Turn(NamedTuple):
    """The records taken out of the rings at once, and the counts of faults just after."""

    records: Sequence[tuple[int, bytes]]  # by processor: small samples, and what happened to processes
    stacks: Sequence[bytes]  # samples with a stack
    faults: Mapping[int, int]  # since the beginning, by processor; {}: not counted in this turn


class SampleLayout(NamedTuple):
    """The layout of the samples of one recording."""

    registers: int  # how many, in samples with a stack
    has_page_size: bool  # in small ones
    # They were asked for. The kernel marks the records of mapped code of events that did not, too.
    has_build_ids: bool = False

    @property
    def small_bytes(self) -> int:
        """Return the size of a small sample."""
        return 8 * (8 + self.has_page_size)


class Taken(NamedTuple):
    """Raw records, the number of samples in them and lost, and births of processes and threads."""

    data: bytes
    samples: int
    lost: int
    births: int
    nanoseconds: int  # from the first sample to the last


def small_samples(data: bytes, layout: SampleLayout) -> Taken:
    """Return the records *data*, of small samples and other events, with what is in them."""
    samples = lost = births = first = last = 0
    try:
        for found in _small(data, layout):
            if isinstance(found, SmallSamples):
                samples += len(found.time)
                first, last = first or found.time[0], found.time[-1]
            else:
                kind, _, at = found
                lost += _WORD.unpack_from(data, at + 16)[0] if kind == LOST else 0
                births += kind == FORK
    except _UNREADABLE:
        raise _unreadable() from None
    return Taken(data, samples, lost, births, last - first)


def _small(data: bytes, layout: SampleLayout) -> Iterator[Union[SmallSamples, tuple[int, int, int]]]:
    """Yield the small samples in *data*, as many at once as possible, and (kind, misc, place) of other records."""
    try:
        words = memoryview(data).cast("Q")
    except TypeError:
        raise _unreadable() from None
    width, at, end = layout.small_bytes // 8, 0, len(words)
    # The size, and the kind without the bits in between, which tell the kernel's samples from the user's.
    is_small = layout.small_bytes << 48 | SAMPLE
    while at < end:
        count = _count_leading_small(words[at : end - (end - at) % width : width], is_small)
        if count:
            yield _columns(words, at, at + count * width, width, layout)
            at += count * width
            continue
        kind, misc, size = HEADER.unpack_from(data, 8 * at)
        if size < HEADER.size or size % 8 or 8 * at + size > len(data):
            raise _unreadable()
        if (
            kind == SAMPLE
        ):  # of a thread that has no registers, or of a fault of which other events took one, too
            yield _one_small(words[at : at + size // 8].tolist(), layout)
        else:
            yield kind, misc, 8 * at
        at += size // 8


_SIZE_AND_KIND = 0xFFFF << 48 | 0xFFFFFFFF


def _count_leading_small(headers: memoryview, is_small: int) -> int:
    """Return how many *headers* at the beginning are those of small samples."""
    count = 0
    for header in headers.tolist():
        if header & _SIZE_AND_KIND != is_small:
            break
        count += 1
    return count


def _columns(words: memoryview, start: int, end: int, width: int, layout: SampleLayout) -> SmallSamples:
    """Return the samples of *width* words each in ``words[start:end]``."""
    event, thread, time, address, pointer, counter = (
        words[start + n : end : width].tolist() for n in (1, 2, 3, 4, 6, 7)
    )
    pages = words[start + 8 : end : width].tolist() if layout.has_page_size else [0] * len(event)
    return SmallSamples(event, thread, time, address, pointer, counter, pages)


def _one_small(words: Sequence[int], layout: SampleLayout) -> SmallSamples:
    """Return the sample in the record *words*, which may end too early, or go on behind the sample's own words."""
    if len(words) < 6:
        raise _unreadable()
    pointer, counter = words[6:8] if words[5] and len(words) >= 8 else (0, 0)
    behind = 8 if words[5] else 6
    page = words[behind] if layout.has_page_size and len(words) > behind else 0
    return SmallSamples(*([one] for one in (*words[1:5], pointer, counter, page)))


def small_records(data: bytes, layout: SampleLayout) -> Iterator[Record]:
    """Decode *data*, the records of small samples and other events; those of further kinds are skipped."""
    for found in _small(data, layout):
        if isinstance(found, SmallSamples):
            yield found
            continue
        kind, misc, at = found
        size = HEADER.unpack_from(data, at)[2]
        try:
            others = tuple(_other(kind, misc, data[at : at + size], has_build_ids=layout.has_build_ids))
        except _UNREADABLE:
            raise _unreadable() from None
        yield from others


def trimmed(data: bytes, layout: SampleLayout) -> Taken:
    """Return the records *data*, samples with a stack, without the unused part of each copied stack.

    Those whose copy is not whole are counted, but not among the records: they would say only half of a call path.
    """
    kept = bytearray()
    samples = lost = births = first = last = 0
    at, end = 0, len(data)
    try:
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


def small_of_whole(
    data: bytes, layout: SampleLayout, is_counted: Callable[[int], bool], where: Sequence[int]
) -> bytes:
    """Return *data*, records of a ring of samples with a stack, as they would be in one of small samples.

    Only records of events (identifiers) that are *is_counted* are kept. *where* are the numbers of the stack pointer
    and of the program counter among the registers.
    """
    kept = bytearray()
    at, end = 0, len(data)
    try:
        while at < end:
            kind, _, size = HEADER.unpack_from(data, at)
            _check(HEADER.size <= size <= end - at)
            if kind != SAMPLE:
                if size >= 16 and is_counted(_WORD.unpack_from(data, at + size - 8)[0]):
                    kept += data[at : at + size]
            elif is_counted(_WORD.unpack_from(data, at + 8)[0]):
                _keep_small(data, at, size, layout, where, kept)
            at += size
    except _UNREADABLE:
        raise _unreadable() from None
    return bytes(kept)


def _keep_small(
    data: bytes, at: int, size: int, layout: SampleLayout, where: Sequence[int], kept: bytearray
) -> None:
    event, _, pid, tid, time, address, _ = _FIXED.unpack_from(data, at + 8)
    registers, _, _, behind = _parts(data, at, size, layout)
    words = [event, tid << 32 | pid, time, address, _WORD.unpack_from(data, registers)[0]]
    if words[-1]:
        words += (_WORD.unpack_from(data, registers + 8 + 8 * number)[0] for number in where)
    if layout.has_page_size:
        is_there = behind and behind + 8 <= at + size
        words += _WORD.unpack_from(data, behind) if is_there else (0,)
    kept += HEADER.pack(SAMPLE, HEADER.unpack_from(data, at)[1], HEADER.size + 8 * len(words))
    kept += struct.pack(f"<{len(words)}Q", *words)


class _Parts(NamedTuple):
    """The parts of a sample with a stack, as places in the records."""

    registers: int  # the ABI and the registers, behind the call chain
    stack: int  # the size of the copy, the copy, and how much of it is filled
    room: int  # the size of the copy
    behind: (
        int  # what follows the copy; 0: the record ends before, and how much of the copy is filled is unknown
    )


def _parts(data: bytes, at: int, size: int, layout: SampleLayout) -> _Parts:
    """Find the parts of the sample at *at*, in a record of *size* bytes. Raises ValueError, struct.error.

    Since version 6.3 the kernel sizes the records of all events that take a sample of one fault by the registers that
    the first of them asked for, and by all parts that any before asked for; the identifier is the first one's, too. So
    a record may go on behind its sample, or end before it: then the next one lies over its last words.
    """
    registers = at + 8 + _FIXED.size + 8 * _WORD.unpack_from(data, at + _FIXED.size)[0]
    stack = registers + 8 + (8 * layout.registers if _WORD.unpack_from(data, registers)[0] else 0)
    room = _WORD.unpack_from(data, stack)[0]
    behind = stack + 8 + (room + 8 if room else 0)
    missing = behind - (at + size)
    _check(missing <= (8 * layout.registers if room else 0))
    return _Parts(registers, stack, room, behind if missing <= 0 else 0)


def _keep_sample(data: bytes, at: int, size: int, layout: SampleLayout, kept: bytearray) -> None:
    _, stack, room, behind = _parts(data, at, size, layout)
    if not behind:
        return
    filled = min(_WORD.unpack_from(data, behind - 8)[0] + 7 & ~7, room) if room else 0
    kept += HEADER.pack(SAMPLE, 0, stack - at + (16 + filled if filled else 8))
    kept += data[at + 8 : stack]
    kept += _WORD.pack(filled)
    if filled:
        kept += data[stack + 8 : stack + 8 + filled]
        kept += _WORD.pack(filled)


def stack_samples(data: bytes, layout: SampleLayout) -> Iterator[StackSample]:
    """Decode *data*, samples with a stack; records of other kinds are skipped."""
    at, end = 0, len(data)
    while at < end:
        try:
            kind, _, size = HEADER.unpack_from(data, at)
            _check(HEADER.size <= size <= end - at)
            if kind == SAMPLE:
                yield from _sample(data, at, size, layout)
        except _UNREADABLE:
            raise _unreadable() from None
        at += size


def _sample(data: bytes, at: int, size: int, layout: SampleLayout) -> Iterator[StackSample]:
    _, ip, pid, tid, time, address, length = _FIXED.unpack_from(data, at + 8)
    where = _parts(data, at, size, layout)
    if not where.behind:
        return
    chain = struct.unpack_from(f"<{length}Q", data, at + 8 + _FIXED.size)
    registers: tuple[int, ...] = ()
    if _WORD.unpack_from(data, where.registers)[0]:
        registers = struct.unpack_from(f"<{layout.registers}Q", data, where.registers + 8)
    stack = b""
    if where.room:
        filled = min(_WORD.unpack_from(data, where.behind - 8)[0], where.room)
        stack = data[where.stack + 8 : where.stack + 8 + filled]
    user = tuple(one for one in chain if 0 < one < _USER_END)
    yield StackSample(time, pid, tid, ip, address, user, registers, stack)


def _other(kind: int, misc: int, data: bytes, *, has_build_ids: bool) -> Iterator[Record]:
    _check(len(data) >= HEADER.size + _TRAILER.size)
    pid, tid, time, _ = _TRAILER.unpack_from(data, len(data) - _TRAILER.size)
    if kind == MMAP2:
        _, _, start, size, offset, _, _, inode, _, _, _ = struct.unpack_from("<IIQQQIIQQII", data, 8)
        build_id = ""
        if has_build_ids and misc & _HAS_BUILD_ID:
            inode, build_id = 0, data[44 : 44 + data[40]].hex()
        yield Mapped(time, pid, start, size, offset, inode, _text(data[8 + 64 :]), build_id)
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


# Processes born of a program, by the kernel's own records: a short one, too, and whatever it executed.
_RING_PAGES = 32  # 125 processes that execute a program, between two calls of take()
_LARGEST_RECORD_BYTES = 4096 + 256  # with the longest path
# A child that has not executed another program by then, on a busy machine, works itself.
_EXEC_NANOSECONDS = 5_000_000_000
# Python's process that removes what was shared at the end runs none of the program's code.
_TRACKER = "from multiprocessing.resource_tracker import"
# Programs with other rights, such as sudo: the kernel records no code of theirs, only a name.
_SYSTEM_FOLDERS = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_NAME_BYTES = 15  # of a program's name that the kernel keeps
_NO_SAMPLES = SampleLayout(0, has_page_size=False)
_WITH_BUILD_IDS = _NO_SAMPLES._replace(has_build_ids=True)


class Children(NamedTuple):
    """Numbers of processes that were born of a program."""

    forked: int  # that ran its code without executing another program
    own: int  # that executed the program's own file, a copy of it, or what nothing tells from one


class _Process:
    def __init__(self, born: int, *, has_code: bool) -> None:
        self.born = born  # CLOCK_MONOTONIC, ns
        self.has_code = has_code  # begins with the program's own code
        self.executed: Optional[int] = None  # when
        self.name = ""  # what the kernel calls it since then
        self.has_mapped = False  # code, since then
        self.runs_own = False
        self.is_tracker = False

    @property
    def stays(self) -> bool:
        """Whether it does more in the code that it begins with than execute another program."""
        return self.executed is None or self.executed - self.born > _EXEC_NANOSECONDS

    @property
    def is_untold(self) -> bool:
        """Whether no record tells what it executed: there are none once that gives it other rights."""
        return self.executed is not None and not self.has_mapped


def _is_of_the_system(name: str) -> bool:
    """Return whether a program that the kernel calls *name* is installed with other rights than its caller's."""
    for folder in _SYSTEM_FOLDERS:
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                if os.fsencode(entry.name)[:_NAME_BYTES] == os.fsencode(name):
                    mode = entry.stat().st_mode
                    if mode & (stat.S_ISUID | stat.S_ISGID) or not mode & stat.S_IROTH:
                        return True
    return False


class Births:
    """Records the processes born of a running one, and of these. Close it."""

    def __init__(self, pid: int, program: Path) -> None:
        """Begin with process *pid*, which runs *program*. Raises OSError if the kernel refuses."""
        self._pid = pid
        self._path, self._inode = os.fspath(program), program.stat().st_ino
        elf = read_elf(self._path)
        self._build_id = elf.build_id if elf is not None else None
        self._has_build_ids = True
        self._processes: list[tuple[int, _Process]] = []
        self._latest: dict[int, _Process] = {}  # by pid
        self._is_whole = True
        self._descriptors: list[int] = []
        self._rings: list[Ring] = []
        try:
            first, *others = thread_ids(pid)
            for cpu in online_processors():
                ring = self._open(first, cpu)
                self._rings.append(Ring(ring, _RING_PAGES))
                for tid in others:
                    write_into(self._open(tid, cpu), ring)
        except ValueError:
            raise ProcessLookupError(f"process {pid} has ended") from None
        except BaseException:
            self.close()
            raise

    def _open(self, tid: int, cpu: int) -> int:
        try:
            found = open_event(of_births(build_ids=self._has_build_ids), tid, cpu)
        except OSError as error:
            if not self._has_build_ids or error.errno not in (errno.EINVAL, errno.E2BIG):
                raise
            self._has_build_ids = False  # an older kernel
            return self._open(tid, cpu)
        self._descriptors.append(found)
        return found

    def close(self) -> None:
        """Stop recording; what was taken stays."""
        for ring in self._rings:
            ring.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._rings, self._descriptors = [], []

    def take(self) -> None:
        """Read the records since the last call. Raises TargetError for invalid ones."""
        layout = _WITH_BUILD_IDS if self._has_build_ids else _NO_SAMPLES
        taken = [ring.take() for ring in self._rings]
        # The kernel reports lost records before the next one that it writes, of which there may be none on a processor.
        self._is_whole &= all(len(one) < _RING_PAGES * PAGE_BYTES - _LARGEST_RECORD_BYTES for one in taken)
        found = [one for data in taken for one in small_records(data, layout)]
        for record in sorted(found, key=lambda one: one.time if isinstance(one.time, int) else one.time[0]):
            self._note(record)
        for pid, one in self._processes:
            if one.is_untold:
                self._look(pid, one)
            if one.runs_own and not one.is_tracker:
                one.is_tracker = any(_TRACKER in word for word in words_of(pid))

    def _note(self, record: Record) -> None:
        if isinstance(record, LostRecords):
            self._is_whole = False
        elif isinstance(record, Born) and record.pid != record.parent:
            parent = self._latest.get(record.parent)
            has_code = parent.has_code and parent.executed is None if parent is not None else True
            child = self._latest[record.pid] = _Process(record.time, has_code=has_code)
            self._processes.append((record.pid, child))
        elif isinstance(record, Executed) and record.pid in self._latest:
            child = self._latest[record.pid]
            child.executed, child.has_mapped = child.executed or record.time, False
            child.name = record.name
        elif isinstance(record, Mapped) and record.pid in self._latest:
            child = self._latest[record.pid]
            if child.executed is not None and not child.runs_own:
                is_program, child.has_mapped = not child.has_mapped, True
                child.runs_own = self._is_own(record, is_program=is_program)

    def _look(self, pid: int, one: _Process) -> None:
        """Look at what a process executes of which no record tells, while it lives."""
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{pid}")
            file = process / "exe"
            name, inode, elf = os.fspath(file.readlink()), file.stat().st_ino, read_elf(file)
            if (process / "comm").read_bytes().rstrip(b"\n") == os.fsencode(one.name):
                build_id = elf.build_id or "" if elf is not None else ""
                one.has_mapped = True
                one.runs_own = self._is_own(Mapped(0, pid, 0, 0, 0, inode, name, build_id), is_program=True)

    def _is_own(self, record: Mapped, *, is_program: bool) -> bool:
        """Return whether *record* is of the program's own file, or of a copy of it.

        *is_program*: it is what was executed. That is taken for a copy if it is in no folder, as in a memfd, and the
        kernel tells no build-id.
        """
        if record.name == self._path:
            return True
        if record.build_id and self._build_id is not None:
            return record.build_id == self._build_id
        if record.inode == self._inode:
            return True
        if is_program and record.name.endswith(" (deleted)"):
            return True
        try:
            return filecmp.cmp(record.name, self._path, shallow=False)
        except OSError:  # it is gone, or no file
            return False

    def children(self, vforked: Container[int]) -> Optional[Children]:
        """Return how many processes there were so far; None if some may be missing.

        *vforked* are processes that shared the program's memory until they executed another program, or ended.
        """
        if not self._is_whole:
            return None
        own = sum(
            (one.runs_own and not one.is_tracker) or (one.is_untold and not _is_of_the_system(one.name))
            for _, one in self._processes
        )
        return Children(
            sum(
                one.has_code and one.stays and not one.runs_own and pid not in vforked
                for pid, one in self._processes
            ),
            own,
        )
