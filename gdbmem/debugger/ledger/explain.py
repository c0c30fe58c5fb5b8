"""memexplain: the ledger of the process that gdb holds."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Optional, TextIO

import gdb

from gdbmem.debugger.command import Command, say, warn
from gdbmem.debugger.ledger.saved import keep_ledger, kept_ledger
from gdbmem.debugger.location import program_runs, real_pid
from gdbmem.debugger.selection import register, selection_kept, thread_pointer
from gdbmem.errors import TargetError, UsageError
from gdbmem.text import printable

if TYPE_CHECKING:
    import argparse

    from gdbmem.allocators.glibc.caches import ThreadPointers
    from gdbmem.arguments import ArgumentParser
    from gdbmem.inspection.block_questions import Looks
    from gdbmem.linux.process import ProcessFacts
    from gdbmem.model.ledger import Ledger
    from gdbmem.report.ledger.ledger_view import Beside

_CORE = re.compile(r"^Local core dump file:\n\s+.(.+)., file type ", re.M)


class ExplainCommand(Command):
    """Read, keep, compare."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        from gdbmem.arguments import add_output_options

        parser.add_argument("--save", metavar="NAME", help="keep this ledger under NAME")
        parser.add_argument(
            "--since", metavar="NAME", help="what has changed since NAME was saved; also a file, or RUN:NAME"
        )
        parser.add_argument("--sizes", action="store_true", help="live and free blocks by size")
        parser.add_argument("--pinners", action="store_true", help="which live blocks keep free pages back")
        parser.add_argument(
            "--paths",
            metavar="RUN:NAME",
            help="who allocates blocks of these sizes, by a snapshot of another run",
        )
        parser.add_argument("--types", action="store_true", help="live blocks by C++ class")
        parser.add_argument(
            "--chunk",
            metavar="ADDRESS",
            help="the block of malloc at an address or where an expression points",
        )
        parser.add_argument("--bins", action="store_true", help="malloc's lists of free blocks")
        parser.add_argument("--map", metavar="FILE", help="draw the heap into FILE, .html or .svg")
        parser.add_argument("--arena", metavar="N", type=int, help="show arena N")
        parser.add_argument(
            "--swapped",
            action="store_true",
            help="read what is swapped out although it comes back into memory by that",
        )
        parser.add_argument(
            "--remedies", action="store_true", help="what each of malloc's settings would give back"
        )
        parser.add_argument(
            "--mallinfo", action="store_true", help="call mallinfo2 in the process, and compare"
        )
        parser.add_argument(
            "--malloc-info", action="store_true", help="call malloc_info in the process, and compare"
        )
        add_output_options(parser)

    def run(self, args: argparse.Namespace) -> None:
        from gdbmem.report.ledger.heap_map import check_map_name, open_picture
        from gdbmem.report.output import open_output

        _check_together(args)
        earlier = kept_ledger(args.since) if args.since is not None else None
        kind = check_map_name(args.map) if args.map is not None else ""
        with (
            open_output(args.output, force=args.force) as stream,
            open_picture(args.map, args.force) as picture,
        ):
            if args.malloc_info:
                from gdbmem.debugger.ledger.malloc_info import write_malloc_info

                write_malloc_info(stream, as_json=args.json)
            elif args.mallinfo:
                write_mallinfo(read_ledger_here(), stream, as_json=args.json)
            else:
                _write_ledger(args, earlier, stream, picture, kind)


def _check_together(args: argparse.Namespace) -> None:
    from gdbmem.arguments import check_alone, check_views_apart

    check_views_apart(args)
    others = (
        "save",
        "since",
        "sizes",
        "pinners",
        "paths",
        "types",
        "map",
        "arena",
        "remedies",
        "chunk",
        "bins",
    )
    check_alone(args, "mallinfo", (*others, "malloc_info"))
    check_alone(args, "malloc_info", others)


def _write_ledger(
    args: argparse.Namespace,
    earlier: Optional[Ledger],
    stream: TextIO,
    picture: Optional[TextIO],
    kind: str,
) -> None:
    """Read the ledger, keep it, draw it, and write it or what changed since *earlier*."""
    from gdbmem.debugger.terminal import console_on
    from gdbmem.inspection.block_questions import Looks
    from gdbmem.report.ledger.heap_map import render_map
    from gdbmem.report.ledger.ledger_text import LedgerOptions
    from gdbmem.report.ledger.ledger_view import print_all, write_growth, write_json, write_remedies

    chunk_at = _address_of(args.chunk) if args.chunk is not None else None
    looks = Looks.asked(chunk_at, types=args.types, map=args.map is not None, bins=args.bins)
    ledger = read_ledger_here(looks, swapped=args.swapped)
    if args.save is not None:
        say(f"ledger kept as {keep_ledger(args.save, ledger).label}")
    beside = beside_of(ledger, looks, args.paths)
    if picture is not None and looks is not None and looks.map is not None:
        picture.write(render_map(looks.map, ledger.program, kind))
        say(f"the heap is drawn in {args.map}")
    names = (args.since, args.save or "now")
    if earlier is not None:
        write_growth(earlier, ledger, names, stream, console_on, as_json=args.json)
    elif args.remedies:
        write_remedies(ledger, stream, console_on, as_json=args.json)
    elif args.json:
        write_json(ledger, beside, stream)
    else:
        print_all(ledger, beside, console_on(stream), LedgerOptions(args.sizes, args.pinners, args.arena))


def _address_of(text: str) -> int:
    """Return the address that gdb's expression *text* gives: a number, or where a pointer points to."""
    try:
        value = gdb.parse_and_eval(text)
        return int(value.cast(gdb.lookup_type("unsigned long")))
    except gdb.error as error:
        raise UsageError(
            f"--chunk can't use {printable(text)}: {printable(str(error))}",
            hint="give an address, or an expression of a pointer without blanks",
        ) from error


def beside_of(ledger: Ledger, looks: Optional[Looks], paths: Optional[str]) -> Beside:
    """Return what was found beside *ledger*; *paths* names a snapshot that tells who allocates the pinners."""
    from gdbmem.debugger.batch.demangle import class_names
    from gdbmem.inspection.pinner_paths import paths_of_pinners
    from gdbmem.report.ledger.ledger_view import Beside
    from gdbmem.symbols.address_names import GdbSymbols

    return Beside(
        paths=paths_of_pinners(paths, ledger, GdbSymbols(progress=warn)) if paths else None,
        types=looks.types if looks is not None else None,
        chunk=looks.chunk if looks is not None else None,
        bins=looks.bins if looks is not None else None,
        class_names=class_names(looks.class_names()) if looks is not None else {},
    )


def write_mallinfo(ledger: Ledger, stream: TextIO, *, as_json: bool) -> None:
    """Write what mallinfo2, called in the process, says beside what *ledger* does."""
    from gdbmem.debugger.ledger.malloc_calls import check_callable, mallinfo_of, read_mallinfo
    from gdbmem.debugger.terminal import console_on
    from gdbmem.report.ledger.mallinfo import mallinfo_json, print_mallinfo

    if core_path() is not None:
        raise TargetError(
            "a core can't run mallinfo2", slug="trim-refused", hint="'memexplain' says what the heap holds"
        )
    check_callable(ledger, "mallinfo2")
    theirs = read_mallinfo()
    if as_json:
        stream.write(mallinfo_json(theirs, mallinfo_of(ledger), ledger.notices))
    else:
        print_mallinfo(theirs, mallinfo_of(ledger), console_on(stream))


def read_ledger_here(looks: Optional[Looks] = None, *, swapped: bool = False) -> Ledger:
    """Return the ledger of the stopped process or core, and fill *looks*.

    What is swapped out is read only if *swapped*: it comes back into the process's memory then.
    Raises TargetError with the reason where there is none.
    """
    core = core_path()
    if core is not None:
        from gdbmem.inspection.read_process import explain_core

        of_core = explain_core(core, look=looks)
        of_core.check()
        return of_core
    pid = local_pid()
    from gdbmem.inspection.read_process import explain_stopped
    from gdbmem.inspection.worker import explain_for_gdb, look_for_gdb
    from gdbmem.linux.process import check_analysable
    from gdbmem.linux.process_memory import ProcMemory

    facts = check_analysable(pid, may_be_traced=True)
    threads = threads_here()
    _announce(facts, len(threads))
    with ProcMemory(pid) as memory:
        if looks is None:
            ledger = explain_for_gdb(pid, facts.name, memory.descriptor, threads, swapped=swapped)
        else:
            ledger = look_for_gdb(pid, facts.name, memory.descriptor, threads, looks, swapped=swapped)
        if ledger is None:
            ledger = explain_stopped(pid, facts.name, memory, threads, look=looks, swapped=swapped)
    ledger.check()
    return ledger


def _announce(facts: ProcessFacts, threads: int) -> None:
    """Say how long it takes where that is noticed: the process waits meanwhile, and the prompt too."""
    from gdbmem.inspection.pause import expected_hold, is_long, wait_text
    from gdbmem.inspection.process_maps import read_maps
    from gdbmem.units import format_size

    expected = expected_hold(facts, read_maps(facts.pid), threads)
    if is_long(expected):
        size = format_size(facts.anonymous_bytes)
        warn(f"reading its {size} takes {wait_text(expected)}")


def core_path() -> Optional[Path]:
    """Return the core file that gdb looks at; None for a live process, or none."""
    found = _CORE.search(str(gdb.execute("info target", to_string=True)))
    return Path(found[1]) if found else None


def local_pid() -> int:
    """Return the pid of the process that this gdb itself holds on this machine, not under valgrind."""
    if not program_runs():
        raise TargetError(
            "there is no process to explain", slug="not-running", hint="type 'run', or 'attach PID'"
        )
    pid = real_pid()
    if pid is None or not _is_ours(pid):
        raise TargetError(
            "this program runs elsewhere, under valgrind or on another machine, where its memory is not its own",
            slug="not-local",
            hint="under massif 'massif-diff' tells what grew; else run gdb where the program runs",
        )
    return pid


def _is_ours(pid: int) -> bool:
    from gdbmem.errors import GdbmemError
    from gdbmem.linux.process import process_facts

    try:
        return process_facts(pid).tracer == os.getpid()
    except GdbmemError:
        return False


def threads_here() -> list[ThreadPointers]:
    """Return the process's threads with their registers; the selected thread and frame stay so."""
    from gdbmem.allocators.glibc.caches import ThreadPointers

    threads = []
    with selection_kept():
        for thread in sorted(gdb.selected_inferior().threads(), key=lambda t: int(t.num)):
            thread.switch()
            threads.append(
                ThreadPointers(
                    int(thread.ptid[1]),
                    thread_pointer(),
                    register("$sp"),
                    str(thread.name or ""),
                    register("$pc"),
                    register("$orig_rax") or register("$x8"),
                )
            )
    return threads
