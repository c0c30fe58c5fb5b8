"""glibc's mtrace: a line for each call of malloc, realloc and free.

Source of the format: glibc, malloc/mtrace-impl.c.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.files import Data
from gdbmem.formats.stacks import (
    ALLOCATED,
    IN_USE,
    Content,
    Singles,
    Stack,
    StackProfile,
    bad_line,
    check_count,
    choose_metric,
    several_dumps,
)
from gdbmem.model.calltree import BYTES_MISSING, Frame
from gdbmem.text import printable

_EVENT = re.compile(
    rb"(?:@ (?:(.*):)?(?:\((.*?)\+?(?:0x)?[0-9a-f]*\))?\[(0x[0-9a-f]{1,16})\] )?"
    rb"([-+<>!]) (0x[0-9a-f]{1,16}|\(nil\))(?: (0x[0-9a-f]{1,16}))?"
)


class _Block(NamedTuple):
    site: int
    size: int


def read_mtrace(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*: what is allocated and not freed at its end. Raises InputError for a line of another format."""
    reader = _Reader(source)
    lines = bytes(data).split(b"\n")
    lines.pop()  # "" if the last line is whole
    for number, line in enumerate(lines, 1):
        reader.take(line.rstrip(b"\r"), number)
    chosen = choose_metric(metric, (IN_USE, ALLOCATED), source)
    counted = reader.stacks(chosen)
    return StackProfile(
        source=source,
        source_format="mtrace",
        metric=chosen,
        metrics=(IN_USE, ALLOCATED),
        total_bytes=sum(stack.bytes for stack in counted),
        load=lambda profile: Content(counted, Singles(list(reader.sites))),
        notices=reader.notices(),
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
                raise several_dumps(self._source, "= Start")
            return
        if not line:
            return
        if line == b"= End":
            self._has_ended = True
            return
        found = _EVENT.fullmatch(line)
        if found is None or (found[4] in b"+>") != (found[6] is not None and found[4] != b"!"):
            raise bad_line(self._source, number, line, "'@ PROGRAM:[0x…] + 0xADDRESS 0xSIZE'")
        if found[4] in b"-<":
            self._blocks.pop(found[5], None)  # None: it was allocated before the trace began
        elif found[4] in b"+>" and found[5] != b"(nil)":
            site = self._site(found[1] or b"", found[2] or b"", found[3] or b"")
            size = check_count(int(found[6], 16), self._source, number)
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

    def stacks(self, metric: str) -> list[Stack]:
        """Return a stack of one frame for each site."""
        sums = self._allocated
        if metric == IN_USE:
            sums = {}
            for block in self._blocks.values():
                found = sums.setdefault(block.site, [0, 0])
                found[0] += block.size
                found[1] += 1
        return [
            Stack((site,), check_count(size, self._source), blocks) for site, (size, blocks) in sums.items()
        ]

    def notices(self) -> list[Notice]:
        """Return what the reader of the result has to know."""
        if self._has_ended:
            return []
        text = f"{printable(self._source)} has no '= End': the program did not call muntrace(), or it was truncated"
        return [Notice(BYTES_MISSING, f"{text}; later calls are not in it")]
