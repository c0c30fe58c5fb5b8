"""The memory of a live process, through /proc/PID/mem, and whether a fork left it the program of another."""

from __future__ import annotations

import mmap
import os
import struct
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Callable, Optional

from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import PAGE, Mapping, Ranges, resident_ranges, swapped_ranges
from gdbmem.linux.process.process import auxiliary_vector, memory_folder, status_fields
from gdbmem.model.memory import Buffer, Memory, MemoryUnreadable


class PageAbsent(MemoryUnreadable):
    """An address whose page reading would bring back into memory."""


class CarefulMemory:
    """A `Memory` whose reads don't enlarge the process.

    Reading makes a page of a file resident: where a file is mapped, nothing is read around the requested address.
    *absent* pages would come back from swap, or be supplied by a userfaultfd: they are not read at all.
    """

    def __init__(self, memory: Memory, mappings: Iterable[Mapping], absent: Ranges) -> None:
        self._memory = memory
        self._files = Ranges((m.start, m.end) for m in mappings if m.is_file)
        self._absent = absent
        if not absent.items:
            self.read, self.read_into = memory.read, memory.read_into  # type: ignore[method-assign]

    def read(self, address: int, size: int) -> bytes:
        self._check(address, size)
        return self._memory.read(address, size)

    def read_into(self, address: int, buffer: Buffer) -> None:
        self._check(address, memoryview(buffer).nbytes)
        self._memory.read_into(address, buffer)

    def read_around(self, address: int, size: int) -> bytes:
        if self._files.within(address, address + size):
            raise MemoryUnreadable(address, "a file is mapped there")
        return self.read(address, size)

    def _check(self, address: int, size: int) -> None:
        if self._absent.within(address, address + size):
            raise PageAbsent(address, "it is swapped out, or another process has to supply it")


def absent_pages(pid: int, mappings: Iterable[Mapping], *, swapped: bool) -> Ranges:
    """Return the pages of *pid* that a read would bring into memory, or for which it would wait for another thread.

    Swapped pages are excluded if *swapped*; missing ones that a userfaultfd supplies are always included.
    """
    watched = [(m.start, m.end) for m in mappings if "um" in m.flags.split()]
    areas = (
        [] if swapped else [(m.start, m.end) for m in mappings if m.swap_bytes and m.permissions[3] == "p"]
    )
    missing: list[tuple[int, int]] = []
    if watched:
        present = resident_ranges(pid, watched)[0]
        missing = [piece for start, end in watched for piece in present.gaps(start, end)]
    return Ranges([*missing, *(swapped_ranges(pid, areas) if areas else ())])


def careful_memory(pid: int, memory: Memory, mappings: Sequence[Mapping], *, swapped: bool) -> CarefulMemory:
    """Return *memory* of process *pid* without its absent_pages()."""
    return CarefulMemory(memory, mappings, absent_pages(pid, mappings, swapped=swapped))


class ProcMemory:
    """A `Memory` over /proc/PID/mem; a descriptor that is already open may be given instead of a pid.

    process_vm_readv is three times as fast, but it pins the pages that it reads, and since Linux 5.19 the kernel makes
    copies of pinned pages that the process has shared with another one since a fork.
    """

    def __init__(self, pid: int, descriptor: Optional[int] = None) -> None:
        try:
            self.descriptor = (
                os.open(f"{memory_folder(pid)}/mem", os.O_RDONLY | os.O_CLOEXEC)
                if descriptor is None
                else descriptor
            )
        except OSError as error:
            raise TargetError(
                f"the memory of process {pid} can't be read: {error.strerror}",
                slug="memory-unreadable",
                hint="run as the process's user, or as root",
            ) from error

    def read(self, address: int, size: int) -> bytes:
        try:
            data = os.pread(self.descriptor, size, address)
        except (OSError, OverflowError) as error:
            raise MemoryUnreadable(address, getattr(error, "strerror", "") or "") from None
        while 0 < len(data) < size:  # the kernel returns at most 2 GiB at once
            try:
                piece = os.pread(self.descriptor, size - len(data), address + len(data))
            except OSError:
                break
            if not piece:
                break
            data += piece
        if len(data) != size:
            raise MemoryUnreadable(address + len(data))
        return data

    def read_into(self, address: int, buffer: Buffer) -> None:
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            try:
                count = os.preadv(self.descriptor, [view[done:]], address + done)
            except (OSError, OverflowError) as error:
                raise MemoryUnreadable(address + done, getattr(error, "strerror", "") or "") from None
            if count == 0:
                raise MemoryUnreadable(address + done, "the process has ended")
            done += count

    def close(self) -> None:
        os.close(self.descriptor)

    def __enter__(self) -> ProcMemory:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_POPULATE = 0x8000  # MAP_POPULATE
_PIECE = 4 << 20  # bytes that are taken at once
_SMALL = 1 << 18  # bytes, below which a thread would mostly wait for the others
_MOST_THREADS = 4
_CHECK_SECONDS = 0.004
_MOST_READ = 1 << 30


class TakenMemory:
    """A `Memory` of what was copied out of a process while it was held: its private pages at that moment.

    Of private anonymous memory without pages, zeros are read; all else is read from the process, which runs on.
    """

    def __init__(self, memory: Memory, expected_bytes: int) -> None:
        """Get ready for about so many bytes, which takes longer than to copy them later."""
        self._memory = memory
        self._room = _new_room(expected_bytes)
        self._pieces: list[memoryview] = []
        self._starts: list[int] = []
        self._blank = Ranges()

    def take(self, pages: Ranges, blank: Ranges, check: Callable[[], None]) -> None:
        """Copy *pages* of the process, which is held, in several threads.

        *check* is called every few milliseconds and may raise. Memory is *blank* where there are no pages.
        """
        self._blank = blank
        pieces = [
            (at, self._part_of_room(min(end - at, _PIECE)))
            for start, end in pages.items
            for at in range(start, end, _PIECE)
        ]
        small = deque(piece for piece in pieces if len(piece[1]) < _SMALL)
        large = deque(piece for piece in pieces if len(piece[1]) >= _SMALL)
        done: set[int] = set()
        number = min(_MOST_THREADS, len(os.sched_getaffinity(0)), len(large))
        from threading import Thread  # where a process is held, not copied

        threads = [Thread(target=self._take, args=(large, done, lambda: None)) for _ in range(number - 1)]
        for thread in threads:
            thread.start()
        try:
            for todo in (small, large):
                self._take(todo, done, check)
        finally:
            large.clear()
            for thread in threads:
                thread.join()
        for address, piece in pieces:
            if address in done:
                self._starts.append(address)
                self._pieces.append(piece)

    def _part_of_room(self, size: int) -> memoryview:
        if size > len(self._room):
            self._room = _new_room(4 * _PIECE)
        part, self._room = self._room[:size], self._room[size:]
        return part

    def _take(self, todo: deque[tuple[int, memoryview]], done: set[int], check: Callable[[], None]) -> None:
        """Read what is *todo*, as other threads may; what can't be read now can't be read later either."""
        due = 0.0
        while todo:
            if (now := time.monotonic()) > due:
                check()
                due = now + _CHECK_SECONDS
            try:
                address, piece = todo.popleft()
            except IndexError:
                return
            with suppress(MemoryUnreadable):
                self._memory.read_into(address, piece)
                done.add(address)

    def read(self, address: int, size: int) -> bytes:
        if size > _MOST_READ:
            raise MemoryUnreadable(address, "that is more than is read at once")
        data = bytearray(size)
        self.read_into(address, data)
        return bytes(data)

    def read_into(self, address: int, buffer: Buffer) -> None:
        into = memoryview(buffer).cast("B")
        end = address + len(into)
        number = max(bisect_right(self._starts, address) - 1, 0)
        at = address
        while at < end:
            start, length = end, 0
            if number < len(self._starts):
                start, length = self._starts[number], len(self._pieces[number])
            if at < start:
                stop = min(start, end)
                self._read_others(at, into[at - address : stop - address])
            else:
                stop = max(min(start + length, end), at)
                into[at - address : stop - address] = self._pieces[number][at - start : stop - start]
                number += 1
            at = stop

    def _read_others(self, address: int, into: memoryview) -> None:
        """Read what was not taken."""
        end = address + len(into)
        for start, stop in self._blank.overlaps(address, end):
            into[start - address : stop - address] = bytes(stop - start)
        for start, stop in self._blank.gaps(address, end):
            self._memory.read_into(start, into[start - address : stop - address])


def _new_room(size: int) -> memoryview:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _POPULATE
    return memoryview(mmap.mmap(-1, max(size, PAGE), flags=flags))


class WritableMemory(ProcMemory):
    """The memory of a process for injected code: the only kind that can be written to."""

    def __init__(self, pid: int) -> None:
        try:
            super().__init__(pid, os.open(f"{memory_folder(pid)}/mem", os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            raise TargetError(
                f"the memory of process {pid} can't be written: {error.strerror}",
                slug="memory-unreadable",
                hint="run as the process's user, or as root",
            ) from error

    def __enter__(self) -> WritableMemory:
        return self

    def write(self, address: int, data: bytes) -> None:
        """Write *data* at *address*. Raises MemoryUnreadable on failure."""
        try:
            written = os.pwrite(self.descriptor, data, address)
        except (OSError, OverflowError) as error:
            raise MemoryUnreadable(address, getattr(error, "strerror", "") or "") from None
        if written != len(data):
            raise MemoryUnreadable(address + written)


# The auxiliary vector, which the kernel passes to a program at its start.


_AT_RANDOM = 25
_RANDOM_BYTES = 16


def random_bytes(pid: int) -> bytes:
    """Return the random bytes that the program of *pid* got at its start; b"" if they can't be read.

    Each exec() gets new ones, also of the same program at the same addresses.
    Source: getauxval(3), AT_RANDOM.
    """
    try:
        with ProcMemory(pid) as memory:
            return random_bytes_in(memory, auxiliary_vector(pid))
    except (OSError, struct.error, TargetError):
        return b""


def random_bytes_in(memory: Memory, auxiliary: dict[int, int]) -> bytes:
    """Return the same from the *memory* of a process or core with this *auxiliary* vector."""
    try:
        return memory.read(auxiliary[_AT_RANDOM], _RANDOM_BYTES)
    except (KeyError, MemoryUnreadable):
        return b""


# Processes that a fork has made and that run the same program since.


_START_CODE, _START_STACK = 25, 27  # fields of /proc/PID/stat, counted from 0


def forked_from(pid: int) -> Optional[int]:
    """Return the parent of *pid* if it runs the same program in the same memory since a fork; else None."""
    parent = int(status_fields(pid, pid).get("PPid", "0"))
    return parent if parent > 1 and runs_same_program(parent, pid) else None


def runs_same_program(parent: int, child: int) -> Optional[bool]:
    """Return whether neither *parent* nor *child* has executed a program since the fork; None if this is unknown.

    A process that did has nothing of its parent's memory, even if its mappings are at the same addresses. Each exec
    gets other random bytes.
    """
    for identity in (random_bytes, _places):
        ours, theirs = identity(parent), identity(child)
        if ours and theirs:
            return ours == theirs
    return None


def _places(pid: int) -> Optional[tuple[int, ...]]:
    """Return the places of program and stack, which the kernel chooses at each exec, and the file; None: unknown.

    They are 0 for a process that may not be traced, and may be equal where addresses are not randomised.
    Source: Linux, Documentation/filesystems/proc.rst.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        file = os.stat(f"/proc/{pid}/exe")  # noqa: PTH116
    except OSError:
        return None
    # The name, in parentheses, may have any characters.
    fields = [b"", b"", *text.rpartition(b")")[2].split()]
    places = tuple(int(fields[number]) for number in (_START_CODE, _START_STACK))
    return (*places, file.st_dev, file.st_ino) if all(places) else None
