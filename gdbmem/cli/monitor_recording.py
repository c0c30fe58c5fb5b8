"""The recording half of `gdbmem monitor`: its targets, and the output during a recording."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from gdbmem.gates.reports import Gate
from gdbmem.recording.recording import Recorded, RecordingOptions, record_series, verdict_so_far
from gdbmem.recording.targets import Wanted
from gdbmem.runs.ranks import job_name, own_rank
from gdbmem.series.views import PlainView, View
from gdbmem.terminal.console import make_console, prepare_outputs


def record(args: argparse.Namespace, words: Optional[Sequence[str]], gate: Gate) -> int:
    """Record according to *args*, report, and return the exit status; *gate* gets what was judged."""
    with prepare_outputs(args) as outputs:
        recorded = record_by(args, words)
        # Imported after the recording, which does not need some MiB of code.
        from gdbmem.cli.monitor_reporting import report_recorded  # slow to import

        status = report_recorded(
            recorded.run.folder, args, outputs, gate, status=recorded.status, program=recorded.program
        )
    if recorded.grown is not None and not args.json and args.output is None:
        print(f"\n{recorded.grown}", end="")
    # Among ranks another status than the program's would make the launcher end the others.
    return status if own_rank() is None else recorded.status


def record_by(args: argparse.Namespace, words: Optional[Sequence[str]]) -> Recorded:
    """Record the program *words*, or the processes that *args* name."""
    options = _options(args, words)

    @contextlib.contextmanager
    def open_view(name: str, folder: Path) -> Iterator[View]:
        with _terminal_view(args, name, folder, starts_program=bool(words)) as shown:
            yield _served(shown, args, folder) if args.prometheus else shown

    return record_series(options, open_view, ["gdbmem", *sys.argv[1:]])


def _options(args: argparse.Namespace, words: Optional[Sequence[str]]) -> RecordingOptions:
    actions = args.do * len(args.when) if len(args.do) == 1 else [*args.do, *["bundle"] * len(args.when)]
    return RecordingOptions(
        program=words,
        resume=args.resume,
        wanted=Wanted([int(word) for word in args.targets], args.name, args.user, args.cgroup, args.job),
        run=args.run,
        interval_seconds=args.interval,
        duration_seconds=math.inf if args.duration is None else args.duration,
        until_exit=args.until_exit,
        follow=not args.no_children,
        pss_percent=args.pss_budget,
        stdout=args.stdout,
        captures=_captures(args),
        mark=args.mark,
        triggers=list(zip(args.when, actions)),
        grow=args.grow,
        black_box=args.black_box,
        holds=args.fork is False,  # --hold
        writes_core=args.core,
    )


def _served(view: View, args: argparse.Namespace, folder: Path) -> View:
    from gdbmem.series.prometheus import PrometheusView  # for --prometheus only

    host, port = args.prometheus
    rank = own_rank()
    return PrometheusView(
        view,
        host,
        port,
        tree_only=args.tree_only,
        judge=lambda: verdict_so_far(folder),
        rank=None if rank is None else (job_name(rank), rank.rank),
    )


@contextlib.contextmanager
def _terminal_view(
    args: argparse.Namespace, name: str, folder: Path, *, starts_program: bool
) -> Iterator[View]:
    draws = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and _in_foreground()
    if args.plain or args.quiet or not draws:
        yield PlainView(sys.stderr, quiet=args.quiet)
        return

    from gdbmem.series.live import LiveView, may_share  # not always needed

    console = make_console(sys.stderr, color=args.color)
    shared = starts_program and args.stdout is None and not _captures(args) and sys.stdout.isatty()
    if shared and not may_share(console.height):
        plain = PlainView(sys.stderr)
        plain.note(
            "no chart is drawn because the program prints to this small terminal; --stdout FILE makes room"
        )
        yield plain
        return
    with LiveView(console, name, lambda: verdict_so_far(folder), shared=shared) as view:
        yield view


def _in_foreground() -> bool:
    from gdbmem.series.live import in_foreground  # with termios and tty

    return in_foreground()


def _captures(args: argparse.Namespace) -> bool:
    return bool(args.json and args.output in (None, "-")) or args.output == "-"
