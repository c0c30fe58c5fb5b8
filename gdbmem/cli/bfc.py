"""Why an allocator with free memory runs out of it: TensorFlow, XLA and JAX, onnxruntime, PyTorch.

Of a process the allocator's own structures are read, in a pause of milliseconds; nothing runs in the process. Else from
what it left: a core, a log with a dump, a file of TF_BFC_MEMORY_DUMP, or of torch.cuda.memory._dump_snapshot().
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gdbmem.api.pool_questions import add_pool_options, answers, asked, chosen, view
from gdbmem.api.pools import read_pools
from gdbmem.arguments import ArgumentParser, add_output_options
from gdbmem.cli.bfc_diff import run_diff
from gdbmem.report.bfc.bfc_json import pools_json
from gdbmem.report.bfc.bfc_text import print_pools
from gdbmem.report.bfc.pool_map import check_picture_name, render_pools
from gdbmem.report.console import make_console
from gdbmem.report.ledger.heap_map import open_picture
from gdbmem.report.notices import print_notices
from gdbmem.report.output import open_output


def add_arguments(parser: ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s [OPTIONS] PID\n"
        "       %(prog)s [OPTIONS] LOG|DUMP.pb|SNAPSHOT.pickle|RUN\n"
        "       %(prog)s [OPTIONS] CORE [PROGRAM]\n"
        "       %(prog)s diff [--top N] [--json] [-o FILE] A B"
    )
    parser.add_argument(
        "target", metavar="PID|FILE", help="a process, or a file or run that one left; a file wins"
    )
    parser.add_argument(
        "program", metavar="PROGRAM", nargs="?", help="the program that left the core, where it has moved"
    )
    add_pool_options(parser)
    parser.add_argument(
        "--map", metavar="FILE", help="draw regions, chunks and the refused request into FILE, .svg or .html"
    )
    add_output_options(parser)
    parser.epilog = (
        "examples:\n"
        "  gdbmem bfc 4711 --request 20MiB\n"
        "  gdbmem bfc train.log\n"
        "  gdbmem bfc oom_rank0.pickle --chunks --min 100MiB\n"
        "  gdbmem bfc core.4711 --chunks --state used --min 1MiB\n"
        "  gdbmem bfc 4711 --request 20MiB --what-if limit=4GiB\n"
    )


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    if argv and argv[0] == "diff":
        return run_diff(argv[1:])
    args = parser.parse_args(argv)
    request = asked(args)
    if args.map is not None:
        check_picture_name(args.map)
    with open_output(args.output, force=args.force) as stream, open_picture(args.map, args.force) as picture:
        pools = read_pools(args.target, Path(args.program) if args.program else None)
        allocators = chosen(pools.allocators, args)
        decisions = answers(allocators, request)
        if picture is not None:
            picture.write(render_pools(allocators, decisions, args.map))
        if args.json:
            stream.write(pools_json(allocators, decisions, pools.notices, pause_seconds=pools.pause_seconds))
        else:
            console = make_console(stream)
            print_pools(allocators, decisions, view(args), console)
            print_notices(pools.notices, console)
    return 0
