"""Readers of a process's memory and of the kernel's records that no other file has examples of."""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from gdbmem.allocators.cpython.traces import Traces, read_traces
from gdbmem.errors import TargetError
from gdbmem.inspection.pools import ProcessPools, read_pool_at
from gdbmem.linux.faults.event import (
    Record,
    SampleLayout,
    small_of_whole,
    small_records,
    small_samples,
    stack_samples,
    trimmed,
)
from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.model.bfc import Allocator
from gdbmem.model.memory import Buffer, BytesMemory, MemoryUnreadable
from gdbmem.symbols.unwind_tables import UnwindTable, can_unwind, evaluate
from tests.conftest import _compile

# -- pools of a BFC allocator ----------------------------------------------------------------------------------


class Recorded:
    """The memory of a process, with what was read of it."""

    def __init__(self, memory: ProcMemory) -> None:
        self.pieces: dict[tuple[int, int], bytes] = {}
        self._memory = memory

    def read(self, address: int, size: int) -> bytes:
        return self.pieces.setdefault((address, size), self._memory.read(address, size))

    def read_into(self, address: int, buffer: Buffer) -> None:
        view = memoryview(buffer).cast("B")
        view[:] = self.read(address, len(view))


class Pieces:
    """Memory of which a few pieces are known, read as they were recorded or as parts of one."""

    def __init__(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        self._pieces = dict(sorted(pieces, key=lambda piece: len(piece[1])))

    def read(self, address: int, size: int) -> bytes:
        data = self._pieces.get(address, b"")
        if len(data) < size:
            raise MemoryUnreadable(address)
        return data[:size]

    def read_into(self, address: int, buffer: Buffer) -> None:
        view = memoryview(buffer).cast("B")
        view[:] = self.read(address, len(view))


_LAYOUTS = (2024, 2026, 1320)


@functools.cache
def _pool(layout: int) -> tuple[int, str, Sequence[tuple[int, int]], bytes]:
    """Return an allocator's address and class, the places that are read of it, and what is there."""
    words = [str(_compile("bfc_pool", f"-DLAYOUT={layout}"))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write("new 67108864 1 0 0 60 7\nowners 60 7\n")
            process.stdin.flush()
            for _ in range(2):  # what the two print
                assert "end\n" in iter(process.stdout.readline, "")
            with ProcessPools(process.pid) as pools, ProcMemory(process.pid) as memory:
                found, _ = pools._known.objects[0]
                recorded = Recorded(memory)
                read_pool_at(recorded, found.address, found.class_name, "a")
        finally:
            process.kill()
    return found.address, found.class_name, list(recorded.pieces), b"".join(recorded.pieces.values())


def pools_read(data: bytes) -> Sequence[Allocator]:
    layout = _LAYOUTS[data[0] % len(_LAYOUTS)] if data else _LAYOUTS[0]
    address, name, places, original = _pool(layout)
    data, at, pieces = data[1:].ljust(len(original), b"\0"), 0, []
    for place, size in places:
        pieces.append((place, data[at : at + size]))
        at += size
    return read_pool_at(Pieces(pieces), address, name, "a").allocators


def read_pools(data: bytes) -> None:
    with contextlib.suppress(MemoryUnreadable):  # which a caller that reads several of them catches
        for allocator in pools_read(data):
            allocator.check()


def pools() -> Sequence[bytes]:
    return [bytes([number]) + _pool(layout)[3] for number, layout in enumerate(_LAYOUTS)]


# -- tables of tracemalloc -------------------------------------------------------------------------------------

_HEAP, _CODE, _BUCKETS, _ENTRIES = 0x10000, 0x400000, 16, 30


def traces_read(data: bytes) -> Traces:
    memory = BytesMemory([(_HEAP, data[:8192].ljust(8192, b"\0"))])
    mappings = [
        Mapping(_HEAP, _HEAP + 8192, "rw-p", 0, "00:00", 0, "[heap]", rss_bytes=8192),
        Mapping(_CODE, _CODE + 4096, "r-xp", 0, "08:01", 1, "/usr/bin/python3", rss_bytes=4096),
    ]
    return read_traces(memory, mappings)


def read_tables(data: bytes) -> None:
    traces = traces_read(data)
    assert all(one.blocks > 0 for one in traces.tracebacks)
    assert traces.unread_blocks >= 0


def tables() -> Sequence[bytes]:
    """Return pages with a table of 30 traces, two tracebacks and the name of a file."""
    heap = bytearray(8192)
    buckets, entries, traces, tracebacks, name = 128, 512, 2048, 3072, 4096
    codes = [_CODE + 16 * number for number in range(7)]
    struct.pack_into("<10Q", heap, 0, _ENTRIES, _BUCKETS, _HEAP + buckets, *codes)
    for number in range(_ENTRIES):
        bucket = buckets + number % _BUCKETS * 8
        (following,) = struct.unpack_from("<Q", heap, bucket)
        entry, trace = entries + 32 * number, traces + 16 * number
        struct.pack_into("<4Q", heap, entry, following, number, 0x900000 + number, _HEAP + trace)
        struct.pack_into("<Q", heap, bucket, _HEAP + entry)
        struct.pack_into("<QQ", heap, trace, 100 + number, _HEAP + tracebacks + 64 * (number % 2))
    for number in range(2):
        struct.pack_into("<QHH", heap, tracebacks + 64 * number, 5, 2, 3)
        for frame in range(2):
            struct.pack_into("<QI", heap, tracebacks + 64 * number + 12 + 12 * frame, _HEAP + name, 7 + frame)
    struct.pack_into("<QQqqI", heap, name, 1, 0, 4, -1, 1 << 2 | 1 << 5 | 1 << 6)
    heap[name + 40 : name + 45] = b"a.py\0"
    return [bytes(heap)]


# -- unwind tables ---------------------------------------------------------------------------------------------


def read_unwind_table(data: bytes) -> None:
    """Read it in a separate process, which a damaged one may crash in libdw."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with contextlib.suppress(ValueError):
                unwind_rules(data)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the reading process ended with {os.waitstatus_to_exitcode(status)}"


def unwind_rules(data: bytes) -> int:
    """Return how many of a dozen places have a rule."""
    found = 0
    table = UnwindTable(lambda at, size: data[at : at + size])
    try:
        for offset in range(0, len(data), max(1, len(data) // 12)):
            address = table.address(offset)
            rule = None if address is None else table.rule(address, range(17))
            found += rule is not None
            for expression in [] if rule is None else [rule.cfa, *rule.registers.values()]:
                if expression:
                    evaluate(expression, [0x1000] * 17, 0x2000, lambda where: where & 0xFFFF)
    finally:
        table.close()
    return found


def unwind_tables() -> Sequence[bytes]:
    assert can_unwind()
    return [Path("/bin/true").resolve().read_bytes()]


# -- records of page faults ------------------------------------------------------------------------------------

_LAYOUT = SampleLayout(17, has_page_size=True)


def records_read(data: bytes) -> Sequence[Record]:
    """Return what is in *data*, read as either of the two rings."""
    found: list[Record] = []
    with contextlib.suppress(TargetError):
        kept = trimmed(data, _LAYOUT)
        assert len(kept.data) <= len(data)
        found += stack_samples(kept.data, _LAYOUT)
    with contextlib.suppress(TargetError):
        found += small_records(small_of_whole(data, _LAYOUT, range(1 << 8).__contains__, (7, 8)), _LAYOUT)
    with contextlib.suppress(TargetError):
        small_samples(data, _LAYOUT)
        found += small_records(data, _LAYOUT)
    return found


def read_records(data: bytes) -> None:
    records_read(data)


def records() -> Sequence[bytes]:
    """Return samples with a copied stack and without, and a small sample with what else the kernel writes."""
    pid, tid, time, event = 10, 11, 99, 7

    def record(kind: int, body: bytes, misc: int = 0) -> bytes:
        return struct.pack("<IHH", kind, misc, 8 + len(body)) + body

    trailer = struct.pack("<IIQQ", pid, tid, time, event)
    sample = struct.pack("<QQIIQQQ3Q", event, 0x1234, pid, tid, time, 0x7F00, 3, 1 << 63, 5, 6)
    full = struct.pack("<Q17QQ", 2, *range(17), 64) + bytes(64) + struct.pack("<Q", 24)
    small = struct.pack("<QIIQQQQQQ", event, pid, tid, time, 0x7F00, 2, 0x8000, 0x1234, 4096)
    mapped = struct.pack(
        "<IIQQQIIQQII", pid, tid, 0x1000, 0x2000, 0, 8, 1, 77, 1, 5, 2
    ) + b"/lib/a.so\0".ljust(16, b"\0")
    return [
        record(9, sample + full) + record(9, sample + struct.pack("<QQ", 0, 0)),
        record(9, small)
        + record(10, mapped + trailer)
        + record(3, struct.pack("<II", pid, tid) + b"name\0\0\0\0" + trailer, 1 << 13)
        + record(7, struct.pack("<IIIIQ", pid, 1, tid, 1, time) + trailer)
        + record(4, struct.pack("<IIIIQ", pid, 1, tid, 1, time) + trailer)
        + record(2, struct.pack("<QQ", event, 5) + trailer),
    ]
