"""The ledger for a terminal: the answer, the entries, and on request sizes, pinners and arenas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional

from gdbmem.errors import InputError
from gdbmem.ledger.answer import DAMAGES, answer_ledger, doubt_of, print_tried
from gdbmem.model.ledger import (
    ALLOCATORS_OWN,
    BFC,
    CHANGING,
    FILE_COPIED,
    FILE_MAPPED,
    FREE_CHUNKS,
    FREE_IN_POOLS,
    FREE_PAGES,
    FREE_POOLS,
    HEADERS,
    HEAP_PINNED,
    IN_CACHES,
    IN_HUGE_PAGES,
    IN_SLABS,
    INTERNAL_WASTE,
    LAZY_PAGES,
    LIVE,
    PYMALLOC,
    RETURNED_PAGES,
    SHARED,
    SHARED_BY_FORK,
    UNUSED_IN_VECTORS,
    Arena,
    Entry,
    LargePiece,
    Ledger,
    OtherMalloc,
    SizeClass,
    in_arena,
)
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_notices
from gdbmem.text import format_delta, format_duration, format_size, plural, printable

if TYPE_CHECKING:
    from gdbmem.ledger.pinners import PinnerPaths

_MEANING = {
    "heap.live": "live blocks",
    "heap.metadata": "malloc's headers",
    "heap.free.releasable": "free: malloc_trim(0) would return it",
    "heap.free.pinned": "free, on pages that live blocks share",
    "heap.free.cached": "free, in tcaches and fastbins",
    "heap.mmapped": "blocks that malloc mapped individually",
    "stack.main": "stack of the first thread",
    "stack.thread": "stacks of threads",
    "stack.unjoined": "stacks of ended threads that no thread has joined",
    "stack.cached": "stacks of ended threads that libc keeps for the next ones",
    "file.code": "programs' and libraries' code and constants",
    "file.data": "programs' and libraries' variables",
    "file.mapped": "pages of other mapped files",
    "file.copied": "private copies of pages of mapped files",
    "shared": "shared memory",
    "device": "mapped from a driver or the kernel",
    "anonymous.droppable": "mapped with MAP_DROPPABLE: the kernel takes it when memory is short",
    "anonymous.lazyfree": "freed (MADV_FREE), resident until the kernel needs it",
    "anonymous.named": "named by the program",
    "anonymous.other": "anonymous memory of unknown use",
}
_MOST_NAMES = 3  # of shared memory, and of pools
# Notices of an inconsistent heap.
_MEANING_IN_DOUBT = {
    "free.releasable": "marked as free",
    "free.pinned": "marked as free",
    "live": "not marked as free",
}
_MOST_ARENAS = 4  # more than these are one line in the table
_MOST_SIZES = 20
_LEAST_NAMED = 16 << 20  # of programs and libraries
_LEAST_WIDTH = 72
_OF_IT = {
    SHARED_BY_FORK: "shared with other processes since a fork",
    "huge_pages": "in huge pages",
    "merged_by_ksm": "merged by KSM",
    UNUSED_IN_VECTORS: "vectors' unused capacity",
}
_IN_ADDITION = {
    "page_tables": "page tables",
    "swap": "swapped out",
    "hugetlb": "hugetlbfs, which Rss leaves out,",
    "zeros_in_core": "pages of zeros in the core",
    "omitted_from_core": "not in the core",
    "cut_from_core": "cut off the core",
}
_LEAST_UNUSED = 1 << 16  # of vectors: every C++ program has some


class LedgerOptions(NamedTuple):
    """The requested parts of a ledger."""

    sizes: bool = False
    pinners: bool = False
    arena: Optional[int] = None


_WHOLE = LedgerOptions()


def print_ledger(
    ledger: Ledger, console: Console, view: LedgerOptions = _WHOLE, paths: Optional[PinnerPaths] = None
) -> None:
    """Print *ledger*, the answer first; *paths* are the call paths that allocate pinning blocks.

    Raises InputError if *view* requests an arena that does not exist.
    """
    arena = _arena_of(ledger, view.arena) if view.arena is not None else None
    console.print(drawing.Text(answer_ledger(ledger, paths), "bold"), soft_wrap=True)
    console.print()
    _print_table(_entries(ledger), console)
    _print_beside(ledger, console)
    if ledger.tried:
        print_tried(ledger, console)
    if (view.pinners or view.sizes) and not ledger.mallocs and not _has_blocks(ledger):
        console.print("\nThere are no blocks of glibc's malloc to list.")
    elif view.sizes:
        _print_sizes(ledger, console)
    if view.pinners:
        for malloc in ledger.mallocs:
            _print_slab_pinners(malloc, console)
    if view.pinners and _has_blocks(ledger):
        _print_pinners(ledger, console)
    if arena is not None:
        _print_arena(arena, console)
    _print_unclaimed(ledger, console)
    said = answer_ledger(ledger, paths)
    print_notices([n for n in ledger.notices if n.message not in said], console)


def _new_table(*columns: str) -> drawing.Table:
    table = drawing.Table(header_style="dim")
    for name in columns:
        left = name in ("what", "entry", "threads")
        wraps = name in ("what", "threads")
        table.add_column(name, justify="left" if left else "right", no_wrap=not wraps)
    return table


def _print_table(table: drawing.Table, console: Console) -> None:
    # On a narrower terminal its last column would be one character wide: the terminal wraps the lines then.
    width = console.width
    console.width = max(width, _LEAST_WIDTH)
    console.print(table)
    console.width = width


def _entries(ledger: Ledger) -> drawing.Table:
    table = _new_table("resident", "share", "entry", "what")
    is_sound = doubt_of(ledger, DAMAGES) is None
    for entry in folded_entries(ledger):
        share = 100 * entry.resident_bytes / ledger.rss_bytes if ledger.rss_bytes else 0.0
        table.add_row(
            format_size(entry.resident_bytes),
            f"{share:.1f} %",
            entry.category,
            printable(what_holds(entry, is_sound=is_sound)),
        )
    table.add_row(format_size(ledger.rss_bytes), "100.0 %", "total", "")
    return table


def folded_entries(ledger: Ledger) -> Sequence[Entry]:
    """Return the entries, those of many arenas summed by category."""
    arenas = {entry.label for entry in ledger.entries if entry.category.startswith("arena.")}
    if len(arenas) <= _MOST_ARENAS:
        return [entry for entry in ledger.entries if entry.resident_bytes or entry.allocated_bytes]
    result: list[Entry] = []
    sums: dict[str, tuple[int, int, int]] = {}
    for entry in ledger.entries:
        if not entry.category.startswith("arena."):
            result.append(entry)
            continue
        resident, allocated, top = sums.get(entry.category, (0, 0, 0))
        sums[entry.category] = (
            resident + entry.resident_bytes,
            allocated + (entry.allocated_bytes or 0),
            top + entry.detail.get("top_bytes", 0),
        )
    at = next((n for n, entry in enumerate(result) if not entry.category.startswith("heap.")), len(result))
    label = f"{len(arenas)} further arenas"
    folded = [
        Entry(category, label, resident, allocated or None, {"top_bytes": top} if top else {})
        for category, (resident, allocated, top) in sums.items()
    ]
    return result[:at] + folded + result[at:]


_PARTS = {
    PYMALLOC: {
        LIVE: "Python's small objects and their tables: live blocks",
        HEADERS: "pymalloc's headers, and parts of its pools too small for a block",
        FREE_IN_POOLS: "freed by Python, in pools that live blocks share",
        FREE_POOLS: "freed by Python, in arenas that other pools keep",
    },
    BFC: {
        LIVE: "pools of TensorFlow, XLA or onnxruntime: in use, as requested",
        INTERNAL_WASTE: "unrequested parts of chunks in use",
        FREE_CHUNKS: "free chunks, which the pools keep for later requests",
    },
}


_IN_OTHERS = {
    LIVE: "live blocks",
    IN_CACHES: "free, in caches of threads and of the allocator",
    IN_SLABS: "free, in slabs that live blocks share",
    IN_HUGE_PAGES: "free, in huge pages that live blocks share or that the allocator keeps",
    FREE_PAGES: "free pages, without a live block",
    LAZY_PAGES: "free pages (MADV_FREE), resident until the kernel needs them",
    RETURNED_PAGES: "pages that the allocator counts as returned, and are resident",
    ALLOCATORS_OWN: "the allocator's own structures",
    CHANGING: "pages that the allocator was changing",
}


def _meaning(category: str) -> str:
    if category.startswith("allocator."):
        return f"anonymous memory: the heap of {category[10:]}, or mapped by other code"
    return _MEANING.get(category.replace("arena.", "heap.", 1), "")


def what_holds(entry: Entry, *, is_sound: bool) -> str:
    """Describe *entry*, unescaped; *is_sound*: the heap is consistent."""
    known = (
        _meaning(entry.category)
        if is_sound
        else _MEANING_IN_DOUBT.get(entry.category.partition(".")[2], _meaning(entry.category))
    )
    known = _PARTS.get(entry.category, {}).get(entry.label, known)
    parts = [entry.label] if entry.label and entry.category not in _PARTS else []
    part, _, file = entry.label.partition(", ")
    if entry.category.startswith("allocator.") and entry.category not in _PARTS and part in _IN_OTHERS:
        parts, known = [f"in {file}"] if file else [], _IN_OTHERS[part]
    blocks = entry.detail.get("blocks")
    if blocks is not None:
        known = known.replace("live blocks", plural(blocks, "live block")).replace(
            "blocks that malloc mapped individually",
            f"{plural(blocks, 'block')} that malloc mapped individually",
        )
    stacks = entry.detail.get("stacks")
    if stacks is not None:
        known = f"{known} ({stacks:,})"
    parts.append(known)
    names = [pool["name"] for pool in entry.detail.get("pools", ()) if pool["name"]]
    if names:
        parts.append(", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else ""))
    untouched = (entry.allocated_bytes or 0) - entry.resident_bytes
    if untouched > 64 << 10 and not entry.category.endswith("cached"):
        parts.append(f"{format_size(entry.allocated_bytes or 0)} allocated, not all of it resident")
    top = entry.detail.get("top_bytes", 0)
    if top > 1 << 16:
        parts.append(f"{format_size(top)} of it at the arenas' ends, kept for growing")
    is_large = entry.category.startswith("file.") and entry.resident_bytes >= _LEAST_NAMED
    if is_large or entry.category in (SHARED, FILE_MAPPED, FILE_COPIED):
        parts += [_named(piece) for piece in entry.detail.get("largest", ())[:_MOST_NAMES]]
    return "; ".join(part for part in parts if part)


def _named(piece: LargePiece) -> str:
    return f"{piece['name']} {format_size(piece['resident_bytes'])}"


def _print_beside(ledger: Ledger, console: Console) -> None:
    for sentence in beside(ledger):
        console.print(sentence)


def beside(ledger: Ledger) -> list[str]:
    """Return sentences on memory outside the resident set, and on the duration of the stop."""
    lists = (("Of the total: {}", _OF_IT), ("In addition: {}", _IN_ADDITION))
    found = []
    for sentence, table in lists:
        parts = [
            f"{text} {format_size(ledger.beside[name])}"
            for name, text in table.items()
            if ledger.beside.get(name, 0) > (_LEAST_UNUSED if name == UNUSED_IN_VECTORS else 0)
        ]
        if parts:
            found.append(sentence.format(", ".join(parts)))
    if ledger.pause_seconds is not None:
        found.append(f"The process was stopped for {format_duration(ledger.pause_seconds)}.")
    return found


def _has_blocks(ledger: Ledger) -> bool:
    return ledger.heap is not None and bool(ledger.heap.sizes)


def _print_sizes(ledger: Ledger, console: Console) -> None:
    for malloc in ledger.mallocs:
        _print_slabs(malloc, console)
    if not _has_blocks(ledger):
        return
    sizes = ledger.heap.sizes if ledger.heap is not None else ()
    table = _new_table("block size", "live", "bytes", "free", "bytes", "tcache", "fastbin", "pinned")
    for size in heaviest(sizes):
        table.add_row(
            f"{size.size_bytes - 8:,}",
            f"{size.live:,}",
            format_size(size.live * size.size_bytes),
            f"{size.free:,}",
            format_size(size.free * size.size_bytes),
            f"{size.tcache:,}",
            f"{size.fastbin:,}",
            format_size(round(size.pinned_bytes)),
        )
    console.print(f"\nBlocks by size (usable bytes){_of_many(len(sizes), 'hold')}", soft_wrap=True)
    console.print(table)


def _print_slabs(malloc: OtherMalloc, console: Console) -> None:
    table = _new_table("block size", "live", "bytes", "cached", "free", "slabs", "free, resident")
    sizes = [size for size in malloc.sizes if size.live or size.cached or size.free]
    for size in sorted(sizes, key=lambda one: -one.block_bytes * (one.live + one.cached + one.free))[
        :_MOST_SIZES
    ]:
        table.add_row(
            f"{size.block_bytes:,}",
            f"{size.live:,}",
            format_size(size.live * size.block_bytes),
            f"{size.cached:,}",
            f"{size.free:,}",
            f"{size.slabs:,}",
            format_size(size.free_resident_bytes),
        )
    where = f" in {printable(malloc.suffix[2:])}" if malloc.suffix else ""
    console.print(
        f"\nBlocks of {malloc.allocator}{where} in slabs, by size{_of_many(len(sizes), 'hold')}",
        soft_wrap=True,
    )
    console.print(table)


def _print_slab_pinners(malloc: OtherMalloc, console: Console) -> None:
    sizes = [size for size in malloc.sizes if size.live and size.free_resident_bytes]
    where = f" in {printable(malloc.suffix[2:])}" if malloc.suffix else ""
    if not sizes:
        console.print(f"\nNo live block of {malloc.allocator}{where} pins free memory.")
        return
    table = _new_table("block size", "live", "slabs", "pinned")
    for size in sorted(sizes, key=lambda one: -one.free_resident_bytes)[:_MOST_SIZES]:
        table.add_row(
            f"{size.block_bytes:,}",
            f"{size.live:,}",
            f"{size.slabs:,}",
            format_size(size.free_resident_bytes),
        )
    console.print(
        f"\nLive blocks of {malloc.allocator}{where} in slabs that are otherwise free: the free memory that each size"
        f" pins{_of_many(len(sizes), 'keep')}",
        soft_wrap=True,
    )
    console.print(table)


def heaviest(sizes: Sequence[SizeClass]) -> Sequence[SizeClass]:
    """Return those of *sizes* that hold most, live and free, the first twenty."""
    return sorted(sizes, key=_weight, reverse=True)[:_MOST_SIZES]


def _weight(size: SizeClass) -> int:
    return size.size_bytes * (size.live + size.free + size.tcache + size.fastbin)


def _print_pinners(ledger: Ledger, console: Console) -> None:
    sizes = [size for size in (ledger.heap.sizes if ledger.heap else ()) if size.pinned_bytes >= 1]
    if not sizes:
        console.print("\nNo live block pins free pages.")
        return
    table = _new_table("block size", "live", "pinned")
    for size in sorted(sizes, key=lambda s: s.pinned_bytes, reverse=True)[:_MOST_SIZES]:
        table.add_row(f"{size.size_bytes - 8:,}", f"{size.live:,}", format_size(size.pinned_bytes))
    console.print(
        "\nLive blocks on pages that are otherwise free: the free memory that each size pins"
        + _of_many(len(sizes), "keep"),
        soft_wrap=True,
    )
    console.print(table)
    pinned = ledger.total(HEAP_PINNED, in_arena(HEAP_PINNED))
    rest = pinned - sum(size.pinned_bytes for size in sizes)
    if rest >= 4096:
        console.print(
            f"A further {format_size(round(rest))} are on pages without a live block that malloc_trim does not return:"
            " those where free areas begin, and the ends of further arenas.",
            soft_wrap=True,
        )


def _of_many(count: int, verb: str) -> str:
    return f", the {_MOST_SIZES} of {count:,} that {verb} most" if count > _MOST_SIZES else ""


def _arena_of(ledger: Ledger, number: int) -> Arena:
    arenas = ledger.heap.arenas if ledger.heap else []
    for arena in arenas:
        if arena.number == number:
            return arena
    known = [arena.number for arena in arenas]
    raise InputError(
        f"{printable(ledger.program)} has no arena {number}",
        slug="no-such-arena",
        hint=f"there are arenas {known[0]} to {known[-1]}"
        if len(known) > 1
        else "there is arena 0 only"
        if known
        else "glibc's malloc could not be read",
    )


def _print_arena(arena: Arena, console: Console) -> None:
    threads = ", ".join(str(tid) for tid in arena.threads) or "no thread"
    console.print(f"\nArena {arena.number} at 0x{arena.address:x}, used by {threads}")
    for text, size, count in (
        ("live", arena.live_bytes, arena.live_chunks),
        ("free", arena.free_bytes, arena.free_chunks),
        ("cached", arena.cached_bytes, arena.cached_chunks),
    ):
        console.print(f"  {text:<8} {format_size(size):>12}  {plural(count, 'block')}")
    console.print(
        f"  {'top':<8} {format_size(arena.top_bytes):>12}  of {format_size(arena.system_bytes)} got from the system"
    )


def _print_unclaimed(ledger: Ledger, console: Console) -> None:
    others: list[LargePiece] = [
        piece
        for entry in ledger.entries
        if entry.category == "anonymous.other"
        for piece in entry.detail["largest"]
    ]
    if sum(piece["resident_bytes"] for piece in others) < max(ledger.rss_bytes // 50, 1 << 20):
        return
    console.print("\nUnclaimed, the largest mappings:")
    for piece in others:
        size, mapped = format_size(piece["resident_bytes"]), format_size(piece["mapped_bytes"])
        console.print(f"  {size:>12} of {mapped:>12}  {printable(piece['name'])}")


def print_growth(before: Ledger, after: Ledger, console: Console, names: tuple[str, str]) -> None:
    """Print the change of each entry between two ledgers, the largest first."""
    rows = growth(before, after)
    console.print(drawing.Text(growth_sentence(before, after, names), "bold"), soft_wrap=True)
    table = _new_table("change", "before", "after", "entry", "what")
    for (category, label), old, new in rows:
        style = "red" if new > old else "green"
        table.add_row(
            drawing.Text(format_delta(new - old), style),
            format_size(old),
            format_size(new),
            category,
            printable(what_grew(category, label)),
        )
    if rows:
        console.print()
        _print_table(table, console)
    print_notices([*before.notices, *after.notices], console)


def growth_sentence(before: Ledger, after: Ledger, names: tuple[str, str]) -> str:
    """Return the change of the resident set, and the entry with most of it."""
    rows = growth(before, after)
    delta = after.rss_bytes - before.rss_bytes
    change = format_delta(delta) if delta else "unchanged"
    sentence = f"resident set {change} from {printable(names[0])} to {printable(names[1])}"
    if not rows:
        return sentence
    (category, label), old, new = rows[0]
    of = f" ({printable(label)})" if label else ""
    return f"{sentence}; most in {category}{of}: {format_delta(new - old)}"


def what_grew(category: str, label: str) -> str:
    """Describe an entry of this *category* and *label*, unescaped."""
    return "; ".join(part for part in (label, _meaning(category)) if part)


def growth(before: Ledger, after: Ledger) -> list[tuple[tuple[str, str], int, int]]:
    """Return (entry, bytes before, bytes after) of each entry that changed, the largest change first."""
    old = {entry.key: entry.resident_bytes for entry in before.entries}
    new = {entry.key: entry.resident_bytes for entry in after.entries}
    rows = [(key, old.get(key, 0), new.get(key, 0)) for key in {**old, **new}]
    return sorted((row for row in rows if row[1] != row[2]), key=lambda row: -abs(row[2] - row[1]))
