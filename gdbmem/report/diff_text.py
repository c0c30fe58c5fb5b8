"""A diff for people: the answer in one sentence, then the rows that make it up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gdbmem.analysis.query import DEFAULT_TOP, Query
from gdbmem.analysis.ranking import rank
from gdbmem.errors import Notice
from gdbmem.model.diff import Diff
from gdbmem.report.answer import answer_diff
from gdbmem.report.console import print_sentence, print_table
from gdbmem.report.notices import print_notices
from gdbmem.report.rows import Layout, rows_table
from gdbmem.report.source import SourceLines
from gdbmem.report.tree import inverted_table

if TYPE_CHECKING:
    from rich.console import Console


def print_diff(
    diff: Diff,
    query: Query,
    console: Console,
    *,
    notices: Iterable[Notice] = (),
    known_from: str = "",
) -> None:
    """Print *diff* as *query* asks, on *console*; *known_from* is the file of the paths that are known."""
    print_sentence(console, answer_diff(diff, query), "bold")
    ranking = rank(diff, replace(query, top=query.top or DEFAULT_TOP))
    if ranking.rows or ranking.rest.paths or ranking.known.paths or ranking.unmatched.paths:
        layout = Layout(
            console, query, SourceLines(query.source_folders), is_change=True, known_from=known_from
        )
        console.print()
        print_table(
            console, inverted_table(ranking, layout) if query.inverted else rows_table(ranking, layout)
        )
    print_notices([*notices, *diff.notices], console)
