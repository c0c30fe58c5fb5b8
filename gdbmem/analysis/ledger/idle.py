"""Which entries of a ledger were not touched, by the accessed bits of its mappings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from gdbmem.linux.memory.accessed import Accessed
from gdbmem.model.ledger.idle import IdleEntry, IdleMemory
from gdbmem.model.ledger.ledger import Ledger


def idle_memory(ledger: Ledger, accessed: Sequence[Accessed], seconds: float) -> IdleMemory:
    """Return what of *ledger* was not touched; *accessed* was read just before it, after *seconds*."""
    sums: dict[tuple[str, str], list[int]] = {}
    ordered = sorted(accessed)
    starts = [one.start for one in ordered]
    for share in ledger.shares:
        number = bisect_right(starts, share.start) - 1
        known = ordered[number] if number >= 0 and share.start < ordered[number].end else None
        # What was mapped since then has been touched since then.
        idle = max(known.rss_bytes - known.touched_bytes, 0) if known is not None else 0
        idle = min(idle, share.rss_bytes)
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
