"""Show which lines make a process bigger, by its page faults, sampled by the kernel while it runs at native speed.

Nothing is injected, no code runs in the process, and it is not stopped: the line that first touches a page is charged
for it, not the line that reserved the memory. Ctrl-C ends the recording.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from gdbmem.api.growth import RecordedGrowth, record_growth, record_program_growth
from gdbmem.api.profiles import load_from_profile
from gdbmem.arguments import ArgumentParser, add_output_options, split_program, value
from gdbmem.cli.reading import source_roots
from gdbmem.errors import GdbmemError, InputError, UsageError
from gdbmem.faults.account import grow_json, print_account
from gdbmem.faults.held_text import held_document, print_held
from gdbmem.formats.stacks import GROWN
from gdbmem.profiles.query import Query, add_query_options, query_from
from gdbmem.profiles.text import print_sites
from gdbmem.records import replace
from gdbmem.terminal.console import make_console, open_output, print_notices, say
from gdbmem.text import format_duration, parse_duration, printable

if TYPE_CHECKING:
    from typing import TextIO


def add_arguments(parser: ArgumentParser) -> None:
    parser.usage = "%(prog)s [OPTIONS] PID…\n       %(prog)s [OPTIONS] -- PROGRAM [ARGUMENTS]"
    parser.add_argument(
        "pids", metavar="PID", nargs="*", help="running processes; their children are followed"
    )
    _add_recording_options(parser.add_argument_group("recording"))
    add_query_options(parser, by="line")
    add_output_options(parser)
    parser.epilog = (
        "examples:\n"
        "  gdbmem grow 4711 --for 30s\n"
        "  gdbmem grow -- ./server --port 8080\n"
        "  gdbmem grow 4711 --for 1min --profile a.faults; gdbmem show a.faults --by path\n"
    )


def _add_recording_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--for",
        dest="duration",
        metavar="TIME",
        type=value(parse_duration, "duration"),
        default=math.inf,
        help="stop after TIME and end a started program (default: when the process ends, or at Ctrl-C)",
    )
    group.add_argument(
        "--period",
        metavar="N",
        type=value(_period, "N"),
        default=0,
        help="sample one in N page faults (default: every fault, fewer above 1000 per second)",
    )
    group.add_argument(
        "--ledger",
        action="store_true",
        help="inspect the process at the end, as explain does, and show the contents of each line's memory: live heap,"
        " freed but pinned, …",
    )
    group.add_argument("--stdout", metavar="FILE", help="the program's standard output")
    group.add_argument(
        "--profile",
        metavar="FILE",
        help="save the recording in FILE, which show, diff, report and export read",
    )
    group.add_argument(
        "--metric",
        choices=("grown", "made-resident"),
        default=GROWN,
        help="list memory that is still resident at the end, or all that was made resident (default: grown)",
    )


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    own, program = split_program(argv)
    args = parser.parse_args(own)
    pids = [_pid(word) for word in args.pids]
    if bool(pids) == bool(program):
        raise UsageError(
            "name processes, or a program to start",
            hint="gdbmem grow PID, or gdbmem grow -- PROGRAM ARGUMENTS",
        )
    query = replace(query_from(args), source_roots=source_roots())
    try:
        with open_output(args.output, force=args.force) as stream:
            with open_output(args.profile, force=args.force) as kept:
                recorded = _record(args, pids, program)
                if args.profile is not None:
                    kept.flush()
                    kept.buffer.write(recorded.encoded())
            _write(recorded, query, args, stream)  # the profile is saved even if the output is closed
    except GdbmemError as error:
        if program is None or isinstance(error, UsageError):
            raise
        from gdbmem.cli.launch_job import launch_status  # 15 ms

        print(f"gdbmem: {printable(error.sentence)}", file=sys.stderr)
        return launch_status(error)
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
        stream.write(grow_json(profile, snapshot, recorded.totals, _paths(recorded), query, held))
        return
    console = make_console(stream)
    moment = f"{profile.source} in {format_duration(recorded.totals.seconds)}"
    print_sites(snapshot, query, console, moment=moment)
    print_account(recorded.totals, console)
    print_held(recorded.held, console)
    print_notices(profile.notices, console)


def _paths(recorded: RecordedGrowth) -> list[dict[str, object]]:
    document = recorded.document
    names = ("function", "file", "line", "object", "inlined")
    frames = [dict(zip(names, frame)) for frame in document["frames"]]
    return [
        {
            "grown_bytes": round(one["grown_bytes"]),
            "made_resident_bytes": round(one["seen_bytes"]),
            "samples": one["samples"],
            "pid": one["pid"],
            "tid": one["tid"],
            "thread": document["threads"].get(str(one["tid"])),
            "frames": [frames[number] for number in one["frames"]],
        }
        for one in sorted(document["stacks"], key=lambda one: -one["grown_bytes"])
    ]


def _pid(word: str) -> int:
    if not word.isascii() or not word.isdecimal() or int(word) == 0:
        raise UsageError(
            f"{printable(word)} is not a process id", hint="'ps' lists them; put a program after '--'"
        )
    return int(word)


def _period(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 1 << 31:
        raise InputError(
            f"'{printable(text)}' is not a number of faults",
            slug="bad-count",
            hint="write it as in --period 100",
        )
    return int(text)
