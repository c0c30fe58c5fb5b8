"""Changes of a pool between two moments: allocated and freed chunks, by size and owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Optional

from gdbmem.errors import Notice, UsageError
from gdbmem.json_values import as_json
from gdbmem.model.bfc import FAILS, IN_USE, Allocator, PoolChange, PoolDiff, PoolSample, PoolSeries
from gdbmem.pools.explanation import pool_name, pool_sentence
from gdbmem.pools.output import sums
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_notices, print_sentence
from gdbmem.terminal.document import Document, head, to_json
from gdbmem.text import format_delta, format_duration, format_size, plural, printable


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


# A series of pool samples in a sentence.


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


# Changes of pools, as text and as JSON (``kind=bfc-diff``).


def answer_of(diff: PoolDiff) -> str:
    """Return the change of a pool in one sentence."""
    before, after = diff.before, diff.after
    if not diff.is_complete:
        return "chunks are missing on a side, so that no sums can be compared"
    return (
        f"{format_delta(after.in_use_bytes - before.in_use_bytes)} in use,"
        f" {format_delta(after.free_bytes - before.free_bytes)} free"
        f" (the largest {format_size(before.largest_free_bytes)} before,"
        f" {format_size(after.largest_free_bytes)} after),"
        f" {format_delta(after.pool_bytes - before.pool_bytes)} of pool,"
        f" fragmentation {fragmentation_text(before.fragmentation)} before,"
        f" {fragmentation_text(after.fragmentation)} after"
    )


def print_pool_diffs(
    diffs: Sequence[PoolDiff], notices: Sequence[Notice], console: Console, *, top: int
) -> None:
    """Print each of *diffs*, with at most *top* rows per table."""
    for number, diff in enumerate(diffs):
        if number:
            console.print()
        print_sentence(console, f"{pool_name(diff.after)}: {answer_of(diff)}", "bold")
        print_sentence(console, f"  before: {pool_sentence(diff.before)}")
        print_sentence(console, f"  after:  {pool_sentence(diff.after)}")
        print_changes(diff, console, top)
        print_notices([*diff.before.notices, *diff.after.notices], console)
    print_notices(notices, console)


def print_changes(diff: PoolDiff, console: Console, top: int) -> None:
    """Print the changes by size and by owner as tables of *top* rows; nothing if chunks are missing."""
    if diff.is_complete:
        _print_table("size of chunks in use", diff.sizes, console, top)
        _print_table("owner", diff.owners, console, top)


def _print_table(title: str, changes: Sequence[PoolChange], console: Console, top: int) -> None:
    if not changes:
        return
    table = drawing.Table()
    table.add_numbers("change", "before", "after")
    table.add_column(title)
    for one in changes[:top]:
        name = format_size(one.size_bytes) if one.size_bytes else printable(one.name) or "(unknown)"
        table.add_row(
            format_delta(one.delta_bytes), plural(one.before, "chunk"), plural(one.after, "chunk"), name
        )
    console.print()
    console.print(table)
    if len(changes) > top:
        console.print(f"and {plural(len(changes) - top, 'more row')} (--top N)")


def pool_diffs_json(diffs: Sequence[PoolDiff], notices: Sequence[Notice]) -> str:
    """Return *diffs* as the text of a ``kind=bfc-diff``."""
    every = [*notices, *(n for diff in diffs for n in (*diff.before.notices, *diff.after.notices))]
    document: Document = {
        **head("bfc-diff", every),
        "answer": answer_of(diffs[0]) if diffs else None,
        "pools": [diff_document(diff) for diff in diffs],
    }
    return to_json(document)


def diff_document(diff: PoolDiff) -> Document:
    """Return the change of one pool."""
    return {
        "name": diff.after.name,
        "before": _side(diff.before),
        "after": _side(diff.after),
        "sizes": [_change(one) for one in diff.sizes] if diff.is_complete else None,
        "owners": [_change(one) for one in diff.owners] if diff.is_complete else None,
    }


def _change(change: PoolChange) -> Document:
    return {**as_json(change), **as_json(change, "delta_bytes")}


def _side(allocator: Allocator) -> Document:
    names = ("pool_bytes", "in_use_bytes", "free_bytes", "largest_free_bytes", "fragmentation")
    return {"source": allocator.source, **sums(allocator, *names)}


# Pools over time, as text and as JSON (``kind=bfc-series``).


_COLUMNS = (
    ("after", 8), ("pool", 10), ("in use", 10), ("requested", 10), ("free", 10), ("pieces", 7), ("largest", 10),
    ("fragm.", 6),
)  # fmt: skip


def print_series_head(console: Console) -> None:
    """Print the headings of the rows, which are printed as they arrive."""
    console.print("  ".join(f"{name:>{width}}" for name, width in _COLUMNS), "dim", soft_wrap=True)


def print_sample(sample: PoolSample, console: Console, *, named: bool) -> None:
    """Print the row of one pool at one moment; *named* if there are several pools."""
    asked = "" if sample.requested_bytes is None else format_size(sample.requested_bytes)
    cells = (
        format_duration(sample.at_seconds),
        format_size(sample.pool_bytes),
        format_size(sample.in_use_bytes),
        asked,
        format_size(sample.free_bytes),
        f"{sample.free_chunks:,}",
        format_size(sample.largest_free_bytes),
        "" if sample.fragmentation is None else f"{sample.fragmentation:.0%}",
    )
    row = "  ".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, _COLUMNS))
    outcome = f"the request {sample.outcome}" if sample.outcome else ""
    why = f" ({sample.cause})" if sample.cause else ""
    name = printable(sample.name) if named else ""
    console.print("  ".join(part for part in (row, f"{outcome}{why}", name) if part), soft_wrap=True)


def print_series_end(series: PoolSeries, console: Console, *, top: int) -> None:
    """Print the change of each pool from the first sample to the last."""
    for diff in series.diffs:
        console.print()
        print_sentence(console, f"{pool_name(diff.after)}: {answer_series(series, diff)}", "bold")
        print_changes(diff, console, top)
    console.print(
        f"\nThe process was stopped for at most {format_duration(series.longest_pause_seconds)} each time."
    )
    print_notices(series.notices, console)


def series_json(series: PoolSeries, request_bytes: Optional[int]) -> str:
    """Return *series* as the text of a ``kind=bfc-series``."""
    document = {
        **head("bfc-series", series.notices),
        "answer": answer_series(series, series.diffs[0]) if series.diffs else None,
        **as_json(series, "source", "walks", "longest_pause_seconds"),
        "request_bytes": request_bytes,
        **as_json(series, "samples"),
        "pools": [diff_document(one) for one in series.diffs],
    }
    return to_json(document)
