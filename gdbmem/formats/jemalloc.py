"""jemalloc's heap_v2: sampled counts of each stack, by thread, and the process's memory map."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import InputError, Notice
from gdbmem.formats.addresses import Binary, Symbols, frames_of, parse_maps, wanted_of
from gdbmem.formats.massif_tree import Data
from gdbmem.formats.sampling import unsample
from gdbmem.formats.stacks import (
    ALLOCATED,
    IN_USE,
    Content,
    Numbers,
    Stack,
    StackProfile,
    bad_line,
    check_count,
    choose_metric,
    total_of,
)
from gdbmem.model.calltree import Frame
from gdbmem.text import printable

TRUNCATED = "profile-truncated"

_HEADER = re.compile(rb"heap_v2/([0-9]{1,18})\s*")
_COUNTS = re.compile(
    rb" *t(\*|[0-9]{1,20}): *(-?[0-9]{1,25}): *(-?[0-9]{1,25}) *\[ *(-?[0-9]{1,25}): *(-?[0-9]{1,25}) *\](?: .*)?"
)
_EXPECTED = "'@ ADDRESSES', 't*: BLOCKS: BYTES [BLOCKS: BYTES]' or the memory map"
# The profiler's own frames stand at the top of every stack, in front of the function that was called. Where
# jemalloc is linked into the program, their names tell.
_OWN = re.compile(
    r"(?:je_|jet_)?(?:prof|arena|tsd|tcache|imalloc|ialloc)_\w+|(?:je_)?(?:i?malloc_default|imalloc\w*|ialloc\w*)"
)


def read_jemalloc(data: Data, source: str, metric: Optional[str], symbols: Optional[Symbols]) -> StackProfile:
    """Read *data*; raises InputError for a line that is none of the format's."""
    lines = bytes(data).split(b"\n")
    header = _HEADER.fullmatch(lines[0])
    if header is None or len(lines) == 1:
        if len(lines) == 1:
            raise InputError(f"{printable(source)} was cut in its first line", slug=TRUNCATED)
        raise bad_line(source, 1, lines[0], "'heap_v2/BYTES'")
    rows, addresses, maps, notices = _parse(lines, source)
    rate = int(header[1])
    metrics = (IN_USE, ALLOCATED) if any(row[2][1] for row in rows) else (IN_USE,)
    chosen = choose_metric(metric, metrics, source)
    stacks = _stacks(rows, rate, chosen)
    return StackProfile(
        source=source,
        source_format="jemalloc",
        metric=chosen,
        metrics=metrics,
        total_bytes=total_of(stacks),
        load=lambda profile: _load(profile, stacks, addresses, maps, rate, symbols),
        wanted=lambda: wanted_of(addresses, parse_maps(maps)),
        notices=notices,
    )


_Parsed = tuple[
    tuple[int, ...], tuple[int, int], tuple[int, int]
]  # addresses by number, in use, since the start


def _parse(lines: Sequence[bytes], source: str) -> tuple[list[_Parsed], list[int], list[bytes], list[Notice]]:
    rows: list[_Parsed] = []
    words = Numbers()
    stack: Optional[tuple[int, ...]] = None
    last = len(lines) - 1
    for at in range(1, len(lines)):
        line = lines[at]
        if line.rstrip() == b"MAPPED_LIBRARIES:":
            return rows, _addresses(words), list(lines[at + 1 :]), []
        if at == last:
            break
        if line[:1] == b"@":
            try:
                stack = tuple(map(words.__getitem__, line[1:].split()))
            except ValueError:
                raise bad_line(source, at + 1, line, _EXPECTED) from None
            continue
        if not line.strip():
            continue
        counts = _COUNTS.fullmatch(line)
        if counts is None:
            raise bad_line(source, at + 1, line, _EXPECTED)
        # The lines of single threads repeat the sum; before the first stack stands the whole.
        if counts[1] == b"*" and stack is not None:
            blocks, size, all_blocks, all_size = (
                check_count(int(count), source, at + 1) for count in counts.groups()[1:]
            )
            rows.append((stack, (blocks, size), (all_blocks, all_size)))
    where = f"{printable(source)} was cut at line {last + bool(lines[last])}"
    return (
        rows,
        _addresses(words),
        [],
        [Notice(TRUNCATED, f"{where}: its memory map and maybe stacks are missing")],
    )


def _stacks(rows: Sequence[_Parsed], rate: int, metric: str) -> list[Stack]:
    stacks = []
    for addresses, in_use, allocated in rows:
        blocks, size = in_use if metric == IN_USE else allocated
        estimate = unsample(blocks, size, rate)
        if estimate.bytes:
            stacks.append(Stack(addresses, estimate.bytes, estimate.blocks, estimate.variance))
    return stacks


def _addresses(words: Numbers) -> list[int]:
    return [int(word, 16) for word in words]


def _load(
    profile: StackProfile,
    stacks: Sequence[Stack],
    addresses: Sequence[int],
    maps: Sequence[bytes],
    rate: int,
    symbols: Optional[Symbols],
) -> Content:
    memory_map = parse_maps(maps)
    chains, notices = frames_of(addresses, memory_map, symbols, profile.source)
    profile.notices += [notice for notice in notices if notice not in profile.notices]
    own = [
        _is_library(memory_map.find(address - 1)) or all(_is_own(frame) for frame in chain)
        for address, chain in zip(addresses, chains)
    ]
    stripped = [stack._replace(frames=_strip(stack.frames, own)) for stack in stacks]
    return Content(stripped, chains, is_sampled=rate > 1)


def _is_own(frame: Frame) -> bool:
    return frame.function is not None and _OWN.fullmatch(frame.function) is not None


def _is_library(place: Optional[tuple[Binary, int]]) -> bool:
    return place is not None and "libjemalloc" in place[0].path.rpartition("/")[2]


def _strip(frames: Sequence[int], own: Sequence[bool]) -> Sequence[int]:
    # The outermost of them is the function that the program called: malloc, operator new.
    start = 0
    while start < len(frames) - 1 and own[frames[start]] and own[frames[start + 1]]:
        start += 1
    return frames[start:]
