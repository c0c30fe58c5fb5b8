"""Compares pools of memory at two moments: `gdbmem bfc diff A B`."""

from __future__ import annotations

import argparse

from gdbmem.api.pools import compare_pools, read_pools
from gdbmem.errors import UsageError
from gdbmem.report.bfc.pool_diff import pool_diffs_json, print_pool_diffs
from gdbmem.report.console import make_console
from gdbmem.report.output import open_output

_OTHERS = (
    "allocator", "request", "align", "what_if", "device_memory", "chunks", "state", "min", "owner", "map", "every",
    "duration",
)  # fmt: skip


def run_diff(args: argparse.Namespace) -> int:
    """Compare the pools of two operands and print the changed sizes and owners."""
    if len(args.operands) != 2:
        raise UsageError("diff compares two moments", hint="as in 'gdbmem bfc diff before.json 4711'")
    given = [name for name in _OTHERS if getattr(args, name) not in (None, False)]
    if given:
        raise UsageError(
            f"diff takes no --{given[0].replace('_', '-')}", hint="--top, --json and -o go with it"
        )
    with open_output(args.output, force=args.force) as stream:
        before, after = (read_pools(side) for side in args.operands)
        found = compare_pools(before.allocators, after.allocators, same=args.operands[0] == args.operands[1])
        notices = [*before.notices, *after.notices]
        if args.json:
            stream.write(pool_diffs_json(found, notices))
        else:
            print_pool_diffs(found, notices, make_console(stream), top=20 if args.top is None else args.top)
    return 0
