"""A series of pool samples in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.model.bfc.pool_diff import PoolDiff
from gdbmem.model.bfc.pool_series import PoolSeries
from gdbmem.model.bfc.pools import FAILS
from gdbmem.text import plural
from gdbmem.units import format_delta, format_duration, format_size


def answer_series(series: PoolSeries, diff: PoolDiff) -> str:
    """Describe the history of one pool: its fragmentation, free bytes, largest growth, and the request."""
    samples = series.of(diff.after.address)
    first, last = samples[0], samples[-1]
    parts = [
        f"{plural(len(samples), 'walk')} in {format_duration(last.at_seconds - first.at_seconds)}",
        f"fragmentation {_course([fragmentation_text(one.fragmentation) for one in samples])}",
        f"largest free chunk {_course([format_size(one.largest_free_bytes) for one in samples])}",
        f"free {_course([format_size(one.free_bytes) for one in samples])}",
    ]
    grown = [one for one in diff.sizes if one.delta_bytes > 0] if diff.is_complete else []
    if grown:
        parts.append(
            f"grew most: chunks of {format_size(grown[0].size_bytes)}, {grown[0].after - grown[0].before:+,}"
            f" ({format_delta(grown[0].delta_bytes)})"
        )
    failed = [one for one in samples if one.outcome == FAILS]
    if failed:
        parts.append(
            f"the request fails in {plural(len(failed), 'walk')},"
            f" first after {format_duration(failed[0].at_seconds)}"
        )
    return "; ".join(parts)


def fragmentation_text(fragmentation: Optional[float]) -> str:
    """Return *fragmentation*, a share of the free bytes; None if nothing is free."""
    return "none (nothing free)" if fragmentation is None else f"{fragmentation:.0%}"


def _course(words: Sequence[str]) -> str:
    return words[0] if words[0] == words[-1] else f"{words[0]} → {words[-1]}"
