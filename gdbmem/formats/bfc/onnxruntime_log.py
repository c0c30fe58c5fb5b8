"""onnxruntime's verbose log: the creation of its arenas, and each extension; the log never lists chunks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.formats.bfc import log_lines
from gdbmem.model.bfc.pools import ONNXRUNTIME, UNKNOWN, Allocator, Chunks, Counters, Options, Region
from gdbmem.records import dataclass, field
from gdbmem.text import plural, printable

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
