"""The answer of a ledger in one sentence: who holds what, and what would return it, by simulated remedies."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from gdbmem.allocators.glibc.heap import ArenaReading, HeapReading
from gdbmem.allocators.glibc.tallies import FASTBIN, FREE, LIVE, PAGE, STATES, TCACHE, HeapTally
from gdbmem.errors import Notice
from gdbmem.json_values import as_json
from gdbmem.ledger.pinners import PinnerPaths, likely_site
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model import ledger as names
from gdbmem.model.ledger import (
    TRIM,
    Ledger,
    MeasuredRemedies,
    MeasuredRemedy,
    Remedy,
    SizeClass,
    best_remedy,
    in_order,
)
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_notices, print_sentence
from gdbmem.terminal.document import head, to_json
from gdbmem.text import format_size, plural, printable

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
_WORTH = 0.1  # fraction of the resident set: no advice for less
_WORTH_BYTES = 1 << 20
_FIRST_THRESHOLD = 128 << 10  # of malloc's trim and mmap thresholds
_LINES = ": 'massif-diff' finds the lines that grow"
_LIVE_HEAP = {  # the next step, by the runtime
    "python": ": 'gdbmem python objects' counts Python's objects in it by type",
    "static": ": 'gdbmem grow' finds the lines that make it bigger; massif sees no malloc that is linked statically",
    "v8": " outside V8's: buffers and native code, which process.memoryUsage() in the program distinguishes",
    "jvm": " outside Java's: 'jcmd PID VM.native_memory' shows what it is for, if the JVM tracks it",
    **{
        name: f" outside the heap of {name}: 'gdbmem grow' finds the native code that makes it bigger"
        for name in ("dotnet", "erlang", "luajit", "ruby", "spidermonkey")
    },
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
    if outside and _matters(ledger, outside):
        noun += f", and {format_size(outside)} of hugetlbfs, which Rss leaves out"
    damage = doubt_of(ledger, DAMAGES)
    if damage is not None:
        return f"{size} {noun}; {damage.message}; the free part and the effect of malloc_trim(0) are unknown"
    advice = (
        _inherited(ledger)
        or _mostly_pinned(ledger, paths)
        or _remedied(ledger)
        or _lazily_freed(ledger)
        or _pinned(ledger, paths)
        or _in_vectors(ledger)
        or _unsure(ledger)
        or _in_python(ledger)
        or _in_pools(ledger)
        or _stacks(ledger)
        or _largest(ledger)
    )
    doubt = doubt_of(ledger, PARTIAL)
    return f"{size} {noun}; {advice}" + (f"; in doubt: {doubt.message}" if doubt is not None else "")


def doubt_of(ledger: Ledger, slugs: Sequence[str]) -> Optional[Notice]:
    """Return the first notice about the heap with one of *slugs*, which are sorted by severity; None: none."""
    return next((n for slug in slugs for n in ledger.notices if n.slug == slug), None)


def freed_bytes(ledger: Ledger) -> int:
    """Return the resident bytes that the program has freed and glibc has not returned."""
    return ledger.total("heap.free", "arena.free")


def retained_bytes(ledger: Ledger) -> Optional[int]:
    """Return freed_bytes(); None if malloc could not be read."""
    unused = any(notice.slug == "malloc-unused" for notice in ledger.notices)
    return freed_bytes(ledger) if ledger.heap is not None or unused else None


def _matters(ledger: Ledger, size: int) -> bool:
    return size >= _WORTH_BYTES and size >= _WORTH * ledger.rss_bytes


def _inherited(ledger: Ledger) -> str:
    """Return what a forked worker has from its parent; "" if most of the process's memory is its own."""
    shared = ledger.beside.get(names.SHARED_BY_FORK, 0)
    if ledger.forked_from is None or not _matters(ledger, shared) or shared * 2 < ledger.rss_bytes:
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
            if _matters(ledger, releasable)
            else ""
        )
    if not _matters(ledger, best.predicted_bytes or 0):
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
    return f"{text}; {_effect(best)}" if text and best is not None and _matters(ledger, gain) else text


def _lazily_freed(ledger: Ledger) -> str:
    lazy = ledger.total(names.LAZILY_FREED)
    return f"{format_size(lazy)} of it is {_LAZY}" if _matters(ledger, lazy) else ""


def _pinned(ledger: Ledger, paths: Optional[PinnerPaths]) -> str:
    pinned = ledger.total(names.HEAP_PINNED, names.in_arena(names.HEAP_PINNED))
    tops = sum(e.detail.get("top_bytes", 0) for e in ledger.entries)
    if not _matters(ledger, pinned):
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
        return f"{text}: {blocks} of {sizes} bytes lie on its pages{_allocated_by(culprits, paths)}"
    if tops * 2 > pinned and len(ledger.heap.arenas if ledger.heap else ()) > 1:
        return f"{text}: it is the free end of further arenas, which malloc_trim leaves alone"
    return f"{text}: live blocks lie on the same pages (see --pinners)"


def _allocated_by(culprits: Sequence[SizeClass], paths: Optional[PinnerPaths]) -> str:
    """Return the paths that allocate blocks of these sizes, from *paths*, or how to find out."""
    if paths is None:
        return " (--pinners lists them, --paths RUN:NAME shows the call paths that allocate such blocks)"
    sites = list(dict.fromkeys(likely_site(paths, size.size_bytes) for size in culprits))
    if not all(sites):
        return f"; {printable(paths.source)} names no path that allocates such blocks alone (see below)"
    return f", likely allocated at {' and '.join(sites)}"


def _in_vectors(ledger: Ledger) -> str:
    unused = ledger.beside.get(names.UNUSED_IN_VECTORS, 0)
    if not _matters(ledger, unused):
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
    open_ones = [r for r in ledger.remedies if r.predicted_bytes is None and _matters(ledger, r.high_bytes)]
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
    if not _matters(ledger, kept):
        return ""
    live = ledger.total_of(names.PYMALLOC, names.LIVE)
    return (
        f"{format_size(kept)} of it is memory of objects that Python has freed and keeps in arenas that"
        f" {format_size(live)} of live ones share: 'gdbmem python arenas' shows which types keep them"
    )


def _in_pools(ledger: Ledger) -> str:
    """Return the free memory in pools of BFC allocators, which return a region when all of it is free, or never."""
    kept = ledger.total_of(names.BFC, names.FREE_CHUNKS)
    if not _matters(ledger, kept):
        return ""
    return (
        f"{format_size(kept)} of it is free chunks of BFC pools, which keep them for later requests:"
        " 'gdbmem bfc' shows where they are"
    )


def _stacks(ledger: Ledger) -> str:
    for entry in ledger.entries:
        if entry.category == names.STACK_UNJOINED and _matters(ledger, entry.resident_bytes):
            return (
                f"{format_size(entry.resident_bytes)} of it is stacks of"
                f" {plural(entry.detail['stacks'], 'thread')} that ended and that no thread has joined:"
                " pthread_join() returns them, or pthread_detach() if no thread waits for these"
            )
    cached = ledger.total(names.STACK_CACHED)
    if not _matters(ledger, cached):
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
    named = [f"{format_size(size)} of {printable(name)}" for name, size in sizes.most_common(1)]
    return "".join(named) + (f" and {plural(len(sizes) - 1, 'more')}" if len(sizes) > 1 else "")


def _largest(ledger: Ledger) -> str:
    live = (names.HEAP_LIVE, names.HEAP_METADATA)
    groups = {
        f"live heap{_LIVE_HEAP.get(ledger.runtime or '', _LINES)}": (
            *live,
            *map(names.in_arena, live),
            names.HEAP_MMAPPED,
        ),
        "freed memory that glibc keeps: --remedies lists how to return it": ("heap.free", "arena.free"),
        "program and library files": (names.FILE_CODE, names.FILE_DATA),
        f"mapped files: {_largest_of(ledger, names.FILE_MAPPED)}": (names.FILE_MAPPED,),
        f"pages of mapped files that it has written, in private: {_largest_of(ledger, names.FILE_COPIED)}": (
            names.FILE_COPIED,
        ),
        "shared memory": ("shared",),
        "stacks": ("stack",),
        "device memory": ("device",),
        _LAZY: (names.LAZILY_FREED,),
        "memory that the kernel takes when it is short (MAP_DROPPABLE)": (names.DROPPABLE,),
        "anonymous memory of unknown use: its mappings are listed below": (names.NAMED, names.OTHER),
    }
    allocators = {entry.category for entry in ledger.entries if entry.category.startswith("allocator.")}
    if names.PYMALLOC in allocators:
        groups["Python's objects: 'gdbmem python objects' counts them by type"] = (names.PYMALLOC,)
    if names.BFC in allocators:
        groups["pools of BFC allocators: 'gdbmem bfc' shows their content"] = (names.BFC,)
    for name in allocators - {names.PYMALLOC, names.BFC}:
        groups[f"memory of {name[10:]}; how much of it is free is unknown"] = (name,)
    sums = {text: ledger.total(*categories) for text, categories in groups.items()}
    text = max(sums, key=lambda name: sums[name])
    share = 100 * sums[text] / ledger.rss_bytes if ledger.rss_bytes else 0
    return f"{format_size(sums[text])} of it ({share:.0f} %) is {text}"


# Simulating malloc's settings on the walk over a heap: the memory that each would have returned by now.
#
# A setting changes what malloc does with freed memory. It would return the freed, retained and resident memory of
# today, less the part retained in any case; if the walk leaves more than half of that open, nothing is predicted.
# Sources: glibc malloc/malloc.c (_int_free, systrim, malloc_trim), malloc/arena.c (heap_trim).


THRESHOLD = 128 << 10  # glibc's initial trim and mmap threshold; an explicitly set one does not change
TOP_PAD = 128 << 10
_ANOTHER_RUN = 0.1  # settings that make malloc lay out the same blocks differently
_STEP = 4096  # pages

_COSTS = {
    TRIM: "once only; pages used again are faulted in again",
    "tcache_count=0": "each malloc and free takes its arena's lock",
    "trim_threshold=131072": "system calls and page faults whenever the heap shrinks and grows",
    "top_pad=0": "a system call for each page by which the heap grows",
    "arena_max=2": "threads wait for each other in malloc",
    "mmap_threshold=131072": "a system call and zeroed pages for each block of 128 KiB and more",
}


@dataclass
class _Room:
    """The free memory of one arena; bytes of resident pages, except end_bytes and top_bytes.

    The free end is counted as if there were no tcaches, if malloc would not create them.
    """

    threads: int
    top_bytes: int
    top: int = 0
    end_bytes: int = 0  # from the last live block on, to the end of the arena
    end: int = 0
    end_cached: int = 0  # of that in tcaches
    end_fast: int = 0  # of that in fastbins
    cached: int = 0  # in tcaches elsewhere
    whole: int = 0  # of that on pages without a live block


def simulate_remedies(heap: HeapReading, resident: Ranges, ledger: Ledger) -> tuple[Remedy, ...]:
    """Return the predicted effect of each remedy in the process of *heap*, in their order."""
    freed = ledger.total("heap.free", "arena.free")
    parameters = heap.parameters
    pad = parameters.top_pad if parameters is not None else TOP_PAD
    trim = parameters.trim_threshold if parameters is not None else THRESHOLD
    raised = parameters is None or parameters.mmap_threshold > THRESHOLD
    rooms = [_room(arena, heap, resident) for arena in heap.arenas]
    large = sum(_large_free(arena) for arena in heap.arenas) if raised else 0
    # Each of the three settings below keeps the thresholds at their initial values.
    tops = [room.top for room in rooms if room.top_bytes > THRESHOLD] if trim > THRESHOLD else []
    pads = sum(min(room.top, pad) for room in rooms)
    found = [
        _remedy("tcache_count=0", *_without_tcaches(rooms, pad, trim), freed),
        _remedy("trim_threshold=131072", sum(max(t - pad - PAGE, 0) for t in tops), sum(tops) + large, freed),
        _remedy("top_pad=0", sum(max(t - PAGE, 0) for t in tops), sum(tops) + pads + large, freed),
        _remedy("arena_max=2", 0, ledger.total("arena.free") if len(rooms) > 2 else 0, freed),
        _remedy("mmap_threshold=131072", 0, freed if raised else 0, freed),
    ]
    trimmed = ledger.releasable_bytes or 0
    found.append(Remedy(TRIM, trimmed, trimmed, trimmed, _COSTS[TRIM]))
    if heap.has_gaps or heap.is_corrupt:  # nothing can be predicted
        found = [Remedy(one.setting, None, 0, max(one.high_bytes, freed), one.cost) for one in found]
    return in_order(found)


def _remedy(name: str, low: int, high: int, freed: int) -> Remedy:
    """Return the remedy with its prediction; without one if the interval is wider than half of it."""
    setting, cost = f"glibc.malloc.{name}", _COSTS[name]
    if high <= 0:
        return Remedy(setting, 0, 0, 0, cost)
    least, most = round(low * (1 - _ANOTHER_RUN)), min(round(high * (1 + _ANOTHER_RUN)), freed)
    middle = min((low + high) // 2, most)
    if 2 * (most - least) > middle:
        return Remedy(setting, None, 0, most, cost)
    return Remedy(setting, middle, least, most, cost)


def _without_tcaches(rooms: Sequence[_Room], pad: int, trim: int) -> tuple[int, int]:
    """Return the reduction of the resident set if freed blocks had been returned to their arena at once.

    At an arena's end they join the free memory there, which is trimmed. Elsewhere they form free pages, which other
    threads of the arena use before it grows: together they keep no more of these than a single thread.
    """
    low = high = 0
    for room in rooms:
        cached, whole, kept = room.cached, room.whole, pad
        if room.end_cached and room.end_bytes >= trim:
            # Blocks in fastbins are merged only when a large one is freed, which has not happened since.
            low += max(room.end - pad - PAGE, 0) if room.end_fast <= PAGE else 0
            high += room.end
            kept = 0
        else:
            cached, whole = cached + room.end_cached, whole + room.end_cached
        if room.threads > 1:
            of_one = whole // room.threads
            low += max(whole - (kept if of_one >= trim else max(of_one, kept)), 0)
        high += cached
    return low, high


def _large_free(arena: ArenaReading) -> int:
    return sum(
        size * counts[FREE]
        for tally in arena.tallies
        for size, counts in tally.sizes.items()
        if size >= THRESHOLD and size != arena.state.top_bytes
    )


def _room(arena: ArenaReading, heap: HeapReading, resident: Ranges) -> _Room:
    state = arena.state
    threads = sum(address == state.address for address in heap.caches.arena_of.values())
    room = _Room(threads, state.top_bytes, resident.within(state.top, state.top + state.top_bytes))
    at_end = True
    for tally in reversed(arena.tallies):
        end_page = _pages_to_last_live(tally, heap.caches.late_tcaches) if at_end else tally.page_count
        start = max(tally.base + PAGE * end_page, tally.start)
        if at_end:
            room.end_bytes += tally.end - start
            room.end += resident.within(start, tally.end)
            room.end_fast += sum(tally.pages[STATES * end_page + FASTBIN :: STATES])
        for page, size in _cached_pages(tally, resident):
            if page >= end_page:
                room.end_cached += size
                continue
            room.cached += size
            room.whole += 0 if tally.pages[STATES * page + LIVE] else size
        # Other arenas return empty heaps as a whole; the main one never returns memory before its last piece.
        at_end = at_end and end_page == 0 and not state.is_main
    return room


def _pages_to_last_live(tally: HeapTally, ignored: Sequence[tuple[int, int]]) -> int:
    """Return the number of pages up to the last one with a live block; *ignored*: addresses and sizes of blocks."""
    live = tally.pages[LIVE::STATES]
    for start, size in ignored:
        if tally.start <= start and start + size <= tally.end:
            for page in range((start - tally.base) // PAGE, (start + size - 1 - tally.base) // PAGE + 1):
                first = tally.base + PAGE * page
                live[page] = max(live[page] - min(start + size, first + PAGE) + max(start, first), 0)
    count = len(live)
    while count and not any(live[max(count - _STEP, 0) : count]):
        count = max(count - _STEP, 0)
    while count and not live[count - 1]:
        count -= 1
    return count


def _cached_pages(tally: HeapTally, resident: Ranges) -> Iterator[tuple[int, int]]:
    """Yield each resident page with blocks in tcaches, and their bytes on it."""
    if not tally.bytes[TCACHE]:
        return
    for page, size in enumerate(tally.pages[TCACHE::STATES]):
        address = tally.base + PAGE * page
        if size and resident.within(address, address + PAGE):
            yield page, size


# Malloc's settings and the predicted effect of each: as text and as JSON (kind=remedies).


_COST = 16  # columns, with the spaces in between


def remedies_json(ledger: Ledger) -> str:
    """Return the remedies of *ledger* as ``kind=remedies``."""
    return to_json(
        {
            **head("remedies", ledger.notices),
            "answer": answer_ledger(ledger),
            **as_json(ledger, "program", "pid", "rss_bytes"),
            "retained_bytes": retained_bytes(ledger),
            **as_json(ledger, "remedies"),
        }
    )


def print_remedies(ledger: Ledger, console: Console) -> None:
    """Print the answer, then each remedy with its predicted effect and its cost."""
    print_sentence(console, answer_ledger(ledger), "bold")
    if not ledger.remedies:
        print_sentence(console, "\nNothing can be simulated where glibc's malloc was not read.")
        print_notices(ledger.notices, console)
        return
    table = drawing.Table(header_style="dim")
    rows = [(gain_text(remedy), remedy.setting, remedy.cost) for remedy in ledger.remedies]
    gain, setting = (max(len(row[column]) for row in rows) for column in (0, 1))
    # A size in two lines is hard to read: the cost is wrapped first.
    table.add_column("would return", no_wrap=gain + setting + _COST <= console.width)
    table.add_column("remedy", no_wrap=True)
    table.add_column("what it costs")
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)
    print_sentence(
        console,
        "\nThose that begin with glibc. are set by GLIBC_TUNABLES=REMEDY when the program starts;"
        " 'gdbmem compare --remedies -- PROGRAM' measures them.",
    )
    print_notices(ledger.notices, console)


def gain_text(remedy: Remedy) -> str:
    """Return the prediction with its interval, or that there is none."""
    low, high = remedy.low_bytes, remedy.high_bytes
    if remedy.predicted_bytes is None:
        return f"unknown until measured, at most {format_size(high)}"
    if not high:
        return "nothing"
    size = format_size(remedy.predicted_bytes)
    return size if low == high else f"about {size} ({format_size(low)} to {format_size(high)})"


def measured_json(ledger: Ledger, measured: MeasuredRemedies) -> str:
    """Return the measurements as ``kind=remedies``."""
    return to_json(
        {
            **head("remedies", _notices(ledger, measured)),
            "answer": conclusion(ledger, measured),
            "program": ledger.program,
            **as_json(measured, "command", "moment", "rss_bytes"),
            "retained_bytes": retained_bytes(ledger),
            **as_json(measured, "runs", "children"),
            "remedies": [_measured_document(row) for row in measured.remedies],
        }
    )


def _measured_document(row: MeasuredRemedy) -> dict[str, object]:
    names = ("gained_bytes", "low_bytes", "high_bytes", "is_as_predicted", "why_not")
    return {**as_json(row.remedy), **as_json(row, *names)}


def print_measured(ledger: Ledger, measured: MeasuredRemedies, console: Console) -> None:
    """Print the measured effect of each remedy beside its prediction, and the best remedy."""
    print_sentence(console, conclusion(ledger, measured), "bold")
    if measured.remedies:
        table = drawing.Table(header_style="dim")
        for name in ("returned", "95 % interval", "predicted", "remedy", "what it costs"):
            table.add_column(name, no_wrap=name == "remedy")
        for row in measured.remedies:
            gained = format_size(row.gained_bytes) if row.gained_bytes is not None else "not measured"
            setting, cost = row.remedy.setting, row.remedy.cost
            table.add_row(
                gained, _interval(row), gain_text(row.remedy), setting, printable(row.why_not) or cost
            )
        console.print()
        console.print(table)
    print_notices(_notices(ledger, measured), console)


def _notices(ledger: Ledger, measured: MeasuredRemedies) -> Sequence[Notice]:
    if not measured.children:
        return ledger.notices
    started = plural(measured.children, "other process", "other processes")
    text = f"the program had started {started}: their memory is not measured, although the settings apply to them too"
    return [*ledger.notices, Notice("children-unmeasured", text)]


def _interval(row: MeasuredRemedy) -> str:
    if row.low_bytes is None or row.high_bytes is None:
        return ""
    return f"{format_size(row.low_bytes)} to {format_size(row.high_bytes)}"


def conclusion(ledger: Ledger, measured: MeasuredRemedies) -> str:
    """Return the remedy that returned most, and whether that is as predicted."""
    held = f"{printable(ledger.program)} {measured.moment}: {format_size(measured.rss_bytes)} resident"
    if not measured.remedies:
        most = max((remedy.high_bytes for remedy in ledger.remedies), default=None)
        why = (
            f"no remedy can return more than {format_size(most)}"
            if most is not None
            else answer_ledger(ledger)
        )
        return f"{held}; {why}"
    best = measured.remedies[0]
    shown = best.low_bytes is None or best.low_bytes > 0
    if not best.gained_bytes or best.gained_bytes < 0 or not shown:
        return f"{held}; no remedy has an effect that {plural(measured.runs, 'run')} of each can show"
    setting = best.remedy.setting
    words = " ".join(shlex.quote(word) for word in measured.command)
    how = setting if best.remedy.is_call else f"GLIBC_TUNABLES={setting} {printable(words)}"
    text = f"{held}; {how} returns most: {format_size(best.gained_bytes)}"
    if best.is_as_predicted is not None:
        text += f", {'as' if best.is_as_predicted else 'other than'} predicted ({gain_text(best.remedy)})"
    others = [row.remedy.setting for row in measured.equals_of_best]
    return (
        f"{text}; {', '.join(others)} {'gives' if len(others) == 1 else 'give'} as much" if others else text
    )
