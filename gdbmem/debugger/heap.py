"""memheap: who holds the blocks of the heap that gdb debugs."""

from __future__ import annotations

import argparse
import json

from gdbmem.debugger.command import Command
from gdbmem.debugger.ledger.explain import address_in, core_path, local_pid, threads_here
from gdbmem.debugger.names import class_names
from gdbmem.debugger.terminal import console_on
from gdbmem.errors import ToolError
from gdbmem.heap.text import heap_json, mangled_names, print_heap
from gdbmem.inspection.worker_requests import answers_of_workers, stopped_request
from gdbmem.json_values import MISFITS, as_json, from_json
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.process.process import check_analysable
from gdbmem.model.heap_graph import HeapQuery, HeapView
from gdbmem.terminal.console import open_output

_WORKER = "gdbmem.inspection.heap_worker"


class HeapCommand(Command):
    """Read, answer, print."""

    def run(self, args: argparse.Namespace) -> None:
        block = address_in(args.block, "--block") if args.block is not None else None
        query = HeapQuery(args.by, args.top, args.min or 0, args.depth, args.without or (), args.leaks, block)
        with open_output(args.output, force=args.force) as stream:
            view = _view(query, swapped=args.swapped)
            names = class_names(mangled_names(view))
            if args.json:
                stream.write(heap_json(view, names))
            else:
                print_heap(view, names, console_on(stream), only_leaks=args.leaks)


def _view(query: HeapQuery, *, swapped: bool) -> HeapView:
    """Return the answer to *query* from a worker: gdb's own Python has no numpy. Raises ToolError without one."""
    core = core_path()
    if core is not None:
        return _asked({"core": str(core.absolute())}, query, None)
    pid = local_pid()
    facts = check_analysable(pid, may_be_traced=True)
    threads = threads_here(with_registers=True)
    with ProcMemory(pid) as memory:
        request = stopped_request(pid, facts.name, memory.descriptor, threads)
        return _asked({**request, "swapped": swapped}, query, memory.descriptor)


def _asked(request: dict[str, object], query: HeapQuery, descriptor: int | None) -> HeapView:
    for answer in answers_of_workers({**request, "query": as_json(query)}, descriptor, _WORKER):
        try:
            return from_json(HeapView, json.loads(answer))
        except MISFITS:
            continue
    raise ToolError(
        "memheap needs the Python that gdbmem was installed into, which was not found",
        slug="python-worker-missing",
        hint="name it: GDBMEM_PYTHON=/path/to/python",
    )
