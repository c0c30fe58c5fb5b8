"""Reading the graph of a heap for gdb, in the `gdbmem` command's own interpreter, where numpy is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from gdbmem.allocators.glibc.layout import ThreadPointers
from gdbmem.errors import GdbmemError
from gdbmem.formats.documents import read_heap
from gdbmem.heap.growth import compared
from gdbmem.heap.holders import HeapGraph
from gdbmem.heap.saved import saved_json
from gdbmem.inspection.heap_graph import answer, read_graph_of_core, read_stopped_graph, whole_answer
from gdbmem.inspection.worker_requests import refuse
from gdbmem.json_values import as_json, from_json
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.model.heap_graph import HeapQuery


def main() -> int:
    """Read one request from the standard input, and write the answer, with names as they are in the files."""
    request = json.load(sys.stdin)
    try:
        query = from_json(HeapQuery, request["query"])
        if request.get("core"):
            found = read_graph_of_core(Path(request["core"]), None)
        else:
            threads = [ThreadPointers(*values) for values in request["threads"]]
            memory = ProcMemory(request["pid"], request["descriptor"])
            swapped = bool(request["swapped"])
            found = read_stopped_graph(request["pid"], request["name"], memory, threads, swapped=swapped)
        json.dump(
            _whole(found, query, request) if request.get("whole") else as_json(answer(found, query)),
            sys.stdout,
        )
    except GdbmemError as error:
        return refuse(error)
    return 0


def _whole(found: HeapGraph, query: HeapQuery, request: dict[str, Any]) -> dict[str, object]:
    """Return the document of the whole heap, and its change since that of the request, if it has one."""
    saved = whole_answer(found, query)
    result: dict[str, object] = {"heap": saved_json(saved)}
    if request["since"] is not None:
        earlier = read_heap(request["since"], request["names"][0])
        result["growth"] = as_json(compared(earlier, saved, tuple(request["names"])))
    return result


if __name__ == "__main__":
    sys.exit(main())
