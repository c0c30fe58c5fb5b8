"""Changes of a pool between two moments: allocated and freed chunks, by size and owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import compress

from gdbmem.errors import UsageError
from gdbmem.model.bfc.pool_diff import PoolChange, PoolDiff
from gdbmem.model.bfc.pools import IN_USE, Allocator


def compare_pools(
    before: Sequence[Allocator], after: Sequence[Allocator], *, same: bool = False
) -> list[PoolDiff]:
    """Return the change of each pool that is on both sides, by name; of several of one name the last of each side.

    *same*: both sides are one file, in which the first pool of each name is the earlier one.
    """
    earlier = {one.name: one for one in (reversed(before) if same else before)}
    later = {one.name: one for one in after}
    names = [name for name in later if name in earlier]
    if not names:
        raise UsageError(
            "the two sides have no pool in common",
            hint="pools are matched by name: 'gdbmem bfc FILE' lists them",
        )
    return [_diff(earlier[name], later[name]) for name in names]


def _diff(before: Allocator, after: Allocator) -> PoolDiff:
    sizes = _changes(_by_size(before), _by_size(after))
    knows_owners = before.chunks.owner is not None or after.chunks.owner is not None
    owners = _changes(_by_owner(before), _by_owner(after)) if knows_owners else []
    return PoolDiff(before, after, sizes, owners)


Sums = tuple[Mapping[Hashable, int], Mapping[Hashable, int]]  # chunks, bytes


def _by_size(allocator: Allocator) -> Sums:
    sizes = list(compress(allocator.chunks.size, allocator.where(IN_USE)))
    return _sums(zip(sizes, sizes))


def _by_owner(allocator: Allocator) -> Sums:
    used = compress(range(len(allocator.chunks)), allocator.where(IN_USE))
    return _sums((allocator.chunks.owner_of(index), allocator.chunks.size[index]) for index in used)


def _sums(entries: Iterable[tuple[Hashable, int]]) -> Sums:
    counts: Counter[Hashable] = Counter()
    held: Counter[Hashable] = Counter()
    for key, size in entries:
        counts[key] += 1
        held[key] += size
    return counts, held


def _changes(before: Sums, after: Sums) -> list[PoolChange]:
    found = [
        PoolChange(
            name=key if isinstance(key, str) else "",
            size_bytes=key if isinstance(key, int) else 0,
            before=before[0].get(key, 0),
            after=after[0].get(key, 0),
            before_bytes=before[1].get(key, 0),
            after_bytes=after[1].get(key, 0),
        )
        for key in {**before[0], **after[0]}
    ]
    changed = [one for one in found if one.delta_bytes or one.before != one.after]
    return sorted(changed, key=lambda one: (-abs(one.delta_bytes), one.name, one.size_bytes))
