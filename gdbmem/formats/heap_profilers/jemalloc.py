"""jemalloc's heap_v2: sampled counts of each stack, by thread, and the process's memory map."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.addresses import Binary, Symbols, frames_of, parse_maps, wanted_of
from gdbmem.formats.heap_profilers.gperftools import unsample
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
from gdbmem.text import printable

_HEADER = re.compile(rb"heap_v2/([0-9]{1,18})\s*")
_COUNTS = re.compile(
    rb" *t(\*|[0-9]{1,20}): *(-?[0-9]{1,25}): *(-?[0-9]{1,25}) *\[ *(-?[0-9]{1,25}): *(-?[0-9]{1,25}) *\](?: .*)?"
)
# A stack with its counts as jemalloc writes them: most of a file. So few digits can't be too large a count.
_STACK = re.compile(
    rb"@((?: 0x[0-9a-f]{1,16})+)\n *t\*: ([0-9]{1,18}): ([0-9]{1,18}) \[([0-9]{1,18}): ([0-9]{1,18})\]\n"
    rb"(?: *t[0-9]{1,20}: [0-9]{1,18}: [0-9]{1,18} \[[0-9]{1,18}: [0-9]{1,18}\]\n)*"
)
_MAP_START = b"MAPPED_LIBRARIES:"
_EXPECTED = "'@ ADDRESSES', 't*: BLOCKS: BYTES [BLOCKS: BYTES]' or the memory map"
# The profiler's own frames stand at the top of every stack, in front of the function that was called. Where
# jemalloc is linked into the program, their names identify them.
_OWN = re.compile(
    r"(?:je_|jet_)?(?:prof|arena|tsd|tcache|imalloc|ialloc)_\w+|(?:je_)?(?:i?malloc_default|imalloc\w*|ialloc\w*)"
)


def read_jemalloc(data: Data, source: str, metric: Optional[str], symbols: Optional[Symbols]) -> StackProfile:
    """Read *data*; raises InputError for a line of another format."""
    first, newline, _ = bytes(data).partition(b"\n")
    header = _HEADER.fullmatch(first)
    if not newline:
        raise InputError(f"{printable(source)} was truncated in its first line", slug=TRUNCATED)
    if header is None:
        raise bad_line(source, 1, first, "'heap_v2/BYTES'")
    reader = _JemallocReader(bytes(data), source)
    reader.read()
    check_depth(max((len(row[0]) for row in reader.rows), default=0), source)
    rows, addresses, maps = reader.rows, reader.addresses, reader.maps
    rate = int(header[1])
    metrics = (IN_USE, ALLOCATED) if any(row[2][1] for row in rows) else (IN_USE,)
    chosen = choose_metric(metric, metrics, source)
    stacks = _stacks(rows, rate, chosen)
    hidden = _hidden(reader, stacks, chosen) if rate <= 1 else None
    lacks = reader.notices and _lacks_more(reader, chosen, is_counted=rate <= 1)
    return StackProfile(
        source=source,
        source_format="jemalloc",
        metric=chosen,
        metrics=metrics,
        total_bytes=total_of(stacks) + (hidden.bytes if hidden is not None else 0),
        load=lambda profile: _load(profile, stacks, addresses, maps, rate, symbols)._replace(hidden=hidden),
        wanted=lambda: wanted_of(addresses, parse_maps(maps)),
        notices=[one._replace(slug=BYTES_MISSING) for one in reader.notices] if lacks else reader.notices,
    )


_Counts = tuple[tuple[int, int], tuple[int, int]]  # blocks and bytes, in use and since the start
_Parsed = tuple[tuple[int, ...], tuple[int, int], tuple[int, int]]  # addresses by number, and counts


class _JemallocReader:
    def __init__(self, data: bytes, source: str) -> None:
        self.data, self.source = data, source
        self.rows: list[_Parsed] = []
        self.whole: Optional[_Counts] = None
        self.maps: list[bytes] = []
        self.notices: list[Notice] = []
        self._words = Numbers()
        self._stack: Optional[tuple[int, ...]] = None

    @property
    def addresses(self) -> list[int]:
        return [int(word, 16) for word in self._words]

    def read(self) -> None:
        """Read stacks in the usual form at once, and everything else line by line, which finds errors."""
        head = self.data.find(b"\n@") + 1
        if _MAP_START in self.data[:head]:
            head = 0
        if head:
            self._read_lines(1, self.data[:head].split(b"\n")[1:-1])
        end = self._read_stacks(head) if head else self.data.find(b"\n") + 1
        lines = self.data[end:].split(b"\n")
        first = self.data.count(b"\n", 0, end)
        if self._read_lines(first, lines[:-1]):
            self.maps.append(lines[-1])
        elif lines[-1].rstrip() != _MAP_START:
            where = f"{printable(self.source)} was truncated at line {first + len(lines) - (not lines[-1])}"
            self.notices.append(Notice(TRUNCATED, f"{where}: its memory map and maybe stacks are missing"))

    def _read_stacks(self, at: int) -> int:
        """Read them from *at* on; return where they end."""
        number = self._words.__getitem__
        while found := _STACK.match(self.data, at):
            words, blocks, size, all_blocks, all_size = found.groups()
            self._stack = tuple(map(number, words.split()))
            self.rows.append((self._stack, (int(blocks), int(size)), (int(all_blocks), int(all_size))))
            at = found.end()
        return at

    def _read_lines(self, before: int, lines: Sequence[bytes]) -> bool:
        """Read *lines*, which follow as many as *before*; return whether the memory map began."""
        for at, line in enumerate(lines):
            if line[:1] == b"@":
                try:
                    self._stack = tuple(map(self._words.__getitem__, line[1:].split()))
                except ValueError:
                    raise bad_line(self.source, before + at + 1, line, _EXPECTED) from None
            elif line.rstrip() == _MAP_START:
                self.maps = list(lines[at + 1 :])
                if any(line.startswith(b"heap_v2/") for line in self.maps):
                    raise several_dumps(self.source, "heap_v2")
                return True
            elif line.strip():
                self._count(line, before + at + 1)
        return False

    def _count(self, line: bytes, number: int) -> None:
        found = _COUNTS.fullmatch(line)
        if found is None:
            raise bad_line(self.source, number, line, _EXPECTED)
        # The lines of single threads repeat the sum; before the first stack stands the whole.
        if found[1] == b"*":
            counts = [check_count(int(count), self.source, number) for count in found.groups()[1:]]
            of_both = (counts[0], counts[1]), (counts[2], counts[3])
            if self._stack is None:
                self.whole = of_both
            else:
                self.rows.append((self._stack, *of_both))


def _hidden(reader: _JemallocReader, stacks: Sequence[Stack], metric: str) -> Optional[Hidden]:
    """Return what the stacks lack that a cut file leaves out, by the sum at its beginning."""
    if not reader.notices or reader.whole is None:
        return None
    blocks, size = reader.whole[0 if metric == IN_USE else 1]
    missing = size - total_of(stacks)
    return (
        Hidden(missing, blocks=max(blocks - sum(stack.blocks for stack in stacks), 0))
        if missing > 0
        else None
    )


def _lacks_more(reader: _JemallocReader, metric: str, *, is_counted: bool) -> bool:
    """Return whether a cut file may lack stacks whose bytes are not known."""
    at = 0 if metric == IN_USE else 1
    if reader.whole is None or is_counted:
        return reader.whole is None
    return sum(row[1 + at][1] for row in reader.rows) < reader.whole[at][1]


def _stacks(rows: Sequence[_Parsed], rate: int, metric: str) -> list[Stack]:
    stacks = []
    for addresses, in_use, allocated in rows:
        blocks, size = in_use if metric == IN_USE else allocated
        if rate <= 1:  # nothing was left out
            if size:
                stacks.append(Stack(addresses, size, blocks))
            continue
        estimate = unsample(blocks, size, rate)
        if estimate.bytes:
            stacks.append(Stack(addresses, estimate.bytes, estimate.blocks, estimate.variance))
    return stacks


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
    profile.add_notices(notices)
    linked_in = [all(_is_own(frame) for frame in chain) for chain in chains]
    own = [named or _is_library(memory_map.find(address - 1)) for address, named in zip(addresses, linked_in)]
    nameless = [all((frame.function or "0x").startswith("0x") for frame in chain) for chain in chains]
    stripped = [Stack(_strip(stack[0], own, linked_in, nameless), *stack[1:]) for stack in stacks]
    return Content(stripped, chains, is_sampled=rate > 1)


def _is_own(frame: Frame) -> bool:
    return frame.function is not None and _OWN.fullmatch(frame.function) is not None


def _is_library(place: Optional[tuple[Binary, int]]) -> bool:
    return place is not None and "libjemalloc" in place[0].path.rpartition("/")[2]


def _strip(
    frames: Sequence[int], own: Sequence[bool], linked_in: Sequence[bool], nameless: Sequence[bool]
) -> Sequence[int]:
    # The outermost of them is the function that the program called: malloc, operator new. Linked into the program
    # it may be one of jemalloc's own, where malloc ends in a jump. Debian's library is without symbols for the part
    # of it that samples: an address alone is useless.
    last, start = len(frames) - 1, 0
    while start < last and own[frames[start]] and (own[frames[start + 1]] or nameless[frames[start]]):
        start += 1
    return frames[start + 1 :] if start < last and linked_in[frames[start]] else frames[start:]
