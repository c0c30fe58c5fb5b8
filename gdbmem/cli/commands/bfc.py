"""Show why an allocator cannot serve a request although it has free memory: TensorFlow, XLA, JAX, onnxruntime, PyTorch.

Reads the allocator's own structures in a process, which is paused for milliseconds and runs no code, or in one of:
a core, a log with a dump, or a file of TF_BFC_MEMORY_DUMP or torch.cuda.memory._dump_snapshot().
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gdbmem.api.pool_questions import add_pool_options, answered, asked, view
from gdbmem.api.pools import read_pools
from gdbmem.arguments import ArgumentParser, add_output_options, value
from gdbmem.cli.bfc.diff import run_diff
from gdbmem.cli.bfc.series import run_series
from gdbmem.cli.progress import say
from gdbmem.errors import UsageError
from gdbmem.report.bfc.bfc_json import pools_json
from gdbmem.report.bfc.bfc_text import print_pools
from gdbmem.report.bfc.pool_map import render_pools
from gdbmem.report.console import make_console
from gdbmem.report.notices import print_notices
from gdbmem.report.output import open_named, open_output, picture_kind
from gdbmem.units import parse_duration


def add_arguments(parser: ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s [OPTIONS] PID\n"
        "       %(prog)s [OPTIONS] LOG|DUMP.pb|SNAPSHOT.pickle|POOLS.json|RUN\n"
        "       %(prog)s [OPTIONS] CORE [PROGRAM]\n"
        "       %(prog)s [OPTIONS] PID --every TIME [--for TIME]\n"
        "       %(prog)s diff [--top N] [--json] [-o FILE] A B"
    )
    parser.add_argument(
        "target",
        metavar="PID|FILE|diff",
        help="a process, or a file or run (a number that names both is taken as the file)",
    )
    parser.add_argument(
        "operands",
        metavar="PROGRAM|A B",
        nargs="*",
        help="the program that left the core, if it has moved; for diff the sides before and after: processes,"
        " files or runs (of a file with several dumps, the last of each pool)",
    )
    add_pool_options(parser)
    parser.add_argument(
        "--map", metavar="FILE", help="draw regions, chunks and the refused request into FILE (.svg or .html)"
    )
    duration = value(parse_duration, "duration")
    parser.add_argument(
        "--every",
        metavar="TIME",
        type=duration,
        help="read the process again every TIME and print a row each time",
    )
    parser.add_argument(
        "--for",
        dest="duration",
        metavar="TIME",
        type=duration,
        help="… for TIME (default: until it ends, or Ctrl-C)",
    )
    add_output_options(parser)
    parser.epilog = (
        "examples:\n"
        "  gdbmem bfc 4711 --request 20MiB\n"
        "  gdbmem bfc 4711 --every 2s --for 1min --request 20MiB\n"
        "  gdbmem bfc train.log\n"
        "  gdbmem bfc oom_rank0.pickle --chunks --min 100MiB\n"
        "  gdbmem bfc core.4711 --chunks --state used --min 1MiB\n"
        "  gdbmem bfc 4711 --request 20MiB --what-if limit=4GiB\n"
        "  gdbmem bfc 4711 --json -o before.json; sleep 60; gdbmem bfc diff before.json 4711\n"
    )


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)
    if args.target == "diff":
        return run_diff(args)
    if len(args.operands) > 1:
        raise parser.unknown(args.operands[1])
    if args.every is not None:
        return run_series(args)
    if args.duration is not None:
        raise UsageError("--for needs --every", hint="as in --every 2s --for 1min")
    asked(args)  # refuses what makes no sense, before anything is read
    kind = picture_kind(args.map, "--map") if args.map is not None else ""
    with (
        open_output(args.output, force=args.force) as stream,
        open_named(args.map, force=args.force) as picture,
    ):
        pools = read_pools(args.target, Path(args.operands[0]) if args.operands else None, say)
        allocators, decisions = answered(pools.allocators, args)
        if picture is not None:
            picture.write(render_pools(allocators, decisions, kind))
        if args.json:
            stream.write(pools_json(allocators, decisions, pools.notices, pause_seconds=pools.pause_seconds))
        else:
            console = make_console(stream)
            print_pools(allocators, decisions, view(args), console)
            print_notices(pools.notices, console)
    return 0
