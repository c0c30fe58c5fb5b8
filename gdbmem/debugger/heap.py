"""memheap: who holds the blocks of the heap that gdb debugs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gdbmem.commands.arguments import check_whole, columns_asked_for
from gdbmem.debugger.command import Command, say
from gdbmem.debugger.ledger.explain import address_in, core_path, local_pid, threads_here
from gdbmem.debugger.names import class_names
from gdbmem.debugger.saved_results import keep_heap, kept_heap, saved_names
from gdbmem.debugger.session import session
from gdbmem.debugger.snapshots.leaks import blocks_under_memcheck
from gdbmem.debugger.terminal import console_on
from gdbmem.engines import memcheck
from gdbmem.errors import UsageError
from gdbmem.formats.documents import read_heap_view
from gdbmem.heap.text import HolderWords, heap_json, mangled_names, print_heap, write_growth
from gdbmem.inspection import interpreters
from gdbmem.inspection.interpreters import no_interpreter
from gdbmem.json_values import MISFITS, as_json, from_json
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.process.process import check_analysable
from gdbmem.model.heap_graph import HeapGrowth, HeapQuery, HeapView
from gdbmem.runs.saved_results import HEAP
from gdbmem.terminal.console import open_output
from gdbmem.text import printable


class HeapCommand(Command):
    """Read, answer, save, compare, print."""

    def saved_names(self) -> list[str]:
        return saved_names(HEAP)

    def run(self, args: argparse.Namespace) -> None:
        check_whole(args)
        if columns_asked_for(args) is not None:
            raise UsageError(
                "memheap writes no columns",
                hint="memheap --save NAME, or 'gdbmem heap --core CORE -o FILE' in a shell",
            )
        if args.save is not None or args.since is not None:
            _run_whole(args)
            return
        block = address_in(args.block, "--block") if args.block is not None else None
        query = HeapQuery(
            args.by,
            args.top,
            args.min or 0,
            args.depth,
            args.without or (),
            args.leaks,
            block,
            args.type or "",
        )
        with open_output(args.output, force=args.force) as stream:
            answer = _ask(query, {}, swapped=args.swapped)
            view = from_json(HeapView, answer)
            names = class_names(mangled_names(view))
            if args.json:
                stream.write(heap_json(view, names))
            else:
                print_heap(view, names, console_on(stream), only_leaks=args.leaks)


def _run_whole(args: argparse.Namespace) -> None:
    """Save the whole heap, and write it or its change."""
    earlier = None
    if args.since is not None:
        earlier = kept_heap(args.since)
    query = HeapQuery(args.by, args.top, args.min or 0, args.depth)
    with open_output(args.output, force=args.force) as stream:
        names = (printable(args.since or ""), args.save or "now")
        answer = _ask(query, {"whole": True, "since": earlier, "names": names}, swapped=args.swapped)
        if args.save is not None:
            say(f"heap saved as {keep_heap(args.save, answer['heap']).label}")
        if earlier is not None:
            growth = from_json(HeapGrowth, answer["growth"])
            write_growth(growth, (), stream, console_on(stream), top=args.top, as_json=args.json)
        elif args.json:
            stream.write(answer["heap"])
        else:
            print_heap(read_heap_view(answer["heap"], "the worker's answer"), {}, console_on(stream))


def heap_here() -> tuple[str, str]:
    """Return the document of the whole heap of the process or core, and its answer in a sentence."""
    text = str(_ask(HeapQuery(), {"whole": True, "since": None}, swapped=False)["heap"])
    return text, HolderWords({}).answer(read_heap_view(text, "the worker's answer"))


def _ask(query: HeapQuery, more: dict[str, object], *, swapped: bool) -> Any:
    """Return the answer to *query* from a worker: gdb's own Python has no numpy. Raises ToolError without one."""
    core = core_path()
    request: dict[str, object] = {**more, "query": as_json(query), "swapped": swapped}
    if core is not None:
        return _answer({**request, "core": str(core.absolute())}, None)
    if session.engine == memcheck.NAME:
        pid, listed = blocks_under_memcheck()
        request.update(listed)
    else:
        pid = local_pid()
    facts = check_analysable(pid, may_be_traced=True)
    threads = threads_here(with_registers=True)
    with ProcMemory(pid) as memory:
        process = interpreters.stopped_request(pid, facts.name, memory.descriptor, threads)
        return _answer({**request, **process}, memory.descriptor)


def _answer(request: dict[str, object], descriptor: int | None) -> Any:
    for answer in interpreters.answers_of_workers(interpreters.HEAP, request, descriptor):
        try:
            return json.loads(answer)
        except MISFITS:
            continue
    raise no_interpreter("memheap")
