"""Run `gdbmem heap`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Optional

from gdbmem.api.heaps import HeapQuery, HeapView, heap, heap_of_core
from gdbmem.cli.start import unwind_when_ended
from gdbmem.commands.arguments import ArgumentParser, checked_pid, read_address
from gdbmem.errors import UsageError
from gdbmem.heap.text import heap_json, mangled_names, print_heap
from gdbmem.symbols.batch_gdb import class_names
from gdbmem.terminal.console import Working, make_console, open_output, say


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)
    pid = checked_pid(args.target, core=args.core, command="heap")
    if args.core is not None and (args.fork is not None or args.swapped):
        raise UsageError("a core is a copy already", hint="leave out --fork, --hold and --swapped")
    unwind_when_ended()
    with open_output(args.output, force=args.force) as stream:
        view = _view(args, pid)
        names = class_names(mangled_names(view))
        if args.json:
            stream.write(heap_json(view, names))
        else:
            print_heap(view, names, make_console(stream), only_leaks=args.leaks)
    return 0


def _view(args: argparse.Namespace, pid: Optional[int]) -> HeapView:
    block = read_address(args.block) if args.block is not None else None
    query = HeapQuery(args.by, args.top, args.min or 0, args.depth, args.without or (), args.leaks, block)
    with Working(f"reading the heap of {f'process {pid}' if pid is not None else args.core}"):
        if pid is None:
            return heap_of_core(args.core, args.target, query)
        return heap(pid, query, copy=args.fork, swapped=args.swapped, progress=say)
