"""The answer: the ledger in one sentence, with the best remedy, and what calls that were tried in a copy returned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Optional

from gdbmem.errors import Notice
from gdbmem.model import ledger as names
from gdbmem.model.ledger import TRIM, Ledger, OtherMalloc, Remedy, SizeClass, Tried, best_remedy
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_sentence
from gdbmem.text import format_size, plural, printable

if TYPE_CHECKING:
    from gdbmem.ledger.pinners import PinnerPaths

# Notices that make every figure of the heap doubtful, and those that make some of them doubtful.
DAMAGES = ("heap-corrupt",)
PARTIAL = (
    "malloc-unknown",
    "heap-changing",
    "arena-locked",
    "tcache-unread",
    "heap-pieces-missing",
    "mmapped-chunks-differ",
)
_FIRST_THRESHOLD = 128 << 10  # of malloc's trim and mmap thresholds
_LINES = ": 'massif-diff' finds the lines that grow"
_LIVE_HEAP = {  # the next step, by the runtime
    "python": ": 'gdbmem python objects' counts Python's objects in it by type",
    "static": ": 'gdbmem grow' finds the lines that make it bigger; massif sees no malloc that is linked statically",
    "v8": " outside V8's: buffers and native code, which process.memoryUsage() in the program distinguishes",
    "jvm": " outside Java's: 'jcmd PID VM.native_memory' shows what it is for, if the JVM tracks it",
    **{
        name: f" outside the heap of {name}: 'gdbmem grow' finds the native code that makes it bigger"
        for name in ("dotnet", "erlang", "luajit", "spidermonkey")
    },
    "ruby": " outside Ruby's slots: its long strings, arrays and hashes, which ObjectSpace.memsize_of_all in the"
    " program counts with the slots, and native code",
}
_LAZY = "freed already (MADV_FREE): the kernel takes it when memory is short, and counts it as resident until then"


def answer_ledger(ledger: Ledger, paths: Optional[PinnerPaths] = None) -> str:
    """Return where the resident set is and what would reduce it; *paths* name the allocators of pinning blocks."""
    size = format_size(ledger.rss_bytes)
    noun = "resident" if ledger.pid is not None else "of data in the core"
    cut = ledger.beside.get("cut_from_core", 0)
    if cut:
        noun += f", which is truncated: {format_size(cut)} are missing from its end"
    outside = ledger.beside.get("hugetlb", 0)
    if outside and matters(ledger, outside):
        noun += f", and {format_size(outside)} of hugetlbfs, which Rss leaves out"
    damage = doubt_of(ledger, DAMAGES)
    if damage is not None:
        return f"{size} {noun}; {damage.message}; the free part and the effect of malloc_trim(0) are unknown"
    trial = main_trial(ledger) if ledger.tried else None
    tried = trial_sentence(ledger, trial) if trial is not None else ""
    if trial is not None and malloc_of(ledger, trial) is not None:
        return f"{size} {noun}; {tried}{_in_doubt(ledger)}"
    advice = (
        _inherited(ledger)
        or _mostly_pinned(ledger, paths)
        or _remedied(ledger)
        or _in_mallocs(ledger, paths)
        or _lazily_freed(ledger)
        or _pinned(ledger, paths)
        or _in_vectors(ledger)
        or _unsure(ledger)
        or _in_python(ledger)
        or _in_pools(ledger)
        or _stacks(ledger)
        or _largest(ledger)
    )
    return f"{size} {noun}; {f'{tried}; ' if tried else ''}{advice}{_in_doubt(ledger)}"


def _in_doubt(ledger: Ledger) -> str:
    doubt = doubt_of(ledger, PARTIAL)
    return f"; in doubt: {doubt.message}" if doubt is not None else ""


def doubt_of(ledger: Ledger, slugs: Sequence[str]) -> Optional[Notice]:
    """Return the first notice about the heap with one of *slugs*, which are sorted by severity; None: none."""
    return next((n for slug in slugs for n in ledger.notices if n.slug == slug), None)


def freed_bytes(ledger: Ledger) -> int:
    """Return the resident bytes that the program has freed and glibc has not returned."""
    return ledger.total("heap.free", "arena.free")


def retained_bytes(ledger: Ledger) -> Optional[int]:
    """Return the resident bytes that the program has freed and malloc has not returned; None if that is unknown."""
    slugs = {notice.slug for notice in ledger.notices}
    if ledger.mallocs:
        is_read = all(one.cached_bytes is not None for one in ledger.mallocs)
        is_read &= not slugs & {"malloc-unknown", "other-libc"}
    else:
        is_read = (ledger.heap is not None or "malloc-unused" in slugs) and "malloc-replaced" not in slugs
    return freed_bytes(ledger) + sum(map(ledger.freed_in, ledger.mallocs)) if is_read else None


def _inherited(ledger: Ledger) -> str:
    """Return what a forked worker has from its parent; "" if most of the process's memory is its own."""
    shared = ledger.beside.get(names.SHARED_BY_FORK, 0)
    if ledger.forked_from is None or not matters(ledger, shared) or shared * 2 < ledger.rss_bytes:
        return ""
    cow = ", 'gdbmem python cow' which objects it copies" if ledger.runtime == "python" else ""
    return (
        f"{format_size(shared)} of it is memory that it has had from its parent since the fork and has not written:"
        f" 'gdbmem explain {ledger.forked_from}' shows what it is{cow}"
    )


def _remedied(ledger: Ledger) -> str:
    """Return the simulated effect of the best remedy; with "may" if the heap is in doubt."""
    best = best_remedy(ledger.remedies)
    releasable = ledger.releasable_bytes or 0
    text = f"{format_size(freed_bytes(ledger))} of it is freed memory that glibc keeps"
    if best is None:
        return (
            f"{text}: {TRIM} may return up to {format_size(releasable)}"
            if matters(ledger, releasable)
            else ""
        )
    if not matters(ledger, best.predicted_bytes or 0):
        return ""
    return f"{text}{_why_kept(ledger)}: {_effect(best)}"


def _effect(remedy: Remedy) -> str:
    gain = format_size(remedy.predicted_bytes or 0)
    if remedy.is_call:
        return f"{TRIM} would return {gain} ({remedy.cost})"
    low, high = format_size(remedy.low_bytes), format_size(remedy.high_bytes)
    return f"GLIBC_TUNABLES={remedy.setting} would save about {gain} ({low} to {high}; {remedy.cost})"


def _why_kept(ledger: Ledger) -> str:
    """Return why malloc has not trimmed the free end of its heap, if that is most of what it keeps.

    Source: glibc malloc/malloc.c, __libc_free: the thresholds follow the size of freed blocks that were mapped.
    """
    heap = ledger.heap
    if heap is None or not heap.trim_threshold_bytes or not heap.mmap_threshold_bytes or not heap.arenas:
        return ""
    end = heap.arenas[0].top_bytes
    is_raised = _FIRST_THRESHOLD < heap.mmap_threshold_bytes == heap.trim_threshold_bytes / 2
    if (
        not is_raised
        or not _FIRST_THRESHOLD < end < heap.trim_threshold_bytes
        or end * 2 < freed_bytes(ledger)
    ):
        return ""
    return (
        f", because it raised its trim threshold to {format_size(heap.trim_threshold_bytes)} when a block of"
        f" {format_size(heap.mmap_threshold_bytes)} was freed"
    )


def _mostly_pinned(ledger: Ledger, paths: Optional[PinnerPaths]) -> str:
    """Return what pins most of the freed memory, and what a remedy would return of the rest; "" if less is pinned."""
    pinned = ledger.total(names.HEAP_PINNED, names.in_arena(names.HEAP_PINNED))
    best = best_remedy(ledger.remedies)
    gain = best.predicted_bytes or 0 if best is not None else 0
    if pinned * 2 <= freed_bytes(ledger) or gain >= pinned:
        return ""
    text = _pinned(ledger, paths)
    return f"{text}; {_effect(best)}" if text and best is not None and matters(ledger, gain) else text


def _lazily_freed(ledger: Ledger) -> str:
    lazy = ledger.total(names.LAZILY_FREED)
    return f"{format_size(lazy)} of it is {_LAZY}" if matters(ledger, lazy) else ""


def _pinned(ledger: Ledger, paths: Optional[PinnerPaths]) -> str:
    pinned = ledger.total(names.HEAP_PINNED, names.in_arena(names.HEAP_PINNED))
    tops = sum(e.detail.get("top_bytes", 0) for e in ledger.entries)
    if not matters(ledger, pinned):
        return ""
    culprits = _culprits(ledger, pinned)
    freed = freed_bytes(ledger)
    share = f"{100 * pinned / freed:.0f} %" if freed else "part"
    text = (
        f"{format_size(freed)} of it is freed memory that glibc keeps, and {share} of that can't be returned"
    )
    if culprits:
        blocks = plural(sum(size.live for size in culprits), "live block")
        sizes = " and ".join(f"{size.size_bytes - 8:,}" for size in culprits)
        who = _allocated_by([size.size_bytes for size in culprits], paths, "--pinners")
        return f"{text}: {blocks} of {sizes} bytes lie on its pages{who}"
    if tops * 2 > pinned and len(ledger.heap.arenas if ledger.heap else ()) > 1:
        return f"{text}: it is the free end of further arenas, which malloc_trim leaves alone"
    return f"{text}: live blocks lie on the same pages (see --pinners)"


def _allocated_by(sizes: Sequence[int], paths: Optional[PinnerPaths], option: str) -> str:
    """Return the paths that allocate blocks of these *sizes*, bytes, from *paths*, or how to find out."""
    if paths is None:
        return f" ({option} lists them, --paths RUN:NAME shows the call paths that allocate such blocks)"
    sites = list(dict.fromkeys(paths.likely_site(size) for size in sizes))
    if not all(sites):
        return f"; {paths.why_unknown()} (see below)"
    return f", likely allocated at {' and '.join(sites)}"


def _in_vectors(ledger: Ledger) -> str:
    unused = ledger.beside.get(names.UNUSED_IN_VECTORS, 0)
    if not matters(ledger, unused):
        return ""
    return (
        f"{format_size(unused)} of it is capacity that vectors, or buffers kept like them, hold and don't use:"
        " 'memcontainers' in gdb names them, with --everywhere all"
    )


def _culprits(ledger: Ledger, pinned: int) -> list[SizeClass]:
    """Return the one or two block sizes that pin more than half of *pinned*; none if it takes more sizes."""
    sizes = sorted(ledger.heap.sizes if ledger.heap else (), key=lambda size: -size.pinned_bytes)
    for count in (1, 2):
        if sum(size.pinned_bytes for size in sizes[:count]) * 2 > pinned:
            return sizes[:count]
    return []


def _unsure(ledger: Ledger) -> str:
    """Return the remedies that might help according to the walk, and how to find out."""
    open_ones = [r for r in ledger.remedies if r.predicted_bytes is None and matters(ledger, r.high_bytes)]
    if not open_ones:
        return ""
    settings = " or ".join(remedy.setting for remedy in open_ones)
    return (
        f"{format_size(freed_bytes(ledger))} of it is freed memory that glibc keeps;"
        f" 'gdbmem compare --remedies -- PROGRAM' measures whether {settings} returns it"
    )


def _in_python(ledger: Ledger) -> str:
    """Return the free memory that Python keeps: an arena is returned when its last block is freed."""
    kept = ledger.total_of(names.PYMALLOC, names.FREE_IN_POOLS, names.FREE_POOLS)
    if not matters(ledger, kept):
        return ""
    live = ledger.total_of(names.PYMALLOC, names.LIVE)
    return (
        f"{format_size(kept)} of it is memory of objects that Python has freed and keeps in arenas that"
        f" {format_size(live)} of live ones share: 'gdbmem python arenas' shows which types keep them"
    )


def _in_pools(ledger: Ledger) -> str:
    """Return the free memory in pools of BFC allocators, which return a region when all of it is free, or never."""
    kept = ledger.total_of(names.BFC, names.FREE_CHUNKS)
    if not matters(ledger, kept):
        return ""
    return (
        f"{format_size(kept)} of it is free chunks of BFC pools, which keep them for later requests:"
        " 'gdbmem bfc' shows where they are"
    )


_RETURNS = {  # how an allocator returns free pages
    "jemalloc": 'mallctl("arena.4096.purge", …) returns them, and dirty_decay_ms sets how soon it does so by itself',
    "tcmalloc": "MallocExtension_ReleaseFreeMemory() returns them, and TCMALLOC_RELEASE_RATE sets how soon it does so"
    " by itself",
    "mimalloc": "how many of them mi_collect(true) returns depends on its version",
    "tbbmalloc": "scalable_allocation_command(TBBMALLOC_CLEAN_ALL_BUFFERS, NULL) returns a region of 1 MiB once no"
    " block in it is live",
}
_ARROW = "libarrow.so"  # has a jemalloc and a mimalloc, whose functions have names of its own


def _way_back(malloc: OtherMalloc) -> str:
    if PurePath(malloc.file).name.startswith(_ARROW):
        return (
            f": pyarrow.{malloc.allocator}_memory_pool().release_unused(), in C++ ReleaseUnused() of that pool, makes"
            " it return what it can of them"
        )
    return f": {_RETURNS[malloc.allocator]}" if malloc.allocator in _RETURNS else ""


def _in_mallocs(ledger: Ledger, paths: Optional[PinnerPaths]) -> str:
    """Return the freed memory that the largest other allocator keeps, and why; "" if it is little."""
    malloc = max(ledger.mallocs, key=ledger.freed_in, default=None)
    if malloc is None or not matters(ledger, ledger.freed_in(malloc)):
        return ""
    slabs, pages, caches, huge = (
        ledger.total_of(malloc.category, label + malloc.suffix)
        for label in (names.IN_SLABS, names.FREE_PAGES, names.IN_CACHES, names.IN_HUGE_PAGES)
    )
    holes = max(malloc.sizes, key=lambda size: size.free_resident_bytes, default=None)
    parts = [
        (pages, f"{format_size(pages)} are free pages{_way_back(malloc)}"),
        (huge, f"{format_size(huge)} are free pages in huge pages that it divides (hpa:true)"),
        (caches, f"{format_size(caches)} are free blocks that its caches keep"),
    ]
    if holes is not None:
        in_slabs = (
            f"{format_size(slabs)} are free blocks in slabs that live ones share, most of them of"
            f" {holes.block_bytes:,} bytes ({holes.free:,} free, {holes.live:,} live), which no purge returns"
            f"{_allocated_by([holes.block_bytes], paths, '--sizes')}"
        )
        parts.insert(0, (slabs, in_slabs))
    said = [text for size, text in parts if matters(ledger, size)] or [max(parts)[1]]
    freed = format_size(ledger.freed_in(malloc))
    return f"{freed} of it is freed memory that {malloc.allocator} keeps: {'; '.join(said)}"


def _stacks(ledger: Ledger) -> str:
    for entry in ledger.entries:
        if entry.category == names.STACK_UNJOINED and matters(ledger, entry.resident_bytes):
            return (
                f"{format_size(entry.resident_bytes)} of it is stacks of"
                f" {plural(entry.detail['stacks'], 'thread')} that ended and that no thread has joined:"
                " pthread_join() returns them, or pthread_detach() if no thread waits for these"
            )
    cached = ledger.total(names.STACK_CACHED)
    if not matters(ledger, cached):
        return ""
    return f"{format_size(cached)} of it is stacks of threads that have ended, which libc keeps for the next ones"


def _largest_of(ledger: Ledger, category: str) -> str:
    """Return the name and the size of the largest file in the entry of *category*."""
    sizes: Counter[str] = Counter()
    for entry in ledger.entries:
        if entry.category == category:
            sizes.update(
                {piece["name"]: piece["resident_bytes"] for piece in entry.detail.get("largest", ())}
            )
    return _first_of(sizes)


def _largest_label(ledger: Ledger, category: str) -> str:
    """Return the label and the size of the largest entry of *category*."""
    sizes: Counter[str] = Counter()
    for entry in ledger.entries:
        if entry.category == category:
            sizes[entry.label] += entry.resident_bytes
    return _first_of(sizes)


def _first_of(sizes: Counter[str]) -> str:
    named = [f"{format_size(size)} of {printable(name)}" for name, size in sizes.most_common(1)]
    return "".join(named) + (f" and {plural(len(sizes) - 1, 'more', 'more')}" if len(sizes) > 1 else "")


def _largest(ledger: Ledger) -> str:
    live = (names.HEAP_LIVE, names.HEAP_METADATA)
    groups = {
        f"live heap{_LIVE_HEAP.get(ledger.runtime or '', _LINES)}": (
            *live,
            *map(names.in_arena, live),
            names.HEAP_MMAPPED,
        ),
        "freed memory that glibc keeps: --remedies lists how to return it": ("heap.free", "arena.free"),
        "program and library files": (names.FILE_CODE,),
        f"variables of programs and libraries: {_largest_of(ledger, names.FILE_DATA)}": (names.FILE_DATA,),
        f"mapped files: {_largest_of(ledger, names.FILE_MAPPED)}": (names.FILE_MAPPED,),
        f"pages of mapped files that it has written, in private: {_largest_of(ledger, names.FILE_COPIED)}": (
            names.FILE_COPIED,
        ),
        "shared memory": ("shared",),
        "stacks": ("stack",),
        "memory mapped from a driver or the kernel": ("device",),
        _LAZY: (names.LAZILY_FREED,),
        "memory that the kernel takes when it is short (MAP_DROPPABLE)": (names.DROPPABLE,),
        f"anonymous memory that the program has named: {_largest_label(ledger, names.NAMED)}": (names.NAMED,),
        "anonymous memory of unknown use: its mappings are listed below": (names.OTHER,),
    }
    allocators = {entry.category for entry in ledger.entries if entry.category.startswith("allocator.")}
    if names.PYMALLOC in allocators:
        groups["Python's objects: 'gdbmem python objects' counts them by type"] = (names.PYMALLOC,)
    if names.BFC in allocators:
        groups["pools of BFC allocators: 'gdbmem bfc' shows their content"] = (names.BFC,)
    read = {malloc.category for malloc in ledger.mallocs}
    for name in allocators - {names.PYMALLOC, names.BFC} - read:
        text = f"anonymous memory: the heap of {name[10:]}, or mapped by other code"
        groups[f"{text}; how much of it is free is unknown"] = (name,)
    sums = {text: ledger.total(*categories) for text, categories in groups.items()}
    for name in sorted(read):
        text = f"live memory of {name[10:]}: --sizes lists its blocks by size, --types by type"
        labels = (names.LIVE + one.suffix for one in ledger.mallocs if one.category == name)
        sums[text] = ledger.total_of(name, *labels)
    text = max(sums, key=lambda name: sums[name])
    share = 100 * sums[text] / ledger.rss_bytes if ledger.rss_bytes else 0
    return f"{format_size(sums[text])} of it ({share:.0f} %) is {text}"


# Calls of allocators' own functions that were tried in a copy of the process.


_GLIBC = "glibc"
_WORTH, _WORTH_BYTES = 0.1, 1 << 20  # of the resident set: less is not worth a word
# Servers that can move their live blocks together, if the jemalloc that is part of them supports that.
_DEFRAGMENT = ("redis-server", "valkey-server", "keydb-server")


def main_trial(ledger: Ledger) -> Optional[Tried]:
    """Return the complete call that was tried in the allocator that keeps most freed memory; None if there is none."""
    rows = [row for row in ledger.tried if row.returned_bytes is not None and row.returns_all]
    return max(rows, key=lambda row: max(row.returned_bytes or 0, _kept(ledger, row)), default=None)


def _kept(ledger: Ledger, row: Tried) -> int:
    if row.allocator == _GLIBC:
        return ledger.total("heap.free", "arena.free")
    return sum(
        ledger.freed_in(m) for m in ledger.mallocs if (m.allocator, m.file) == (row.allocator, row.file)
    )


def _resident(ledger: Ledger, row: Tried) -> int:
    if row.allocator == _GLIBC:
        return ledger.total("heap", "arena")
    return ledger.total(f"allocator.{row.allocator}")


def malloc_of(ledger: Ledger, row: Tried) -> Optional[OtherMalloc]:
    """Return the heap whose function *row* called, if it was read and is a notable part of the resident set."""
    if not matters(ledger, _resident(ledger, row)):
        return None
    return next((m for m in ledger.mallocs if (m.allocator, m.file) == (row.allocator, row.file)), None)


def matters(ledger: Ledger, size: int) -> bool:
    """Return whether *size* bytes are a part of the resident set that is worth a sentence."""
    return size >= _WORTH_BYTES and size >= _WORTH * ledger.rss_bytes


def trial_sentence(ledger: Ledger, row: Tried) -> str:
    """Return what *row* returned, and what it leaves: live blocks, and holes between them."""
    returned = f"{printable(row.call)} returns {_size(row)} (tried in a copy{_comparison_with_reading(row)})"
    malloc = malloc_of(ledger, row)
    if malloc is None:
        return returned
    parts = (names.LIVE, names.IN_CACHES, names.IN_SLABS)
    live, cached, holes = (ledger.total_of(malloc.category, label + malloc.suffix) for label in parts)
    where = f" in {printable(malloc.suffix[2:])}" if malloc.suffix else ""
    used = format_size(live + cached + holes)
    text = f"{malloc.allocator}{where} has {format_size(live)} of live blocks in {used} of pages in use: {returned}"
    worst = max(malloc.sizes, key=lambda size: size.free_resident_bytes, default=None)
    if worst is None or not matters(ledger, holes):
        return text
    return (
        f"{text}; {format_size(holes)} are holes in slabs, {format_size(worst.free_resident_bytes)} of them in"
        f" {plural(worst.slabs, 'slab')} that {plural(worst.live, 'live block')} of {worst.block_bytes:,} bytes"
        f" share: {_way_out(ledger, malloc)}"
    )


def _way_out(ledger: Ledger, malloc: OtherMalloc) -> str:
    if ledger.program in _DEFRAGMENT and PurePath(malloc.file).name == ledger.program:
        return "moving live blocks (CONFIG SET activedefrag yes) or a restart returns these"
    return "freeing or moving live blocks, or a restart, returns these"


def _size(row: Tried) -> str:
    returned = row.returned_bytes or 0
    return format_size(returned) if returned > 0 else "nothing"


def _comparison_with_reading(row: Tried) -> str:
    if row.is_as_read is not False:
        return ""
    return f", although by reading it is {format_size(row.read_bytes or 0)}"


def print_tried(ledger: Ledger, console: Console) -> None:
    """Print a row for each call that was tried, and for each allocator in which none can be."""
    table = drawing.Table(header_style="dim")
    table.add_numbers("returned", "by reading")
    table.add_column("allocator", no_wrap=True)
    table.add_column("call")
    for row in ledger.tried:
        returned = "not tried" if row.returned_bytes is None else format_size(row.returned_bytes)
        read = "" if row.read_bytes is None else format_size(row.read_bytes)
        where = f"{row.allocator} ({PurePath(row.file).name})" if row.file else row.allocator
        what = "; ".join(part for part in (row.call, _why_not(row)) if part)
        table.add_row(returned, read, printable(where), printable(what))
    print_sentence(
        console,
        "\nTried in a copy of the process, which the calls did not change: what the kernel counted there, beside what"
        " the allocator's data say.",
    )
    console.print(table)


def _why_not(row: Tried) -> str:
    if not row.why_not:
        return "" if row.is_as_read is not False else "the two differ"
    return f"{row.why_not} ({plural(row.copies, 'copy', 'copies')})" if row.copies else row.why_not
