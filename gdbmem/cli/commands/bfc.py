"""Run `gdbmem bfc`."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from gdbmem.api.pools import Pools, compare_pools, follow_pools, read_pools
from gdbmem.commands.arguments import ArgumentParser, check_alone, is_process
from gdbmem.errors import Notice, UsageError
from gdbmem.model.bfc import PoolSample, PoolSeries, sample_of
from gdbmem.pools import changes
from gdbmem.pools.output import decisions_in, request_of, selected, write_pools
from gdbmem.terminal.console import Console, make_console, open_named, open_output, picture_kind, say

# Compares pools of memory at two moments: `gdbmem bfc diff A B`.


_OTHERS = (
    "allocator", "request", "align", "what_if", "device_memory", "chunks", "state", "min", "owner", "map", "every",
    "duration",
)  # fmt: skip


def run_diff(args: argparse.Namespace) -> int:
    """Compare the pools of two operands and print the changed sizes and owners."""
    if len(args.operands) != 2:
        raise UsageError("bfc diff needs two operands", hint="as in 'gdbmem bfc diff before.json 4711'")
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
            stream.write(changes.pool_diffs_json(found, notices))
        else:
            changes.print_pool_diffs(
                found, notices, make_console(stream), top=20 if args.top is None else args.top
            )
    return 0


# Pools of a live process over time: `gdbmem bfc PID --every TIME`.


_SHORTEST_SECONDS = 0.01  # between two samples, for each of which the process is stopped
_OTHER_OPTIONS = ("map", "chunks", "state", "min", "owner", "what_if")


def run_series(args: argparse.Namespace) -> int:
    """Sample the pools of a process until the time is up, it ends, or Ctrl-C; print their history."""
    pid = int(args.target) if is_process(args.target) else None
    check_alone(args, "every", _OTHER_OPTIONS)
    if pid is None or args.operands:
        raise UsageError("--every needs a single process", hint="gdbmem bfc PID --every 2s")
    if args.every < _SHORTEST_SECONDS:
        raise UsageError(
            "--every must be at least 10 ms, because each read stops the process", hint="--every 2s"
        )
    request = request_of(args)
    with open_output(args.output, force=args.force) as stream:
        console = None if args.json else make_console(stream)
        series = _followed(args, pid, console)
        if console is None:
            stream.write(changes.series_json(series, request.bytes if request else None))
        else:
            changes.print_series_end(series, console, top=20 if args.top is None else args.top)
    return 0


@dataclass
class _FollowedPools:
    """The pools sampled so far."""

    args: argparse.Namespace
    console: Optional[Console]  # None if nothing is printed before the end
    walks: list[Pools] = field(default_factory=list)  # the first, and the last
    samples: list[PoolSample] = field(default_factory=list)
    count: int = 0
    longest_pause_seconds: float = 0.0
    notices: Sequence[Notice] = ()

    def add(self, seconds: float, pools: Pools) -> None:
        """Add one sample, and print its rows; one without pools has notices only."""
        if not pools.allocators:
            self.notices = pools.notices
            return
        allocators, decisions = decisions_in(pools.allocators, self.args)
        rows = [sample_of(one, seconds, decision) for one, decision in zip(allocators, decisions)]
        if self.console is not None:
            if not self.walks:
                changes.print_series_head(self.console)
            for row in rows:
                changes.print_sample(row, self.console, named=len(rows) > 1)
            self.console.file.flush()
        self.samples += rows
        self.walks[1:] = [pools]
        self.count += 1
        self.longest_pause_seconds = max(self.longest_pause_seconds, pools.pause_seconds or 0.0)

    def series(self) -> PoolSeries:
        """Return the whole series; raises KeyboardInterrupt if there is no sample."""
        if not self.walks:
            raise KeyboardInterrupt
        first, last = self.walks[0], self.walks[-1]
        before, after = (selected(one.allocators, self.args) for one in (first, last))
        notices = [*_notices(first, last), *self.notices]
        diffs = compare_pools(before, after)
        return PoolSeries(
            after[0].source, self.samples, diffs, self.count, self.longest_pause_seconds, notices
        )


def _followed(args: argparse.Namespace, pid: int, console: Optional[Console]) -> PoolSeries:
    course = _FollowedPools(args, console)
    with contextlib.suppress(KeyboardInterrupt):  # the usual way to end it
        for seconds, pools in follow_pools(pid, args.every, args.duration, say):
            course.add(seconds, pools)
    return course.series()


def _notices(first: Pools, last: Pools) -> Sequence[Notice]:
    every = [*first.notices, *last.notices]
    for pools in (first, last):
        every += [notice for one in pools.allocators for notice in one.notices]
    return list(dict.fromkeys(every))


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
    request_of(args)  # refuses what makes no sense, before anything is read
    if args.map is not None:
        picture_kind(args.map, "--map")
    with (
        open_output(args.output, force=args.force) as stream,
        open_named(args.map, force=args.force) as picture,
    ):
        pools = read_pools(args.target, Path(args.operands[0]) if args.operands else None, say)
        write_pools(
            pools.allocators,
            pools.notices,
            args,
            make_console,
            stream,
            picture=picture,
            pause_seconds=pools.pause_seconds,
        )
    return 0
