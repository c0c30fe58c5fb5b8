"""Logs of best-fit allocators: TensorFlow's, XLA's and onnxruntime's, of all versions, between others' lines."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Callable, Optional

from gdbmem.errors import Notice
from gdbmem.files import Data
from gdbmem.formats.bfc import log_lines
from gdbmem.formats.bfc.log_dump import Dump, LoggedBytes, Refusals
from gdbmem.formats.unwrapping import writers_of
from gdbmem.model.bfc import ONNXRUNTIME, UNKNOWN, Allocator, Chunks, Counters, Options, PoolLog, Region
from gdbmem.text import plural, printable

# onnxruntime's verbose log: the creation of its arenas, and each extension; the log never lists chunks.


_AS_REQUESTED = 1  # kSameAsRequested


@dataclass
class _Arena:
    line: int
    name: str = ""
    limit: Optional[int] = None
    dead: Optional[int] = None
    most: Optional[int] = None
    strategy: Optional[int] = None
    total: Optional[int] = None
    reserved: int = 0
    regions: list[tuple[int, int]] = field(default_factory=list)  # address, bytes
    extensions: int = 0
    asked: Optional[int] = None
    has_shrunk: bool = False  # and which of its regions went is not known

    def shrink(self, total: bytes) -> None:
        """Take note of all regions without a chunk in use having been given back: *total* bytes are left."""
        self.total, self.has_shrunk = log_lines.parse_counter(total), True
        if self.total != sum(size for _, size in self.regions):
            self.regions.clear()


class Arenas:
    """All arenas of one log; its lines of extensions follow the one that names the arena."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._arenas: dict[str, _Arena] = {}
        self._last: Optional[_Arena] = None

    def feed(self, number: int, body: bytes) -> bool:
        """Take the line *body* if it is one of an arena's."""
        if b"rena" in body and self._named(number, body):
            return True
        failed = log_lines.ORT_FAILED.match(body) if b"requested b" in body else None
        if failed is not None:
            arena = self._last or self._of(number, "")
            arena.asked = log_lines.parse_counter(failed["asked"] or failed["buffer"])
            return True
        if self._last is None:
            return False
        return self._extension(body, self._last)

    def _named(self, number: int, body: bytes) -> bool:
        made = log_lines.ORT_CREATE.match(body)
        if made is not None:
            name = made["name"].decode("utf-8", "surrogateescape")
            arena = self._arenas[f"{name} {len(self._arenas)}"] = _Arena(number, name)
            arena.limit, arena.dead = map(log_lines.parse_counter, (made["limit"], made["dead"]))
            arena.most, arena.strategy = map(log_lines.parse_counter, (made["most"], made["strategy"]))
            self._last = arena
            return True
        grows = log_lines.ORT_EXTEND.match(body)
        if grows is not None:
            self._last = self._of(number, grows["name"].decode("utf-8", "surrogateescape"))
            self._last.asked = None
            return True
        shrunk = log_lines.ORT_SHRUNK.match(body)
        if shrunk is not None:
            self._of(number, shrunk["name"].decode("utf-8", "surrogateescape")).shrink(shrunk["total"])
            return True
        reserves = log_lines.ORT_RESERVED.match(body)
        if reserves is not None:
            arena = self._of(number, reserves["name"].decode("utf-8", "surrogateescape"))
            arena.reserved += log_lines.parse_counter(reserves["size"]) or 0
            return True
        return False

    def _extension(self, body: bytes, arena: _Arena) -> bool:
        at = log_lines.ORT_AT.match(body)
        if at is not None:
            start, end = int(at["start"], 16), int(at["end"], 16)
            if start < end < 1 << 64:
                arena.regions.append((start, end - start))
            return True
        total = log_lines.ORT_TOTAL.match(body)
        if total is not None:
            arena.total = log_lines.parse_counter(total["size"])
            return True
        if log_lines.ORT_EXTENDED.match(body) is not None:
            arena.extensions += 1
            return True
        return False

    def _of(self, number: int, name: str) -> _Arena:
        """Return the newest arena *name*: the log does not distinguish several with the same name."""
        known = [arena for arena in self._arenas.values() if arena.name == name]
        return (
            known[-1]
            if known
            else self._arenas.setdefault(f"{name} {len(self._arenas)}", _Arena(number, name))
        )

    def allocators(self) -> Sequence[Allocator]:
        """Return the arenas that have a region, or that a request failed in; without chunks."""
        return [
            self._allocator(arena)
            for arena in self._arenas.values()
            if arena.total is not None or arena.regions or arena.asked is not None
        ]

    def _allocator(self, arena: _Arena) -> Allocator:
        doubles = arena.strategy != _AS_REQUESTED
        held = sum(size for _, size in arena.regions)
        missing = (arena.total or 0) - held
        text = f"onnxruntime's log at {printable(self._source)}, line {arena.line} has regions, but no chunks"
        notices = [
            Notice("pool-log-no-chunks", f"{text}: 'gdbmem bfc PID' reads them from the process itself")
        ]
        if arena.total is not None and missing > 0 and not arena.has_shrunk:
            told = f"{plural(arena.extensions, 'extension')} and {arena.total} bytes in all"
            text = f"{printable(self._source)} mentions {told}, but of regions of {held} bytes only"
            notices.append(Notice("pool-log-cut", text))
        return Allocator(
            name=arena.name,
            class_name="onnxruntime::BFCArena",
            kind=ONNXRUNTIME,
            source=f"{self._source}, line {arena.line}",
            regions=[Region(address, size, 0, 0) for address, size in sorted(arena.regions)],
            chunks=Chunks(array("Q"), array("Q"), b""),
            limit_bytes=arena.limit,
            options=Options(
                allow_growth=True,
                split_above_bytes=arena.dead,
                grows_as_requested=not doubles,
                largest_extension_bytes=arena.most if arena.most not in (None, UNKNOWN) else None,
            ),
            counters=Counters(
                pool_bytes=arena.total if arena.total is not None else held or None,
                reserved_bytes=arena.reserved or None,
            ),
            layout="log",
            is_complete=False,
            asked_bytes=arena.asked,
            notices=notices,
        )


_MOST_DUMPS = 1000
_ALLOCATORS = b"bfc_a"  # in the prefix of an allocator's line
_LONGEST = 4096  # bytes of a line that are parsed
# Words of the lines that are parsed.
_WORDS = re.compile(
    rb"bfc_a(?:llocator|rena)\.cc|InUse at|Free  ?at|Chunk at|Next region of"
    rb"|ran out of memory|BFCAllocator dump|in-use chunks:|^ ?Allocator:"
    rb"|memory_limit_:|Limit: |InUse: |MaxInUse: |NumAllocs: |MaxAllocSize: |requested by op|[*x_]{20}"
    rb"|Allocator memory summary|region growth hint|[Oo]ut of memory|OUT_OF_MEMORY|requested buffer of size"
    rb"|OOM when allocating|cudaErrorMemoryAllocation|hipErrorOutOfMemory|you tried to allocate|Arena shrunk by"
    rb"|smaller than requested bytes|CUDA context|failed call to cu|cuDevicePrimaryCtxRetain|StreamExecutor"
)


def is_pool_log(data: Data) -> bool:
    """Return whether *data* has any line that read_pool_log() would take."""
    return _WORDS.search(data) is not None


def read_pool_log(data: Data, source: str, number: Callable[[int], int] = int) -> PoolLog:
    """Read everything about pools in *data*; truncated parts are read as far as possible.

    *number* gives the number of each line in the file.
    """
    writers = writers_of(data)
    if writers is None:
        return _read_of_one(data, source, number)
    readers = [_Reader(source, name) for name in writers.names]
    lines = data[:].split(b"\n")
    for at, line in enumerate(lines, start=1):
        of, body = writers.of(line[:_LONGEST])
        if _WORDS.search(body) is not None:
            readers[of].feed(number(at), body, is_cut=at == len(lines))
    return _together(source, [reader.finish() for reader in readers])


def _together(source: str, logs: Sequence[PoolLog]) -> PoolLog:
    """Return the findings of several writers, in the order of their lines."""
    allocators = sorted(
        (one for log in logs for one in log.allocators), key=lambda one: int(one.source.rpartition(" ")[2])
    )
    refusals = sorted((one for log in logs for one in log.refusals), key=lambda one: one.line)
    return PoolLog(source, allocators, refusals, [notice for log in logs for notice in log.notices])


def _read_of_one(data: Data, source: str, number_of: Callable[[int], int]) -> PoolLog:
    reader = _Reader(source)
    at, number, size = 0, 1, len(data)  # the line that begins at `at`
    while at < size:
        start, end = at, data.find(b"\n", at)
        end = size if end < 0 else end
        if data.find(_ALLOCATORS, at, end) < 0:  # the next line of any interest may be far
            found = _WORDS.search(data, at)
            if found is None:
                break
            start = data.rfind(b"\n", at, found.start()) + 1 or at
            end = data.find(b"\n", found.start())
            end = size if end < 0 else end
            number += data[at:start].count(b"\n")
        reader.feed(number_of(number), data[start : min(end, start + _LONGEST)], is_cut=end == size)
        at, number = end + 1, number + 1
    return reader.finish()


class _Reader:
    def __init__(self, source: str, writer: str = "") -> None:
        """*writer* is what the lines of one of several programs begin with."""
        self._source, self._writer = source, writer
        self._dumps: list[Dump] = []
        # By thread, the last that was written to at the end.
        self._open: list[tuple[Optional[bytes], Dump]] = []
        self._arenas = Arenas(source)
        self._refusals = Refusals()
        self._other_failures = 0  # that were none
        self._left_out = 0

    def feed(self, number: int, line: bytes, *, is_cut: bool) -> None:
        """Parse one line; the numbers of a line that is cut by the end of the file are not used."""
        body, thread, is_allocators = log_lines.body_of(line)
        chunk = log_lines.CHUNK.match(body) if is_allocators else log_lines.CHUNK.search(body)
        if chunk is not None:
            if not is_cut:
                self._chunk(number, chunk, thread)
            return
        if not is_cut:
            self._other(number, body, thread, is_allocators=is_allocators)

    def finish(self) -> PoolLog:
        for _, dump in self._open:
            self._keep(dump)
        found = [dump.allocator(self._source) for dump in sorted(self._dumps, key=lambda dump: dump.line)]
        allocators: Sequence[Allocator] = [*found, *self._arenas.allocators()]
        refusals = self._refusals.found(allocators)
        if self._writer:
            allocators = [replace(one, name=f"{one.name} [{self._writer}]") for one in allocators]
        return PoolLog(self._source, allocators, refusals, self._notices())

    def _notices(self) -> list[Notice]:
        notices = []
        name = printable(self._source)
        if self._other_failures:
            failed = plural(self._other_failures, "allocation")
            text = f"{failed} that failed in {name} had a fallback, and are not shown"
            notices.append(Notice("pool-log-no-failures", text))
        if self._left_out:
            text = f"{name} has more than {plural(_MOST_DUMPS, 'dump')}: {self._left_out} are left out"
            notices.append(Notice("pool-log-too-many", text))
        return notices

    def _keep(self, dump: Dump) -> None:
        if not dump.has_anything:
            return
        if len(self._dumps) < _MOST_DUMPS:
            self._dumps.append(dump)
        else:
            self._left_out += 1

    # --- which dump a line belongs to

    def _begin(self, number: int, thread: Optional[bytes]) -> Dump:
        self._open = [entry for entry in self._open if not entry[1].is_stray]
        dump = Dump(number)
        self._open.append((thread, dump))
        return dump

    def _close(self, dump: Dump) -> None:
        self._keep(dump)
        self._open = [entry for entry in self._open if entry[1] is not dump]

    def _of(self, thread: Optional[bytes]) -> list[Dump]:
        return [dump for of, dump in self._open if of == thread or thread is None or of is None]

    def _current(self, number: int, thread: Optional[bytes]) -> Dump:
        dumps = self._of(thread)
        return self._touched(dumps[-1]) if dumps else self._begin(number, thread)

    def _touched(self, dump: Dump) -> Dump:
        # The last that was written to stands at the end.
        if self._open[-1][1] is not dump:
            entry = next(entry for entry in self._open if entry[1] is dump)
            self._open.remove(entry)
            self._open.append(entry)
        return dump

    def _chunk(self, number: int, found: re.Match[bytes], thread: Optional[bytes]) -> None:
        address, size = int(found["address"], 16), int(found["size"])
        if not size or address + size >= 1 << 64:
            return
        dumps = self._of(thread)
        if len(dumps) > 1:
            # If several are written at once: the one that expects this address, or a region's first chunk.
            at = next((dump for dump in reversed(dumps) if dump.expected == address), None)
            begins = [dump for dump in dumps if dump.starts and dump.starts[-1][0] == len(dump.size)]
            dump = at or next(iter(begins), dumps[-1])
            self._touched(dump)
        else:
            dump = dumps[0] if dumps else self._begin(number, thread)
        if dump.has_tail and dump.size:
            self._close(dump)
            dump = self._begin(number, thread)
        dump.add_chunk(address, size, found["state"] == b"Free", found["rest"], found["old_next"])

    # --- other lines

    def _other(self, number: int, body: bytes, thread: Optional[bytes], *, is_allocators: bool) -> None:
        if b" Chunks of size " in body:  # sums of the chunks that were listed
            return
        if self._taken(_OFTEN, number, body, thread, is_allocators=is_allocators):
            return
        if self._arenas.feed(number, body) or self._refusals.feed(number, body):
            return
        self._taken(_SELDOM, number, body, thread, is_allocators=is_allocators)

    def _taken(
        self, takers: Takers, number: int, body: bytes, thread: Optional[bytes], *, is_allocators: bool
    ) -> bool:
        for pattern, take in takers:
            found = pattern.match(body) if is_allocators else pattern.search(body)
            if found is not None:
                take(self, number, found, thread)
                return True
        return False

    def _out(self, number: int, found: re.Match[bytes], thread: Optional[bytes]) -> None:
        if log_lines.NO_FAILURE in found["rest"] or b"freed_by_count" in found["rest"]:
            self._other_failures += 1
            return
        name = _text(found["name"])
        is_mixed = False
        for dump in self._of(thread):
            if dump.name == name or thread is not None:
                is_mixed |= thread is None and not dump.has_tail
                self._close(dump)
        dump = self._begin(number, thread)
        # What is listed now may be of the one before, if that was another process's.
        dump.name, dump.is_mixed = name, is_mixed
        rounded = log_lines.ROUNDED.search(found["rest"])
        dump.asked = LoggedBytes.read(rounded["size"] if rounded else found["size"])
        self._by(number, found, thread)

    def _by(self, number: int, found: re.Match[bytes], thread: Optional[bytes]) -> None:
        by = log_lines.BY_OP.search(found[0])
        if by is not None:
            self._current(number, thread).asked_by = _text(by["op"])

    def _dump(self, number: int, found: re.Match[bytes], thread: Optional[bytes]) -> None:
        name = _text(found["name"])
        dumps = [
            dump for dump in self._of(thread) if dump.name == name and not dump.size and not dump.has_head
        ]
        dump = self._touched(dumps[-1]) if dumps else self._begin(number, thread)
        dump.name, dump.has_head = name, True
        if b"Allocator:" in found[0]:
            dump.kind = ONNXRUNTIME

    def _bin(self, number: int, found: re.Match[bytes], thread: Optional[bytes]) -> None:
        dump = self._current(number, thread)
        if dump.size and dump.has_tail:
            self._close(dump)
            dump = self._begin(number, thread)
        dump.has_head = dump.has_head or not dump.size
        if found["ort"] is not None:
            dump.kind = ONNXRUNTIME

    def _region(self, number: int, found: re.Match[bytes], thread: Optional[bytes]) -> None:
        dumps = self._of(thread)
        # If several are written at once: the one whose region is full, starting with the one that waited longest.
        ready = [dump for dump in dumps if dump.is_region_full or not dump.size]
        dump = self._touched(ready[0]) if len(dumps) > 1 and ready else self._current(number, thread)
        if dump.has_tail and dump.size:
            self._close(dump)
            dump = self._begin(number, thread)
        dump.begin_region(int(found["size"]))

    def _sum(self, number: int, found: re.Match[bytes], thread: Optional[bytes]) -> None:
        dump = self._ended(number, thread)
        dump.sum_in_use, dump.has_tail = LoggedBytes.read(found["size"]), True

    def _pool(self, number: int, found: re.Match[bytes], thread: Optional[bytes]) -> None:
        dump = self._ended(number, thread)
        dump.has_tail = True
        for name, text in found.groupdict().items():
            if text is not None and name != "request":
                dump.amounts[name] = LoggedBytes.read(text)

    def _growth(self, number: int, found: re.Match[bytes], thread: Optional[bytes]) -> None:
        dump = self._ended(number, thread)
        dump.allow_growth = found["on"] == b"enabled"
        dump.amounts["next"] = LoggedBytes.read(found["next"])

    def _stats(self, number: int, found: re.Match[bytes], thread: Optional[bytes]) -> None:
        dump = self._ended(number, thread)
        dump.has_tail = dump.has_tail or bool(dump.size)
        for name in log_lines.STAT_NAMES:  # what came before was someone else's
            dump.amounts.pop(name, None)

    def _stat(self, number: int, found: re.Match[bytes], thread: Optional[bytes]) -> None:
        if log_lines.PLACE.search(found.string, 0, found.start()):
            return
        if thread is None and sum(dump.has_tail for dump in self._of(None)) > 1:
            return  # counters lack the thread: these may be of any dump that is at its end
        dump = self._ended(number, thread)
        if dump.is_among_chunks:
            return
        dump.amounts.setdefault(_text(found["name"]), LoggedBytes.read(found["value"]))

    def _bar(self, number: int, found: re.Match[bytes], thread: Optional[bytes]) -> None:
        dump = self._ended(number, thread)
        dump.bar = found["bar"].decode("ascii")
        dump.has_tail = dump.has_tail or bool(dump.size)
        self._close(dump)

    def _ended(self, number: int, thread: Optional[bytes]) -> Dump:
        # If several are written at once: one whose last region is full.
        dumps = self._of(thread)
        tails = [dump for dump in dumps if dump.has_tail] or [dump for dump in dumps if dump.is_region_full]
        return self._touched(tails[-1]) if len(dumps) > 1 and tails else self._current(number, thread)


Takers = Sequence[tuple[re.Pattern[bytes], Callable[[_Reader, int, re.Match[bytes], Optional[bytes]], None]]]
# Half of the lines of a dump with few chunks.
_OFTEN: Takers = ((log_lines.BIN, _Reader._bin), (log_lines.STAT, _Reader._stat))
_SELDOM: Takers = (
    (log_lines.OUT, _Reader._out),
    (log_lines.DUMP, _Reader._dump),
    (log_lines.REGION, _Reader._region),
    (log_lines.SUM, _Reader._sum),
    (log_lines.POOL, _Reader._pool),
    (log_lines.SUMMARY, _Reader._pool),
    (log_lines.GROWTH, _Reader._growth),
    (log_lines.STATS, _Reader._stats),
    (log_lines.BAR, _Reader._bar),
    (log_lines.BY_OP, _Reader._by),
)


def _text(words: bytes) -> str:
    return words.decode("utf-8", "surrogateescape").strip()
