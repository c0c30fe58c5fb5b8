"""What became of pools of memory between two moments: `gdbmem bfc diff A B`."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.api.pools import compare_pools, read_pools
from gdbmem.arguments import ArgumentParser, add_output_options
from gdbmem.report.bfc.pool_diff import pool_diffs_json, print_pool_diffs
from gdbmem.report.console import make_console
from gdbmem.report.output import open_output


def run_diff(argv: Sequence[str]) -> int:
    """Compare the pools of two operands and print which sizes and owners came and went."""
    parser = ArgumentParser(prog="gdbmem bfc diff", description=__doc__)
    parser.add_argument(
        "sides",
        metavar="A B",
        nargs=2,
        help="what 'gdbmem bfc' reads; of a file with several dumps the last of each pool",
    )
    parser.add_argument("--top", metavar="N", type=int, default=20, help="rows of each table (default 20)")
    add_output_options(parser)
    args = parser.parse_args(list(argv))
    with open_output(args.output, force=args.force) as stream:
        before, after = (read_pools(side) for side in args.sides)
        found = compare_pools(before.allocators, after.allocators, same=args.sides[0] == args.sides[1])
        notices = [*before.notices, *after.notices]
        if args.json:
            stream.write(pool_diffs_json(found, notices))
        else:
            print_pool_diffs(found, notices, make_console(stream), top=args.top)
    return 0
