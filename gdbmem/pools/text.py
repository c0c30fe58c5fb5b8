"""Pools as text: the answer first, then sums, regions as bars, bins, and on request single chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, zip_longest
from typing import NamedTuple, Optional

from gdbmem.model.bfc import FREE, IN_USE, PYTORCH, Allocator, Decision, Options, Region
from gdbmem.pools.explanation import NO_LIMIT, headline, largest_waste, pool_name
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_notices, print_sentence
from gdbmem.text import format_size, plural, printable

_BAR_COLUMNS = 64  # at most
_SHORTEST_BAR, _BEFORE_BAR = 16, 29  # columns; address and size come before it
_MOST_ROWS = 20
ALL = "all"


class PoolView(NamedTuple):
    """The parts of each pool to print."""

    chunks: bool = False  # a row for each chunk
    state: str = ALL  # "free", "used": of those rows
    at_least_bytes: int = 0
    owner: str = ""  # only chunks whose owner contains this
    top: int = _MOST_ROWS


def print_pools(
    allocators: Sequence[Allocator], decisions: Sequence[Optional[Decision]], view: PoolView, console: Console
) -> None:
    """Print each of *allocators* with the outcome of the request, if there is one."""
    for number, (allocator, decision) in enumerate(zip_longest(allocators, decisions)):
        if number:
            console.print()
        print_pool(allocator, decision, view, console)


def print_pool(allocator: Allocator, decision: Optional[Decision], view: PoolView, console: Console) -> None:
    """Print one allocator."""
    print_sentence(console, f"{pool_name(allocator)}: {headline(allocator, decision)}", "bold")
    if decision is not None:
        for step in decision.steps:
            print_sentence(console, f"  {step}")
        _print_obstacle(allocator, decision, console)
        for advice in decision.advice:
            print_sentence(console, f"  {'would help' if advice.is_tried else 'may help'}: {advice.text}")
    console.print()
    console.print(_sums(allocator))
    print_notices(allocator.notices, console)
    for violation in allocator.violations:
        print_sentence(console, f"{violation.text} ({violation.rule})", label="violated: ")
    if allocator.regions and allocator.is_complete:
        console.print()
        _print_regions(allocator, console)
        console.print()
        console.print(_bins(allocator))
    if view.chunks:
        console.print()
        _print_chunks(allocator, view, console)


def _print_obstacle(allocator: Allocator, decision: Decision, console: Console) -> None:
    if decision.obstacle is None or not decision.obstacle.in_use:
        return
    for index in decision.obstacle.in_use[:_MOST_ROWS]:
        owner = printable(allocator.chunks.owner_of(index))
        print_sentence(
            console,
            f"  in the way: 0x{allocator.chunks.address[index]:x}, {format_size(allocator.chunks.size[index])}"
            f"{f', {owner}' if owner else ''}",
        )
    more = len(decision.obstacle.in_use) - _MOST_ROWS
    if more > 0:
        print_sentence(console, f"  in the way: {plural(more, 'more chunk')}")


def _sums(allocator: Allocator) -> drawing.Table:
    table = drawing.Table(show_header=False)
    table.add_column("", no_wrap=True)
    table.add_numbers("")
    table.add_column("")
    for row in _sum_rows(allocator):
        table.add_row(*row)
    return table


def _sum_rows(allocator: Allocator) -> Iterator[tuple[str, str, str]]:
    limit = allocator.limit_bytes
    if limit is not None:
        yield ("limit", "none" if limit >= NO_LIMIT else format_size(limit), "")
    if not allocator.is_complete:
        yield from _counted_rows(allocator)
        return
    yield "pool", format_size(allocator.pool_bytes), plural(len(allocator.regions), "region")
    if allocator.reserved_bytes:
        yield "reserved", format_size(allocator.reserved_bytes), "in use, in no region"
    yield "in use", format_size(allocator.in_use_bytes), plural(allocator.in_use_count, "chunk")
    asked = allocator.requested_bytes
    if asked is not None:
        unused = allocator.in_use_bytes - asked
        where = f": {largest_waste(allocator)}" if unused else ""
        yield "requested", format_size(asked), f"{format_size(unused)} of the chunks in use are unused{where}"
    if allocator.pending_bytes:
        yield "pending", format_size(allocator.pending_bytes), "freed, but still used by the device"
    yield "free", format_size(allocator.free_bytes), plural(allocator.free_count, "chunk")
    yield "largest free", format_size(allocator.largest_free_bytes), ""
    fragmentation = allocator.fragmentation
    if fragmentation is not None:
        yield "fragmentation", f"{fragmentation:.0%}", "of the free bytes are not in the largest chunk"
    growth = _growth(allocator.options)
    if growth and allocator.kind != PYTORCH:
        yield "growth", growth[0], growth[1]
    if allocator.is_locked:
        yield "mutex", "held", "by a thread during an operation: these numbers may be partly updated"


def _counted_rows(allocator: Allocator) -> Iterator[tuple[str, str, str]]:
    """Yield the allocator's own counts, and the listed part of them if chunks are missing."""
    counted = allocator.counters
    for name, size in (("pool", counted.pool_bytes), ("in use", counted.in_use_bytes)):
        if size is not None:
            yield name, format_size(size), "by its own count"
    if counted.reserved_bytes:
        yield "reserved", format_size(counted.reserved_bytes), "in use, in no region"
    if len(allocator.chunks):
        used, free = allocator.bytes_in(IN_USE), allocator.free_bytes
        yield "listed", format_size(used), f"in use, {plural(allocator.in_use_count, 'chunk')}"
        yield "", format_size(free), f"free, {plural(allocator.free_count, 'chunk')}"
    growth = _growth(allocator.options)
    if growth:
        yield "growth", growth[0], growth[1]


def _growth(options: Options) -> Optional[tuple[str, str]]:
    if options.grows_as_requested:
        return "as requested", "each region is as large as the request that needs it"
    if options.allow_growth is False:
        return "none", "the whole limit is one region"
    if options.next_region_bytes is None:
        return None
    return format_size(options.next_region_bytes), "the next region, doubled as often as a request needs"


def _print_regions(allocator: Allocator, console: Console) -> None:
    """Print a bar for each of the largest regions: '#' in use, '.' free, '+' both."""
    regions = sorted(allocator.regions, key=lambda region: -region.size_bytes)[:_MOST_ROWS]
    shown = {id(region) for region in regions}
    columns = max(_SHORTEST_BAR, min(_BAR_COLUMNS, console.width - _BEFORE_BAR))
    for region in allocator.regions:
        if id(region) in shown:
            bar = region_bar(allocator, region, columns)
            console.print(f"0x{region.address:<14x} {format_size(region.size_bytes):>10}  {bar}")
    if len(allocator.regions) > len(regions):
        console.print(f"and {plural(len(allocator.regions) - len(regions), 'smaller region')}")
    console.print("# in use, . free, + both")


def region_bar(allocator: Allocator, region: Region, columns: int) -> str:
    """Return a region as at most *columns* characters of equal parts: '#' in use, '.' free, '+' both."""
    start, size_bytes = region.address, region.size_bytes
    columns = min(columns, max(1, size_bytes // 256))
    used, free = bytearray(columns), bytearray(columns)
    for index in region.indices:
        low = (allocator.chunks.address[index] - start) * columns // size_bytes
        high = -(
            -(allocator.chunks.address[index] - start + allocator.chunks.size[index]) * columns // size_bytes
        )
        low, high = max(0, min(low, columns)), max(0, min(high, columns))
        marks = free if allocator.chunks.state[index] == FREE else used
        marks[low:high] = b"\1" * (high - low)
    return "".join("+" if u and f else "#" if u else "." if f else "?" for u, f in zip(used, free))


def _bins(allocator: Allocator) -> drawing.Table:
    table = drawing.Table()
    table.add_numbers("chunks of", "in use", "", "free", " ")
    for one in allocator.bins():
        if one.in_use or one.free:
            used = format_size(one.in_use_bytes) if one.in_use else ""
            free = format_size(one.free_bytes) if one.free else ""
            floor = f"{format_size(one.floor_bytes)}…"
            table.add_row(floor, f"{one.in_use:,}", used, f"{one.free:,}", free)
    return table


def _print_chunks(allocator: Allocator, view: PoolView, console: Console) -> None:
    chosen = list(chosen_chunks(allocator, view))
    table = drawing.Table()
    table.add_column("chunk", no_wrap=True)
    table.add_numbers("size", "requested")
    table.add_column("state", no_wrap=True)
    table.add_column("owner")
    for index in chosen[: view.top]:
        asked = allocator.chunks.requested_of(index)
        state = ("free", "in use", "pending")[allocator.chunks.state[index]]
        size = format_size(allocator.chunks.size[index])
        row = (
            f"0x{allocator.chunks.address[index]:x}",
            size,
            "" if asked is None else format_size(asked),
            state,
        )
        table.add_row(*row, printable(allocator.chunks.owner_of(index)))
    console.print(table)
    if len(chosen) > view.top:
        console.print(f"and {plural(len(chosen) - view.top, 'more chunk')} (--top N)")


def chosen_chunks(allocator: Allocator, view: PoolView) -> Iterator[int]:
    """Yield the indices of the chunks that *view* selects, in order of address."""
    states = {"free": allocator.where(FREE), "used": allocator.where(IN_USE)}
    mask = states.get(view.state, b"\1" * len(allocator.chunks))
    for index in compress(range(len(allocator.chunks)), mask):
        if allocator.chunks.size[index] >= view.at_least_bytes and view.owner in allocator.chunks.owner_of(
            index
        ):
            yield index
