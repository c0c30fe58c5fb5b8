"""A heap profile as text: its history, its peak, and the allocation sites of one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from gdbmem.errors import Notice
from gdbmem.model.calltree import Frame
from gdbmem.model.containers import Holding
from gdbmem.model.diff import Diff
from gdbmem.model.snapshot import Profile, Snapshot
from gdbmem.profiles.charts import Stacked, print_chart
from gdbmem.profiles.course import course_sentence, peak_sentence
from gdbmem.profiles.diff import as_growth
from gdbmem.profiles.headline import answer_diff, answer_snapshot
from gdbmem.profiles.holding import print_holdings
from gdbmem.profiles.own_code import installed_rule, is_copy_name
from gdbmem.profiles.query import DEFAULT_TOP, Query, matches
from gdbmem.profiles.ranking import Amount, Ranking, Row, rank
from gdbmem.profiles.ranking_table import Drawing, RowLayout, add_other_rows, new_table, row_cells, rows_table
from gdbmem.profiles.sites import function_name
from gdbmem.terminal.console import Console, print_notices, print_sentence
from gdbmem.terminal.source import SourceLines
from gdbmem.text import plural, printable

if TYPE_CHECKING:
    from gdbmem.profiles.ranking_table import Rows


# The own-code rules applied to a ranking's rows, and how to disable them.


_MOST_NAMED = 4


def applied_rules(ranking: Ranking) -> list[str]:
    """Return the names of the rules that matched frames inside the sites of *ranking*'s rows."""
    found = [installed_rule(frame) for frame in _passed(ranking) if not _is_wrapper(frame, ranking)]
    return list(dict.fromkeys(rule.name for rule in found if rule is not None))


def applied_wrappers(ranking: Ranking) -> list[str]:
    """Return the allocation wrappers and copying functions inside the sites of *ranking*'s rows."""
    return list(dict.fromkeys(function_name(f) for f in _passed(ranking) if _is_wrapper(f, ranking)))


def own_code_notices(ranking: Ranking) -> list[Notice]:
    """Return the notice on the rules that selected *ranking*'s places, if any applied."""
    rules, wrappers = applied_rules(ranking), applied_wrappers(ranking)
    if not rules and not wrappers:
        return []
    parts = [f"code in {_listed(rules)} is not your own"] if rules else []
    parts += (
        [f"{_listed(wrappers)} {'work' if len(wrappers) > 1 else 'works'} for the caller"] if wrappers else []
    )
    text = f"the callers are named because {' and '.join(parts)}"
    hint = "--mine REGEX makes frames your own, --mine . turns these rules off"
    return [Notice("own-code", f"{text}; {hint}")]


def unused_known(diff: Diff, query: Query) -> list[Notice]:
    """Return a notice if regexes of --known match no frame on either side."""
    unused = [one.pattern for one in query.known if not any(matches(one, frame) for frame in diff.frames)]
    if not unused:
        return []
    names = _listed([printable(pattern) for pattern in unused])
    return [Notice("known-unused", f"no frame matches {plural(len(unused), 'line')} of --known: {names}")]


def _passed(ranking: Ranking) -> list[Frame]:
    return [frame for row in ranking.rows for frame in row.passed]


def _is_wrapper(frame: Frame, ranking: Ranking) -> bool:
    return frame.function in ranking.wrappers or (frame.function is not None and is_copy_name(frame.function))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    shown = [*names[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


# The rows of a ranking as one tree from main: common beginnings of paths are drawn once.


_STEP = 2  # columns of indent of a call from its caller
_DEEPEST = 12  # deeper calls are not indented further: the names need the space
_DEEPEST_STACKED = 6
_ENDS = 10  # number of first and last calls drawn of a long chain without branches


@dataclass
class Branch:
    """A call, the calls it made, and the rows that end in it."""

    frame: Optional[Frame] = None
    children: dict[object, Branch] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)  # that end here
    amounts: list[Amount] = field(default_factory=list)  # of all rows through here


def as_tree(rows: Sequence[Row]) -> Branch:
    """Return *rows* as one tree whose root represents the caller of main."""
    root = Branch()
    for row in rows:
        branch = root
        for frame in reversed(row.frames):
            branch = branch.children.setdefault(frame.key, Branch(frame))
            branch.amounts.append(row.amount)
        branch.rows.append(row)
    return root


def inverted_table(ranking: Ranking, layout: RowLayout) -> Rows:
    """Return the rows of *ranking* as a tree; each amount is the sum of the listed rows beneath it."""
    root = as_tree(ranking.rows)
    table, drawing = new_table(ranking, layout)
    _add_branches(table, drawing, root, ranking, layout)
    add_other_rows(table, drawing, ranking, layout)
    return table


def _add_branches(table: Rows, drawing: Drawing, root: Branch, ranking: Ranking, layout: RowLayout) -> None:
    is_narrow = isinstance(table, Stacked)
    for row in root.rows:  # places below the threshold without a listed caller
        table.add_row(*row_cells(row.amount, ranking, layout), drawing.site(row))
    stack = [(branch, 0) for branch in reversed(list(root.children.values()))]
    while stack:
        branch, depth = stack.pop()
        run = _run(branch)
        hidden = len(run) - 2 * _ENDS if len(run) > 3 * _ENDS else 0
        for number, call in enumerate(run):
            if hidden and _ENDS <= number < _ENDS + hidden:
                continue
            indent = (
                min(depth + number, _DEEPEST_STACKED) if is_narrow else _STEP * min(depth + number, _DEEPEST)
            )
            cells = row_cells(sum_amounts(call.amounts), ranking, layout)
            where = drawing.branch(call.frame, call.rows, indent=indent)
            if hidden and number == _ENDS + hidden:
                more = f"{' ' * indent}{layout.glyphs.ellipsis} {hidden:,} more calls\n"
                where = drawing.plain(more, "dim").append(where)
            table.add_row(*cells, where)
        depth += len(run)
        stack += [(child, depth) for child in reversed(list(run[-1].children.values()))]


def _run(branch: Branch) -> list[Branch]:
    """Return *branch* and its calls, up to the first with several calls, or in which a row ends."""
    run = [branch]
    while len(run[-1].children) == 1 and not run[-1].rows:
        run += run[-1].children.values()
    return run


def sum_amounts(amounts: list[Amount]) -> Amount:
    """Return the sum of *amounts*."""
    blocks = [amount.delta_blocks for amount in amounts if amount.delta_blocks is not None]
    return Amount(
        paths=len(amounts),
        before_bytes=sum(amount.before_bytes for amount in amounts),
        after_bytes=sum(amount.after_bytes for amount in amounts),
        hidden_bytes=sum(amount.hidden_bytes for amount in amounts),
        error_bytes=round(sum(amount.error_bytes**2 for amount in amounts) ** 0.5),
        delta_blocks=sum(blocks) if blocks else None,
        course=tuple(map(sum, zip(*(amount.course for amount in amounts)))),
    )


def print_timeline(profile: Profile, console: Console) -> None:
    """Print the history of *profile* and a sentence about its peak."""
    print_sentence(console, printable(profile.command or profile.source), "bold")
    trees = sum(totals.has_tree for totals in profile.snapshots)
    console.print(f"{plural(len(profile.snapshots), 'snapshot')}, {trees} with a call tree", style="dim")
    console.print()
    print_chart(profile, console)
    print_sentence(console, peak_sentence(profile))
    course = course_sentence(profile)
    if course:
        print_sentence(console, course)
    print_notices(profile.notices, console)


def print_sites(
    snapshot: Snapshot, query: Query, console: Console, *, moment: str, known_from: str = ""
) -> None:
    """Print where the memory of *snapshot* is; *moment* is its name in the sentence."""
    growth = as_growth(snapshot)
    sentence = answer_snapshot(growth, query, moment=moment)
    print_sentence(console, sentence, "bold")
    ranking = rank(growth, query._replace(top=query.top or DEFAULT_TOP))
    if not ranking.total.after_bytes:
        return
    sources = SourceLines(query.source_folders, query.source_roots)
    layout = RowLayout(console, query, sources, is_change=False, known_from=known_from)
    console.print()
    console.print(inverted_table(ranking, layout) if query.inverted else rows_table(ranking, layout))
    print_notices([*own_code_notices(ranking), *sources.notices()], console)


# A diff as text: the answer in one sentence, then its rows.


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
    ranking = rank(diff, query._replace(top=query.top or DEFAULT_TOP))
    grew = any(one.delta_bytes for one in diff.outside)
    if ranking.rows or ranking.rest.paths or ranking.known.paths or ranking.unmatched.paths or grew:
        layout = RowLayout(
            console, query, sources, is_change=True, known_from=known_from, is_relative=diff.is_relative
        )
        console.print()
        console.print(inverted_table(ranking, layout) if query.inverted else rows_table(ranking, layout))
    print_holdings(held, console)
    said = [*own_code_notices(ranking), *unused_known(diff, query), *notices, *diff.notices]
    print_notices([*said, *sources.notices()], console)
