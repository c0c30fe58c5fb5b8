"""A pool under other settings: its chunks in use are allocated again in their old order.

Chunks freed in between are unknown, so the result is the best case, without gaps between the chunks.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Optional

from gdbmem.errors import InputError, Notice, UsageError
from gdbmem.model import bfc
from gdbmem.pools.decision import extension_bytes, is_split
from gdbmem.text import format_size, parse_size, plural

_FIRST_REGION, _OLD_FIRST_REGION = 2 << 20, 1 << 20  # of a pool that may grow
_GAP = 1 << 40  # gap between regions, which are never adjacent


class WhatIf(NamedTuple):
    """Other settings of an allocator; None leaves one unchanged."""

    allow_growth: Optional[bool] = None
    limit_bytes: Optional[int] = None

    @classmethod
    def parse(cls, words: Sequence[str], device_bytes: Optional[int] = None) -> WhatIf:
        """Return the settings of ``allow_growth=on``, ``limit=SIZE``, ``fraction=F``; raises UsageError, InputError.

        *device_bytes* is the memory that fraction=F refers to.
        """
        found = cls()
        for word in words:
            name, _, text = word.partition("=")
            if name == "allow_growth" and text in ("on", "off"):
                found = found._replace(allow_growth=text == "on")
            elif name == "limit":
                found = found._replace(limit_bytes=parse_size(text))
            elif name == "fraction":
                found = found._replace(limit_bytes=_share(text, device_bytes))
            else:
                raise UsageError(
                    f"unknown setting '{word}'",
                    hint="allow_growth=on, allow_growth=off, limit=SIZE or fraction=0.5",
                )
        return found


def _share(text: str, device_bytes: Optional[int]) -> int:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise UsageError(f"'{text}' is not a fraction", hint="write it as in fraction=0.5")
    if device_bytes is None:
        raise InputError(
            "fraction= refers to the device's memory, whose size is unknown",
            slug="bfc-no-device",
            hint="give it with --device-memory SIZE, or give the limit itself: --what-if limit=SIZE",
        )
    return int(device_bytes * share)


def replay(allocator: bfc.Allocator, settings: WhatIf) -> bfc.Allocator:
    """Return *allocator* as it would be under *settings*, without the request that failed.

    A different limit alone does not move existing chunks. Raises InputError if chunks or their requested sizes are
    unknown, or if the chunks in use don't fit.
    """
    limit = allocator.limit_bytes if settings.limit_bytes is None else settings.limit_bytes
    growth = allocator.options.allow_growth if settings.allow_growth is None else settings.allow_growth
    if growth == allocator.options.allow_growth and growth is not False:
        held = allocator.pool_bytes + allocator.reserved_bytes
        if limit is None or limit >= held:
            return replace(allocator, limit_bytes=limit, asked_bytes=None, asked_by="")
    if not allocator.is_complete or allocator.requested_bytes is None or limit is None:
        raise InputError(
            "this pool can't be replayed: its limit, or the requested size of its chunks, is unknown",
            slug="bfc-no-replay",
            hint="read them from the live process: gdbmem bfc PID",
        )
    return _Replay(allocator, limit, growth is not False).result()


def _first_region(allocator: bfc.Allocator) -> int:
    """Return the size of the first region of a pool that may grow: as it was here, or by the version."""
    sizes = {region.size_bytes for region in allocator.regions}
    known = [size for size in (_OLD_FIRST_REGION, _FIRST_REGION) if size in sizes]
    if known:
        return known[0]
    # From 2.11 on.
    has_options = allocator.kind == bfc.TENSORFLOW and allocator.options.allow_growth is not None
    return _FIRST_REGION if has_options else _OLD_FIRST_REGION


class _Replay:
    """A fresh pool, into which the chunks in use are allocated one by one."""

    def __init__(self, allocator: bfc.Allocator, limit: int, growth: bool) -> None:
        first = min(bfc.rounded(limit), _first_region(allocator)) if growth else bfc.rounded(limit)
        options = allocator.options._replace(allow_growth=growth, next_region_bytes=first)
        self._old = allocator
        self._options: bfc.Options = options
        self._limit = limit
        self._pool = 0
        self._free: list[tuple[int, int]] = []  # size, address: in order
        self._used: list[tuple[int, int, int]] = []  # address, size, index of the old chunk
        self._regions: list[tuple[int, int]] = []

    def result(self) -> bfc.Allocator:
        old = self._old.chunks
        ids = old.allocation_id
        chosen = [index for index in range(len(old)) if old.state[index] == bfc.IN_USE]
        if ids is not None:
            chosen.sort(key=ids.__getitem__)
        for index in chosen:
            self._allocate(index, old.requested[index] if old.requested is not None else bfc.UNKNOWN)
        return self._made(len(chosen))

    def _allocate(self, index: int, asked: int) -> None:
        need = bfc.rounded(asked)
        found = next((one for one in self._free if one[0] >= need), None)
        if found is None:
            self._extend(need)
            found = next(one for one in self._free if one[0] >= need)
        self._free.remove(found)
        size, address = found
        if is_split(self._old, size, need):
            insort(self._free, (size - need, address + need))
            size = need
        self._used.append((address, size, index))

    def _extend(self, need: int) -> None:
        available = (self._limit - self._pool) // bfc.SMALLEST * bfc.SMALLEST
        size = extension_bytes(replace(self._old, options=self._options), need, available)
        if need > available or size is None:
            raise InputError(
                f"the chunks in use don't fit into a limit of {format_size(self._limit)}",
                slug="bfc-no-replay",
                hint="try a larger limit",
            )
        following = self._options.next_region_bytes or size
        grown = following
        while grown < need:
            grown *= 2
        self._options = self._options._replace(next_region_bytes=grown * 2 if grown == following else grown)
        address = _GAP * (len(self._regions) + 1)
        self._regions.append((address, size))
        self._pool += size
        insort(self._free, (size, address))

    def _made(self, count: int) -> bfc.Allocator:
        old = self._old.chunks
        rows = sorted([*((a, s, i) for a, s, i in self._used), *((a, s, -1) for s, a in self._free)])
        chunks = bfc.Chunks(
            address=array("Q", [row[0] for row in rows]),
            size=array("Q", [row[1] for row in rows]),
            state=bytes(bfc.FREE if row[2] < 0 else bfc.IN_USE for row in rows),
            requested=array(
                "q", [bfc.UNKNOWN if i < 0 or old.requested is None else old.requested[i] for _, _, i in rows]
            ),
            bin=array("i", [bfc.bin_of(size) if index < 0 else -1 for _, size, index in rows]),
            owner=None
            if old.owner is None
            else array("I", [0 if i < 0 else old.owner[i] for _, _, i in rows]),
            owners=old.owners,
        )
        regions, at = [], 0
        for address, size in self._regions:
            inside = sum(1 for row in rows if address <= row[0] < address + size)
            regions.append(bfc.Region(address, size, at, inside))
            at += inside
        text = (
            f"the {plural(count, 'chunk')} in use were allocated again in their old order; the blocks freed in between"
            " are not known, so this is the best case; the addresses are not real"
        )
        return replace(
            self._old,
            regions=regions,
            chunks=chunks,
            limit_bytes=self._limit,
            options=self._options,
            counters=bfc.Counters(),
            violations=(),
            asked_bytes=None,
            asked_by="",
            notices=(Notice("bfc-replayed", text),),
        )
