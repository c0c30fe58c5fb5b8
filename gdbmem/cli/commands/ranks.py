"""Run `gdbmem ranks`: compare the ranks of a parallel job, as text or as JSON (kind=ranks)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from gdbmem.api.ranks import read_ranks
from gdbmem.commands.arguments import ArgumentParser
from gdbmem.errors import ExitStatus, UsageError, failing
from gdbmem.gates.reports import Judged, ci_files, ci_reports, nothing_judged
from gdbmem.json_values import as_json
from gdbmem.model.judgement import MET, Judgement, exit_status
from gdbmem.model.ranks import HEAP, OddRank, RankRow, Ranks
from gdbmem.profiles.own_code import Places, function_name
from gdbmem.profiles.paths import DEFAULT_TOP, Query
from gdbmem.terminal import drawing
from gdbmem.terminal.console import (
    Console,
    Working,
    columns_that_fit,
    make_console,
    open_output,
    print_notices,
    print_sentence,
)
from gdbmem.terminal.document import Document, head, judgement_line, judgement_object, to_json
from gdbmem.text import format_delta, format_size, plural, printable


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


_MOST_NAMED = 8


def ranks_document(ranks: Ranks) -> Document:
    """Return *ranks* as a document; each row's frames are a call path from the user's own code outward."""
    fields = as_json(ranks)
    fields.pop("warnings")
    return {
        **head("ranks", ranks.notices),
        "answer": answer(ranks),
        **fields,
        "ranks": [
            {**as_json(one), "judgements": [judgement_object(judged) for judged in one.judgements]}
            for one in ranks.ranks
        ],
        "judgements": [judgement_object(one) for one in ranks.judgements],
    }


def answer(ranks: Ranks) -> str:
    """Return who grew by how much, in one sentence without its full stop."""
    if ranks.total is None:
        return "no rank has recorded a change"
    what = "heap" if ranks.metric == HEAP else "memory"
    between = " from {} to {}".format(*map(printable, ranks.between)) if ranks.metric == HEAP else ""
    total = ranks.total
    least = next(one.rank for one in ranks.ranks if one.change_bytes == total.min_bytes)
    sentence = (
        f"{what} of {plural(total.ranks, 'rank')}{between}: {format_delta(total.sum_bytes)} in all; mean "
        f"{format_delta(total.mean_bytes)}, least {format_delta(total.min_bytes)} on rank {least}, most "
        f"{format_delta(total.max_bytes)} on rank {total.rank_of_max}"
    )
    return f"{sentence}; {_oddity(ranks)}"


def _oddity(ranks: Ranks) -> str:
    if not ranks.can_differ:
        return "fewer than five are not compared with each other"
    if not ranks.odd:
        return "no rank differs from the others"
    first, *more = ranks.odd
    others = f" (and {plural(len(more), 'more rank')})" if more else ""
    return f"rank {first.rank} differs from the others{_since(first)}{others}"


def _difference(odd: Optional[OddRank]) -> str:
    return "" if odd is None else f"differs{_since(odd)}"


def _since(odd: OddRank) -> str:
    return "" if odd.since is None else f" since {printable(odd.since)}"


def print_ranks(ranks: Ranks, console: Console) -> None:
    """Print the answer, the places, the ranks, and the judgements that are not met or could not be made."""
    print_sentence(console, answer(ranks), "bold")
    if ranks.rows:
        console.print()
        console.print(_table_of_places(ranks, console))
    console.print()
    console.print(_table_of_ranks(ranks, console))
    launcher = printable(ranks.launcher)
    job = f"job {printable(ranks.job)} of {launcher}" if ranks.job else f"a job of {launcher}"
    size = "" if ranks.size is None else f" of {ranks.size}"
    print_sentence(console, f"{plural(len(ranks.ranks), 'rank')}{size}, {job}", "dim")
    if ranks.missing:
        named = ", ".join(map(str, ranks.missing[:_MOST_NAMED])) + ", …" * (len(ranks.missing) > _MOST_NAMED)
        print_sentence(console, f"without a run here: rank {named}")
    met = sum(one.judged == MET for one in ranks.judgements)
    for judgement in ranks.judgements:
        if judgement.judged != MET:
            print_sentence(console, printable(judgement_line(judgement)), "bold")
    if met:
        print_sentence(console, f"{'ok':<10} {plural(met, 'expectation')} of {len(ranks.judgements)}", "bold")
    print_notices(ranks.notices, console)


def _table_of_places(ranks: Ranks, console: Console) -> drawing.Table:
    places = Places(frame for row in ranks.rows for frame in row.frames[:1])
    headings = ["mean", "min", "max", "of rank", "on ranks", "where"]
    rows = [
        [
            format_delta(row.mean_bytes),
            format_delta(row.min_bytes),
            format_delta(row.max_bytes),
            str(row.rank_of_max),
            str(row.ranks),
            _where(row, places),
        ]
        for row in ranks.rows
    ]
    if ranks.elsewhere_bytes:
        mean = ranks.elsewhere_bytes / len(ranks.ranks)
        rows.append([format_delta(mean), "", "", "", "", "elsewhere"])
    return _table(headings, rows, console, give_up=(1, 4))


def _where(row: RankRow, places: Places) -> str:
    if not row.frames:
        return "places that the tool did not list"
    return f"{places.place(row.frames[0])}  {function_name(row.frames[0])}"


def _table_of_ranks(ranks: Ranks, console: Console) -> drawing.Table:
    odd = {one.rank: one for one in ranks.odd}
    headings = ["rank", "change", "now", "status", "host", "", "run"]
    rows = []
    for one in ranks.ranks:
        change = one.change_bytes
        rows.append(
            [
                str(one.rank),
                "unknown" if change is None else format_delta(change),
                "" if one.after_bytes is None else format_size(one.after_bytes),
                "?" if one.status is None else str(one.status),
                printable(one.host),
                ", ".join(filter(None, (one.verdict, _difference(odd.get(one.rank))))),
                printable(one.run),
            ]
        )
    return _table(headings, rows, console, give_up=(4, 2, 6))


def _table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], console: Console, *, give_up: Sequence[int]
) -> drawing.Table:
    table = drawing.Table()
    shown = columns_that_fit([headings, *rows], console.width, give_up=give_up)
    for column in shown:
        is_text = column >= len(headings) - (3 if len(headings) == 7 else 1)
        table.add_column(headings[column], justify="left" if is_text else "right", no_wrap=not is_text)
    for cells in rows:
        table.add_row(*(drawing.Text(cells[column]) for column in shown))
    return table
