"""gperftools' legacy text format, also used by heap profiles of Go and others.

The first line has the totals, followed by one line per stack: blocks and bytes in use, and in brackets those since the
start; the process's memory map is last. gperftools 2.10 silently cuts the file at 1 MiB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.addresses import MemoryMap, Symbols, frames_of, parse_maps, wanted_of
from gdbmem.formats.stacks import (
    ALLOCATED,
    IN_USE,
    TRUNCATED,
    Content,
    Hidden,
    Numbers,
    Stack,
    StackProfile,
    bad_line,
    check_count,
    check_depth,
    choose_metric,
    several_dumps,
    total_of,
)
from gdbmem.model.calltree import BYTES_MISSING, Frame
from gdbmem.text import format_size, printable

# Counts of a sampled heap profile, scaled to what the program holds, with their standard errors.


class Estimate(NamedTuple):
    """The estimate that a number of sampled blocks stands for."""

    bytes: int
    blocks: int
    variance: float  # bytes²; its root is the standard error


def unsample(blocks: int, size_bytes: int, rate_bytes: int) -> Estimate:
    """Return what *blocks* sampled blocks of *size_bytes* together stand for.

    *rate_bytes* is the mean distance between two samples (a Poisson process); at 1 or below nothing was
    left out. A block of s bytes is sampled with the probability p = 1 - exp(-s / rate), so each stands for 1 / p
    blocks; the estimate's variance is the sum of (s / p)² (1 - p).
    """
    if rate_bytes <= 1 or blocks <= 0 or size_bytes <= 0:
        return Estimate(size_bytes, blocks, 0.0)
    average = size_bytes / blocks
    share = -math.expm1(-average / rate_bytes)
    estimated = average / share
    # Cut, not rounded, as pprof and jeprof do: the totals of the three are equal.
    scale = 1.0 / share
    return Estimate(
        int(size_bytes * scale), int(blocks * scale), blocks * estimated * estimated * (1.0 - share)
    )


_NUMBERS = rb"\s*(-?[0-9]{1,25}): *(-?[0-9]{1,25}) *\[ *(-?[0-9]{1,25}): *(-?[0-9]{1,25}) *\] *@"
_HEADER = re.compile(
    rb"heap profile:" + _NUMBERS + rb" *(heap[_a-z0-9]*|growthz?|fragmentationz?)/?([0-9]{0,18}) *"
)
_ROW = re.compile(_NUMBERS)
_EXPECTED = "'BLOCKS: BYTES [BLOCKS: BYTES] @ ADDRESSES' or the memory map"
_PAGE_BYTES = 4096
_MAP_START = (b"MAPPED_LIBRARIES:", b"--- Memory map: ---")
# Go writes its symbols after each stack, and its memory statistics at the end.
_GO_FRAME = re.compile(rb"#\t0x([0-9a-f]{1,16})\t(.+?)(?:\+0x[0-9a-f]+)?\t+(.*?)(?::(\d{1,9}))?\s*")
_SYMBOL_ADDRESS = re.compile(r"<[0-9a-f]{8,16}>$")  # of the symbol itself, from nm
_SYMBOL = re.compile(rb"0x([0-9a-f]{1,16}) (.*)")


class _StackRow(NamedTuple):
    addresses: tuple[int, ...]  # numbers in _Text.words
    in_use: tuple[int, int]  # blocks, bytes
    allocated: tuple[int, int]


class _GperftoolsText:
    # Everything that is in the file, as it stands there.

    def __init__(
        self, kind: str, rate: int, header: tuple[int, int, int, int], named: dict[int, list[Frame]]
    ) -> None:
        self.kind, self.rate, self.header, self.named = kind, rate, header, named
        self.rows: list[_StackRow] = []
        self.words = Numbers()
        self.maps: list[bytes] = []
        self.has_maps = False
        self.is_go = False  # and names what it wants to show itself
        self.cut_at: Optional[int] = None  # the number of the last line, which is not whole


def read_gperftools(
    data: Data, source: str, metric: Optional[str], symbols: Optional[Symbols]
) -> StackProfile:
    """Read *data*; raises InputError for a line of another format."""
    text = _parse(bytes(data), source)
    chosen = choose_metric(metric, (IN_USE, ALLOCATED), source)
    said = _count_mappings(text, source)
    stacks, addresses = _stacks(text, chosen)
    listed = total_of(stacks)
    hidden, notices = _hidden(text, chosen, source)
    return StackProfile(
        source=source,
        source_format="gperftools",
        metric=chosen,
        metrics=(IN_USE, ALLOCATED),
        total_bytes=listed + (hidden.bytes if hidden else 0),
        load=lambda profile: _load(profile, text, stacks, addresses, hidden, symbols),
        wanted=lambda: wanted_of(_unnamed(text, addresses), parse_maps(text.maps)),
        notices=[*said, *notices],
    )


def _parse(data: bytes, source: str) -> _GperftoolsText:
    named, start, skipped = _symbol_section(data)
    lines = data[start:].split(b"\n")
    match = _HEADER.fullmatch(lines[0].rstrip())
    if match is None:
        if len(lines) == 1:
            raise InputError(f"{printable(source)} was truncated in its first line", slug=TRUNCATED)
        raise bad_line(source, skipped + 1, lines[0], "'heap profile: BLOCKS: BYTES [BLOCKS: BYTES] @ KIND'")
    kind, period = match[5].decode(), int(match[6] or 0)
    counts = [check_count(int(match[n]), source, skipped + 1) for n in range(1, 5)]
    # Go writes twice its rate; the others the rate itself.
    rate = {"heap": period // 2, "heap_v2": period, "heapz_v2": period}.get(kind, 0)
    text = _GperftoolsText(kind, rate, (counts[0], counts[1], counts[2], counts[3]), named)
    _parse_rows(text, lines, skipped, source)
    _drop_cut_row(text)
    return text


def _drop_cut_row(text: _GperftoolsText) -> None:
    # If gperftools runs out of room, the last stack may lack its outer frames.
    listed = sum(row.allocated[1] for row in text.rows)
    if text.kind == "heapprofile" and text.rows and listed < text.header[3]:
        text.rows.pop()


def _symbol_section(data: bytes) -> tuple[dict[int, list[Frame]], int, int]:
    if not data.startswith(b"--- symbol"):
        return {}, 0, 0
    start = data.find(b"heap profile: ")
    start = len(data) if start < 0 else start
    return symbol_section(data[:start]), start, data.count(b"\n", 0, start)


def symbol_section(data: bytes) -> dict[int, list[Frame]]:
    """Return the frames of each address that `pprof --raw` names in front: ``0xADDRESS outer--inner``."""
    named = {}
    for line in data.split(b"\n"):
        match = _SYMBOL.fullmatch(line.rstrip())
        if match:
            names = match[2].decode("utf-8", "surrogateescape").split("--")
            chain = [Frame(_SYMBOL_ADDRESS.sub("", name), inlined=True) for name in reversed(names)]
            chain[-1] = chain[-1]._replace(inlined=False)
            named[int(match[1], 16)] = chain
    return named


def _parse_rows(text: _GperftoolsText, lines: Sequence[bytes], skipped: int, source: str) -> None:
    last = len(lines) - 1
    for at in range(1, len(lines)):
        line = lines[at]
        match = _ROW.match(line)
        if match is not None and at < last:
            text.rows.append(_row(match, line, text.words, source, skipped + at + 1))
        elif not line.strip() and at < last:
            continue
        elif line.rstrip() in _MAP_START:
            text.maps, text.has_maps = list(lines[at + 1 :]), True
            if any(line.startswith(b"heap profile:") for line in text.maps):
                raise several_dumps(source, "heap profile:")
            return
        elif at == last:
            text.cut_at = skipped + at + (1 if line else 0)
        elif line.startswith(b"#"):
            _go_comment(text, line)
        else:
            raise bad_line(source, skipped + at + 1, line, _EXPECTED)


def _row(match: re.Match[bytes], line: bytes, words: Numbers, source: str, number: int) -> _StackRow:
    counts = [check_count(int(count), source, number) for count in match.groups()]
    try:
        addresses = tuple(map(words.__getitem__, line[match.end() :].split()))
    except ValueError:
        raise bad_line(source, number, line, _EXPECTED) from None
    check_depth(len(addresses), source, number)
    return _StackRow(addresses, (counts[0], counts[1]), (counts[2], counts[3]))


def _go_comment(text: _GperftoolsText, line: bytes) -> None:
    text.has_maps = text.has_maps or line.startswith(b"# runtime.MemStats")  # what Go ends with instead
    match = _GO_FRAME.fullmatch(line)
    if match is None:
        return
    text.is_go = True
    function, file = (match[n].decode("utf-8", "surrogateescape") for n in (2, 3))
    frame = Frame(function=function, file=file or None, line=int(match[4]) if match[4] else None)
    # It names the address of the call, one byte before the return address in the stack.
    chain = text.named.setdefault(int(match[1], 16) + 1, [])
    # An address is explained at each of its stacks; inlined calls have it in several lines of one.
    if frame not in chain:
        chain.append(frame)


def _stacks(text: _GperftoolsText, metric: str) -> tuple[list[Stack], list[int]]:
    rows = [(row.addresses, *(row.in_use if metric == IN_USE else row.allocated)) for row in text.rows]
    stacks = []
    numbers = [int(word, 16) for word in text.words]
    unnamed = {n for n, address in enumerate(numbers) if text.is_go and _named(text, address) is None}
    for addresses, blocks, size in _alike(rows) if text.rate > 1 else rows:
        if blocks == 0 and size == 0:
            continue
        estimate = unsample(blocks, size, text.rate)
        path = _within(addresses, unnamed)
        stacks.append(Stack(path, estimate.bytes, estimate.blocks, estimate.variance))
    return stacks, numbers


def _within(path: Sequence[int], unnamed: Container[int]) -> Sequence[int]:
    # Go names neither its own allocator, at one end, nor goexit at the other.
    listed = [at for at, number in enumerate(path) if number not in unnamed]
    return path[listed[0] : listed[-1] + 1] if listed else path


def _alike(rows: Sequence[tuple[Sequence[int], int, int]]) -> Iterable[tuple[Sequence[int], int, int]]:
    """Return *rows* (addresses, blocks, bytes), those of one stack and one size of blocks as one.

    tcmalloc writes a row for each sample, whose estimate would be rounded separately.
    """
    sums: dict[tuple[tuple[int, ...], float], tuple[int, int]] = {}
    for addresses, blocks, size in rows:
        key = tuple(addresses), size / blocks if blocks else 0.0
        known = sums.get(key, (0, 0))
        sums[key] = known[0] + blocks, known[1] + size
    return ((addresses, *counts) for (addresses, _), counts in sums.items())


def _count_mappings(text: _GperftoolsText, source: str) -> list[Notice]:
    """Count the mappings of HEAP_PROFILE_MMAP, which the first line of gperftools 2.10 leaves out, in *text*.

    Those in which tcmalloc keeps the blocks that are listed as well are taken out.
    """
    beyond = _beyond_header(text)
    if text.kind != "heapprofile" or min(beyond) < 0 or not beyond[3]:
        return []
    memory_map, words = parse_maps(text.maps), list(text.words)
    own = [
        row
        for row in text.rows
        if row.addresses and _is_tcmalloc(memory_map, int(words[row.addresses[0]], 16))
    ]
    if not own or beyond[1] % _PAGE_BYTES or beyond[3] % _PAGE_BYTES:
        return []  # _hidden() refuses it
    name = printable(source)
    if not any(text.header):
        text.header = beyond
        said = f"{name} lists mapped memory only (HEAP_PROFILE_ONLY_MMAP), tcmalloc's own heap included"
        return [Notice("lists-mappings", said)]
    kept = sum(row.in_use[1] for row in own)
    text.rows = [row for row in text.rows if row not in own]
    beyond = _beyond_header(text)
    if min(beyond) < 0:
        return []
    text.header = (
        text.header[0] + beyond[0], text.header[1] + beyond[1], text.header[2] + beyond[2], text.header[3] + beyond[3]
    )  # fmt: skip
    said = f"{name} lists mapped memory too (HEAP_PROFILE_MMAP): {format_size(beyond[1])} that the program mapped are"
    said += f" counted; {format_size(kept)} that tcmalloc mapped are not, for they hold the blocks"
    return [Notice("lists-mappings", said)]


def _beyond_header(text: _GperftoolsText) -> tuple[int, int, int, int]:
    """Return how much the rows list more than the first line counts."""
    listed = [[*row.in_use, *row.allocated] for row in text.rows]
    found = [sum(column) - told for column, told in zip(zip(*listed), text.header)]
    return (found[0], found[1], found[2], found[3]) if found else (0, 0, 0, 0)


def _is_tcmalloc(memory_map: MemoryMap, address: int) -> bool:
    place = memory_map.find(address - 1)
    return place is not None and "libtcmalloc" in place[0].path.rpartition("/")[2]


def _hidden(text: _GperftoolsText, metric: str, source: str) -> tuple[Optional[Hidden], list[Notice]]:
    at = (0, 1) if metric == IN_USE else (2, 3)
    rows = [row.in_use if metric == IN_USE else row.allocated for row in text.rows]
    missing = text.header[at[1]] - sum(size for _, size in rows)
    exact = text.rate <= 1
    if missing < 0 and exact:
        raise InputError(
            f"the stacks of {printable(source)} hold {-missing} bytes more than its first line counts",
            slug="totals-differ",
            hint="the file is damaged, or two were joined, or HEAP_PROFILE_MMAP was set and its mappings can't be told"
            " from blocks: leave it out",
        )
    if not (missing > 0 and exact) and text.cut_at is None and text.has_maps:
        return None, []
    if missing > 0 and not exact:
        text_of = f"{printable(source)} was truncated: samples are missing, and their bytes are unknown"
        return None, [Notice(BYTES_MISSING, text_of)]
    return _cut(text, max(missing, 0), sum(blocks for blocks, _ in rows), at, source)


def _cut(
    text: _GperftoolsText, missing: int, listed_blocks: int, at: tuple[int, int], source: str
) -> tuple[Optional[Hidden], list[Notice]]:
    blocks, size = (text.header[n] for n in at)
    notices = []
    name = printable(source)
    if missing > 0:
        text_of = f"{name} was truncated: {100 * missing / size:.1f} % of its bytes and {blocks - listed_blocks:,} of"
        notices.append(
            Notice(
                TRUNCATED,
                f"{text_of} its {blocks:,} blocks are in no stack (gperftools 2.10 writes 1 MiB at most)",
            )
        )
    elif text.cut_at is not None and not text.has_maps:
        notices.append(
            Notice(TRUNCATED, f"{name} was truncated at line {text.cut_at}, its memory map is missing")
        )
    # Rows are in the order of all bytes ever allocated: no later row would hold more than the last one.
    largest = text.rows[-1].allocated[1] if text.rows and text.kind == "heapprofile" else 0
    if text.rows and any(row.allocated[1] < largest for row in text.rows):
        largest = 0  # later gperftools write them in no order
    hidden = Hidden(missing, largest, max(blocks - listed_blocks, 0)) if missing > 0 else None
    return hidden, notices


def _unnamed(text: _GperftoolsText, addresses: Sequence[int]) -> list[int]:
    return [address for address in addresses if _named(text, address) is None]


def _named(text: _GperftoolsText, address: int) -> Optional[Sequence[Frame]]:
    # Some name the address of the call, one byte before the return address in the stack.
    return text.named.get(address) or text.named.get(address - 1)


def _load(
    profile: StackProfile,
    text: _GperftoolsText,
    stacks: Sequence[Stack],
    addresses: Sequence[int],
    hidden: Optional[Hidden],
    symbols: Optional[Symbols],
) -> Content:
    unnamed = _unnamed(text, addresses)
    chains, notices = frames_of(unnamed, parse_maps(text.maps), symbols, profile.source)
    found = dict(zip(unnamed, chains))
    profile.add_notices(notices)
    return Content(
        stacks=stacks,
        chains=[_named(text, address) or found[address] for address in addresses],
        is_sampled=text.rate > 1,
        hidden=hidden,
    )
