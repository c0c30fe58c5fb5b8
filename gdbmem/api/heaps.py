"""The graph of a heap: who holds its blocks, and which ones nothing reaches."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Optional, Union

from gdbmem.errors import InputError, TargetError
from gdbmem.heap.text import encoded, in_words
from gdbmem.model.heap_graph import HeapQuery, HeapView
from gdbmem.symbols.batch_gdb import class_names
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.heap.graph import Graph
    from gdbmem.heap.holders import HeapGraph

__all__ = ["HeapQuery", "HeapView", "heap", "heap_of_core"]

Operand = Union[str, "os.PathLike[str]"]
_WHOLE = HeapQuery()


def heap(
    pid: int,
    query: HeapQuery = _WHOLE,
    *,
    copy: Optional[bool] = None,
    swapped: bool = False,
    progress: Optional[Callable[[str], None]] = None,
) -> HeapView:
    """Return who holds the blocks of glibc's malloc in process *pid*, and which are lost.

    *copy*, *swapped*, *progress* and exceptions: as for explain().
    """
    if pid == os.getpid():
        raise TargetError(
            "this process can't read its own heap: it would have to stop itself",
            slug="own-process",
            hint="call heap() from another process, such as a child of this one",
        )
    from gdbmem.inspection.heap_graph import read_graph  # slow to import

    found = read_graph(pid, fork=copy, swapped=swapped, say=progress or (lambda text: None))
    return _answer(found, query)


def heap_of_core(core: Operand, program: Optional[Operand] = None, query: HeapQuery = _WHOLE) -> HeapView:
    """Return the same of a core file; *program* is the program's file, if it has moved. Raises InputError."""
    from gdbmem.inspection.heap_graph import read_graph_of_core  # slow to import

    found = read_graph_of_core(Path(core), Path(program) if program else None)
    return _answer(found, query)


def _answer(found: HeapGraph, query: HeapQuery) -> HeapView:
    from gdbmem.heap.holders import Answers  # slow to import

    graph = found.graph()
    return Answers(found, graph, _nodes(found, graph, query.without)).view(query)


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
