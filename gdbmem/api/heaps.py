"""The graph of a heap: who holds its blocks, and which ones nothing reaches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Optional, Union

from gdbmem.errors import TargetError
from gdbmem.model.heap_graph import HeapQuery, HeapView

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
    from gdbmem.inspection.heap_graph import answer, read_graph  # slow to import

    found = read_graph(pid, fork=copy, swapped=swapped, say=progress or (lambda text: None))
    return answer(found, query)


def heap_of_core(core: Operand, program: Optional[Operand] = None, query: HeapQuery = _WHOLE) -> HeapView:
    """Return the same of a core file; *program* is the program's file, if it has moved. Raises InputError."""
    from gdbmem.inspection.heap_graph import answer, read_graph_of_core  # slow to import

    found = read_graph_of_core(Path(core), Path(program) if program else None)
    return answer(found, query)
