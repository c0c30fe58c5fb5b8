"""One perf event: its attributes, opening it, and its ioctl requests.

Source: linux/perf_event.h (struct perf_event_attr, 136 bytes since Linux 6.3; the kernel takes a longer one whose rest
is zero), man 2 perf_event_open.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import struct
from functools import lru_cache
from typing import NamedTuple

from gdbmem.linux.memory.resident import PAGE_BYTES

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
_CLOCK_MONOTONIC = 1

_ENABLE, _DISABLE, _PERIOD, _SET_OUTPUT, _ID = 0x2400, 0x2401, 0x40082404, 0x2405, 0x80082407
_CLOSE_ON_EXEC = 8  # PERF_FLAG_FD_CLOEXEC


class Wishes(NamedTuple):
    """The requested parts of every sample; the kernel may support fewer, or not allow them to this user.

    Two kinds of samples are taken: small ones of MINOR and MAJOR, which say where and what was touched, and fewer of
    ANY, with a copy of the stack.
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

    @property
    def small_sample_type(self) -> int:
        """Return the bits of perf_event_attr.sample_type of small samples: all of the same size."""
        always = _IDENTIFIER | _TID | _TIME | _ADDR | _REGS_USER
        return always | (_PAGE_SIZE if self.page_size else 0)


_STACK_SAMPLE_TYPE = _IDENTIFIER | _IP | _TID | _TIME | _ADDR | _CALLCHAIN | _REGS_USER | _STACK_USER


def attributes(wishes: Wishes, config: int) -> bytes:
    """Return the perf_event_attr of one kind of fault; that of MINOR also reports mappings, names, births and ends."""
    flags = _DISABLED | _EXCLUDE_HV | _WATERMARK | _SAMPLE_ID_ALL | _EXCLUDE_KERNEL_CHAIN | _USE_CLOCK
    flags |= 0 if wishes.kernel else _EXCLUDE_KERNEL
    if config != NOTHING:
        flags |= _INHERIT | (_ON_EXEC if wishes.on_exec else 0)
    if config == MINOR:
        flags |= _MMAP | _MMAP2 | _COMM | _COMM_EXEC | _TASK
    rate, parts, registers, stack_bytes = wishes.period, wishes.small_sample_type, wishes.where, 0
    if config == ANY:
        rate, parts = wishes.stack_period or wishes.stacks_per_second, _STACK_SAMPLE_TYPE
        registers, stack_bytes = wishes.registers, wishes.stack_bytes
        flags |= 0 if wishes.stack_period else _FREQUENCY
    attr = bytearray(_ATTR_BYTES)
    struct.pack_into(
        "<IIQQQQQI", attr, 0, _SOFTWARE, _ATTR_BYTES, config, rate, parts, 0, flags, wishes.wakeup_bytes
    )
    struct.pack_into("<QIi", attr, 80, registers, stack_bytes, _CLOCK_MONOTONIC)
    return bytes(attr)


def open_event(attr: bytes, pid: int, cpu: int) -> int:
    """Return a descriptor of the event *attr* of thread *pid* (0: this one) on *cpu* (-1: all). Raises OSError."""
    number = _SYSCALLS.get(platform.machine())
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


_AT_HEAD, _AT_TAIL = 1024, 1032  # in the ring's first page; the data follows it
HEADER = struct.Struct("<IHH")  # type, misc, size


class Ring:
    """The ring of one event, mapped here."""

    def __init__(self, descriptor: int, pages: int) -> None:
        """Map the ring of *descriptor* with so many pages of data, a power of two. Raises OSError."""
        self.descriptor = descriptor
        self.size_bytes = pages * PAGE_BYTES
        self._memory = mmap.mmap(descriptor, self.size_bytes + PAGE_BYTES)

    def take(self) -> bytes:
        """Return all complete records written since the last call, in order, and release their space."""
        size = self.size_bytes
        head, tail = struct.unpack_from("<QQ", self._memory, _AT_HEAD)
        start, end = PAGE_BYTES + tail % size, PAGE_BYTES + head % size
        if head == tail:
            return b""
        data = self._memory[start:end] if start < end else self._memory[start:] + self._memory[PAGE_BYTES:end]
        struct.pack_into("<Q", self._memory, _AT_TAIL, head)
        return data

    def close(self) -> None:
        """Unmap it."""
        self._memory.close()
