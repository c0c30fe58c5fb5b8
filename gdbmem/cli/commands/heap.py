"""Run `gdbmem heap`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from typing import Optional, TextIO

from gdbmem.api import heaps
from gdbmem.cli.start import unwind_when_ended
from gdbmem.commands.arguments import (
    ArgumentParser,
    check_whole,
    columns_asked_for,
    pid_or_core,
    read_address,
)
from gdbmem.errors import ExitStatus, failing
from gdbmem.gates.reports import Gate, Judged, ci_files, ci_reports
from gdbmem.heap.growth import judge_growth, judge_heap
from gdbmem.heap.text import heap_json, mangled_names, print_heap, write_growth
from gdbmem.model.heap_graph import HeapLimit
from gdbmem.model.judgement import MET, NOT_MET, Judgement, exit_status
from gdbmem.symbols.batch_gdb import class_names
from gdbmem.terminal.console import Working, make_console, open_named, open_output, say
from gdbmem.text import format_size, printable


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Read, save, compare, print, and judge with --fail-on."""
    args = parser.parse_args(argv)
    pid = pid_or_core(args, "heap")
    check_whole(args)
    unwind_when_ended()
    limits: Sequence[HeapLimit] = args.fail_on or ()
    with (
        failing(unjudged=bool(limits)),
        ci_reports(ci_files(args, needs="--fail-on"), "heap") as gate,
    ):
        judgements = _run(args, pid, limits, gate)
    return _status(judgements, limits)


def _run(
    args: argparse.Namespace, pid: Optional[int], limits: Sequence[HeapLimit], gate: Gate
) -> list[Judgement]:
    earlier = heaps.read_heap(args.since) if args.since is not None else None
    kept_in = heaps.place_to_save(args.save) if args.save is not None else None
    file = args.save if kept_in is None else None
    with open_output(args.output, force=args.force) as stream:
        columns = columns_asked_for(args)
        if not (args.save or earlier or columns or any(one.of_holder for one in limits)):
            view = _view(args, pid)
            judgements = judge_heap(view, (), limits)
            gate.judged += map(Judged, judgements)
            _write_view(view, args, judgements, stream)
            return judgements
        with open_named(file, force=args.force) as copy:  # closed before anything is printed, which may fail
            saved = _whole(args, pid)
            if copy is not None:
                from gdbmem.heap.saved import saved_json  # for --save alone

                copy.write(saved_json(saved))
        if kept_in is not None:
            label = heaps.keep_heap(*kept_in, saved).label
            say(f"heap saved as {printable(kept_in[0].folder.name)}:{printable(label)}")
        if earlier is not None:
            return _compare(earlier, saved, args, pid, limits, gate, stream)
        judgements = judge_heap(saved.view, saved.holders, limits)
        gate.judged += map(Judged, judgements)
        if columns is not None:
            stream.buffer.write(heaps.encode_heap_blocks(saved, columns))
        else:
            _write_view(saved.view, args, judgements, stream)
    return judgements


def _query(args: argparse.Namespace) -> heaps.HeapQuery:
    is_address = args.block is not None and args.block[:1].isdecimal()
    block = read_address(args.block) if is_address else None
    expression = args.block if args.block is not None and not is_address else ""
    return heaps.HeapQuery(
        args.by,
        args.top,
        args.min or 0,
        args.depth,
        args.without or (),
        args.leaks,
        block,
        args.type or "",
        expression=expression,
        sizes=args.paths is not None,
    )


def _progress_bar(args: argparse.Namespace, pid: Optional[int]) -> contextlib.AbstractContextManager[object]:
    return Working(f"reading the heap of {f'process {pid}' if pid is not None else args.core}")


def _view(args: argparse.Namespace, pid: Optional[int]) -> heaps.HeapView:
    with _progress_bar(args, pid):
        if pid is None:
            return heaps.heap_of_core(args.core, args.target, _query(args))
        return heaps.heap(pid, _query(args), copy=args.fork, swapped=args.swapped, progress=say)


def _whole(args: argparse.Namespace, pid: Optional[int]) -> heaps.SavedHeap:
    with _progress_bar(args, pid):
        if pid is None:
            return heaps.whole_heap_of_core(args.core, args.target, _query(args))
        return heaps.whole_heap(pid, _query(args), copy=args.fork, swapped=args.swapped, progress=say)


def _write_view(
    view: heaps.HeapView, args: argparse.Namespace, judgements: Sequence[Judgement], stream: TextIO
) -> None:
    names = class_names(mangled_names(view))
    sites = heaps.heap_sites(args.paths, view, names) if args.paths is not None else None
    if args.json:
        stream.write(heap_json(view, names, judgements, sites.document() if sites is not None else None))
    else:
        print_heap(view, names, console := make_console(stream), only_leaks=args.leaks)
        if sites is not None:
            sites.print(console)


def _compare(
    earlier: heaps.SavedHeap,
    saved: heaps.SavedHeap,
    args: argparse.Namespace,
    pid: Optional[int],
    limits: Sequence[HeapLimit],
    gate: Gate,
    stream: TextIO,
) -> list[Judgement]:
    """Print what changed since *earlier*; return the judgements."""
    names = (args.since, f"process {pid}" if pid is not None else str(args.core))
    growth = heaps.heap_growth(earlier, saved, names)
    judgements = judge_growth(growth, earlier, saved, limits)
    gate.judged += map(Judged, judgements)
    write_growth(growth, judgements, stream, make_console(stream), top=args.top, as_json=args.json)
    return judgements


def _status(judgements: Sequence[Judgement], limits: Sequence[HeapLimit]) -> int:
    """Print the judgements that are not met, and return the exit status."""
    for one in judgements:
        if one.judged != MET:
            word = "not met" if one.judged == NOT_MET else "not judged"
            allowed = format_size(int(one.limit or 0))
            text = f"gdbmem: {word}: {printable(one.sentence)}; --fail-on allows {allowed}"
            print(text, file=sys.stderr)
    return exit_status(judgements) if limits else ExitStatus.DONE
