"""Run `gdbmem grow`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Optional, TextIO

from gdbmem.api.growth import RecordedGrowth, record_growth, record_program_growth
from gdbmem.commands.arguments import ArgumentParser, split_program
from gdbmem.errors import UsageError, failing
from gdbmem.faults.account import grow_json, held_document, print_account, print_held
from gdbmem.launch.program import execute
from gdbmem.profiles.paths import Query, query_from
from gdbmem.profiles.text import print_sites
from gdbmem.runs.operand import load_from_profile
from gdbmem.runs.ranks import is_chosen
from gdbmem.terminal.console import make_console, open_output, print_notices, say
from gdbmem.terminal.drawing import source_roots
from gdbmem.text import format_duration, printable


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    own, program = split_program(argv)
    args = parser.parse_args(own)
    pids = [_pid(word) for word in args.pids]
    if bool(pids) == bool(program):
        raise UsageError(
            "name processes, or a program to start",
            hint="gdbmem grow PID, or gdbmem grow -- PROGRAM ARGUMENTS",
        )
    if program and not is_chosen(args.on_ranks):
        execute(program[0], program[1:], {})
    query = query_from(args)._replace(source_roots=source_roots())
    with failing(launch=program is not None), open_output(args.output, force=args.force) as stream:
        with open_output(args.profile, force=args.force) as kept:
            recorded = _record(args, pids, program)
            if args.profile is not None:
                kept.flush()
                kept.buffer.write(recorded.encoded())
        _write(recorded, query, args, stream)  # the profile is saved even if the output is closed
    return recorded.status or 0


def _record(args: argparse.Namespace, pids: Sequence[int], program: Optional[list[str]]) -> RecordedGrowth:
    if program:
        stdout = args.stdout
        return record_program_growth(
            program,
            seconds=args.duration,
            period=args.period,
            stdout=stdout,
            ledger=args.ledger,
            progress=say,
        )
    return record_growth(pids, seconds=args.duration, period=args.period, ledger=args.ledger, progress=say)


def _write(recorded: RecordedGrowth, query: Query, args: argparse.Namespace, stream: TextIO) -> None:
    profile = recorded.profile(args.metric)
    snapshot = load_from_profile(profile, None).snapshot
    if args.json:
        held = held_document(recorded.held) if args.ledger else None
        stream.write(grow_json(profile, snapshot, recorded.faults, query, held))
        return
    console = make_console(stream)
    moment = f"{profile.source} in {format_duration(recorded.totals.seconds)}"
    print_sites(snapshot, query, console, moment=moment)
    print_account(recorded.totals, console)
    print_held(recorded.held, console)
    print_notices(profile.notices, console)


def _pid(word: str) -> int:
    if not word.isascii() or not word.isdecimal() or int(word) == 0:
        raise UsageError(
            f"{printable(word)} is not a process id", hint="'ps' lists them; put a program after '--'"
        )
    return int(word)
