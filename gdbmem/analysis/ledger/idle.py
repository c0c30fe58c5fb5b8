"""Idle memory of the entries of a ledger, by the accessed bits of its mappings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from gdbmem.linux.memory.accessed import Accessed
from gdbmem.model.ledger.idle import BlockGroup, BlockSum, IdleBlocks, IdleEntry, IdleMemory
from gdbmem.model.ledger.ledger import Ledger


def idle_memory(ledger: Ledger, accessed: Sequence[Accessed], seconds: float) -> IdleMemory:
    """Return the idle memory of *ledger*; *accessed* was read just before it, after *seconds*."""
    sums: dict[tuple[str, str], list[int]] = {}
    ordered = sorted(accessed)
    starts = [one.start for one in ordered]
    for share in ledger.shares:
        idle = min(_idle_bytes(ordered, starts, share.start), share.rss_bytes)
        for key, size in share.parts.items():
            row = sums.setdefault(key, [0, 0, 0])
            row[0] += size
            row[1] += max(size - (share.rss_bytes - idle), 0)
            row[2] += min(size, idle)
    entries = sorted(
        (IdleEntry(*key, *row) for key, row in sums.items()), key=lambda one: -one.most_idle_bytes
    )
    rss = sum(one.rss_bytes for one in accessed)
    touched = sum(min(one.touched_bytes, one.rss_bytes) for one in accessed)
    return IdleMemory(seconds, rss, rss - touched, entries)


def _idle_bytes(ordered: Sequence[Accessed], starts: Sequence[int], address: int) -> int:
    """Return the idle bytes of the mapping at *address*; new mappings count as accessed."""
    number = bisect_right(starts, address) - 1
    known = ordered[number] if number >= 0 and address < ordered[number].end else None
    return max(known.rss_bytes - known.touched_bytes, 0) if known is not None else 0


def idle_types(groups: Sequence[BlockGroup], accessed: Sequence[Accessed]) -> list[IdleBlocks]:
    """Return the live blocks by type, sorted by the upper bound of idle bytes."""
    rows = _bounds([(group, group.types) for group in groups], accessed)
    return _sorted(IdleBlocks(*label, 0, *row) for label, row in rows.items())


def idle_sizes(groups: Sequence[BlockGroup], accessed: Sequence[Accessed]) -> list[IdleBlocks]:
    """Return the live blocks by size, likewise."""
    rows = _bounds([(group, group.sizes) for group in groups], accessed)
    return _sorted(IdleBlocks("", "", size, *row) for size, row in rows.items())


_Label = TypeVar("_Label", bound=Hashable)
_Row = tuple[int, int, int, int]  # blocks, bytes, at least and at most idle


def _bounds(
    tables: Sequence[tuple[BlockGroup, Mapping[_Label, BlockSum]]], accessed: Sequence[Accessed]
) -> dict[_Label, _Row]:
    ordered = sorted(accessed)
    starts = [one.start for one in ordered]
    in_mapping: dict[int, dict[_Label, BlockSum]] = {}
    lengths: dict[int, int] = {}
    for group, table in tables:
        sums = in_mapping.setdefault(group.start, {})
        lengths[group.start] = group.mapping_bytes
        for label, one in table.items():
            before = sums.get(label, BlockSum(0, 0))
            sums[label] = BlockSum(before.blocks + one.blocks, before.bytes + one.bytes)
    found: dict[_Label, _Row] = {}
    for start, sums in in_mapping.items():
        idle = _idle_bytes(ordered, starts, start)
        other = lengths[start] - idle  # accessed, or not resident
        for label, one in sums.items():
            blocks, size, least, most = found.get(label, (0, 0, 0, 0))
            found[label] = (
                blocks + one.blocks, size + one.bytes, least + max(one.bytes - other, 0), most + min(one.bytes, idle),
            )  # fmt: skip
    return found


def _sorted(rows: Iterable[IdleBlocks]) -> list[IdleBlocks]:
    return sorted(
        rows, key=lambda one: (-one.most_idle_bytes, -one.bytes, one.kind, one.name, one.size_bytes)
    )
