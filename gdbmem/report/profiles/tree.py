"""The rows of a ranking as one tree from main: common beginnings of paths are drawn once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from gdbmem.analysis.profiles.ranking import Amount, Ranking, Row
from gdbmem.model.profiles.calltree import Frame
from gdbmem.records import dataclass, field
from gdbmem.report.profiles.ranking_table import Drawing, RowLayout, add_other_rows, new_table, row_cells
from gdbmem.report.profiles.stacked import Stacked

if TYPE_CHECKING:
    from gdbmem.report.profiles.ranking_table import Rows

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
