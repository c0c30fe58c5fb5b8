"""gperftools' heap profiler: tcmalloc is preloaded, the program runs natively, every allocation is counted."""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from gdbmem.engines import engine
from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import Mapping, maps_text, parse_smaps
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.model.memory import MemoryUnreadable

# The part of a dump that gperftools 2.10 omits after 1 MiB, read from the profiler's own table in the program.
#
# The table is found by a stack that the dump lists, and used only if its sums equal the dump's first line exactly.
# Source: gperftools 2.10, src/heap-profile-stats.h and heap-profile-table.cc (struct HeapProfileBucket, GetBucket).


_COUNTS = rb" *(\d+): *(\d+) \[ *(\d+): *(\d+)\] @"
_FIRST = re.compile(rb"heap profile:" + _COUNTS + rb" heapprofile\n")
_ROW = re.compile(rb"^" + _COUNTS + rb"((?: 0x[0-9a-f]+)+)\n", re.M)
_BUCKET = struct.Struct("<iiqqQi4xQQ")  # allocs, frees, their bytes, hash, depth, stack, next
_CUT_FROM = 1 << 19  # a shorter dump is whole
_SLOTS = 179999
_DEEPEST = 64
_WORD = (1 << 64) - 1
_CHUNK = 64 << 20
_TRIED = 3  # stacks of the dump: the first may have changed since


class _Bucket(NamedTuple):
    allocs: int
    frees: int
    alloc_bytes: int
    free_bytes: int
    hash: int
    depth: int
    stack: int
    next: int


def complete(path: Path, pid: int) -> bool:
    """Append the missing part to the dump at *path*, which process *pid* has just written; return whether all is there.

    A dump that is complete already, or that can't be completed, is not changed.
    """
    if path.stat().st_size < _CUT_FROM:
        _add_maps(path, pid)
        return True
    data = path.read_bytes()
    first = _FIRST.match(data)
    if first is None:
        return False
    wanted = tuple(int(first[n]) for n in range(1, 5))
    if sum(int(row[4]) for row in _ROW.finditer(data)) == wanted[3]:
        return True
    with contextlib.suppress(TargetError, MemoryUnreadable, OSError, struct.error):
        maps = maps_text(pid)
        with ProcMemory(pid) as memory:
            rows = _rows(_BucketTable(memory, parse_smaps(maps)), data)
        if rows is not None and _totals(rows) == wanted:
            temporary = path.with_name(f".{path.name}.whole")
            temporary.write_bytes(first[0] + b"".join(map(_line, rows)) + b"\nMAPPED_LIBRARIES:\n" + maps)
            temporary.replace(path)
            return True
    return False


def _add_maps(path: Path, pid: int) -> None:
    """Add the files that the addresses in the dump at *path* lie in, where its process has no /proc to see them by."""
    with contextlib.suppress(OSError):
        if path.read_bytes().endswith(b"\nMAPPED_LIBRARIES:\n"):
            with path.open("ab") as stream:
                stream.write(maps_text(pid))


_Row = tuple[_Bucket, tuple[int, ...]]


def _totals(rows: list[_Row]) -> tuple[int, ...]:
    buckets = [bucket for bucket, _ in rows]
    allocs, size = sum(b.allocs for b in buckets), sum(b.alloc_bytes for b in buckets)
    return (allocs - sum(b.frees for b in buckets), size - sum(b.free_bytes for b in buckets), allocs, size)


def _line(row: _Row) -> bytes:
    bucket, stack = row
    counts = f"{bucket.allocs - bucket.frees:6d}: {bucket.alloc_bytes - bucket.free_bytes:8d}"
    text = (
        f"{counts} [{bucket.allocs:6d}: {bucket.alloc_bytes:8d}] @{''.join(f' 0x{a:08x}' for a in stack)}\n"
    )
    return text.encode()


def _rows(table: _BucketTable, data: bytes) -> Optional[list[_Row]]:
    for number, row in enumerate(_ROW.finditer(data)):
        if number == _TRIED:
            break
        stack = tuple(int(word, 16) for word in row[5].split())
        in_use, in_use_bytes, allocs, alloc_bytes = (int(row[n]) for n in range(1, 5))
        known = struct.pack("<iiqq", allocs, allocs - in_use, alloc_bytes, alloc_bytes - in_use_bytes)
        for base in table.bases(known, stack):
            with contextlib.suppress(struct.error):
                return sorted(table.rows(base), key=lambda row: -row[0].alloc_bytes)
    return None


class _BucketTable:
    """The profiler's hash table of stacks, in the memory of a process."""

    def __init__(self, memory: ProcMemory, mappings: list[Mapping]) -> None:
        self._memory = memory
        self._regions = [m for m in mappings if m.is_anonymous and m.permissions.startswith("rw")]

    def bases(self, known: bytes, stack: tuple[int, ...]) -> Iterator[int]:
        """Yield where the table may begin that has a bucket with the counts *known* and *stack*.

        It is pointed to from the table, or from the bucket before it in its slot.
        """
        for address in self._find(known):
            bucket = self._bucket(address)
            if bucket is None or self._stack(bucket) != stack:
                continue
            for slot in self._find(address.to_bytes(8, "little")):
                base = slot - 8 * _slot(bucket)
                with contextlib.suppress(MemoryUnreadable):
                    self._memory.read(base, 8 * _SLOTS)
                    yield base

    def rows(self, base: int) -> Iterator[_Row]:
        """Yield every bucket with its stack; raises struct.error if the table holds something else."""
        heads = struct.unpack(f"<{_SLOTS}Q", self._memory.read(base, 8 * _SLOTS))
        for slot, address in enumerate(heads):
            while address:
                bucket = self._bucket(address)
                stack = self._stack(bucket) if bucket is not None else None
                if bucket is None or stack is None or _slot(bucket) != slot:
                    raise struct.error("this is not the table")
                yield bucket, stack
                address = bucket.next

    def _bucket(self, address: int) -> Optional[_Bucket]:
        try:
            bucket = _Bucket(*_BUCKET.unpack(self._memory.read(address, _BUCKET.size)))
        except MemoryUnreadable:
            return None
        return bucket if 0 < bucket.depth <= _DEEPEST else None

    def _stack(self, bucket: _Bucket) -> Optional[tuple[int, ...]]:
        try:
            stack = struct.unpack(f"<{bucket.depth}Q", self._memory.read(bucket.stack, 8 * bucket.depth))
        except MemoryUnreadable:
            return None
        return stack if _hash(stack) == bucket.hash else None

    def _find(self, needle: bytes) -> Iterator[int]:
        for region in self._regions:
            for start in range(region.start, region.end, _CHUNK):
                # A needle may lie across two chunks.
                size = min(_CHUNK + len(needle), region.end - start)
                try:
                    data = self._memory.read(start, size)
                except MemoryUnreadable:
                    continue
                at = data.find(needle)
                while at >= 0:
                    if (start + at) % 8 == 0:
                        yield start + at
                    at = data.find(needle, at + 1)


def _slot(bucket: _Bucket) -> int:
    return (bucket.hash & 0xFFFFFFFF) % _SLOTS


def _hash(stack: tuple[int, ...]) -> int:
    found = 0
    for address in stack:
        found = (found + address) & _WORD
        found = (found + (found << 10)) & _WORD
        found ^= found >> 6
    found = (found + (found << 3)) & _WORD
    return found ^ (found >> 11)


TABLE = engine.EngineTable(
    name="gperftools",
    runs=engine.NATIVE,
    summary="native code, every allocation counted",
    cost="none for code that computes; 25 times and more slower for code that allocates",
    counts="requested bytes, exact from the start of its profiler",
    blind=(
        "blocks that libraries allocate while they are loaded, before the profiler starts (77 KiB with libstdc++)",
        "stacks beyond the first 1 MiB of dumps that gperftools 2.10 takes by itself (the missing share is reported)",
        "a program that has its own allocator, or is static or setuid",
        "frames where the unwinder fails (build with -fno-omit-frame-pointer, or use a newer gperftools)",
    ),
    library="tcmalloc",
    package="libgoogle-perftools4",
    options=("dump-interval",),
)

FUNCTIONS = ("HeapProfilerDump",)
_REASON = b"gdbmem\0"
_HELD = b"generic.total_physical_bytes\0"  # known since gperftools 2.8
_NUMBER = re.compile(r"\.(\d{4,})\.heap$")
# Dumps that gperftools takes by itself go by allocated bytes; these are out of any program's reach.
_NEVER = str(1 << 60)
_QUIET = "-1"  # word of each dump is level 0; info, warnings and errors are -1 and below


def environment(prefix: str, options: engine.NativeOptions) -> dict[str, str]:
    """Return the variables that switch the profiler on; dumps are PREFIX.0001.heap and so on, taken only on request.

    A user's own HEAP_PROFILE_… settings take precedence: such dumps are collected too. The program's output gets errors
    only, not a line for each dump.
    """
    interval = _NEVER if options.dump_interval is None else str(options.dump_interval)
    found = {
        "HEAPPROFILE": prefix,
        "HEAP_PROFILE_ALLOCATION_INTERVAL": interval,
        "HEAP_PROFILE_INUSE_INTERVAL": _NEVER,
        "PERFTOOLS_VERBOSE": _QUIET,
    }
    if _unwinds_without_locks():
        # Twice as fast as libunwind, which checks each stack's memory by system calls. By frame pointers (generic_fp)
        # it would be ten times as fast, but Debian's library is built without them: no stack would be found.
        found["TCMALLOC_STACKTRACE_METHOD"] = "libgcc"
    return found


def _unwinds_without_locks() -> bool:
    # From glibc 2.35 on libgcc finds a function's unwind tables without the loader's lock, which malloc may hold.
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return name == "glibc" and tuple(int(part) for part in version.split(".")[:2]) >= (2, 35)
    except (ValueError, OSError):
        return False


def snapshot(inferior: engine.Inferior, prefix: str, target: str) -> engine.Call:
    """Return the call after which the profiler has dumped, and its file is *target*."""
    engine.refuse_limited(inferior.process)
    before = _marks(prefix)

    def finish(result: int) -> None:
        # A forked child counts its dumps as its parent does: this one may have gone over one of the child's.
        marks = _marks(prefix)
        new = [path for path in marks if marks[path] != before.get(path)]
        if not new:
            raise engine.nothing_written(
                "gperftools wrote no heap profile",
                inferior.process,
                target,
                hint="was the program started by 'gdbmem launch --engine gperftools'?",
            )
        new[-1].rename(target)
        complete(Path(target), inferior.process)

    return engine.Call("HeapProfilerDump", [inferior.place(_REASON)], finish)


def resident(inferior: engine.Inferior, tell: Callable[[int], None]) -> engine.Call:
    """Return the call that has tcmalloc *tell* the bytes that it holds of the system."""
    value = inferior.place(bytes(8))

    def finish(known: int) -> None:
        if known:
            tell(int.from_bytes(inferior.read(value, 8), "little"))

    return engine.Call("MallocExtension_GetNumericProperty", [inferior.place(_HELD), value], finish)


def turn_on(inferior: engine.Inferior, function: str, prefix: str) -> str:
    """Start the profiler if it is not running; earlier allocations are then missing from snapshots."""
    if inferior.call("IsHeapProfilerRunning", []):
        return ""
    inferior.call("HeapProfilerStart", [inferior.place(os.fsencode(prefix) + b"\0")])
    return "gperftools' heap profiler was off and is on now: it counts allocations from now on"


def turn_off(inferior: engine.Inferior, function: str) -> None:
    """Stop the profiler."""
    inferior.call("HeapProfilerStop", [])


def request(inferior: engine.Inferior, function: str, target: str) -> engine.Call:
    """Return the call that makes the profiler write the next file of its series."""
    return engine.Call(function, [inferior.place(_REASON)], lambda result: None)


def is_dump(path: str) -> bool:
    """Return whether *path* is what the profiler calls a dump."""
    return _NUMBER.search(path) is not None


def _marks(prefix: str) -> dict[Path, tuple[int, int, int]]:
    """Return what changes in each dump when it is written again, oldest first."""
    facts = ((path, path.stat()) for path in dumps(prefix))
    return {path: (fact.st_ino, fact.st_mtime_ns, fact.st_size) for path, fact in facts}


def dumps(prefix: str) -> list[Path]:
    """Return the dumps that begin with *prefix*, oldest first."""
    stem = Path(prefix)
    found = [path for path in stem.parent.glob(f"{stem.name}*.heap") if _NUMBER.search(path.name)]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))
