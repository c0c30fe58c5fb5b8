"""glibc's malloc_info: an XML document of which only the sums are read.

Source of the format: malloc_info(3), and glibc malloc/malloc.c, __malloc_info.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gdbmem.errors import InputError
from gdbmem.text import printable

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
