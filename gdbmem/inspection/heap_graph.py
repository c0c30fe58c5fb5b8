"""Reading the graph of a heap: of a live process, by a copy or a short stop, of a stopped one, or of a core."""

from __future__ import annotations

import contextlib
import hashlib
import struct
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from gdbmem.allocators.glibc.columns import ColumnWalker
from gdbmem.allocators.glibc.layout import ThreadPointers
from gdbmem.errors import InputError, TargetError
from gdbmem.heap.blocks import Blocks
from gdbmem.heap.giving_back import PageLedger
from gdbmem.heap.graph import Graph
from gdbmem.heap.holders import Answers, HeapGraph
from gdbmem.heap.places import Outside, find_places
from gdbmem.heap.saved import mangled_names_in, save_heap
from gdbmem.heap.text import encoded, in_words
from gdbmem.heap.words import Edges, find_edges
from gdbmem.inspection.block_answers import constant_files, namer
from gdbmem.inspection.ledger_parts import variable_areas
from gdbmem.inspection.live_process import read_live
from gdbmem.inspection.read_process import find_malloc, read_core, read_process
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.memory.maps import read_maps
from gdbmem.linux.memory.process_memory import random_bytes_in
from gdbmem.linux.process.process import auxiliary_vector, check_analysable
from gdbmem.model.heap_blocks import DATA
from gdbmem.model.heap_graph import HeapQuery, HeapView, SavedHeap
from gdbmem.model.memory import Memory
from gdbmem.symbols.batch_gdb import class_names
from gdbmem.text import format_size, plural, printable

_MOST_CLASSES = 4096  # vtables that are looked up, the most frequent first
# Notices on a ledger that matter here, too.
_KEPT = (
    "heap-corrupt", "heap-changing", "heap-pieces-missing", "mmapped-chunks-differ", "tcache-unread", "arena-locked",
    "swapped-unread", "core-cut", "core-leaves-out", "malloc-replaced",
)  # fmt: skip
_TCACHE_BINS, _TCACHE_BLOCKS = 64, 7  # of a thread by default; a chunk of bin n has 32 + 16 n bytes


class _Reading:
    """Reads the words of the heap while the memory can be read."""

    def __init__(self) -> None:
        self.walker = ColumnWalker()
        self.found: Optional[HeapGraph] = None

    def __call__(self, reading: ProcessImage, memory: Memory) -> None:
        heap = reading.heap
        if heap is None or not heap.is_used:
            if reading.mallocs:
                raise TargetError(
                    "only blocks of glibc's malloc have a graph, and this process has those of"
                    f" {' and '.join(sorted({one.allocator for one in reading.mallocs}))}",
                    slug="heap-unread",
                    hint="'gdbmem explain --sizes' counts them by size",
                )
            why = next(
                (n.message for n in reading.notices if n.slug not in _BESIDE), "it has allocated nothing"
            )
            raise TargetError(
                f"the heap of this process can't be read: {why}",
                slug="heap-unread",
                hint="'gdbmem explain' shows where its memory is",
            )
        blocks = Blocks(self.walker.tables_of(heap), heap.mmapped)
        files = constant_files(reading)
        edges = find_edges(memory, blocks, files)
        data = [(start, end) for kind, start, end in variable_areas(reading) if kind == DATA]
        outside = find_places(reading, memory, blocks, edges, data)
        name_of = namer(reading, memory)
        vtables = [vtable for vtable, _ in Counter(edges.objects[1].tolist()).most_common(_MOST_CLASSES)]
        classes = {vtable: name for vtable in vtables if (name := name_of(vtable))}
        notices = [notice for notice in (*reading.notices, *heap.notices) if notice.slug in _KEPT]
        self.found = HeapGraph(
            reading.program, reading.pid, blocks, edges, outside, classes, list(dict.fromkeys(notices)),
            PageLedger.of(reading, heap, blocks) if reading.pid is not None else None,
            _gaps(reading, edges, outside), _hidden(heap.caches.unread_threads),
            execution=_execution(reading.pid, memory), time=time.time(),
        )  # fmt: skip


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


def _gaps(reading: ProcessImage, edges: Edges, outside: Outside) -> str:
    """Return which memory that may lead to blocks was not read."""
    unread = edges.unread_bytes + outside.unread_bytes
    heap = reading.heap
    if heap is not None and heap.is_corrupt:
        return "the heap is damaged"
    if heap is not None and heap.has_gaps:
        return "part of the heap was not read"
    if unread:
        return f"{format_size(unread)} of the process's memory could not be read"
    unknown = sum(not thread.registers for thread in reading.threads)  # of one that waits in the kernel
    return f"the registers of {plural(unknown, 'thread')} could not be read" if unknown else ""


def _hidden(unread_threads: Sequence[int]) -> dict[int, int]:
    most = _TCACHE_BLOCKS * len(unread_threads)
    return {32 + 16 * number: most for number in range(_TCACHE_BINS)} if most else {}


def read_graph(pid: int, *, fork: Optional[bool], swapped: bool, say: Any) -> HeapGraph:
    """Return the graph of live process *pid*; arguments and exceptions as for explain_process()."""
    reading = _Reading()
    _, pause_seconds = read_live(
        pid, walker=reading.walker, fork=fork, look=reading, say=say, swapped=swapped
    )
    assert reading.found is not None
    reading.found.pause_seconds = pause_seconds
    return reading.found


def read_graph_of_core(core: Path, program: Optional[Path]) -> HeapGraph:
    """Return the graph of a core. Raises InputError or TargetError."""
    reading = _Reading()
    read_core(core, look=reading, program=program, walker=reading.walker, searched=0)
    assert reading.found is not None
    with contextlib.suppress(OSError):
        reading.found.time = core.stat().st_mtime
    return reading.found


def read_stopped_graph(
    pid: int, name: str, memory: Memory, threads: Sequence[ThreadPointers], *, swapped: bool
) -> HeapGraph:
    """Return the graph of process *pid*, which is stopped by someone else (gdb); as for explain_stopped()."""
    check_analysable(pid, may_be_traced=True)
    reading = _Reading()
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
        )
    assert reading.found is not None
    return reading.found


def answer(found: HeapGraph, query: HeapQuery) -> HeapView:
    """Return the answer to *query*. Raises InputError if it names a holder that is not there."""
    graph = found.graph()
    return Answers(found, graph, _nodes(found, graph, query.without)).view(query)


def whole_answer(found: HeapGraph, query: HeapQuery) -> SavedHeap:
    """Return the answer to *query*, with all that another moment can be compared with; names are demangled."""
    answers = Answers(found, found.graph())
    return save_heap(answers, answers.view(query), class_names(mangled_names_in(found)))


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
            if name in (place.name, in_words(place.name, shown))
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
