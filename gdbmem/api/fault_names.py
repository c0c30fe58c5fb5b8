"""Names for the call paths of recorded page faults."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.faults.growth import WeighedFault
from gdbmem.formats.addresses import Binary, Symbols
from gdbmem.linux.files.target_files import TargetFiles, may_be_opened
from gdbmem.model.calltree import Frame
from gdbmem.model.faults import FaultStack, FaultTotals, NamedFaults, NamedStack
from gdbmem.symbols.call_paths import Place, Samples, jit_names, name_places
from gdbmem.symbols.cfi import UnwindTable, can_unwind
from gdbmem.text import printable


class Binaries:
    """The programs and libraries in a recording, opened with the rights of the process if that is allowed."""

    def __init__(self, alive: Optional[int], uids: Sequence[int]) -> None:
        """*alive* is a process that still runs; *uids* are the users of all that were recorded."""
        self._files = TargetFiles(alive)
        self._ours = all(uid == os.geteuid() for uid in uids)

    def __enter__(self) -> Binaries:
        return self

    def __exit__(self, *exc: object) -> None:
        self._files.__exit__(*exc)

    def may_open(self, binary: Binary) -> bool:
        """Return whether the file can be opened by its name with our rights."""
        if self._files.is_elsewhere or binary.was_deleted:
            return False
        return self._ours or may_be_opened(binary.path)

    def table(self, binary: Binary) -> Optional[UnwindTable]:
        """Return the unwind table of *binary*; None if it has none, or the file has been replaced."""
        if not binary.path.startswith("/") or binary.was_deleted or not can_unwind():
            return None
        try:
            if not self._ours and self._files.rights is None and not may_be_opened(binary.path):
                return None
            with self._files.open(binary.path) as stream:

                def read(offset: int, size: int) -> bytes:
                    stream.seek(offset)
                    return stream.read(size)

                return UnwindTable(read)
        except (OSError, ValueError, OverflowError):
            return None


def rows_of(samples: Samples, part: slice = slice(None)) -> list[WeighedFault]:
    """Return *part* of *samples* as rows."""
    columns = (
        samples.time, samples.pid, samples.tid, samples.address, samples.page_bytes, samples.weight, samples.path,
        samples.pages, samples.doubt, samples.until, samples.path_doubt,
    )  # fmt: skip
    return [WeighedFault(*row) for row in zip(*(column[part] for column in columns))]


def names_of(
    samples: Samples, used: Sequence[int], symbols: Symbols, binaries: Binaries
) -> tuple[dict[int, Sequence[Frame]], list[Notice]]:
    """Return the frames of each of the places *used*, and notices on files without names."""
    places = [samples.places[number] for number in used]
    chains, notices = name_places(places, symbols, binaries.may_open, _names_of_jit(samples, used))
    return dict(zip(used, chains)), [*notices, *_unopened(places, binaries)]


def _names_of_jit(samples: Samples, used: Sequence[int]) -> Mapping[tuple[int, int], str]:
    """Return names for the addresses in *used* that belong to no file, by process and address."""
    wanted: dict[int, list[int]] = {}
    for number in used:
        place = samples.places[number]
        if place.binary is None:
            wanted.setdefault(place.pid, []).append(place.offset)
    return {
        (pid, address): name
        for pid, addresses in wanted.items()
        for address, name in jit_names(pid, addresses).items()
    }


def _unopened(places: Sequence[Place], binaries: Binaries) -> list[Notice]:
    """Return a notice if files were left unopened because gdb would have read them with our rights."""
    files = {one.binary for one in places if one.binary is not None and one.binary.path.startswith("/")}
    left = sorted(one.path for one in files if not binaries.may_open(one))
    if not left:
        return []
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    why = "deleted, in a container or changeable by another user"
    text = f"{printable(left[0])}{more}, {why}, was not opened for names"
    return [Notice("faults-unopened", f"{text}: record as the process's user, inside the container")]


def without_libdw() -> list[Notice]:
    """Return a notice if libdw, which finds callers, is not installed."""
    if can_unwind():
        return []
    text = "elfutils' libdw is not installed: callers are found only in code that keeps frame pointers"
    return [Notice("faults-no-libdw", f"{text} (on Debian: apt install libdw1)")]


def named_faults(
    program: str,
    samples: Samples,
    stacks: Sequence[FaultStack],
    chains: Mapping[int, Sequence[Frame]],
    totals: FaultTotals,
) -> NamedFaults:
    """Return a recording of *program*; *chains* are the frames of each place."""
    table: dict[Frame, int] = {}
    named = []
    for one in stacks:
        frames = [frame for number in samples.paths[one.path] for frame in chains[number]]
        numbers = [table.setdefault(frame, len(table)) for frame in frames]
        sums = {name: value for name, value in one._asdict().items() if name != "path"}
        named.append(NamedStack(numbers, **sums))
    threads = {str(tid): name for tid, name in samples.thread_names.items()}
    return NamedFaults(program, totals, threads, list(table), named)
