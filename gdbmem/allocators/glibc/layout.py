"""The layout of glibc malloc's structures: from debug information, or from a table of releases.

A layout from the table is only a candidate: `locate` accepts it if it matches the heap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Optional

ALIGNMENT = 16
MIN_CHUNK = 32
CHUNK_HEADER = 16  # prev_size and size
# Size of the chunk that holds a tcache → its bins. A bin is a counter of two bytes and a pointer. A free chunk is taken
# whole where less than another one would be left; glibc 2.43 rounds the size up twice where free() makes the tcache.
TCACHE_CHUNKS = {0x290: 64, 0x2A0: 64, 0x300: 76, 0x310: 76, 0x320: 76}
PREV_INUSE, IS_MMAPPED, NON_MAIN_ARENA = 1, 2, 4
_FIELD = re.compile(
    r"^/\*\s+(\d+)(?::\s*\d+)?\s+\|\s+(\d+)\s+\*/\s+.*?(\w+)((?:\[\d+\])*)(?:\s*:\s*\d+)?;\s*$", re.M
)
_TOTAL = re.compile(r"/\* total size.*?:\s+(\d+) \*/")


@dataclass(frozen=True)
class Struct:
    """Field name → offset, of one structure."""

    offsets: Mapping[str, int]
    size: int

    def __contains__(self, field: str) -> bool:
        return field in self.offsets

    def __getitem__(self, field: str) -> int:
        return self.offsets[field]

    def number(self, raw: bytes, field: str, size: int = 8) -> int:
        """Return the *field*, of *size* bytes, of the structure with the bytes *raw*; 0 if it has no such field."""
        at = self.offsets.get(field)
        return 0 if at is None else int.from_bytes(raw[at : at + size], "little")


class MallocLayout(NamedTuple):
    """The structures of one glibc."""

    state: Struct  # malloc_state
    parameters: Struct  # malloc_par

    @property
    def fastbin_count(self) -> int:
        return 10 if "fastbinsY" in self.state else 0


class LibcFacts(NamedTuple):
    """Facts from a libc's file: the addresses of malloc's variables (as in the file), and their layout."""

    symbols: Mapping[str, int]
    layout: Optional[MallocLayout]


def parse_ptype(text: str) -> Optional[Struct]:
    """Parse the structure printed by gdb's ``ptype /o``; None if gdb knew none."""
    total = _TOTAL.search(text)
    offsets: dict[str, int] = {}
    for match in _FIELD.finditer(text):
        offsets.setdefault(match[3], int(match[1]))
    return Struct(offsets, int(total[1])) if total and offsets else None


def _state(first: int, fastbins: bool) -> Struct:
    offsets = {"mutex": 0, "flags": 4}
    if fastbins:
        offsets.update(have_fastchunks=8, fastbinsY=16)
    names = ("top", "last_remainder", "bins")
    offsets.update({name: first + 8 * n for n, name in enumerate(names)})
    after = first + 16 + 254 * 8
    offsets["binmap"] = after
    further = ("next", "next_free", "attached_threads", "system_mem", "max_system_mem")
    offsets.update({name: after + 16 + 8 * n for n, name in enumerate(further)})
    return Struct(offsets, after + 56)


def _parameters(counts: int, thp: Optional[int]) -> Struct:
    offsets = {
        "trim_threshold": 0,
        "top_pad": 8,
        "mmap_threshold": 16,
        "arena_test": 24,
        "arena_max": 32,
        "n_mmaps": counts,
        "n_mmaps_max": counts + 4,
        "max_n_mmaps": counts + 8,
        "no_dyn_threshold": counts + 12,
    }
    after = (counts + 16 + 7) & ~7
    offsets.update(mmapped_mem=after, max_mmapped_mem=after + 8, sbrk_base=after + 16)
    if thp is not None:
        offsets.update(thp_pagesize=thp, hp_pagesize=thp + 8)
    return Struct(offsets, after + 24)


# Sources: malloc/malloc.c and malloc/arena.c of the releases named.
STATES = (
    ("glibc 2.27 to 2.42", _state(96, fastbins=True)),
    ("glibc 2.43", _state(8, fastbins=False)),
)
PARAMETERS = (
    ("glibc 2.35 to 2.42", _parameters(60, thp=40)),
    ("glibc 2.43", _parameters(68, thp=48)),
    ("glibc 2.26 to 2.34", _parameters(40, thp=None)),
)


def parameters_of(state: Struct) -> list[Struct]:
    """Return the layouts of malloc_par in the releases of the table whose malloc_state is *state*."""
    has_fastbins = "fastbinsY" in state
    return [struct for name, struct in PARAMETERS if (name != "glibc 2.43") == has_fastbins]
