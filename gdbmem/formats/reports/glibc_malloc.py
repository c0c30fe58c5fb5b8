"""The reports of glibc's malloc on itself: malloc_info's XML, malloc_stats' text, mtrace's lines.

Source of the formats: malloc_info(3), malloc_stats(3); glibc, malloc/malloc.c and malloc/mtrace-impl.c.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats import stacks
from gdbmem.formats.reports.rows import Row, Table, table_profile, truncated
from gdbmem.model.calltree import BYTES_MISSING, Frame
from gdbmem.text import printable

# malloc_info's document, of which only the sums are read.

_START, _END = '<malloc version="1">', "</malloc>"
_HEAP = re.compile(r'<heap nr="(\d+)">\n(.*?)</heap>\n', re.S)
_SUM = re.compile(r'^<(total|system|aspace) type="(\w+)"(?: count="(\d+)")? size="(\d+)"/>$', re.M)


class MallocInfoSums(NamedTuple):
    """Blocks and bytes of one arena, or of all."""

    fast_count: int  # in fastbins
    fast_bytes: int
    rest_count: int  # free otherwise
    rest_bytes: int
    system_bytes: int


class MallocInfo(NamedTuple):
    """The sums of a malloc_info document."""

    arenas: Sequence[MallocInfoSums]
    total: MallocInfoSums
    mmapped_count: int
    mmapped_bytes: int


def parse_malloc_info(text: str) -> MallocInfo:
    """Read *text*; raises InputError if it isn't what malloc_info writes, or was truncated."""
    text = text.strip()
    if not text.startswith(_START) or not text.endswith(_END):
        raise _bad(text)
    try:
        arenas = [_sums(found[2]) for found in _HEAP.finditer(f"{text}\n")]
        rest = _HEAP.sub("", text)
        mmapped = _figures(rest)["total", "mmap"]
        return MallocInfo(arenas, _sums(rest), *mmapped)
    except KeyError as error:
        raise _bad(text) from error


def _sums(text: str) -> MallocInfoSums:
    figures = _figures(text)
    fast = figures.get(("total", "fast"), (0, 0))  # glibc 2.43 has no fastbins
    return MallocInfoSums(*fast, *figures["total", "rest"], figures["system", "current"][1])


def _figures(text: str) -> Mapping[tuple[str, str], tuple[int, int]]:
    """Return count and bytes of each sum in *text*; 0 if it has no count."""
    return {(found[1], found[2]): (int(found[3] or 0), int(found[4])) for found in _SUM.finditer(text)}


def _bad(text: str) -> InputError:
    return InputError(
        f"malloc_info's output can't be read: {printable(text[:60])}",
        slug="bad-malloc-info",
        hint="'memexplain --mallinfo' compares with mallinfo2 instead",
    )


# malloc_info and malloc_stats as profiles.

_XML = re.compile(rb'<malloc version="1">.*?</malloc>', re.DOTALL)
_COUNT = rb" *= *([0-9]{1,20})\s*?\n"
_ARENA = re.compile(rb"Arena ([0-9]+):\r?\nsystem bytes" + _COUNT + rb"in use bytes" + _COUNT)
_MOST_MAPPED = re.compile(rb"max mmap bytes" + _COUNT)
_WRAP = 1 << 32
_TOTAL = re.compile(rb"Total \(incl\. mmap\):\r?\nsystem bytes" + _COUNT + rb"in use bytes" + _COUNT)


def read_malloc_info(data: Data, source: str, metric: Optional[str]) -> stacks.StackProfile:
    """Read the last document in *data*. Raises InputError if it was cut, or does not add up."""
    found = _XML.findall(bytes(data))
    if not found:
        raise truncated(source, "</malloc>")
    info = parse_malloc_info(found[-1].decode("utf-8", "replace").replace("\r\n", "\n"))
    used: list[Row] = []
    free: list[Row] = []
    for number, arena in enumerate(info.arenas):
        name = f"arena {number}"
        in_use = arena.system_bytes - arena.fast_bytes - arena.rest_bytes
        if in_use < 0:
            raise _differs(source, f"{name} has more free memory than it holds")
        used.append(Row(("in use", name), in_use))
        rows = (
            ("free, in fastbins", arena.fast_bytes, arena.fast_count),
            ("free", arena.rest_bytes, arena.rest_count),
        )
        free += [Row((text, name), size, count) for text, size, count in rows]
    used.append(Row(("in use, mapped individually",), info.mmapped_bytes, info.mmapped_count))
    if tuple(map(sum, zip(*info.arenas))) != tuple(info.total):
        raise _differs(source, "its arenas don't add up to its total")
    total = info.total.system_bytes + info.mmapped_bytes
    tables = {stacks.HELD: Table([*used, *free], total), stacks.IN_USE: Table(used), stacks.FREE: Table(free)}
    return table_profile(source, "malloc_info", tables, metric)


def read_malloc_stats(data: Data, source: str, metric: Optional[str]) -> stacks.StackProfile:
    """Read the last statistics in *data*. Raises InputError if they were cut, or don't add up."""
    content = bytes(data)
    start = content.rfind(b"Arena 0:")
    arenas, total = list(_ARENA.finditer(content, max(start, 0))), _TOTAL.search(content, max(start, 0))
    if total is None or not arenas:
        raise truncated(source, "'Total (incl. mmap)'")
    most = _MOST_MAPPED.search(content, total.end())
    if most is not None and int(most[1]) >= _WRAP:
        raise _differs(source, "it counts in 32 bits, and 4 GiB or more were mapped at once")
    used: list[Row] = []
    free: list[Row] = []
    for arena in arenas:
        name, system, in_use = f"arena {int(arena[1])}", int(arena[2]), int(arena[3])
        if in_use > system:
            raise _differs(source, f"{name} has more memory in use than it holds, as if it passed 4 GiB")
        used.append(Row(("in use", name), in_use))
        free.append(Row(("free", name), system - in_use))
    in_arenas = sum(row.bytes for row in used)
    system, mapped = int(total[1]), int(total[2]) - in_arenas
    if mapped < 0 or system != in_arenas + sum(row.bytes for row in free) + mapped:
        raise _differs(source, "its arenas don't add up to its total, as if that passed 4 GiB")
    used.append(Row(("in use, mapped individually",), mapped))
    text = f"malloc_stats counts in 32 bits: of each size in {printable(source)} a multiple of 4 GiB may be missing"
    notices = [Notice("counts-in-32-bits", f"{text} (malloc_info has all digits)")]
    tables = {
        stacks.HELD: Table([*used, *free], system),
        stacks.IN_USE: Table(used),
        stacks.FREE: Table(free),
    }
    return table_profile(source, "malloc_stats", tables, metric, notices=notices)


def _differs(source: str, why: str) -> InputError:
    return InputError(
        f"{printable(source)} can't be divided: {why}",
        slug="totals-differ",
        hint="malloc_info(0, FILE) writes all sums with all their digits",
    )


# mtrace: a line for each call of malloc, realloc and free.

_EVENT = re.compile(
    rb"(?:@ (?:(.*):)?(?:\((.*?)\+?(?:0x)?[0-9a-f]*\))?\[(0x[0-9a-f]{1,16})\] )?"
    rb"([-+<>!]) (0x[0-9a-f]{1,16}|\(nil\))(?: (0x[0-9a-f]{1,16}|0))?"
)


class _Block(NamedTuple):
    site: int
    size: int


def read_mtrace(data: Data, source: str, metric: Optional[str]) -> stacks.StackProfile:
    """Read *data*: what is allocated and not freed at its end. Raises InputError for a line of another format."""
    reader = _Reader(source)
    lines = bytes(data).split(b"\n")
    lines.pop()  # "" if the last line is whole
    for number, line in enumerate(lines, 1):
        reader.take(line.rstrip(b"\r"), number)
    chosen = stacks.choose_metric(metric, (stacks.IN_USE, stacks.ALLOCATED), source)
    content = stacks.Content(reader.stacks(chosen), stacks.Singles(list(reader.sites)))
    return stacks.make_profile(
        content, source, "mtrace", chosen, (stacks.IN_USE, stacks.ALLOCATED), notices=reader.notices()
    )


class _Reader:
    def __init__(self, source: str) -> None:
        self.sites: dict[Frame, int] = {}
        self._source = source
        self._places: dict[tuple[bytes, ...], int] = {}
        self._blocks: dict[bytes, _Block] = {}
        self._allocated: dict[int, list[int]] = {}  # bytes and blocks of each site
        self._has_ended = False

    def take(self, line: bytes, number: int) -> None:
        """Take the next line."""
        if line == b"= Start":
            if self._allocated or self._has_ended:
                raise stacks.several_dumps(self._source, "= Start")
            return
        if not line:
            return
        if line == b"= End":
            self._has_ended = True
            return
        found = _EVENT.fullmatch(line)
        if found is None or (found[4] in b"+>") != (found[6] is not None and found[4] != b"!"):
            raise stacks.bad_line(self._source, number, line, "'@ PROGRAM:[0x…] + 0xADDRESS 0xSIZE'")
        if found[4] in b"-<":
            self._blocks.pop(found[5], None)  # None: it was allocated before the trace began
        elif found[4] in b"+>" and found[5] != b"(nil)":
            site = self._site(found[1] or b"", found[2] or b"", found[3] or b"")
            size = stacks.check_count(int(found[6], 16), self._source, number)
            self._blocks[found[5]] = _Block(site, size)
            sums = self._allocated.setdefault(site, [0, 0])
            sums[0] += size
            sums[1] += 1

    def _site(self, *place: bytes) -> int:
        if place not in self._places:
            file, function, address = (text.decode("utf-8", "surrogateescape") for text in place)
            frame = Frame(function or address or None, object=file or None)
            self._places[place] = self.sites.setdefault(frame, len(self.sites))
        return self._places[place]

    def stacks(self, metric: str) -> list[stacks.Stack]:
        """Return a stack of one frame for each site."""
        sums = self._allocated
        if metric == stacks.IN_USE:
            sums = {}
            for block in self._blocks.values():
                found = sums.setdefault(block.site, [0, 0])
                found[0] += block.size
                found[1] += 1
        return [
            stacks.Stack((site,), stacks.check_count(size, self._source), blocks)
            for site, (size, blocks) in sums.items()
        ]

    def notices(self) -> list[Notice]:
        """Return what the reader of the result has to know."""
        if self._has_ended:
            return []
        text = f"{printable(self._source)} has no '= End': the program did not call muntrace(), or it was truncated"
        return [Notice(BYTES_MISSING, f"{text}; later calls are not in it")]
