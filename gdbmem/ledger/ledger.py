"""Building a ledger from the data read of a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping as MappingType
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, Callable, Optional

from gdbmem.allocators.cpython.arenas import PythonArenas
from gdbmem.allocators.glibc.heap import ArenaReading, HeapReading
from gdbmem.allocators.glibc.stacks import ThreadStack
from gdbmem.allocators.glibc.tallies import FASTBIN, FREE, LIVE, TCACHE
from gdbmem.allocators.others import Recognised, owner_of
from gdbmem.errors import Notice
from gdbmem.files import open_regular
from gdbmem.ledger.division import Division, Key, claim_pools
from gdbmem.ledger.remedies import simulate_remedies
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Mapping, Ranges, swapped_ranges
from gdbmem.model import ledger as names
from gdbmem.model.ledger import Arena, Entry, Heap, LargePiece, Ledger, OtherMalloc, SizeClass
from gdbmem.model.memory import ThreadPointers
from gdbmem.text import format_size, plural

if TYPE_CHECKING:
    from gdbmem.allocators.malloc_heap import MallocHeap, SearchedMemory
    from gdbmem.model.bfc import Allocator

_LISTED = 8  # mappings or files named in an entry's detail


class ProcessImage:
    """All data read of one process (or core), before it is divided."""

    def __init__(
        self,
        program: str,
        pid: Optional[int],
        mappings: Sequence[Mapping],
        resident: Ranges,
        zero_pages_known: bool,
        threads: Sequence[ThreadPointers],
    ) -> None:
        self.program, self.pid = program, pid
        self.mappings, self.resident, self.zero_pages_known = mappings, resident, zero_pages_known
        self.threads = threads
        # Pages of its own that are swapped out before they are read, also those of files that it has written to.
        areas = [(m.start, m.end) for m in mappings if m.swap_bytes and m.permissions[3] == "p"]
        self.swapped = Ranges(swapped_ranges(pid, areas) if areas and pid is not None else ())
        self.images: Sequence[Image] = ()
        self.heap: Optional[HeapReading] = None
        self.stacks: Sequence[ThreadStack] = ()
        self.others = Recognised()
        self.pools: Sequence[Allocator] = ()  # of BFC allocators
        self.mallocs: Sequence[MallocHeap] = ()  # of allocators that replace glibc's,
        self.heap_view: Optional[SearchedMemory] = None  # and the memory that they were read from
        self.forked_from: Optional[int] = None  # the parent that runs the same program since a fork
        self.beside: MappingType[str, int] = {}
        self.notices: list[Notice] = []
        self.open: Callable[[str], BinaryIO] = open_regular  # a loaded file

    def stack_of(self, thread: ThreadPointers, mapping: Mapping) -> tuple[int, int]:
        """Return where the stack of *thread*, in *mapping*, begins and ends: several may be in one mapping."""
        stack = next((stack for stack in self.stacks if stack.tid == thread.tid), None)
        if stack is None:
            return mapping.start, mapping.end
        return max(stack.start, mapping.start), min(stack.end, mapping.end)


def build_ledger(reading: ProcessImage, *, pause_seconds: Optional[float] = None) -> Ledger:
    """Divide the resident set of *reading*; the result's entries add up to each mapping's Rss."""
    return _LedgerBuilder(reading).build(pause_seconds)


def resident_by_entry(reading: ProcessImage) -> MappingType[Key, int]:
    """Return only the bytes of each entry of the ledger of *reading*."""
    builder = _LedgerBuilder(reading)
    builder.claim()
    sums: Counter[Key] = Counter()
    for parts in builder.division.parts:
        sums.update(parts)
    return sums


class _LedgerBuilder:
    def __init__(self, reading: ProcessImage) -> None:
        self.reading = reading
        self.division = Division(reading.mappings, reading.resident)
        self.allocated: Counter[Key] = Counter()
        self.details: dict[Key, dict[str, object]] = {}
        self.arenas: list[Arena] = []
        self.mallocs: list[OtherMalloc] = []
        self.notices = list(reading.notices)

    def claim(self) -> None:
        """Divide the resident bytes."""
        heap = self.reading.heap
        if heap is not None and heap.is_used:
            for arena in heap.arenas:
                self._claim_arena(arena)
        pooled = self._claim_pools()
        self._claim_mallocs()
        if heap is not None and heap.is_used:
            self._claim_mmapped(heap, pooled)
            self.notices += heap.notices
        self._claim_stacks()
        self._claim_images()
        self._claim_python()
        self._settle()

    def build(self, pause_seconds: Optional[float]) -> Ledger:
        self.claim()
        heap = self.reading.heap
        entries = self._entries()
        used = heap if heap is not None and heap.is_used else None
        ledger = Ledger(
            program=self.reading.program,
            pid=self.reading.pid,
            rss_bytes=sum(m.rss_bytes for m in self.reading.mappings),
            entries=entries,
            shares=self.division.shares(),
            releasable_bytes=sum(a.releasable_bytes for a in self.arenas)
            if used and not used.is_corrupt
            else None,
            threads=self._threads(),
            heap=self._heap(used) if used else None,
            beside=self.reading.beside,
            runtime=self._runtime(),
            forked_from=self.reading.forked_from,
            pause_seconds=pause_seconds,
            notices=self.notices,
            mallocs=self.mallocs,
        )
        if used is None:
            return ledger
        return ledger._replace(remedies=simulate_remedies(used, self.reading.resident, ledger))

    # -- the heap -----------------------------------------------------------------------------------------

    def _claim_arena(self, arena: ArenaReading) -> None:
        def key(category: str) -> Key:
            return _arena_key(category, arena.state.number)

        keys = {
            "live": key(names.HEAP_LIVE),
            "releasable": key(names.HEAP_RELEASABLE),
            "pinned": key(names.HEAP_PINNED),
            "cached": key(names.HEAP_CACHED),
            "metadata": key(names.HEAP_METADATA),
        }
        for start, end in arena.overheads:
            self.division.claim(start, end, keys["metadata"])
        for start, end in arena.foreign:
            self.division.claim(start, end, (names.OTHER, "sbrk by the program itself"))
        for start, end in arena.changing:
            self.division.claim(start, end, (names.OTHER, "blocks that malloc was changing"))
        released = 0
        releasable = sorted(arena.releasable)
        for tally in arena.tallies:
            # The memory after an invalid chunk is not claimed.
            whole = tally.stopped_why == "ended"
            end = tally.end if whole else tally.stopped_at
            released += self.division.claim_tally(tally, end, releasable, keys)["releasable"]
        self._sum_arena(arena, released, keys)

    def _sum_arena(self, arena: ArenaReading, released: int, keys: dict[str, Key]) -> None:
        tallies = arena.tallies

        def total(column: str, *states: int) -> int:
            return sum(getattr(t, column)[s] for t in tallies for s in states)

        live, live_chunks = total("bytes", LIVE), total("chunks", LIVE)
        cached = total("bytes", TCACHE, FASTBIN)
        self.allocated[keys["live"]] += live - 8 * live_chunks
        self.allocated[keys["cached"]] += cached
        if arena.top is not None and not arena.state.is_main:
            self.details.setdefault(keys["pinned"], {})["top_bytes"] = self.division.resident.within(
                *arena.top
            )
        counts = {"tcache_blocks": total("chunks", TCACHE), "fastbin_blocks": total("chunks", FASTBIN)}
        self.details.setdefault(keys["live"], {})["blocks"] = live_chunks
        self.details.setdefault(keys["cached"], {}).update(counts)
        heap = self.reading.heap
        arena_of = heap.caches.arena_of if heap is not None else {}
        self.arenas.append(
            Arena(
                number=arena.state.number,
                address=arena.state.address,
                live_bytes=live,
                live_chunks=live_chunks,
                free_bytes=total("bytes", FREE),
                free_chunks=total("chunks", FREE),
                cached_bytes=cached,
                cached_chunks=total("chunks", TCACHE, FASTBIN),
                top_bytes=arena.state.top_bytes,
                system_bytes=arena.state.system_bytes,
                releasable_bytes=released,
                threads=[tid for tid, address in arena_of.items() if address == arena.state.address],
                fastbin_bytes=total("bytes", FASTBIN),
                fastbin_chunks=total("chunks", FASTBIN),
            )
        )

    def _claim_pools(self) -> Ranges:
        """Assign the memory of pools; return the part of it that malloc may have mapped."""
        if not self.reading.pools:
            return Ranges(())
        heap = self.reading.heap
        arenas = [
            (tally.start, tally.end, _arena_key(names.HEAP_LIVE, arena.state.number))
            for arena in (heap.arenas if heap is not None and heap.is_used else ())
            for tally in arena.tallies
        ]
        claims = claim_pools(self.division, self.reading.pools, arenas)
        self.allocated.update(claims.allocated)
        self.allocated.subtract(claims.taken)
        self.details.update(claims.details)
        self.notices += claims.notices
        return Ranges(claims.regions)

    def _claim_mallocs(self) -> None:
        if not self.reading.mallocs:
            return
        from gdbmem.ledger.division import claim_mallocs  # few processes have any

        claims = claim_mallocs(self.division, self.reading.mallocs)
        self.allocated.update(claims.allocated)
        self.details.update(claims.details)
        self.mallocs = claims.mallocs

    def _claim_mmapped(self, heap: HeapReading, pooled: Ranges) -> None:
        key = (names.HEAP_MMAPPED, "")
        for chunk in heap.mmapped:
            self.division.claim(chunk.start, chunk.end, key)
            self.allocated[key] += chunk.end - chunk.start - pooled.within(chunk.start, chunk.end)
        if heap.mmapped:
            self.details[key] = {"blocks": len(heap.mmapped)}

    def _heap(self, heap: HeapReading) -> Heap:
        sizes: dict[int, list[int]] = {}
        pinned: dict[int, float] = {}
        tallies = heap.tallies
        for tally in tallies:
            for size, counts in tally.sizes.items():
                sums = sizes.setdefault(size, [0, 0, 0, 0])
                for state, count in enumerate(counts):
                    sums[state] += count
            for size, share in tally.pinned.items():
                pinned[size] = pinned.get(size, 0.0) + share
        return Heap(
            arenas=self.arenas,
            sizes=[_size_class(size, sizes[size], pinned.get(size, 0.0)) for size in sorted(sizes)],
            mmapped_chunks=len(heap.mmapped),
            mmapped_bytes=heap.mmapped_bytes,
            tcache_chunks=sum(t.chunks[TCACHE] for t in tallies),
            tcache_bytes=sum(t.bytes[TCACHE] for t in tallies),
            fastbin_chunks=sum(t.chunks[FASTBIN] for t in tallies),
            fastbin_bytes=sum(t.bytes[FASTBIN] for t in tallies),
            is_exact=heap.is_exact,
            source=heap.found.source,
            trim_threshold_bytes=heap.parameters.trim_threshold if heap.parameters else None,
            mmap_threshold_bytes=heap.parameters.mmap_threshold if heap.parameters else None,
        )

    # -- everything else ----------------------------------------------------------------------------------

    def _claim_stacks(self) -> None:
        stacks: Counter[Key] = Counter()
        for stack in self.reading.stacks:
            ended = names.STACK_CACHED if stack.is_cached else names.STACK_UNJOINED
            key = (ended if stack.tid is None else names.STACK_THREAD, "")
            self.division.claim(stack.start, stack.end, key)
            self.allocated[key] += stack.end - stack.start
            stacks[key] += 1
        for key, count in stacks.items():
            self.details.setdefault(key, {})["stacks"] = count

    def _claim_images(self) -> None:
        # Zeroed data (.bss) is an anonymous mapping beside the file's.
        for image in self.reading.images:
            for start, end in image.writable:
                for number in self.division.mappings_in(start, end):
                    mapping = self.division.mappings[number]
                    if mapping.is_anonymous and not mapping.name.startswith("[heap"):
                        low, high = max(start, mapping.start), min(end, mapping.end)
                        self.division.claim(low, high, (names.FILE_DATA, ""))

    def _claim_python(self) -> None:
        python = self.reading.others.python
        if not python.arenas and not python.unread_arenas:
            return
        live, headers = (names.PYMALLOC, names.LIVE), (names.PYMALLOC, names.HEADERS)
        for arena in python.arenas:
            for piece in arena.pieces():
                parts = [(live, piece.live_bytes), (headers, piece.header_bytes)] if piece.is_held else []
                rest = names.FREE_IN_POOLS if piece.is_held else names.FREE_POOLS
                self.division.claim_divided(piece.start, piece.end, parts, (names.PYMALLOC, rest))
        if python.arenas:
            self.allocated[live] += python.live_bytes
            self.details[live] = {"blocks": python.live_blocks, "arenas": len(python.arenas)}
        if python.inconsistent or python.unread_arenas:
            self.notices.append(_changing_python_notice(python))

    def _settle(self) -> None:
        """Assign the unclaimed rest of each mapping to the entry of its kind."""
        excess = 0
        loaded = self._loaded_files()
        for number, mapping in enumerate(self.division.mappings):
            is_loaded = _identity(mapping) in loaded
            if mapping.is_file or mapping.is_shared_memory:
                # Written pages of a private mapping are no longer those of the file or the shared memory.
                size = mapping.rss_bytes - mapping.anonymous_bytes
                self.division.parts[number] = {_owner_in_file(mapping, is_loaded): size} if size > 0 else {}
            excess += self.division.settle(number, self._owner(mapping, is_loaded))
        if excess:
            why = (
                "this kernel doesn't distinguish zero pages from others"
                if not self.reading.zero_pages_known
                else ("pages changed while they were counted")
            )
            self.notices.append(
                Notice(
                    "residency-uncertain", f"some entries may be off by {format_size(excess)} in all: {why}"
                )
            )

    def _loaded_files(self) -> set[tuple[str, int, str]]:
        """Return the identities of the files that are mapped as programs or libraries."""
        elf = {image.name for image in self.reading.images}
        stack = next((m for m in self.division.mappings if m.name == "[stack]"), None)
        # With READ_IMPLIES_EXEC (personality(2)) all mappings are executable.
        all_executable = stack is not None and "x" in stack.permissions
        return {
            _identity(m)
            for m in self.division.mappings
            if m.is_file and "x" in m.permissions and (m.name in elf or not all_executable)
        }

    def _owner(self, mapping: Mapping, is_loaded: bool) -> Key:
        """Return the entry of the unclaimed pages of *mapping*; of a file or shared memory, of the private ones."""
        if mapping.name == "[stack]":
            return names.STACK_MAIN, ""
        if mapping.is_file:
            return names.FILE_DATA if is_loaded else names.FILE_COPIED, ""
        if mapping.name.startswith("[v"):
            return names.FILE_CODE, ""
        if mapping.is_device:
            return names.DEVICE, mapping.name
        if mapping.permissions[3] == "s":
            return names.SHARED, ""
        if mapping.is_droppable:
            return names.DROPPABLE, ""
        if mapping.name.startswith("/dev/shm/"):
            return names.FILE_COPIED, ""
        if mapping.is_shared_memory and not mapping.name.startswith("/dev/zero"):
            return names.NAMED, mapping.name.removesuffix(" (deleted)").removeprefix("/")
        allocator = owner_of(mapping, self.reading.others)
        category = f"allocator.{allocator}"
        # Where its own data were read, they name all that it has.
        is_read = any(one.category == category for one in self.mallocs) and not mapping.name.startswith(
            "[anon:"
        )
        if allocator and not is_read:
            return category, ""
        if mapping.grows_down:
            return names.STACK_THREAD, ""
        if mapping.name.startswith("[anon:"):
            return names.NAMED, mapping.name[6:].rstrip("]")
        return names.OTHER, ""

    def _runtime(self) -> Optional[str]:
        others, loaded = self.reading.others, self.reading.images
        if others.python.arenas:
            return "python"
        return others.runtime or ("static" if loaded and not any(i.has_interpreter for i in loaded) else None)

    # -- the result ---------------------------------------------------------------------------------------

    def _entries(self) -> list[Entry]:
        sums: Counter[Key] = Counter()
        where: dict[Key, list[tuple[int, Mapping]]] = {}
        for mapping, parts in zip(self.division.mappings, self.division.parts):
            for key, size in parts.items():
                sums[key] += size
                where.setdefault(key, []).append((size, mapping))
        for key in self.allocated:
            sums.setdefault(key, 0)
        entries = []
        for key in sorted(sums, key=_order):
            if not sums[key] and not self.allocated.get(key):
                continue
            detail = dict(self.details.get(key, {}))
            if not key[0].startswith(("heap", "arena", "stack")):
                detail["largest"] = _largest(where.get(key, []), self._zeroed_of)
            huge = sum(m.huge_bytes for size, m in where.get(key, []) if size == m.rss_bytes)
            if huge:
                detail["huge_page_bytes"] = huge
            entries.append(Entry(*key, sums[key], self.allocated.get(key), detail))
        return entries

    def _zeroed_of(self, mapping: Mapping) -> str:
        """Return the name of the object whose zeroed variables are in *mapping*; "" if they are not all of it."""
        for image in self.reading.images:
            if any(start <= mapping.start and mapping.end <= end for start, end in image.writable):
                return image.name
        return ""

    def _threads(self) -> list[dict[str, object]]:
        heap = self.reading.heap
        arena_of = heap.caches.arena_of if heap is not None else {}
        numbers = {arena.address: arena.number for arena in self.arenas}
        stacks = {stack.tid: stack for stack in self.reading.stacks if stack.tid is not None}
        result = []
        for thread in self.reading.threads:
            stack = stacks.get(thread.tid)
            result.append(
                {
                    "tid": thread.tid,
                    "name": thread.name,
                    "arena": numbers.get(arena_of.get(thread.tid, 0)),
                    "stack_bytes": stack.end - stack.start if stack else None,
                    "stack_resident_bytes": self.division.resident.within(stack.start, stack.end)
                    if stack
                    else None,
                }
            )
        return result


def _identity(mapping: Mapping) -> tuple[str, int, str]:
    return mapping.device, mapping.inode, mapping.name


def _owner_in_file(mapping: Mapping, is_loaded: bool) -> Key:
    """Return the entry of those pages of *mapping* that are the file's, or shared memory's."""
    if mapping.is_shared_memory:
        return names.SHARED, ""
    if not is_loaded:
        return names.FILE_MAPPED, ""
    return names.FILE_DATA if "w" in mapping.permissions else names.FILE_CODE, ""


def _arena_key(category: str, number: int) -> Key:
    return (names.in_arena(category), f"arena {number}") if number else (category, "")


def _changing_python_notice(python: PythonArenas) -> Notice:
    doubtful = python.inconsistent + python.unread_arenas
    return Notice(
        "python-changing",
        f"{plural(doubtful, 'arena')} of Python's pymalloc (of {len(python.arenas) + python.unread_arenas})"
        " are inconsistent or unreadable, perhaps by an allocation in progress: their live objects are uncertain",
    )


def _size_class(size: int, counts: Sequence[int], pinned: float) -> SizeClass:
    return SizeClass(size, counts[LIVE], counts[FREE], counts[TCACHE], counts[FASTBIN], round(pinned, 3))


def _largest(pieces: list[tuple[int, Mapping]], zeroed_of: Callable[[Mapping], str]) -> list[LargePiece]:
    by_name: dict[str, list[int]] = {}
    for size, mapping in pieces:
        name = mapping.name or zeroed_of(mapping) or f"{mapping.start:x}-{mapping.end:x}"
        sums = by_name.setdefault(name, [0, 0])
        sums[0] += size
        sums[1] += mapping.size_bytes
    ranked = sorted(by_name.items(), key=lambda item: -item[1][0])[:_LISTED]
    return [
        {"name": name, "resident_bytes": sums[0], "mapped_bytes": sums[1]} for name, sums in ranked if sums[0]
    ]


_ORDER = (
    names.HEAP_LIVE,
    names.HEAP_METADATA,
    names.HEAP_RELEASABLE,
    names.HEAP_PINNED,
    names.HEAP_CACHED,
    names.HEAP_MMAPPED,
    "arena",
    "stack",
    "allocator",
    "anonymous",
    "shared",
    "device",
    "file",
)


_IN_PYTHON = (names.LIVE, names.HEADERS, names.FREE_IN_POOLS, names.FREE_POOLS)
_IN_BFC = (names.LIVE, names.INTERNAL_WASTE, names.FREE_CHUNKS)
_IN_OTHERS = (
    names.LIVE, names.IN_CACHES, names.IN_SLABS, names.FREE_PAGES, names.LAZY_PAGES, names.RETURNED_PAGES,
    names.ALLOCATORS_OWN, names.CHANGING,
)  # fmt: skip


def _order(key: Key) -> tuple[int, str, int, str, str]:
    category, label = key
    rank = next(
        (n for n, name in enumerate(_ORDER) if category == name or category.startswith(f"{name}.")), 99
    )
    number = int(label.rpartition(" ")[2]) if label.startswith("arena ") else 0
    if category == names.PYMALLOC:
        number = _IN_PYTHON.index(label)
    elif category == names.BFC:
        number = _IN_BFC.index(label)
    elif category.startswith("allocator."):
        part = label.partition(",")[0]
        number = _IN_OTHERS.index(part) if part in _IN_OTHERS else len(_IN_OTHERS)
    return rank, category if category.startswith("allocator.") else "", number, category, label
