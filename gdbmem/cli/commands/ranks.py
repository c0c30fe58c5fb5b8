"""Run `gdbmem ranks`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gdbmem.api.ranks import read_ranks
from gdbmem.commands.arguments import ArgumentParser
from gdbmem.errors import ExitStatus, UsageError, failing
from gdbmem.gates.reports import Judged, ci_files, ci_reports, nothing_judged
from gdbmem.model.judgement import Judgement, exit_status
from gdbmem.model.ranks import Ranks
from gdbmem.profiles.paths import DEFAULT_TOP, Query
from gdbmem.profiles.ranks_report import print_ranks, ranks_document
from gdbmem.terminal.console import Working, make_console, open_output
from gdbmem.terminal.document import to_json


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Compare, print, judge."""
    args = parser.parse_args(argv)
    if (args.first is None) != (args.last is None):
        raise UsageError("--first and --last name two snapshots together", hint="--first before --last after")
    between = None if args.first is None else (args.first, args.last)
    top = args.top if args.json else args.top or DEFAULT_TOP
    query = Query(top=top, by=args.by or "line", min_bytes=abs(args.min or 0))
    with (
        failing(unjudged=True),
        ci_reports(ci_files(args), Path(args.operands[0]).name) as gate,
        open_output(args.output, force=args.force) as stream,
    ):
        with Working("reading the runs of the ranks"):
            ranks = read_ranks(args.operands, between=between, query=query, fail_on=args.fail_on)
        gate.judged += _by_rank(ranks)
        if args.json:
            stream.write(to_json(ranks_document(ranks)))
        else:
            print_ranks(ranks, make_console(stream, color=args.color))
    return exit_status(ranks.judgements) if ranks.judgements else ExitStatus.DONE


def _by_rank(ranks: Ranks) -> Iterator[Judged]:
    """Yield the judgements on each rank of the job, its name as their case; a rank without any is not judged."""
    found: dict[int, Sequence[Judgement]] = {one.rank: one.judgements for one in ranks.ranks}
    found.update(dict.fromkeys(ranks.missing, ()))
    for number, judgements in found.items():
        name = f"rank {number}"
        for one in judgements or [nothing_judged(name, f"{name}: nothing was judged")]:
            yield Judged(one, case=name)
