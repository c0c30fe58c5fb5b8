"""A core of a process that stands still, written from /proc: nothing of gdbmem's is charged to the process."""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.errors import TargetError
from gdbmem.linux.holding.ptrace import (
    AARCH64,
    X86_64,
    Freeze,
    HeldThread,
    PtraceMachine,
    get_register_bytes,
    held_threads,
    machine,
    threads_out_of_memory,
)
from gdbmem.linux.memory.maps import PAGE, Mapping, Ranges, read_smaps, resident_ranges, swapped_ranges
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.process.process import ended, memory_folder, process_facts
from gdbmem.linux.process.threads import is_ending
from gdbmem.model.memory import MemoryUnreadable
from gdbmem.text import printable

# Source: elf.h, and the kernel's fs/binfmt_elf.c and include/linux/elfcore.h.
_NOTE, _LOAD = 4, 1
_PRSTATUS, _FLOATS, _PRPSINFO, _AUXV, _FILE, _ARM_TLS = 1, 2, 3, 6, 0x46494C45, 0x401
_MACHINES = {X86_64: 62, AARCH64: 183}
_HEADER, _ROW = 64, 56
_MOST_ROWS = 0xFFFE
_PIECE = 4 << 20
_USER_CODE, _USER_STACK = 0x33, 0x2B  # x86's cs and ss of a 64-bit program
_CODE_SEGMENT, _STACK_SEGMENT = 17, 20  # their positions


class _Row(NamedTuple):
    """A part of a mapping in the core."""

    mapping: Mapping
    start: int
    end: int
    at: int  # in the file
    is_stored: bool


def write_core(pid: int, path: Path, *, until: float) -> None:
    """Write a core of process *pid* to the new file *path*, with every thread stopped, or standing at a limit.

    It has the pages that are in memory, as a core of the kernel's has them: not those of unchanged files. Swapped ones
    are left out, since reading would bring them back. Nothing is left in *path* on an error: TargetError, also if the
    time *until* (of time.monotonic) comes first or the disk is full; OSError if *path* can't be made.
    """
    kind = machine()
    if kind is None:
        raise _refused(pid, "its machine is not known")
    with ProcMemory(pid) as memory:
        standing = threads_out_of_memory(pid, memory)
        with Freeze(pid, standing=standing) as freeze:
            threads = list(held_threads(freeze))
            mappings = read_smaps(pid)
            floats = {tid: _floats(tid) for tid in freeze.threads}
            notes = _notes(pid, kind, threads, mappings, floats)
            swapped = Ranges(
                swapped_ranges(pid, [(one.start, one.end) for one in mappings if one.swap_bytes])
            )
            rows = _rows(mappings, swapped)
            if len(rows) > _MOST_ROWS:
                raise _refused(pid, f"it has {len(rows):,} pieces of memory")
            head = _HEADER + _ROW * (len(rows) + 1)
            rows = list(_placed(rows, head + len(notes)))
            stored = [row for row in rows if row.is_stored]
            core = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(core, _headers(kind, rows, head, len(notes)) + notes, 0)
                _write_pages(pid, memory, core, stored, until)
                os.ftruncate(core, max(row.at + row.end - row.start for row in stored))
                if is_ending(pid):  # killed meanwhile: what was read last may be missing
                    raise ended(pid)
            except BaseException as error:
                path.unlink()
                if isinstance(error, OSError):
                    raise _refused(pid, str(error.strerror)) from error
                raise
            finally:
                os.close(core)


def _refused(pid: int, why: str) -> TargetError:
    return TargetError(
        f"no core of process {pid} can be written: {why}",
        slug="no-core",
        hint="the other files of the record are whole",
    )


def _rows(mappings: Sequence[Mapping], swapped: Ranges) -> list[_Row]:
    """Return what the core has, without places in the file."""
    found = []
    for mapping in mappings:
        end = mapping.start + _stored(mapping)
        stored = list(swapped.gaps(mapping.start, end)) if end > mapping.start else []
        left_out = [*Ranges(stored).gaps(mapping.start, mapping.end)]
        found += [_Row(mapping, *piece, 0, True) for piece in stored]
        found += [_Row(mapping, *piece, 0, False) for piece in left_out]
    return sorted(found, key=lambda row: row.start)


def _placed(rows: Sequence[_Row], at: int) -> Iterator[_Row]:
    at += -at % PAGE
    for row in rows:
        yield row._replace(at=at)
        at += row.end - row.start if row.is_stored else 0


def _stored(mapping: Mapping) -> int:
    """Return how much of *mapping* is stored: of unchanged files their first page, by which they are recognised."""
    if mapping.permissions[0] != "r" or mapping.is_device or mapping.name.startswith("[vvar"):
        return 0
    is_changed = mapping.permissions[3] == "p" and ("w" in mapping.permissions or mapping.anonymous_bytes)
    if not mapping.is_file or is_changed:
        return mapping.size_bytes
    return PAGE if mapping.offset == 0 else 0


def _write_pages(pid: int, memory: ProcMemory, core: int, rows: Sequence[_Row], until: float) -> None:
    present = resident_ranges(pid, [(row.start, row.end) for row in rows])[0]
    for row in rows:
        is_of_file = row.mapping.is_file or row.mapping.is_shared_memory
        if is_of_file:
            _write_file(pid, core, row, until)  # the process need not have all of its pages in memory
        spans = (
            [(row.start, row.end)] if row.mapping.name == "[vdso]" else present.overlaps(row.start, row.end)
        )
        for first, last in spans:
            for at in range(max(first, row.start), min(last, row.end), _PIECE):
                _check_time(pid, until)
                try:
                    data = memory.read(at, min(_PIECE, last - at, row.end - at))
                except MemoryUnreadable as error:
                    if is_of_file:  # an unchanged page that was dropped meanwhile
                        continue
                    raise _refused(pid, f"its memory at {at:#x} can't be read") from error
                os.pwrite(core, data, row.at + at - row.start)


def _write_file(pid: int, core: int, row: _Row, until: float) -> None:
    """Write what the file of *row* has: it is read through the page cache, which the process isn't charged for."""
    mapping = row.mapping
    begin, end = (mapping.offset + place - mapping.start for place in (row.start, row.end))
    shift = row.at - begin
    try:
        file = os.open(f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(pid, f"{printable(mapping.name)} can't be read: {error.strerror}") from error
    try:
        while begin < end:
            _check_time(pid, until)
            try:
                begin = max(os.lseek(file, begin, os.SEEK_DATA), begin)
            except OSError:
                return  # only a hole from here on, or the end
            hole = os.lseek(file, begin, os.SEEK_HOLE)
            data = os.pread(file, max(min(_PIECE, hole - begin, end - begin), 0), begin)
            if not data:
                return
            os.pwrite(core, data, begin + shift)
            begin += len(data)
    finally:
        os.close(file)


def _check_time(pid: int, until: float) -> None:
    if time.monotonic() > until:
        raise _refused(pid, "there was too little time")


def _headers(kind: PtraceMachine, rows: Sequence[_Row], notes_at: int, notes: int) -> bytes:
    sizes = (_HEADER, _ROW, len(rows) + 1, 0, 0, 0)
    found = [
        b"\x7fELF\x02\x01\x01".ljust(16, b"\0"),
        struct.pack("<HHIQQQIHHHHHH", 4, _MACHINES[kind], 1, 0, _HEADER, 0, 0, *sizes),
        struct.pack("<IIQQQQQQ", _NOTE, 0, notes_at, 0, 0, notes, 0, 4),
    ]
    for row in rows:
        rights = row.mapping.permissions
        flags = sum(bit for letter, bit in zip("rwx", (4, 2, 1)) if letter in rights)
        size = row.end - row.start
        place = (row.at, row.start, 0, size if row.is_stored else 0, size, PAGE)
        found.append(struct.pack("<IIQQQQQQ", _LOAD, flags, *place))
    return b"".join(found)


def _note(kind: int, data: bytes) -> bytes:
    return struct.pack("<III8s", 5, len(data), kind, b"CORE") + data + bytes(-len(data) % 4)


def _notes(
    pid: int,
    kind: PtraceMachine,
    threads: Sequence[HeldThread],
    mappings: Sequence[Mapping],
    floats: dict[int, Optional[bytes]],
) -> bytes:
    found = [_note(_PRPSINFO, _process(pid))]
    for thread in threads:
        found.append(_note(_PRSTATUS, _status(kind, pid, thread)))
        if kind is AARCH64:
            found.append(_note(_ARM_TLS, struct.pack("<Q", thread.thread_pointer)))
        numbers = floats.get(thread.tid)
        if numbers is not None:
            found.append(_note(_FLOATS, numbers))
    found.append(_note(_AUXV, Path(f"{memory_folder(pid)}/auxv").read_bytes()))
    found.append(_note(_FILE, _files(mappings)))
    return b"".join(found)


def _floats(tid: int) -> Optional[bytes]:
    try:
        return get_register_bytes(tid, _FLOATS)
    except OSError:
        return None


def _status(kind: PtraceMachine, pid: int, thread: HeldThread) -> bytes:
    """Return struct elf_prstatus of *thread*; registers that the kernel doesn't show are 0."""
    registers = list(thread.registers)
    if not registers:
        registers = [0] * kind.words
        registers[kind.program_counter], registers[kind.stack_pointer] = (
            thread.program_counter,
            thread.stack_pointer,
        )
        if kind is X86_64:
            registers[_CODE_SEGMENT], registers[_STACK_SEGMENT] = _USER_CODE, _USER_STACK
            registers[kind.thread_pointer or 0] = thread.thread_pointer
    signals = struct.pack("<iiihxxQQ", signal.SIGKILL, 0, 0, signal.SIGKILL, 0, 0)
    numbers = struct.pack("<iiii", thread.tid, 0, 0, 0)
    return signals + numbers + bytes(64) + struct.pack(f"<{kind.words}Q", *registers) + bytes(8)


def _process(pid: int) -> bytes:
    facts = process_facts(pid)
    words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
    state = struct.pack("<bcbbxxxxQIIiiii", 0, b"D", 0, 0, 0, facts.uid, 0, pid, 0, 0, 0)
    return (
        state
        + facts.name.encode(errors="surrogateescape")[:15].ljust(16, b"\0")
        + words[:79].ljust(80, b"\0")
    )


def _files(mappings: Sequence[Mapping]) -> bytes:
    named = [one for one in mappings if one.name.startswith("/")]
    rows = b"".join(struct.pack("<QQQ", one.start, one.end, one.offset // PAGE) for one in named)
    names = b"".join(one.name.encode(errors="surrogateescape") + b"\0" for one in named)
    return struct.pack("<QQ", len(named), PAGE) + rows + names
