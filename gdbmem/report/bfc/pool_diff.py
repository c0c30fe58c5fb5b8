"""Changes of pools, as text and as JSON (``kind=bfc-diff``)."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.analysis.bfc.explanation import pool_name, pool_sentence
from gdbmem.analysis.bfc.pool_course import fragmentation_text
from gdbmem.errors import Notice
from gdbmem.model.bfc.pool_diff import PoolChange, PoolDiff
from gdbmem.model.bfc.pools import Allocator
from gdbmem.records import asdict
from gdbmem.report import drawing
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.document import Document, head, to_json
from gdbmem.report.notices import print_notices
from gdbmem.text import plural, printable
from gdbmem.units import format_delta, format_size


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
    return {**asdict(change), "delta_bytes": change.delta_bytes}


def _side(allocator: Allocator) -> Document:
    whole = allocator.is_complete
    return {
        "source": allocator.source,
        "pool_bytes": allocator.pool_bytes if whole else allocator.counters.pool_bytes,
        "in_use_bytes": allocator.in_use_bytes if whole else allocator.counters.in_use_bytes,
        "free_bytes": allocator.free_bytes if whole else None,
        "largest_free_bytes": allocator.largest_free_bytes if whole else None,
        "fragmentation": allocator.fragmentation if whole else None,
    }
