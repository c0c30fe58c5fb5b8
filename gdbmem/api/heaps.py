"""The graph of a heap: who holds its blocks, which ones nothing reaches, and what changed since another moment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from gdbmem.errors import InputError, UsageError
from gdbmem.files import replace_file
from gdbmem.linux.process.process import check_not_own
from gdbmem.model.heap_graph import HeapGrowth, HeapQuery, HeapView, SavedHeap
from gdbmem.runs.run import Run
from gdbmem.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gdbmem.heap.sites import HeapSites
    from gdbmem.runs.saved_results import SavedResult

__all__ = [
    "HeapGrowth",
    "HeapQuery",
    "HeapView",
    "SavedHeap",
    "encode_heap_blocks",
    "heap",
    "heap_blocks",
    "heap_growth",
    "heap_of_core",
    "keep_heap",
    "place_to_save",
    "read_heap",
    "whole_heap",
    "whole_heap_of_core",
    "write_heap",
]

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
    check_not_own(pid)
    from gdbmem.inspection.heap_graph import answer, read_graph  # slow to import

    say = progress or (lambda text: None)
    return answer(read_graph(pid, query, fork=copy, swapped=swapped, say=say), query)


def heap_of_core(core: Operand, program: Optional[Operand] = None, query: HeapQuery = _WHOLE) -> HeapView:
    """Return the same of a core file; *program* is the program's file, if it has moved. Raises InputError."""
    from gdbmem.inspection.heap_graph import answer, read_graph_of_core  # slow to import

    return answer(read_graph_of_core(Path(core), Path(program) if program else None, query), query)


def whole_heap(
    pid: int,
    query: HeapQuery = _WHOLE,
    *,
    copy: Optional[bool] = None,
    swapped: bool = False,
    progress: Optional[Callable[[str], None]] = None,
) -> SavedHeap:
    """Return all holders, types and blocks of process *pid*, to be compared with another moment by heap_growth().

    *query* says which rows its view has. Arguments and exceptions: as for heap().
    """
    check_not_own(pid)
    from gdbmem.inspection.heap_graph import read_graph, whole_answer  # slow to import

    say = progress or (lambda text: None)
    return whole_answer(read_graph(pid, _WHOLE, fork=copy, swapped=swapped, say=say), query)


def whole_heap_of_core(
    core: Operand, program: Optional[Operand] = None, query: HeapQuery = _WHOLE
) -> SavedHeap:
    """Return the same of a core file; arguments and exceptions as for heap_of_core()."""
    from gdbmem.inspection.heap_graph import read_graph_of_core, whole_answer  # slow to import

    return whole_answer(read_graph_of_core(Path(core), Path(program) if program else None, _WHOLE), query)


# -- heaps that are saved, and their changes --------------------------------------------------------------


def write_heap(saved: SavedHeap, path: Operand) -> None:
    """Write *saved* into the file *path*, which is replaced if there is one. Raises OSError."""
    from gdbmem.heap.saved import saved_json  # with numpy

    replace_file(Path(path), saved_json(saved))


def read_heap(operand: Operand) -> SavedHeap:
    """Return the heap in a file that `gdbmem heap --save` wrote, or that is saved in a run: ``RUN``, ``RUN:NAME``.

    Raises InputError if there is none.
    """
    from gdbmem.runs.saved_documents import load_heap  # with the readers of all formats

    return load_heap(os.fspath(operand))


def heap_growth(
    before: SavedHeap, after: SavedHeap, names: tuple[str, str] = ("before", "after")
) -> HeapGrowth:
    """Return which holders and types grew from *before* to *after*, and which blocks are lost since.

    Raises InputError if one of them, which are called *names*, is damaged.
    """
    from gdbmem.heap.growth import compared  # with numpy

    return compared(before, after, names)


def heap_blocks(saved: SavedHeap) -> tuple[Any, Any, Any]:
    """Return address, size (bytes) and holder of each live block of *saved*, as numpy arrays (int64).

    The holder is its place in ``saved.holders``; -1: no word leads to the block, -2: only words that are probably no
    pointers do. Raises InputError if *saved* is damaged, or has no list of blocks, because these are too many.
    """
    from gdbmem.heap.saved import unpacked  # with numpy

    if saved.blocks is None:
        raise InputError("the heap has too many blocks to be saved one by one", slug="bad-heap")
    try:
        return unpacked(saved)
    except ValueError as error:
        raise InputError(f"the heap can't be read: {error}", slug="bad-heap") from None


def encode_heap_blocks(saved: SavedHeap, kind: str) -> bytes:
    """Return the live blocks of *saved*, one a row, as a file of *kind*: "parquet" or "arrow" (Feather 2).

    Columns: address, size_bytes, holder, holder_kind, holder_object (null for what is lost), and lost: null, "lost" or
    "perhaps" (only words that are probably no pointers lead to the block). Raises InputError as heap_blocks(), and
    MissingToolError without pyarrow.
    """
    from gdbmem.heap.saved import encode_blocks  # slow to import

    return encode_blocks(saved, heap_blocks(saved), kind)


def heap_sites(operand: str, view: HeapView, names: Mapping[str, str]) -> HeapSites:
    """Return who allocates blocks of the sizes in *view*, which has `sizes`, by snapshot *operand*; *names* demangle.

    Raises InputError, also if the snapshot lacks the sizes of blocks.
    """
    from gdbmem.heap.sites import join_sites  # with the readers of all formats
    from gdbmem.heap.text import HolderWords
    from gdbmem.runs.saved_documents import snapshot_and_format
    from gdbmem.symbols.address_names import GdbSymbols

    return join_sites(view, HolderWords(names), *snapshot_and_format(operand, GdbSymbols()))


def place_to_save(text: str) -> Optional[tuple[Run, str]]:
    """Return the run and the name of the moment that *text*, ``RUN:NAME``, names; None: it is that of a file.

    Raises UsageError for a run without a name, and for a name in what is no run.
    """
    from gdbmem.runs.operand import find_operand  # with it

    try:
        place, name = find_operand(text)
    except InputError as error:
        if error.slug == "no-such-file" and ":" not in Path(text).name:
            return None
        raise UsageError(
            f"--save takes FILE or RUN:NAME, and there is no run '{printable(text)}'",
            hint="'gdbmem show RUN' lists what a run holds",
        ) from None
    from gdbmem.runs import saved_documents  # as above

    return None if name is None and not isinstance(place, Run) else saved_documents.place_to_save(text)


def keep_heap(run: Run, name: str, saved: SavedHeap) -> SavedResult:
    """Save *saved* in *run* as *name*. Raises InputError."""
    from gdbmem.heap.saved import saved_json  # with numpy
    from gdbmem.runs import saved_documents  # as above

    return saved_documents.save_heap(run, name, saved_json(saved), saved.view)
