"""A diff as text: the answer in one sentence, then its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gdbmem.analysis.profiles.query import DEFAULT_TOP, Query
from gdbmem.analysis.profiles.ranking import rank
from gdbmem.errors import Notice
from gdbmem.model.holding import Holding
from gdbmem.model.profiles.diff import Diff
from gdbmem.records import replace
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.notices import print_notices
from gdbmem.report.profiles.headline import answer_diff
from gdbmem.report.profiles.holdings import print_holdings
from gdbmem.report.profiles.own_code import own_code_notices, unused_known
from gdbmem.report.profiles.ranking_table import RowLayout, rows_table
from gdbmem.report.profiles.tree import inverted_table
from gdbmem.report.source import SourceLines


def print_diff(
    diff: Diff,
    query: Query,
    console: Console,
    *,
    notices: Iterable[Notice] = (),
    known_from: str = "",
    held: Sequence[Holding] = (),
) -> None:
    """Print *diff* according to *query* on *console*; *known_from* is the file of the known paths.

    *held* are the containers that hold what grew.
    """
    print_sentence(console, answer_diff(diff, query), "bold")
    sources = SourceLines(query.source_folders, query.source_roots)
    ranking = rank(diff, replace(query, top=query.top or DEFAULT_TOP))
    grew = any(one.delta_bytes for one in diff.outside)
    if ranking.rows or ranking.rest.paths or ranking.known.paths or ranking.unmatched.paths or grew:
        layout = RowLayout(
            console,
            query,
            sources,
            is_change=True,
            known_from=known_from,
            is_relative=diff.is_relative,
        )
        console.print()
        console.print(inverted_table(ranking, layout) if query.inverted else rows_table(ranking, layout))
    print_holdings(held, console)
    said = [*own_code_notices(ranking), *unused_known(diff, query), *notices, *diff.notices]
    print_notices([*said, *sources.notices()], console)
