"""Run `gdbmem explain`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional, TextIO

from gdbmem.api import ledgers
from gdbmem.cli.start import unwind_when_ended
from gdbmem.commands.arguments import (
    LEDGER_OPTIONS,
    ArgumentParser,
    check_views_apart,
    pid_or_core,
    read_address,
)
from gdbmem.errors import UsageError
from gdbmem.ledger.output import Host, write_result
from gdbmem.model.ledger import Ledger
from gdbmem.terminal.console import Working, make_console, open_named, open_output, say
from gdbmem.terminal.document import to_json
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.api.profiles import Run

_PROCESSES = 10  # of a container, listed


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)
    if args.container is not None:
        return _run_container(args)
    if args.files is not None:
        raise UsageError("--files needs --container", hint="gdbmem explain --container NAME --files DIR")
    if args.workers is not None:
        return _run_workers(args)
    pid = pid_or_core(args, "explain")
    if args.tried is not None and (args.core is not None or args.fork is False):
        raise UsageError(
            "--try calls functions in a copy of a live process", hint="leave out --core and --hold"
        )
    check_views_apart(args)
    if args.idle is not None:
        return _run_idle(args, pid)
    chunk_at = read_address(args.chunk) if args.chunk is not None else None
    unwind_when_ended()
    earlier = ledgers.read_ledger(args.since) if args.since is not None else None
    kept_in = ledgers.place_to_save(args.save) if args.save is not None else None
    with (
        open_output(args.output, force=args.force) as stream,
        open_named(args.map, force=args.force) as picture,
        open_named(args.html, force=args.force) as page,
    ):
        queries = ledgers.BlockQueries.of_options(args, chunk_at)
        ledger = _explain(args, pid, queries)
        if page is not None:
            _write_page(ledger, queries, page)
        if kept_in is not None:
            _save(*kept_in, ledger)
        host = Host(make_console, ledgers.class_names, ledgers.pinner_paths)
        write_result(ledger, queries, args, host, stream, picture=picture, earlier=earlier)
    return 0


def _run_container(args: argparse.Namespace) -> int:
    others = (*LEDGER_OPTIONS, "target", "core", "fork", "swapped", "tried", "idle")
    if any(getattr(args, name) for name in others) or args.arena is not None or args.fork is not None:
        raise UsageError(
            "--container divides a cgroup's memory, and takes --files, --json, -o and --force only",
            hint="gdbmem explain --container NAME, then gdbmem explain PID for one of its processes",
        )
    from gdbmem.ledger.cgroup import cgroup_document, print_cgroup  # for --container alone

    with open_output(args.output, force=args.force) as stream:
        ledger = ledgers.explain_container(args.container, files=args.files)
        if args.json:
            stream.write(to_json(cgroup_document(ledger)))
        else:
            print_cgroup(ledger, make_console(stream), top=_PROCESSES)
    return 0


def _run_workers(args: argparse.Namespace) -> int:
    others = (*LEDGER_OPTIONS, "core", "fork", "swapped", "tried", "idle")
    if any(getattr(args, name) for name in others) or args.arena is not None or args.fork is not None:
        raise UsageError(
            "--workers makes one ledger of several processes, and takes --json, -o and --force only",
            hint="gdbmem explain --workers PID, then gdbmem explain PID for one of them",
        )
    words = args.workers.split(",")
    if args.target or not all(word.isascii() and word.isdigit() for word in words):
        raise UsageError(
            "--workers takes the pid of a process whose children are its workers, or several pids",
            hint="--workers 4711, or --workers 4712,4713,4714",
        )
    from gdbmem.ledger.workers import print_workers, workers_document  # for --workers alone

    pids = [int(word) for word in words]
    with open_output(args.output, force=args.force) as stream, Working("reading the processes"):
        ledger = ledgers.explain_workers(pids[0] if len(pids) == 1 else pids, progress=say)
        if args.json:
            stream.write(to_json(workers_document(ledger)))
        else:
            print_workers(ledger, make_console(stream), top=_PROCESSES)
    return 0


def _run_idle(args: argparse.Namespace, pid: Optional[int]) -> int:
    others = (*(name for name in LEDGER_OPTIONS if name != "arena"), "swapped", "tried")
    given = next((name for name in others if getattr(args, name)), None)
    if pid is None or given or args.arena is not None or args.fork is not None:
        what = f"--{given.replace('tried', 'try')}" if given else "--core, --arena, --fork or --hold"
        raise UsageError(f"--idle cannot be used with {what}", hint="gdbmem explain --idle 10min PID")
    from gdbmem.ledger.idle import idle_json, mangled_names, print_idle  # for --idle alone

    with open_output(args.output, force=args.force) as stream:
        idle = ledgers.explain_idle(pid, args.idle, progress=say)
        names = ledgers.class_names(mangled_names(idle))
        if args.json:
            stream.write(idle_json(idle, pid, names))
        else:
            print_idle(idle, f"process {pid}", make_console(stream), names)
    return 0


def _write_page(ledger: Ledger, queries: Optional[ledgers.BlockQueries], stream: TextIO) -> None:
    from gdbmem.page.ledger_page import ledger_page  # for --html alone
    from gdbmem.page.page import render  # with it

    stream.write(render(ledger_page(ledger, queries.map if queries is not None else None)))


def _explain(args: argparse.Namespace, pid: Optional[int], queries: Optional[ledgers.BlockQueries]) -> Ledger:
    with Working(f"walking the heaps of {f'process {pid}' if pid is not None else args.core}"):
        if pid is not None:
            return ledgers.explain(
                pid, copy=args.fork, swapped=args.swapped, tried=args.tried, progress=say, look=queries
            )
        return ledgers.explain_core(args.core, args.target, look=queries)


def _save(run: Run, name: str, ledger: Ledger) -> None:
    label = ledgers.save_ledger(run, name, ledger).label
    print(f"gdbmem: ledger saved as {printable(run.folder.name)}:{printable(label)}", file=sys.stderr)
