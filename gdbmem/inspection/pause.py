"""The pause of a process during its inspection, and the memory that can be read only during it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Callable, Generic, Optional, Protocol, TypeVar, cast

from gdbmem.errors import TargetError
from gdbmem.linux.holding.copying import Copy
from gdbmem.linux.holding.keeper import Awaiting, Keeper, KeeperEndedError
from gdbmem.linux.memory.maps import Mapping, maps_text, parse_smaps
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.process.process import ProcessFacts, ended
from gdbmem.model.memory import Buffer, Memory
from gdbmem.text import format_duration

SILENT_SECONDS = 0.05  # a process is never stopped longer without an announcement
_TRIED_SECONDS = 0.035  # of that, before the first look is given up: what goes on is not interrupted at once
_GIB, _MIB = 1 << 30, 1 << 20
_TABLE_BYTES = 4096

# Measured on Linux 6.18 in a virtual machine; upper ends of the measurements.
_COPY, _HOLD = 0.002, 0.01  # independent of size
_COPY_OF_GIB = 0.05
_COPY_OF_TABLE = 0.00002  # per page of page tables
_OF_MAPPING = 0.000003
_OF_THREAD = 0.0001
_BUSY = 2  # slowdown to expect, at least, on a machine with other load
_READ_OF_MIB = 0.0025
_READ_OF_MAPPING = 0.00005


class HeldTooLong(Exception):  # noqa: N818  (nothing is wrong: the look is made another way)
    """The process has been stopped as long as is allowed without an announcement."""


class TimedMemory:
    """A `Memory` that can be read for a limited time; afterwards HeldTooLong is raised."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._end = time.monotonic() + _TRIED_SECONDS

    def read(self, address: int, size: int) -> bytes:
        self.check()
        return self._memory.read(address, size)

    def read_into(self, address: int, buffer: Buffer) -> None:
        self.check()
        self._memory.read_into(address, buffer)

    def check(self) -> None:
        """Raise HeldTooLong if the time is over."""
        if time.monotonic() > self._end:
            raise HeldTooLong


def expected_copy(facts: ProcessFacts, mappings: Sequence[Mapping], threads: int) -> float:
    """Return the expected seconds of the stop while a copy is made."""
    return (
        _COPY
        + facts.anonymous_bytes / _GIB * _COPY_OF_GIB
        + facts.page_table_bytes / _TABLE_BYTES * _COPY_OF_TABLE
        + len(mappings) * _OF_MAPPING
        + threads * _OF_THREAD
    )


def expected_hold(facts: ProcessFacts, mappings: Sequence[Mapping], threads: int) -> float:
    """Return the expected seconds of the stop while the process itself is read."""
    return (
        _HOLD
        + facts.anonymous_bytes / _MIB * _READ_OF_MIB
        + len(mappings) * _READ_OF_MAPPING
        + threads * _OF_THREAD
    )


def is_long(expected_seconds: float) -> bool:
    """Return whether a stop has to be announced because it may be noticeable."""
    return expected_seconds * max(_BUSY, _waiting()) > SILENT_SECONDS


def wait_text(expected_seconds: float) -> str:
    """Return the announced duration of a stop; on a busy machine also the least that the current load makes of it.

    How long a stopped process waits there has no upper end: 2.6 s were seen where the load made 1.0 s of 0.14 s.
    """
    least, most = expected_seconds, expected_seconds * _waiting()
    text = f"about {format_duration(least)}"
    return f"{text} (on this busy machine {format_duration(most)} or longer)" if most > 1.5 * least else text


def _waiting() -> float:
    """Return the number of running or waiting threads per processor."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


# A helper process that copies another one, and ends and collects the copy after use, or when gdbmem has died.
#
# A tracer must not die while it makes a thread of the process call clone(), nor before the process has collected the
# copy. The rest of the inspection takes long and much memory, so it is more likely to be killed.


class _HasCopy(Protocol):
    @property
    def copy(self) -> Copy: ...


_Made = TypeVar("_Made", bound=_HasCopy)
Announce = Callable[[Copy], None]


class CopyKeeper(Generic[_Made]):
    """Yield the result of *make*, with a copy of process *pid*; the copy ends with the context."""

    def __init__(self, pid: int, memory: int, make: Callable[[Announce], _Made]) -> None:
        """Call *make* in a process that has the descriptor *memory*; raises its exceptions."""
        self._keeper = Keeper(lambda asker: _keep(asker, make), memory)
        self._copy: Optional[Copy] = None
        try:
            self._copy = cast("Copy", self._keeper.receive()[0])
            made, (self._memory,) = self._keeper.receive()
        except KeeperEndedError as error:
            self.close()
            raise TargetError(
                f"no copy of process {pid} could be made: the copying process was killed",
                slug="copy-refused",
                hint="leave out --fork",
            ) from error
        except BaseException:
            self.close()
            raise
        self.made = cast("_Made", made)

    def __enter__(self) -> CopyKeeper[_Made]:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._memory)
        self.close()

    def memory(self) -> ProcMemory:
        """Return the memory of the copy."""
        return ProcMemory(self.made.copy.pid, os.dup(self._memory))

    def close(self) -> None:
        """End the copy, and wait until it is collected."""
        if self._keeper.close() or self._copy is None:
            return
        self._copy.collect()  # the kernel has ended it because the keeper was killed


def _keep(asker: Awaiting, make: Callable[[Announce], _HasCopy]) -> None:
    """Call *make*, pass on the result, and end the copy when the other side asks for it, or has ended."""
    try:
        made = make(asker.answer)
    except Exception as error:  # noqa: BLE001  (it is raised by whoever waits for this)
        asker.fail(error)
        return
    try:
        with ProcMemory(made.copy.pid) as copied:
            asker.answer(made, copied.descriptor)
        asker.await_end()
    finally:
        made.copy.kill()


# The mappings of a live process, from /proc.


def read_maps(pid: int) -> list[Mapping]:
    return parse_maps(read_maps_text(pid))


def read_maps_text(pid: int) -> bytes:
    return _read(pid, "maps")


def parse_maps(text: bytes) -> list[Mapping]:
    return _of_user(parse_smaps(text))


def _of_user(mappings: list[Mapping]) -> list[Mapping]:
    # The vsyscall page belongs to the kernel, is in every process, and PAGEMAP_SCAN can't reach it.
    return [mapping for mapping in mappings if mapping.name != "[vsyscall]"]


def read_smaps(pid: int) -> list[Mapping]:
    mappings = parse_smaps(_read(pid, "smaps"))
    if not mappings:
        raise ended(pid)
    return _of_user(mappings)


def _read(pid: int, name: str) -> bytes:
    try:
        return maps_text(pid, name)
    except (ProcessLookupError, FileNotFoundError):
        return b""
    except OSError as error:
        raise TargetError(
            f"/proc/{pid}/{name} can't be read: {error.strerror}",
            slug="process-forbidden",
            hint="run as the process's user, or as root",
        ) from error
