"""Settings that may make an allocator return more memory: malloc's, simulated on a walk over its heap, and others'."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Callable, NamedTuple

from gdbmem.allocators.glibc.heap import ArenaReading, HeapReading
from gdbmem.allocators.glibc.tallies import FASTBIN, FREE, LIVE, PAGE, STATES, TCACHE, HeapTally
from gdbmem.errors import GdbmemError, Notice
from gdbmem.json_values import as_json
from gdbmem.ledger.answer import answer_ledger, retained_bytes
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model import ledger as names
from gdbmem.model.ledger import TRIM, Ledger, MeasuredRemedies, MeasuredRemedy, OtherMalloc, Remedy, in_order
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_notices, print_sentence
from gdbmem.terminal.document import head, to_json
from gdbmem.text import format_size, plural, printable

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


class _Room:
    """The free memory of one arena; bytes of resident pages, except end_bytes and top_bytes.

    The free end is counted as if there were no tcaches, if malloc would not create them.
    """

    def __init__(self, threads: int, top_bytes: int, top: int) -> None:
        self.threads, self.top_bytes, self.top = threads, top_bytes, top
        self.end_bytes = 0  # from the last live block on, to the end of the arena
        self.end = 0
        self.end_cached = 0  # of that in tcaches
        self.end_fast = 0  # of that in fastbins
        self.cached = 0  # in tcaches elsewhere
        self.whole = 0  # of that on pages without a live block


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
        _print_others(ledger, console)
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
    _print_others(ledger, console)


def _print_others(ledger: Ledger, console: Console) -> None:
    """Print how to measure settings of other mallocs, which can't be simulated, and the notices."""
    if ledger.mallocs:
        named = " and ".join(dict.fromkeys(malloc.allocator for malloc in ledger.mallocs))
        print_sentence(
            console,
            f"'gdbmem compare --remedies -- PROGRAM' measures settings of {named}, 'gdbmem explain PID --try' what"
            " their own functions return.",
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
    how = setting if best.remedy.is_call else f"{printable(best.remedy.variable)} {printable(words)}"
    text = f"{held}; {how} returns most: {format_size(best.gained_bytes)}"
    if best.is_as_predicted is not None:
        text += f", {'as' if best.is_as_predicted else 'other than'} predicted ({gain_text(best.remedy)})"
    others = [row.remedy.setting for row in measured.equals_of_best]
    return (
        f"{text}; {', '.join(others)} {'gives' if len(others) == 1 else 'give'} as much" if others else text
    )


# Settings of allocators in the place of malloc that may make them return more memory, by the names in their files.
#
# A setting is a variable of the environment, NAME=VALUE. What it returns is unknown until it was measured. Sources:
# jemalloc(3), TUNING; gperftools, docs/tcmalloc.html; mimalloc, README; Apache Arrow, environment variables.


_PIECE, _KEPT, _MOST_BYTES = 1 << 22, 256, 1 << 30
_CONFIGURATION = re.compile(rb"\0((?:[A-Z0-9_]+_)?MALLOC_CONF)\0")


class _Setting(NamedTuple):
    needs: bytes  # that the allocator's file has
    variable: str  # "": jemalloc's, whose prefix the file has
    value: str
    cost: str
    unless: bytes = b""  # that the file has: then another setting has taken its place


_SETTINGS: dict[str, Sequence[_Setting]] = {
    "jemalloc": (
        _Setting(
            b"dirty_decay_ms\0",
            "",
            "dirty_decay_ms:0,muzzy_decay_ms:0",
            "a system call whenever pages become free",
        ),
        _Setting(
            b"background_thread\0",
            "",
            "background_thread:true",
            "a thread that returns pages as they age, after 10 s",
        ),
        _Setting(b"narenas\0", "", "narenas:2", "threads wait for each other in malloc"),
        _Setting(b"opt.thp\0", "", "thp:never", "more misses of the TLB"),
        _Setting(b"opt.tcache\0", "", "tcache:false", "each malloc and free takes a lock"),
        _Setting(b"opt.tcache_max\0", "", "tcache_max:1024", "each malloc of more than 1 KiB takes a lock"),
        _Setting(
            b"opt.lg_tcache_max\0", "", "lg_tcache_max:10", "each malloc of more than 1 KiB takes a lock"
        ),
    ),
    "tcmalloc": (
        _Setting(
            b"TCMALLOC_RELEASE_RATE\0",
            "TCMALLOC_RELEASE_RATE",
            "10",
            "more system calls as pages become free",
        ),
        _Setting(
            b"TCMALLOC_AGGRESSIVE_DECOMMIT\0",
            "TCMALLOC_AGGRESSIVE_DECOMMIT",
            "1",
            "a system call whenever pages become free",
        ),
        _Setting(
            b"TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES\0",
            "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES",
            str(1 << 20),
            "threads take locks more often",
        ),
    ),
    "mimalloc": (
        _Setting(b"purge_delay\0", "MIMALLOC_PURGE_DELAY", "0", "a system call whenever pages become free"),
        _Setting(
            b"decommit_delay\0",
            "MIMALLOC_DECOMMIT_DELAY",
            "0",
            "a system call whenever pages become free",
            unless=b"purge_delay\0",
        ),
        _Setting(
            b"page_reset\0",
            "MIMALLOC_PAGE_RESET",
            "1",
            "the kernel takes free pages when memory is short: until then they are resident",
            unless=b"purge_delay\0",
        ),
    ),
}
_ARROW = b"ARROW_DEFAULT_MEMORY_POOL\0"
_POOLS = ("system", "jemalloc", "mimalloc")
_POOL_COST = "another allocator for Arrow's buffers"


def settings_of(ledger: Ledger, open_file: Callable[[str], BinaryIO]) -> list[Remedy]:
    """Return the settings that the allocators of *ledger* have by their files, which *open_file* opens."""
    found: dict[str, Remedy] = {}
    for malloc in ledger.mallocs:
        most = _most_bytes(ledger, malloc)
        for setting, cost in _settings_in(malloc, open_file):
            known = found.get(setting)
            high = most + (known.high_bytes if known is not None else 0)
            found[setting] = Remedy(setting, None, 0, high, cost)
    return list(found.values())


def _most_bytes(ledger: Ledger, malloc: OtherMalloc) -> int:
    """Return all resident memory of *malloc* that is not live: more no setting returns."""
    live = ledger.total_of(malloc.category, names.LIVE + malloc.suffix)
    entries = (one for one in ledger.entries if one.category == malloc.category)
    return sum(one.resident_bytes for one in entries if one.label.endswith(malloc.suffix)) - live


def _settings_in(malloc: OtherMalloc, open_file: Callable[[str], BinaryIO]) -> Iterator[tuple[str, str]]:
    settings = _SETTINGS.get(malloc.allocator, ())
    try:
        with open_file(malloc.file) as stream:
            sought = [_ARROW, *(word for one in settings for word in (one.needs, one.unless) if word)]
            words, configurations = _words_in(stream, sought)
    except (OSError, ValueError, GdbmemError):
        return
    for one in settings:
        if one.needs in words and one.unless not in words:
            for variable in [one.variable] if one.variable else sorted(configurations):
                yield f"{variable}={one.value}", one.cost
    if _ARROW in words:
        for pool in _POOLS:
            if pool != malloc.allocator:
                yield f"ARROW_DEFAULT_MEMORY_POOL={pool}", _POOL_COST


def _words_in(stream: BinaryIO, words: Sequence[bytes]) -> tuple[set[bytes], set[str]]:
    """Return those of *words* that the file has, and the variables that a jemalloc in it reads."""
    found: set[bytes] = set()
    variables: set[str] = set()
    data = b""
    for _ in range(_MOST_BYTES // _PIECE):
        piece = stream.read(_PIECE)
        if not piece:
            break
        data = data[-_KEPT:] + piece
        found.update(word for word in words if word in data)
        variables.update(match[1].decode() for match in _CONFIGURATION.finditer(data))
    return found, variables
