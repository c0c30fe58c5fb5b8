"""Reading the graph of a heap: of a live process, by a copy or a short stop, of a stopped one, or of a core."""

from __future__ import annotations

import contextlib
import hashlib
import re
import struct
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from gdbmem.allocators.data_words import ZeroedMemory
from gdbmem.allocators.glibc.blocks import ColumnWalker
from gdbmem.allocators.malloc_heap import LARGE, SLAB, MallocHeap
from gdbmem.arrays import import_numpy, places_of
from gdbmem.errors import InputError, Notice, TargetError
from gdbmem.heap.blocks import Blocks, glibc_regions, other_regions
from gdbmem.heap.frames import split_stacks
from gdbmem.heap.giving_back import PageLedger
from gdbmem.heap.graph import Graph, Place
from gdbmem.heap.holders import Answers, HeapGraph, Kind, Row, Size
from gdbmem.heap.places import Outside, find_places, memory_of_glibc, thread_in_words, with_thread_pointers
from gdbmem.heap.pools import find_pools
from gdbmem.heap.rust import RustWords
from gdbmem.heap.saved import mangled_names_in, save_heap
from gdbmem.heap.text import class_in_words, encoded, in_words
from gdbmem.heap.types import hidden_types, typed
from gdbmem.heap.unused import Containers
from gdbmem.heap.words import Edges, find_edges
from gdbmem.inspection.ledger_parts import may_have_rust, variable_areas
from gdbmem.inspection.read_process import find_malloc, read_core, read_process
from gdbmem.ledger.blocks import constant_files, namer
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.objects import images
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.memory.maps import Ranges, mapping_at, read_maps
from gdbmem.linux.memory.process_memory import ProcMemory, random_bytes_in
from gdbmem.linux.process.process import auxiliary_vector, check_analysable
from gdbmem.model.heap_blocks import DATA
from gdbmem.model.heap_graph import BY_ROOT, CUT, DAMAGED, STACK, HeapQuery, HeapView, Holder, SavedHeap
from gdbmem.model.leaks import POINTER
from gdbmem.model.memory import Memory, MemoryUnreadable, ThreadPointers
from gdbmem.symbols.batch_gdb import class_names
from gdbmem.text import format_size, plural, printable

if TYPE_CHECKING:
    from gdbmem.formats.valgrind.memcheck import ListedBlocks
    from gdbmem.inspection.block_expressions import Located
    from gdbmem.inspection.heap_frames import StackCopy

_MOST_CLASSES = 4096  # vtables that are looked up, the most frequent first
# Notices on a ledger that matter here, too.
_KEPT = (
    "heap-corrupt", "heap-changing", "heap-pieces-missing", "mmapped-chunks-differ", "tcache-unread", "arena-locked",
    "swapped-unread", "core-cut", "core-leaves-out", "malloc-replaced",
)  # fmt: skip
_KEPT_OF_OTHERS = ("swapped-unread", "core-cut", "core-leaves-out", "descriptors-left-out", "blocks-in-files")
_LEAST_BLOCK = 16
_STACK_PIECE = 1 << 12
MEMCHECK = "memcheck"
_QT = "/libQt5Core"
_WORTH_SAYING = 0.01  # of the bytes of all blocks
_TCACHE_BINS, _TCACHE_BLOCKS = 64, 7  # of a thread by default; a chunk of bin n has 32 + 16 n bytes


class _Reading:
    """Reads the words of the heap while the memory can be read."""

    def __init__(self, query: HeapQuery, listed: Optional[ListedBlocks] = None) -> None:
        self._query = query
        self._listed = listed  # the blocks, by memcheck, in whose place no allocator is read
        self.located: Optional[Located] = None  # what its expression stands for, by files alone
        self.walker = ColumnWalker()
        self.found: Optional[HeapGraph] = None
        self._image: Optional[ProcessImage] = None
        self._stacks: Sequence[StackCopy] = ()

    def __call__(self, reading: ProcessImage, memory: Memory) -> None:
        self._image = reading
        if self._listed is not None:
            self._read_listed(reading, memory, self._listed)
            return
        heap, other = reading.heap, _largest_other(reading)
        if other is not None:
            self._read_other(reading, memory, other)
            return
        if heap is None or not heap.is_used:
            why = next(
                (n.message for n in reading.notices if n.slug not in _BESIDE), "it has allocated nothing"
            )
            if reading.mallocs:
                why = f"the blocks of {reading.mallocs[0].allocator} can't be told from free ones"
            raise _unread(why)
        blocks = Blocks(glibc_regions(self.walker.tables_of(heap), heap.mmapped))
        if not blocks.count:
            raise _unread(next((n.message for n in heap.notices if n.slug in _KEPT), CUT))
        pages = PageLedger.of(reading, heap, blocks) if reading.pid is not None else None
        mallocs = list(memory_of_glibc(heap))
        self._read(reading, memory, memory, blocks, mallocs)
        assert self.found is not None
        notices = [notice for notice in (*reading.notices, *heap.notices) if notice.slug in _KEPT]
        self.found.notices = list(dict.fromkeys(notices))
        self.found.pages, self.found.hidden = pages, _hidden(heap.caches.unread_threads)

    def _read_other(self, reading: ProcessImage, memory: Memory, heap: MallocHeap) -> None:
        """Read the blocks of an allocator that replaces malloc."""
        np = import_numpy()
        live, view, spans = heap.live_blocks(), reading.heap_view, heap.spans
        assert live is not None
        assert view is not None
        has_blocks = (spans.kinds == SLAB) | (spans.kinds == LARGE)
        of_blocks, of_malloc = (
            list(zip(spans.starts[some].tolist(), spans.ends[some].tolist()))
            for some in (has_blocks, slice(None))
        )
        is_block = (live.starts % _LEAST_BLOCK == 0) & (live.sizes >= _LEAST_BLOCK)
        # Those of 8 bytes are too small for the graph: they are places outside.
        small = live.starts[~is_block]
        own = np.array(live.own, np.int64)
        number = np.maximum(np.searchsorted(live.starts, own, "right") - 1, 0)
        is_block[number[own - live.starts[number] < live.sizes[number]]] = False
        starts, sizes = live.starts[is_block], live.sizes[is_block]
        blocks = Blocks(other_regions(Ranges(of_blocks), starts, sizes), header_bytes=0)
        self._read(reading, ZeroedMemory(view), memory, blocks, of_malloc, small)
        assert self.found is not None
        self.found.allocator = heap.allocator
        notices = [notice for notice in reading.notices if notice.slug in _KEPT_OF_OTHERS]
        notices += heap.notices_on(live)
        if 8 * len(small) > _WORTH_SAYING * int(sizes.sum()):
            text = (
                f"of blocks of 8 bytes, {len(small):,}, only the words that lead to others are in the graph"
            )
            notices.append(Notice("blocks-unlisted", text))
        self.found.notices = list(dict.fromkeys(notices))
        if live.unlisted or live.doubtful or not heap.is_complete or heap.odd_descriptors:
            self.found.gaps = (
                self.found.gaps or f"not all blocks of {heap.allocator} could be told from free ones"
            )

    def _read_listed(self, reading: ProcessImage, memory: Memory, listed: ListedBlocks) -> None:
        """Read the blocks of a program under memcheck, which lists them."""
        from gdbmem.heap.allocated import block_paths  # slow to import: the text of profiles

        np = import_numpy()
        if not listed.addresses:
            raise _unread("memcheck lists no block")
        columns = np.array([listed.addresses, listed.sizes, listed.paths, listed.kinds], np.int64)
        columns = columns[:, np.argsort(columns[0], kind="stable")]
        starts, asked = columns[:2]
        sizes = np.maximum((asked + _LEAST_BLOCK - 1) & -_LEAST_BLOCK, _LEAST_BLOCK)
        # Blocks of a program's own pools (VALGRIND_MALLOCLIKE_BLOCK) may begin anywhere, and lie in others.
        is_block = starts % _LEAST_BLOCK == 0
        is_block[1:] &= starts[1:] >= np.maximum.accumulate(starts + sizes)[:-1]
        left_out, kinds_left_out = int(np.count_nonzero(~is_block)), columns[3][~is_block]
        columns, starts, sizes = columns[:, is_block], starts[is_block], sizes[is_block]
        mappings = [
            (one.start, one.end)
            for one in reading.mappings
            if np.diff(np.searchsorted(starts, (one.start, one.end)))[0]
        ]
        blocks = Blocks(other_regions(Ranges(mappings), starts, sizes), header_bytes=0)
        self._read(reading, memory, memory, blocks, mappings)
        assert self.found is not None
        self.found.allocator = MEMCHECK
        unsearched = [(one.start, one.end) for one in reading.mappings if one.permissions[:2] != "rw"]
        self.found.paths = block_paths(blocks, MEMCHECK, columns, listed.stacks, Ranges(unsearched))
        self.found.gaps = ""  # memcheck has read all memory
        unlisted = listed.counted - len(listed.addresses)
        parts = [
            f"{plural(count, 'block')} {text}"
            for count, text in (
                (unlisted, "that memcheck counts and doesn't list"),
                (left_out, "inside of others, or at no multiple of 16 bytes"),
            )
            if count > 0
        ]
        if parts:
            self.found.notices = [Notice("blocks-unlisted", f"not in the graph: {' and '.join(parts)}")]
            if unlisted > 0 or (kinds_left_out != POINTER).any():
                self.found.gaps = CUT

    def _read(
        self,
        reading: ProcessImage,
        inner: Memory,
        memory: Memory,
        blocks: Blocks,
        mallocs: Sequence[tuple[int, int]],
        small: Any = (),
    ) -> None:
        """Read the edges of *blocks*, whose memory is read by *inner*; *mallocs* and *small* as for find_places()."""
        files = constant_files(reading)
        only_leaks = self._query.asks_for_leaks_only
        of_rust = not only_leaks and may_have_rust(reading)

        def make_containers(of_qt: Optional[Blocks] = None) -> Containers:
            return Containers(of_rust=RustWords(files) if of_rust else None, of_qt=of_qt)

        mapped = Ranges((mapping.start, mapping.end) for mapping in reading.mappings)
        has_qt = any(_QT in image.name for image in reading.images)
        containers = make_containers(blocks if has_qt else None) if not only_leaks else None
        edges = find_edges(inner, blocks, files, mapped, containers)
        pools = find_pools(inner, blocks, edges) if not only_leaks else None
        data = [(start, end) for kind, start, end in variable_areas(reading) if kind == DATA]
        waiting = [containers] if containers is not None and of_rust else []
        is_named = bool(self._query.without) or not only_leaks
        named = (edges, make_containers(), waiting) if is_named else None
        outside = find_places(reading, memory, blocks, named, data, mallocs, small)
        if named is not None:
            from gdbmem.inspection.heap_frames import copy_stacks  # not for leaks alone

            self._stacks = copy_stacks(reading, memory)
        asked = None
        if self._query.expression:
            from gdbmem.inspection.block_expressions import block_address, locate  # for --block alone

            located = self.located or locate(self._query.expression, reading.images, TargetFiles())
            asked = block_address(located, memory, blocks, reading.threads)
        name_of = namer(reading, memory)
        vtables, which = places_of(edges.objects[1])
        order = import_numpy().argsort(-import_numpy().bincount(which), kind="stable")
        frequent = vtables[order[:_MOST_CLASSES]].tolist()
        classes = {vtable: name for vtable in frequent if (name := name_of(vtable))}
        self.found = HeapGraph(
            reading.program, reading.pid, blocks, edges, outside, classes, [],
            pools=pools, gaps=_gaps(reading, memory, edges, outside),
            execution=_execution(reading.pid, memory), time=time.time(), asked=asked,
        )  # fmt: skip

    def named(self, files: TargetFiles) -> HeapGraph:
        """Return the graph, with the frames of stacks as places, by the *files* of the process.

        The process is no longer needed.
        """
        found, image = self.found, self._image
        assert found is not None
        assert image is not None
        if self._query.without or not self._query.asks_for_leaks_only:
            from gdbmem.inspection.heap_frames import DebugInformation  # not for leaks alone

            found.debug = debug = DebugInformation(image, files)
            shown = {thread.tid: thread_in_words(thread.tid, thread.name) for thread in image.threads}
            threads = debug.frames(self._stacks, shown)
            found.outside = split_stacks(found.outside, threads)
            whole = [place for place in found.outside.places if place.kind == STACK and place.frame is None]
            if whole and not threads:
                found.notices = [*found.notices, _NOT_UNWOUND]
        return found


_NOT_UNWOUND = Notice(
    "stacks-not-unwound",
    "each stack is one holder: its functions are known only on x86-64 and aarch64, and with elfutils' libdw (libdw1)",
)


def _unread(why: str) -> TargetError:
    return TargetError(
        f"the heap of this process can't be read: {why}",
        slug="heap-unread",
        hint="'gdbmem explain' shows where its memory is",
    )


def _largest_other(reading: ProcessImage) -> Optional[MallocHeap]:
    """Return the heap of an allocator that replaces malloc, if it has more than glibc's; None: glibc's is read."""
    heap = reading.heap
    own = 0
    if heap is not None and heap.is_used:
        own = sum(arena.state.system_bytes for arena in heap.arenas) + heap.mmapped_bytes
    sizes = [int((one.spans.block_bytes * one.spans.live_blocks).sum()) for one in reading.mallocs]
    largest = max(zip(sizes, reading.mallocs), key=lambda pair: pair[0], default=None)
    return largest[1] if largest is not None and largest[0] > own and largest[1].read_blocks else None


def _execution(pid: Optional[int], memory: Memory) -> str:
    """Return what tells the execution of a program from all others, by bytes that it got at its start; "": unknown.

    It is a digest of them: the program's stack protector uses the bytes themselves.
    """
    try:
        vector = auxiliary_vector(pid) if pid is not None else getattr(memory, "auxiliary_vector", {})
    except (OSError, struct.error):
        return ""
    random = random_bytes_in(memory, vector)
    return hashlib.sha256(random).hexdigest()[:16] if random else ""


_BESIDE = ("core-has-no-rss", "core-leaves-out", "core-cut")


def _gaps(reading: ProcessImage, memory: Memory, edges: Edges, outside: Outside) -> str:
    """Return which memory that may lead to blocks was not read."""
    unread = edges.unread_bytes + outside.unread_bytes
    heap = reading.heap
    if heap is not None and heap.is_corrupt:
        return DAMAGED
    if heap is not None and heap.has_gaps:
        return CUT
    if unread:
        return f"{format_size(unread)} of the process's memory could not be read"
    omitted = getattr(memory, "omitted_data", Ranges())  # of a core
    variables = sum(omitted.within(*part) for image in reading.images for part in image.writable)
    if variables:
        return f"{format_size(variables)} of variables are not in the core"
    blank = sum(_has_blank_stack(reading, memory, thread) for thread in reading.threads)
    if blank:
        return f"the stacks of {plural(blank, 'thread')} have nothing but zeros in the core"
    unknown = sum(not thread.registers for thread in reading.threads)  # of one that waits in the kernel
    return f"the registers of {plural(unknown, 'thread')} could not be read" if unknown else ""


def _has_blank_stack(reading: ProcessImage, memory: Memory, thread: ThreadPointers) -> bool:
    """Return whether a core has only zeros for the stack of *thread*, on which is at least where that began.

    gdb's gcore leaves out the rest of a mapping of which it can't read a page, as that behind a stack of glibc 2.42.
    """
    mapping = mapping_at(reading.mappings, thread.stack_pointer)
    if reading.pid is not None or mapping is None:
        return False
    for start in range(thread.stack_pointer, mapping.end, _STACK_PIECE):
        try:
            if memory.read(start, min(_STACK_PIECE, mapping.end - start)).strip(b"\0"):
                return False
        except MemoryUnreadable:
            return False  # which is said by the bytes
    return True


def _hidden(unread_threads: Sequence[int]) -> dict[int, int]:
    most = _TCACHE_BLOCKS * len(unread_threads)
    return {32 + 16 * number: most for number in range(_TCACHE_BINS)} if most else {}


def read_graph(pid: int, query: HeapQuery, *, fork: Optional[bool], swapped: bool, say: Any) -> HeapGraph:
    """Return the graph of live process *pid* for *query*; arguments and exceptions as for explain_process()."""
    from gdbmem.inspection.live_process import read_live  # slow to import, and a core needs none of it

    reading = _Reading(query)
    if query.expression:
        from gdbmem.inspection.block_expressions import locate  # for --block alone

        with ProcMemory(pid) as memory, TargetFiles(pid) as files:  # types take longer than any pause should
            reading.located = locate(query.expression, images(memory, read_maps(pid)), files)
    _, pause_seconds = read_live(
        pid, walker=reading.walker, fork=fork, look=reading, say=say, swapped=swapped, whole=True
    )
    with TargetFiles(pid) as files:
        found = reading.named(files)
    found.pause_seconds = pause_seconds
    return found


def read_graph_of_core(core: Path, program: Optional[Path], query: HeapQuery) -> HeapGraph:
    """Return the graph of a core for *query*. Raises InputError or TargetError."""
    reading = _Reading(query)
    read_core(core, look=reading, program=program, walker=reading.walker, searched=0)
    found = reading.named(TargetFiles())
    with contextlib.suppress(OSError):
        found.time = core.stat().st_mtime
    return found


def read_stopped_graph(
    pid: int,
    name: str,
    memory: Memory,
    threads: Sequence[ThreadPointers],
    query: HeapQuery,
    *,
    swapped: bool,
    listed: Optional[ListedBlocks] = None,
    beside: Sequence[tuple[int, int]] = (),
) -> HeapGraph:
    """Return the graph of process *pid*, which is stopped by someone else (gdb), for *query*; as explain_stopped().

    *listed* are the blocks of a program under memcheck, and *beside* the mappings that the program may not use: those
    without any block are valgrind's own, and not read.
    """
    check_analysable(pid, may_be_traced=True)
    reading = _Reading(query, listed)
    addresses = sorted(listed.addresses) if listed is not None else []
    own = [
        (start, end) for start, end in beside if bisect_left(addresses, start) == bisect_left(addresses, end)
    ]
    if listed is not None:  # valgrind tells gdb no thread pointers
        client = [one for one in read_maps(pid) if one.permissions[:2] == "rw" and one.is_anonymous]
        mine = [(one.start, one.end) for one in client if not any(a <= one.start < b for a, b in own)]
        threads = with_thread_pointers(memory, threads, mine)
    with TargetFiles(pid) as files:
        malloc = find_malloc(memory, read_maps(pid), files)
        read_process(
            pid,
            name,
            memory,
            threads,
            malloc,
            walker=reading.walker,
            look=reading,
            searched=0,
            swapped=swapped,
            beside=Ranges(own),
        )
        return reading.named(files)


def answer(found: HeapGraph, query: HeapQuery) -> HeapView:
    """Return the answer to *query*. Raises InputError if it names a holder that is not there."""
    if query.expression:
        query = query._replace(block=found.asked)
    graph = found.graph()
    without = _nodes(found, graph, query.without)
    kind = _kind(found, query.type)
    answers = Answers(
        found, graph, without, by=query.by, for_one_view=query.block is None and kind is not None
    )
    if kind is None:
        variables = _variables_of_type(found, answers, query.type)
        return with_types(found, answers.view(query._replace(by=BY_ROOT), rows=variables))
    return with_types(found, answers.view(query, kind))


def whole_answer(found: HeapGraph, query: HeapQuery) -> SavedHeap:
    """Return the answer to *query*, with all that another moment can be compared with; names are demangled."""
    answers = Answers(found, found.graph())
    return save_heap(answers, with_types(found, answers.view(query)), class_names(mangled_names_in(found)))


def with_types(found: HeapGraph, view: HeapView) -> HeapView:
    """Return *view* with the types of the variables in its rows, by debug information, and the hidden pointers."""
    holders = _typed(found, view.holders)
    variables = {place.name: place.type for place in found.outside.places if place.type}
    variables.update({one.name: one.type for one in holders if one.type})
    classes = class_names(set(found.classes.values())).values() if found.classes else ()
    unseen = hidden_types(variables.items(), classes, found.debug.hidden if found.debug is not None else ())
    return replace(view, holders=holders, unseen=unseen)


def _typed(found: HeapGraph, holders: Sequence[Holder]) -> list[Holder]:
    """Return *holders* with the types of the variables among them, by debug information."""
    places = {(place.name, place.kind, place.address, place.object): place for place in found.outside.places}
    of_rows = [places.get((one.name, one.kind, one.address or 0, one.object)) for one in holders]
    types = found.debug.types(filter(None, of_rows)) if found.debug is not None else {}
    return [
        typed(one, place, types.get(place)) if place is not None else one
        for one, place in zip(holders, of_rows)
    ]


# How the tables show objects, blocks of a size (as in "1,999 tree nodes of 48 bytes"), and the elements of a variable.
_COUNT = re.compile(r"^(?:[\d,]+ )?of ")
_SIZE = re.compile(
    r"(?:(?:a |[\d,]+ )?(?:(?P<structure>tree|list) nodes? of |blocks? of |of ))?(?P<bytes>[\d,]*\d)(?: bytes)?"
)
_COUNTED = re.compile(r" of [\d,]+ (?:nodes?|elements?)(?: of [\d,]+ bytes)?$")


def _kind(found: HeapGraph, text: str) -> Optional[Kind]:
    """Return the mangled names of the classes that are shown as *text*, or a size; None if it is neither."""
    size = _SIZE.fullmatch(text)
    if not text or size is not None:
        return Size(int(size["bytes"].replace(",", "")), size["structure"] or "") if size is not None else ()
    text = _COUNT.sub("", text)
    shown = class_names(set(found.classes.values()))
    names = [name for name in set(found.classes.values()) if text in (name, class_in_words(name, shown))]
    return names or None


def _variables_of_type(found: HeapGraph, answers: Answers, text: str) -> list[Row]:
    """Return the rows of the variables that are shown with the type *text*. Raises InputError if there is none."""
    text = _COUNTED.sub("", text)
    holders = _typed(found, [row.holder for row in answers.by_root])
    chosen = [row for row, holder in zip(answers.by_root, holders) if holder.type == text]
    if not chosen:
        raise InputError(
            f"no object of this heap, and no variable that holds some, is of the type '{printable(text)}'",
            slug="no-such-type",
            hint="name a class with virtual functions as 'gdbmem heap --by type' shows it, the type of a variable as"
            " 'gdbmem heap' shows it, or a size: --type 104",
        )
    return chosen


def _stack_of(place: Place) -> str:
    return f"stack of {place.thread}" if place.kind == STACK else place.name


def _nodes(found: HeapGraph, graph: Graph, names: Sequence[str]) -> list[int]:
    """Return the nodes with these *names*: places as they are shown, blocks by an address. Raises InputError."""
    if not names:
        return []
    shown = class_names({encoded(place.name) for place in graph.places} - {""})
    nodes: list[int] = []
    for name in names:
        mine = [
            graph.blocks + number
            for number, place in enumerate(graph.places)
            if name in (place.name, in_words(place.name, shown), _stack_of(place))
        ]
        if not mine and name.startswith("0x"):
            with contextlib.suppress(ValueError):
                block = found.blocks.find_one(int(name, 16))
                mine = [block] if block >= 0 else []
        if not mine:
            raise InputError(
                f"no holder of this heap is called '{printable(name)}'",
                slug="no-such-holder",
                hint="name a variable, a stack or memory as 'gdbmem heap' shows it, without what is in parentheses,"
                " or the address of a block",
            )
        nodes += mine
    return nodes
