"""The arenas of Python's allocator, as text: live and free blocks, and the blocks that keep them."""

from __future__ import annotations

from gdbmem.model.python import ArenaUse
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.drawing import Table, new_table
from gdbmem.report.notices import print_notices, print_pause
from gdbmem.text import plural, printable
from gdbmem.units import format_size


def print_arenas(use: ArenaUse, console: Console, *, top: int) -> None:
    """Print how full the arenas are, and the *top* types that keep the emptiest."""
    print_sentence(console, arenas_answer(use), "bold")
    console.print()
    console.print(_parts(use))
    console.print()
    console.print(_fill(use))
    if use.keepers:
        console.print()
        print_sentence(
            console,
            f"Arenas of which at most {use.keeper_share:.0%} is live are kept by these blocks:".replace(
                "%", " %"
            ),
        )
        console.print(_keepers(use, top))
    print_pause(use.pause_seconds, console)
    print_notices(use.notices, console)


def arenas_answer(use: ArenaUse) -> str:
    """Return the size of the arenas, and the live part."""
    free = use.free_in_pools_bytes + use.free_pools_bytes
    text = (
        f"{plural(use.arenas, 'arena')} of {format_size(use.arena_bytes)} hold {format_size(use.live_bytes)} of live"
        f" blocks; {format_size(free)} in them are free"
    )
    sparse = [one for one in use.fill if one.most <= use.keeper_share and one.arenas]
    count = sum(one.arenas for one in sparse)
    if not count:
        return f"{text}: no arena is emptier than {use.keeper_share:.0%}".replace("%", " %")
    size, live = sum(one.bytes for one in sparse), sum(one.live_blocks for one in sparse)
    return (
        f"{text}, {format_size(size - sum(one.live_bytes for one in sparse))} of that in {plural(count, 'arena')}"
        f" that {plural(live, 'live block')} keep: an arena goes back to the system when its last block is freed"
    )


def _parts(use: ArenaUse) -> Table:
    table = new_table("bytes", "share", "resident", last="what")
    rows = (
        (use.live_bytes, "live", f"live, in {plural(use.live_blocks, 'block')}"),
        (use.free_in_pools_bytes, "free in pools", "free, in pools with live blocks"),
        (use.free_pools_bytes, "free pools", "free, in pools without any"),
        (use.header_bytes, "headers", "headers, and parts too small for a block"),
        (use.bytes, "", f"{plural(use.arenas, 'arena')}, in pools of {format_size(use.pool_bytes)}"),
    )
    for size, label, what in rows:
        resident = use.resident.get(label, 0) if label else sum(use.resident.values())
        table.add_row(format_size(size), f"{100 * size / use.bytes:.1f} %", format_size(resident), what)
    return table


def _fill(use: ArenaUse) -> Table:
    table = new_table("arenas", "bytes", "live", "blocks", last="of which is live")
    least = 0.0
    for one in use.fill:
        if one.arenas:
            label = f"{least:.0%} to {one.most:.0%}".replace("%", " %")
            table.add_row(
                f"{one.arenas:,}",
                format_size(one.bytes),
                format_size(one.live_bytes),
                f"{one.live_blocks:,}",
                label,
            )
        least = one.most
    return table


def _keepers(use: ArenaUse, top: int) -> Table:
    table = new_table("blocks", "bytes", last="type")
    for one in use.keepers[:top]:
        name = printable(one.type) if one.type else "no objects: tables of dicts, items of lists, buffers, …"
        table.add_row(f"{one.count:,}", format_size(one.bytes), name)
    rest = use.keepers[top:]
    if rest:
        count, size = sum(one.count for one in rest), sum(one.bytes for one in rest)
        table.add_row(f"{count:,}", format_size(size), plural(len(rest), "further type"))
    return table
