"""The work of the `gdbmem` command's own interpreter, where numpy is, for gdb: a ledger, a heap, a report on Python.

gdb passes an open /proc/PID/mem and the threads' registers, or the path of a core (`inspection/interpreters.py`);
JSON comes back.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gdbmem.arrays import import_numpy
from gdbmem.errors import GdbmemError
from gdbmem.files import JsonObject
from gdbmem.inspection.interpreters import HEAP, LEDGER, PYTHON, refuse
from gdbmem.json_values import as_json, from_json
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.model.memory import ThreadPointers

if TYPE_CHECKING:
    from gdbmem.api.python import Target
    from gdbmem.heap.holders import HeapGraph
    from gdbmem.model.heap_graph import HeapQuery


def main() -> int:
    """Read one request from the standard input, and write its answer."""
    import_numpy()  # without it this worker is useless: gdb reads a ledger itself then

    request = json.load(sys.stdin)
    try:
        sys.stdout.write(_JOBS[request["job"]](request))
    except GdbmemError as error:
        return refuse(error)
    return 0


def _stopped(request: JsonObject) -> tuple[ProcMemory, list[ThreadPointers]]:
    """Return the memory and the threads of the process that gdb holds."""
    threads = [ThreadPointers(*values) for values in request["threads"]]
    return ProcMemory(request["pid"], request["descriptor"]), threads


def _ledger(request: JsonObject) -> str:
    """Return the ledger, and the answers about single blocks; null if there are no queries."""
    from gdbmem.inspection.block_queries import BlockQueries  # this and what follows: each job's own
    from gdbmem.inspection.read_process import explain_stopped  # as above
    from gdbmem.ledger.document import ledger_json  # as above

    order = request["queries"]
    queries = None if order is None else BlockQueries.ordered(order)
    memory, threads = _stopped(request)
    ledger = explain_stopped(
        request["pid"], request["name"], memory, threads, look=queries, swapped=request["swapped"]
    )
    answers = None if queries is None else queries.document()
    return json.dumps({"ledger": ledger_json(ledger), "queries": answers})


def _heap(request: JsonObject) -> str:
    """Return the answer of the graph of the heap, or the whole of it; names are as in the files."""
    from gdbmem.formats.valgrind.memcheck import read_all_blocks  # as above
    from gdbmem.inspection.heap_graph import answer, read_graph_of_core, read_stopped_graph  # as above
    from gdbmem.model.heap_graph import HeapQuery  # as above

    query = from_json(HeapQuery, request["query"])
    for_all = HeapQuery() if request.get("whole") else query
    if request.get("core"):
        graph = read_graph_of_core(Path(request["core"]), None, for_all)
    else:
        memory, threads = _stopped(request)
        swapped = bool(request["swapped"])
        listed = read_all_blocks(*request["listed"]) if "listed" in request else None
        graph = read_stopped_graph(
            request["pid"], request["name"], memory, threads, for_all,
            swapped=swapped, listed=listed, beside=request.get("beside", ()),
        )  # fmt: skip
    if request.get("whole"):
        return json.dumps(_whole(graph, query, request))
    return json.dumps(as_json(answer(graph, query)))


def _whole(graph: HeapGraph, query: HeapQuery, request: JsonObject) -> JsonObject:
    """Return the document of the whole heap, and its change since that of the request, if it has one."""
    from gdbmem.formats.documents import read_heap  # as above
    from gdbmem.heap.growth import compared  # as above
    from gdbmem.heap.saved import saved_json  # as above
    from gdbmem.inspection.heap_graph import whole_answer  # as above

    saved = whole_answer(graph, query)
    result: JsonObject = {"heap": saved_json(saved)}
    if request["since"] is not None:
        earlier = read_heap(request["since"], request["names"][0])
        result["growth"] = as_json(compared(earlier, saved, tuple(request["names"])))
    return result


def _python(request: JsonObject) -> str:
    """Return the text of a report on a Python process."""
    from gdbmem.api.python import WRITERS, ReportWords  # as above
    from gdbmem.terminal.console import make_console  # as above

    stream = io.StringIO()
    console = make_console(stream, width=request["width"], color=request["color"])
    WRITERS[request["action"]](_target(request), ReportWords(**request["wanted"]), stream, console)
    return json.dumps({"text": stream.getvalue()})


def _target(request: JsonObject) -> Target:
    from gdbmem.api.python import HeldProcess, Target  # as above

    if request["core"] is not None:
        return Target(core=request["core"], program=request["program"])
    return Target(request["pid"], swapped=request["swapped"], stopped=HeldProcess(*_stopped(request)))


_JOBS = {LEDGER: _ledger, HEAP: _heap, PYTHON: _python}


if __name__ == "__main__":
    sys.exit(main())
