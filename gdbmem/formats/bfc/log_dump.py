"""Gather one dump of an allocator line by line, and determine the known parts if lines are missing."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Callable, NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.formats.bfc import log_lines
from gdbmem.formats.bfc.log_lines import parse_quantity
from gdbmem.model import bfc
from gdbmem.text import format_size, plural, printable

LAST = (1 << 64) - 1  # the handle that the last chunk of a region names as next
_TAGS = {b"lower": bfc.LOWER, b"upper": bfc.UPPER, b"gap": bfc.GAP, b"central gap": bfc.GAP}
_LARGEST = 1 << 62
_FEWEST_AMOUNTS = 3  # a dump has as many, or other lines


class LoggedBytes(NamedTuple):
    """Bytes from a log; rounding may have changed them by *error_bytes*."""

    size_bytes: int
    error_bytes: int = 0

    @staticmethod
    def read(text: bytes) -> LoggedBytes:
        size, error = parse_quantity(text)
        return LoggedBytes(min(size, 1 << 63), error)

    def agrees(self, other_bytes: int) -> bool:
        return abs(self.size_bytes - other_bytes) <= self.error_bytes


@dataclass
class Dump:
    """The part of one dump that has been read."""

    line: int  # where it begins
    name: str = ""
    kind: str = bfc.TENSORFLOW
    has_head: bool = False  # what stands before the first chunk was seen
    asked: Optional[LoggedBytes] = None
    asked_by: str = ""
    address: array[int] = field(default_factory=lambda: array("Q"))
    size: array[int] = field(default_factory=lambda: array("Q"))
    state: bytearray = field(default_factory=bytearray)
    owner: array[int] = field(default_factory=lambda: array("I"))
    owners: dict[str, int] = field(default_factory=lambda: {"": 0})
    tags: bytearray = field(default_factory=bytearray)
    freed: array[int] = field(default_factory=lambda: array("Q"))
    starts: list[tuple[int, Optional[int]]] = field(default_factory=list)  # first chunk, bytes if known
    expected: Optional[int] = None  # the address of the next chunk, if nothing is missing
    is_region_full: bool = False
    has_tail: bool = False  # what stands behind the last chunk was seen
    is_mixed: bool = False  # maybe with one of the same name: it began before that had ended
    has_damage: bool = False  # lines that contradict each other
    sum_in_use: Optional[LoggedBytes] = None
    # Of the lines behind: pool, limit, available, next, …
    amounts: dict[str, LoggedBytes] = field(default_factory=dict)
    allow_growth: Optional[bool] = None
    bar: str = ""
    last_line: int = 0

    # --- lines

    def begin_region(self, size_bytes: int) -> None:
        self.starts.append((len(self.size), size_bytes))
        self.expected, self.is_region_full, self.has_head = None, False, True

    def add_chunk(
        self, address: int, size_bytes: int, is_free: bool, rest: bytes, old_next: Optional[bytes]
    ) -> None:
        if address != self.expected:
            begins = bool(self.starts) and self.starts[-1][0] == len(self.size)
            if not begins:
                self.starts.append((len(self.size), None))
        self.address.append(address)
        self.size.append(size_bytes)
        self.state.append(bfc.FREE if is_free else bfc.IN_USE)
        self.expected = address + size_bytes
        following = old_next
        if len(rest) > 2 and b" next " in rest:
            found = log_lines.CHUNK_NEXT.match(rest)
            following = found[1] if found else following
        self.is_region_full = following is not None and int(following) in (LAST, (1 << 32) - 1)
        if self.is_region_full:
            self.expected = None
        self._add_details(rest)

    def _add_details(self, rest: bytes) -> None:
        owner, freed = 0, 0
        if b"op " in rest or b"annotation" in rest or b" tag " in rest or b"freed" in rest:
            by = log_lines.CHUNK_OP.search(rest) or log_lines.CHUNK_ANNOTATION.search(rest)
            if by is not None:
                owner = self.owners.setdefault(
                    by[1].decode("utf-8", "surrogateescape").strip(), len(self.owners)
                )
            found = log_lines.CHUNK_TAG.search(rest)
            if found is not None:
                self.tags.extend(bytes([bfc.LOWER]) * (len(self.size) - 1 - len(self.tags)))
                self.tags.append(_TAGS[found[1]])
            count = log_lines.CHUNK_FREED.search(rest)
            freed = min(int(count[1]), _LARGEST) if count else 0
        self.owner.append(owner)
        self.freed.append(freed)

    # --- what it is

    @property
    def has_anything(self) -> bool:
        listed = self.size or self.starts or self.bar or self.asked is not None
        return bool(listed) or len(self.amounts) >= _FEWEST_AMOUNTS

    @property
    def is_stray(self) -> bool:
        """True if it is only a line or two that resemble an allocator's."""
        return bool(self.amounts) and not (self.has_anything or self.has_head)

    @property
    def is_among_chunks(self) -> bool:
        """True if more chunks have to follow."""
        return bool(self.starts) and not (self.has_tail or self.is_region_full)

    def allocator(self, source: str) -> bfc.Allocator:
        """Return what was read, and whether that is all of it."""
        regions, has_gaps = self._regions()
        in_use = sum(size for size, state in zip(self.size, self.state) if state == bfc.IN_USE)
        pool = sum(region.size_bytes for region in regions)
        told_in_use = self.sum_in_use or self.amounts.get("InUse")
        is_whole = (
            bool(self.size) and self.has_head and self.has_tail and not has_gaps and not self.has_damage
        )
        is_whole = is_whole and (told_in_use is None or told_in_use.agrees(in_use))
        told_pool = self.amounts.get("pool")
        is_whole = is_whole and (told_pool is None or told_pool.agrees(pool))
        limit = self._limit(pool if is_whole else None)
        next_region = self.amounts.get("next")
        mixed = self._mixed(source)
        return bfc.Allocator(
            name=self.name,
            class_name="onnxruntime::BFCArena" if self.kind == bfc.ONNXRUNTIME else "BFCAllocator",
            kind=self.kind,
            source=f"{source}, line {self.line}",
            regions=regions,
            chunks=self._chunks(),
            limit_bytes=limit,
            options=bfc.Options(
                allow_growth=self.allow_growth,
                next_region_bytes=None if next_region is None else next_region.size_bytes,
            ),
            counters=self._counters(in_use if is_whole else None, pool if is_whole else None),
            layout="log",
            is_complete=is_whole,
            regions_known=all(size is not None for _, size in self.starts),
            bar=self.bar,
            asked_bytes=None if self.asked is None or mixed else self.asked.size_bytes,
            asked_by="" if mixed else self.asked_by,
            notices=[*mixed, *(self._notices(in_use, told_in_use, source) if not is_whole else ())],
        )

    def _chunks(self) -> bfc.Chunks:
        tags = (
            bytes(self.tags) + bytes([bfc.LOWER]) * (len(self.size) - len(self.tags)) if self.tags else None
        )
        return bfc.Chunks(
            self.address,
            self.size,
            bytes(self.state),
            freed_at=self.freed if any(self.freed) else None,
            tag=tags,
            owner=self.owner if len(self.owners) > 1 else None,
            owners=list(self.owners),
        )

    def _regions(self) -> tuple[Sequence[bfc.Region], bool]:
        regions, has_gaps = [], False
        for (first, told), (end, _) in zip(self.starts, [*self.starts[1:], (len(self.size), None)]):
            held = sum(self.size[first:end])
            has_gaps |= told is not None and told != held
            address = self.address[first] if first < end else 0
            regions.append(bfc.Region(address, told if told is not None else held, first, end - first))
        if any(told is not None for _, told in self.starts):  # then each of them is reported
            has_gaps |= any(told is None for _, told in self.starts)
        return regions, has_gaps

    def _limit(self, pool_bytes: Optional[int]) -> Optional[int]:
        """Return the limit, or the sum of the chunks if the rounded limit leaves nothing; None if unknown."""
        limit = self.amounts.get("Limit") or self.amounts.get("limit")
        other = self.amounts.get("limit")
        if limit is not None and other is not None and other.error_bytes < limit.error_bytes:
            limit = other
        available = self.amounts.get("available")
        if limit is None:
            return None
        if pool_bytes is not None and limit.size_bytes + limit.error_bytes < pool_bytes:
            return None  # one of them is not this allocator's
        is_used_up = available is not None and not available.size_bytes
        if pool_bytes is not None and is_used_up and limit.agrees(pool_bytes):
            return pool_bytes
        return limit.size_bytes

    def _counters(self, in_use: Optional[int], pool: Optional[int]) -> bfc.Counters:
        def told(*names: str) -> Optional[int]:
            found = next((self.amounts[name] for name in names if name in self.amounts), None)
            return None if found is None else found.size_bytes

        counted = in_use if in_use is not None else told("InUse")
        if counted is None and self.sum_in_use is not None:
            counted = self.sum_in_use.size_bytes
        limit, available = told("limit", "Limit"), told("available")
        if pool is None:
            pool = told("pool")
        if pool is None and limit is not None and available is not None:
            pool = max(0, limit - available)
        return bfc.Counters(
            in_use_bytes=counted,
            peak_in_use_bytes=self._peak(in_use),
            pool_bytes=pool,
            allocations=told("NumAllocs"),
            largest_allocation_bytes=told("MaxAllocSize"),
        )

    def _peak(self, in_use: Optional[int]) -> Optional[int]:
        peak = self.amounts.get("MaxInUse")
        if peak is None:
            return None
        return in_use if in_use is not None and peak.agrees(in_use) else peak.size_bytes

    def _mixed(self, source: str) -> Sequence[Notice]:
        if not self.is_mixed or self.asked is None or not (self.has_head or self.size):
            return ()
        name, asked = printable(self.name), format_size(self.asked.size_bytes)
        text = (
            f"the request of {asked} at {printable(source)}, line {self.line} came before the dump of another"
        )
        text += f" allocator named {name} had ended: which dump is of which request is unknown"
        return [Notice("pool-log-mixed", f"{text}; log each process to a file of its own, or with a prefix")]

    def _notices(self, in_use: int, told: Optional[LoggedBytes], source: str) -> Sequence[Notice]:
        where = f"the dump at {printable(source)}, line {self.line}"
        if not self.size:
            text = f"{where} has no chunks: TF_CPP_MIN_LOG_LEVEL above 0 suppresses its lines"
            return [Notice("pool-log-no-chunks", f"{text}, or they were left out")]
        listed = f"{plural(len(self.size), 'chunk')}, {format_size(in_use)} of them in use"
        of = f", of {format_size(told.size_bytes)} that the allocator counts" if told is not None else ""
        return [Notice("pool-log-cut", f"{where} is incomplete: it lists {listed}{of}")]


# PyTorch's sentence about a refused request: it holds the account of the device, in the words of each release.


_SIZE = rb"(-?[0-9.]{1,30} ?(?:bytes|[KMGTPE]?i?B))"
_AMOUNTS = {
    "asked": rb"Tried to allocate " + _SIZE,
    "capacity": rb"total capaci?ty of " + _SIZE + rb"|; " + _SIZE + rb" total capacity",
    "free": rb"of which " + _SIZE + rb" is free|; " + _SIZE + rb" free",
    "allowed": rb"(?<=[ .])" + _SIZE + rb" allowed;|max allowed: " + _SIZE,
    "own": rb"this process has " + _SIZE + rb" memory in use",
    "other": rb"other allocations: " + _SIZE,
    "allocated": rb"allocated memory "
    + _SIZE
    + rb" is allocated by PyTorch|; "
    + _SIZE
    + rb" already allocated"
    rb"|MPS allocated: " + _SIZE,
    "private": rb"with " + _SIZE + rb" allocated in private pools",
    "unused": rb"and " + _SIZE + rb" is reserved by PyTorch but unallocated|; " + _SIZE + rb" cached\)",
    "reserved": rb"; " + _SIZE + rb" reserved in total by PyTorch",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _AMOUNTS.items()}
_PROCESS = re.compile(rb"Process ([0-9]{1,10}) has " + _SIZE + rb" memory in use")


def read_account(sentence: bytes) -> Optional[bfc.TorchAccount]:
    """Return the amounts in *sentence*; None if it is not PyTorch's, or has none but the request."""
    found = {name: _bytes_of(pattern.search(sentence)) for name, pattern in _PATTERNS.items()}
    asked, allocated = found["asked"], found["allocated"]
    if asked is None or allocated is None:
        return None
    unused, reserved = found["unused"], found["reserved"]
    if unused is None and reserved is not None:
        unused = max(reserved - allocated, 0)
    own = found["own"]
    if own is None and found["other"] is not None:
        own = allocated + found["other"]
    others = [(int(match[1]), LoggedBytes.read(match[2]).size_bytes) for match in _PROCESS.finditer(sentence)]
    return bfc.TorchAccount(
        asked,
        allocated,
        unused,
        found["capacity"],
        found["free"],
        found["allowed"],
        own,
        found["private"],
        others,
    )


def _bytes_of(match: Optional[re.Match[bytes]]) -> Optional[int]:
    if match is None:
        return None
    text = next(group for group in match.groups() if group is not None)
    return LoggedBytes.read(text.replace(b" bytes", b"")).size_bytes


# Refusals without a dump: a device that has no memory for CUDA's context or a region, one sentence of a framework.


_MOST = 1000
_LONGEST = 600
_ROUNDING = 1.01  # a pool rounds requests up
# TensorFlow's types whose size their names do not have.
_TYPE_BYTES = {"float": 4, "double": 8, "half": 2, "bool": 1, "variant": 0, "resource": 0, "string": 0}
_BITS = re.compile(r"[a-z_]*?(\d+)")


class Refusals:
    """All of one log; those of the same words in a row are one."""

    def __init__(self) -> None:
        self._found: list[bfc.Refusal] = []
        self._allocators: dict[int, str] = {}  # of tensors, by the place in _found
        self._last_sentence = b""

    def feed(self, number: int, body: bytes) -> bool:
        """Take the line *body* if it reports a refusal."""
        for words, pattern, read in _KINDS:
            if any(word in body for word in words):
                found = pattern.match(body)
                if found is not None:
                    text = body[:_LONGEST].decode("utf-8", "surrogateescape").strip()
                    self._add(read(found)._replace(line=number, text=text), found)
                    self._last_sentence = _sentence(body)
                    return True
        return False

    def _add(self, refusal: bfc.Refusal, found: re.Match[bytes]) -> None:
        last = self._found[-1] if self._found else None
        if last is not None and self._is_again(last, refusal, found.string):
            self._found[-1] = last._replace(times=last.times + 1)
        elif len(self._found) < _MOST:
            if "name" in found.groupdict():
                self._allocators[len(self._found)] = (
                    found["name"].decode("utf-8", "surrogateescape").rstrip(".,;")
                )
            self._found.append(refusal)

    def _is_again(self, last: bfc.Refusal, refusal: bfc.Refusal, body: bytes) -> bool:
        if last.by != refusal.by:
            return False
        if refusal.backs_off:  # asks for a tenth less each time
            is_less = bool(last.size_bytes and refusal.size_bytes and refusal.size_bytes < last.size_bytes)
            return last.backs_off and is_less and _without_sizes(last.text) == _without_sizes(refusal.text)
        # An exception is printed again by those who pass it on, with other words in front.
        return last.size_bytes == refusal.size_bytes and self._last_sentence == _sentence(body)

    def found(self, allocators: Sequence[bfc.Allocator]) -> Sequence[bfc.Refusal]:
        """Return them in the order of the log, without the consequences of what the dumps of *allocators* explain."""
        return [one for at, one in enumerate(self._found) if not self._is_explained(at, one, allocators)]

    def _is_explained(self, at: int, refusal: bfc.Refusal, allocators: Sequence[bfc.Allocator]) -> bool:
        name = self._allocators.get(at)
        if name is None and refusal.by != _FRAMEWORK:
            return False
        asked = [one for one in allocators if one.asked_bytes is not None and name in (None, one.name)]
        size = refusal.size_bytes
        return any(size is None or size <= (one.asked_bytes or 0) <= size * _ROUNDING + 256 for one in asked)


def _sentence(body: bytes) -> bytes:
    """Return what *body* says of a refusal, without the words of those who pass it on."""
    at = body.find(b"out of memory")
    return body[max(at, 0) :].strip()


def _without_sizes(text: str) -> str:
    return re.sub(r"[0-9.]+ ?[KMGT]?i?B?", "", text)


_DEVICE, _FRAMEWORK = "the device", "the framework"


def _size_of(found: re.Match[bytes]) -> Optional[int]:
    return LoggedBytes.read(found["size"]).size_bytes if found["size"] else None


def _of_driver(found: re.Match[bytes]) -> bfc.Refusal:
    size = log_lines.parse_counter(found["bytes"]) if found["bytes"] else _size_of(found)
    return bfc.Refusal(0, "", size, backs_off=True)


def _of_torch(found: re.Match[bytes]) -> bfc.Refusal:
    """Return PyTorch's refusal: by the device, unless its sentence has a limit of the process's own that is reached."""
    size, account = _size_of(found), read_account(found.string)
    limits = log_lines.TORCH_ALLOWED.match(found.string)
    if limits is None or (account is not None and not account.is_limited):
        return bfc.Refusal(0, "", size, account=account)
    name = "PYTORCH_MPS_HIGH_WATERMARK_RATIO" if limits["watermark"] else "set_per_process_memory_fraction()"
    allowed = (limits["watermark"] or limits["allowed"]).decode("ascii", "replace")
    return bfc.Refusal(0, "", size, by=f"the process's own limit of {allowed} ({name})", account=account)


def _of_host(found: re.Match[bytes]) -> bfc.Refusal:
    return bfc.Refusal(0, "", _size_of(found), by="the machine's own memory")


def _of_framework(found: re.Match[bytes]) -> bfc.Refusal:
    return bfc.Refusal(0, "", _size_of(found), by=_FRAMEWORK)


def _of_tensor(found: re.Match[bytes]) -> bfc.Refusal:
    lengths = [int(word) for word in found["shape"].replace(b" ", b"").split(b",") if len(word) < 20 and word]
    name = found["type"].decode("ascii", "replace")
    bits = _BITS.fullmatch(name)
    width = int(bits[1]) // 8 if bits else _TYPE_BYTES.get(name, 0)
    size = math.prod(lengths) * width
    owner = printable(found["name"].decode("utf-8", "surrogateescape")).rstrip(".,;")
    return bfc.Refusal(0, "", size if 0 < size < 1 << 62 else None, by=f"the pool of {owner}")


_Reader = Callable[[re.Match[bytes]], bfc.Refusal]
_KINDS: Sequence[tuple[Sequence[bytes], re.Pattern[bytes], _Reader]] = (
    ((b"CUDA_ERROR_OUT_OF_MEMORY",), log_lines.DEVICE, _of_driver),
    ((b"Tried to allocate",), log_lines.TORCH, _of_torch),
    (
        (b"out of memory", b"cudaErrorMemory", b"hipErrorOut"),
        log_lines.BARE,
        lambda f: bfc.Refusal(0, "", _size_of(f)),
    ),
    ((b"DefaultCPUAllocator",), log_lines.HOST, _of_host),
    ((b"RESOURCE_EXHAUSTED",), log_lines.XLA, _of_framework),
    ((b"OOM when",), log_lines.TENSOR, _of_tensor),
    ((b"cu", b"CUDA", b"StreamExecutor"), log_lines.CONTEXT, lambda _: bfc.Refusal(0, "")),
)
