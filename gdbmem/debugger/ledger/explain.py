"""memexplain: the ledger of the process that gdb holds."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Optional, TextIO

import gdb

from gdbmem.allocators.others import replacement_among
from gdbmem.commands.arguments import LEDGER_OPTIONS, check_alone, check_views_apart
from gdbmem.debugger.command import Command, say, warn
from gdbmem.debugger.location import c_type, program_runs, real_pid
from gdbmem.debugger.names import class_names
from gdbmem.debugger.program import register, selection_kept, thread_pointer
from gdbmem.debugger.terminal import console_on, gdb_text
from gdbmem.errors import GdbmemError, TargetError, UsageError
from gdbmem.inspection.block_queries import BlockQueries
from gdbmem.inspection.interpreters import INTERPRETER, explain_for_gdb, stopped_request
from gdbmem.json_values import as_json
from gdbmem.ledger.document import ledger_json
from gdbmem.ledger.output import Host, write_result
from gdbmem.linux.holding.copying import expected_hold, is_long, wait_text
from gdbmem.linux.memory.maps import read_maps
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.process.process import ProcessFacts, check_analysable, process_facts
from gdbmem.model.ledger import Ledger
from gdbmem.model.memory import X86_64_REGISTERS, ThreadPointers
from gdbmem.runs.saved_results import LEDGER
from gdbmem.terminal.console import open_named, open_output
from gdbmem.text import format_size, printable

if TYPE_CHECKING:
    from gdbmem.ledger.pinners import PinnerPaths

# The ledger of the process or core in this gdb.


_SMALL_BYTES = 256 << 10  # 10 ms of reading in plain Python; a worker takes 0.3 s of CPU to start
_CORE = re.compile(r"^Local core dump file:\n\s+.(.+)., file type ", re.M)


_GENERAL = X86_64_REGISTERS if os.uname().machine == "x86_64" else [f"x{number}" for number in range(31)]


def read_ledger_here(queries: Optional[BlockQueries] = None, *, swapped: bool = False) -> Ledger:
    """Return the ledger of the stopped process or core, and fill *queries*.

    Swapped pages are read only if *swapped*, because reading brings them back into memory.
    Raises TargetError with the reason if there is none.
    """
    core = core_path()
    if core is not None:
        from gdbmem.inspection.read_process import explain_core  # slow to import

        of_core = explain_core(core, look=queries)
        of_core.check()
        return of_core
    pid = local_pid()

    facts = check_analysable(pid, may_be_traced=True)
    threads = threads_here()
    _announce(facts, len(threads))
    with ProcMemory(pid) as memory:
        ledger = None
        if not _is_small(facts):
            process = stopped_request(pid, facts.name, memory.descriptor, threads)
            ledger = explain_for_gdb(process, memory.descriptor, queries, swapped=swapped)
        if ledger is None:
            from gdbmem.inspection.read_process import explain_stopped  # which a worker spares gdb

            ledger = explain_stopped(pid, facts.name, memory, threads, look=queries, swapped=swapped)
    ledger.check()
    return ledger


def _is_small(facts: ProcessFacts) -> bool:
    """Return whether gdb's own Python reads the process sooner than a worker starts."""
    # A Python named by the user is always used.
    if INTERPRETER in os.environ or not facts.anonymous_bytes:  # 0: a kernel that doesn't count them
        return False
    if facts.anonymous_bytes + facts.swap_bytes > _SMALL_BYTES:
        return False
    # Another allocator's heap is read with numpy, which a worker has.
    return replacement_among({mapping.name for mapping in read_maps(facts.pid) if mapping.is_file}) is None


def _announce(facts: ProcessFacts, threads: int) -> None:
    """Announce a noticeable duration: the process and the prompt wait meanwhile."""
    expected = expected_hold(facts, read_maps(facts.pid), threads)
    if is_long(expected):
        size = format_size(facts.anonymous_bytes)
        warn(f"reading its {size} takes {wait_text(expected)}")


def core_path() -> Optional[Path]:
    """Return gdb's core file; None for a live process, or without a target."""
    found = _CORE.search(gdb_text("info target"))
    return Path(found[1]) if found else None


def local_pid() -> int:
    """Return the pid of the process that this gdb itself debugs on this machine, not under valgrind."""
    if not program_runs():
        raise TargetError(
            "there is no process to explain", slug="not-running", hint="type 'run', or 'attach PID'"
        )
    pid = real_pid()
    if pid is None or not _is_ours(pid):
        raise TargetError(
            "this program runs under valgrind or on another machine, so its memory can't be analysed from here",
            slug="not-local",
            hint="under massif 'massif-diff' shows what grew; else run gdb where the program runs",
        )
    return pid


def _is_ours(pid: int) -> bool:
    try:
        return process_facts(pid).tracer == os.getpid()
    except GdbmemError:
        return False


def threads_here(*, with_registers: bool = False) -> list[ThreadPointers]:
    """Return the process's threads; the selected thread and frame stay selected.

    *with_registers*: with all that may have a pointer.
    """
    threads = []
    with selection_kept():
        for thread in sorted(gdb.selected_inferior().threads(), key=lambda t: int(t.num)):
            thread.switch()
            gdb.newest_frame().select()  # of the selected thread another one may be
            threads.append(
                ThreadPointers(
                    int(thread.ptid[1]),
                    thread_pointer(),
                    register("$sp"),
                    str(thread.name or ""),
                    register("$pc"),
                    register("$orig_rax") or register("$x8"),
                    [register(f"${name}") for name in _GENERAL] if with_registers else [],
                )
            )
    return threads


class ExplainCommand(Command):
    """Read, keep, compare."""

    def saved_names(self) -> list[str]:
        from gdbmem.debugger.saved_results import saved_names  # slow to import

        return saved_names(LEDGER)

    def run(self, args: argparse.Namespace) -> None:
        check_views_apart(args)
        check_alone(args, "mallinfo", (*LEDGER_OPTIONS, "malloc_info"))
        check_alone(args, "malloc_info", LEDGER_OPTIONS)
        if args.html is not None:
            from gdbmem.debugger.report_pages import check_page  # not always needed

            check_page(args.html, force=args.force)
        earlier = _earlier(args.since) if args.since is not None else None
        with (
            open_output(args.output, force=args.force) as stream,
            open_named(args.map, force=args.force) as picture,
        ):
            if args.malloc_info:
                from gdbmem.debugger.ledger.malloc_calls import write_malloc_info  # slow to import

                write_malloc_info(stream, as_json=args.json)
            elif args.mallinfo:
                write_mallinfo(read_ledger_here(), stream, as_json=args.json)
            else:
                _write_ledger(args, earlier, stream, picture)


def _earlier(name: str) -> Ledger:
    from gdbmem.debugger.saved_results import kept_ledger  # slow to import

    return kept_ledger(name)


def _write_ledger(
    args: argparse.Namespace, earlier: Optional[Ledger], stream: TextIO, picture: Optional[TextIO]
) -> None:
    """Read the ledger, save it, draw it, and write it or the change since *earlier*."""
    queries = BlockQueries.of_options(
        args, address_in(args.chunk, "--chunk") if args.chunk is not None else None
    )
    ledger = read_ledger_here(queries, swapped=args.swapped)
    if args.save is not None:
        from gdbmem.debugger.saved_results import keep_ledger  # slow to import

        say(f"ledger saved as {keep_ledger(args.save, ledger).label}")
    host = Host(console_on, class_names, _paths_of_pinners)
    name = args.save or "now"
    write_result(ledger, queries, args, host, stream, picture=picture, earlier=earlier, name=name)
    drawn = queries.map if queries is not None else None
    if picture is not None and drawn is not None:
        say(f"the heap is drawn in {args.map}")
    if args.html is not None:
        from gdbmem.debugger.report_pages import write_document_page  # not always needed

        heap_map = as_json(drawn) if drawn is not None else None
        stem = PurePath(ledger.program).name or "ledger"
        write_document_page(ledger_json(ledger, heap_map=heap_map), stem, args.html, force=args.force)


def address_in(text: str, option: str) -> int:
    """Return the value of gdb's expression *text*, given for *option*, as an address: a number or a pointer."""
    try:
        value = gdb.parse_and_eval(text)
        return int(value.cast(c_type("unsigned long")))
    except gdb.error as error:
        raise UsageError(
            f"{option} can't use {printable(text)}: {printable(str(error))}",
            hint="give an address, or an expression of a pointer without blanks",
        ) from error


def _paths_of_pinners(operand: str, ledger: Ledger) -> PinnerPaths:
    from gdbmem.runs.saved_documents import paths_of_pinners  # the readers of all formats
    from gdbmem.symbols.address_names import GdbSymbols  # with it

    return paths_of_pinners(operand, ledger, GdbSymbols(progress=warn))


def write_mallinfo(ledger: Ledger, stream: TextIO, *, as_json: bool) -> None:
    """Write the values of mallinfo2, called in the process, beside those of *ledger*."""
    from gdbmem.debugger.ledger.malloc_calls import (  # slow to import
        check_callable,
        mallinfo_of,
        read_mallinfo,
        refuse_core,
    )
    from gdbmem.ledger.malloc_info import mallinfo_json, print_mallinfo  # with it

    refuse_core("mallinfo2")
    check_callable(ledger, "mallinfo2")
    theirs = read_mallinfo()
    if as_json:
        stream.write(mallinfo_json(theirs, mallinfo_of(ledger), ledger.notices))
    else:
        print_mallinfo(theirs, mallinfo_of(ledger), console_on(stream))
