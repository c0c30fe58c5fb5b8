"""One HTML file that a colleague can open: pictures, tables, call trees; nothing is fetched, no script runs.

Pages are filled from a Jinja template that escapes everything; what is marked as safe here is made by
pygments (source lines) and by `series_plot` (pictures), which escape it themselves. Sections unfold with
HTML's own ``<details>``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from gdbmem.analysis.query import Query
from gdbmem.analysis.ranking import Ranking, Row, rank
from gdbmem.analysis.sites import function_name
from gdbmem.model.calltree import Frame
from gdbmem.model.diff import Diff
from gdbmem.report.answer import answer_diff, answer_snapshot
from gdbmem.report.naming import Places, full_function, full_place, unlisted_site
from gdbmem.report.source import SourceLines
from gdbmem.report.tree import Branch, as_tree, sum_amounts
from gdbmem.text import plural, printable
from gdbmem.units import format_delta, format_size

if TYPE_CHECKING:
    from markupsafe import Markup

    from gdbmem.report.series_plot import Picture

_ROWS = 25
_NAME_WIDTH = 90
_MOST_BRANCHES = 1500
_SMALLEST_SHARE = 0.005  # of all; smaller branches are in their callers' sums only
_LARGE_SHARE = 0.2  # of all; unfolded from the start
_DEEPEST = 120  # a browser lays out no deeper nesting in reasonable time


@dataclass(frozen=True)
class Line:
    """One row of a table: what it changed, and what stands behind it."""

    amount: str
    sign: str  # grew, shrank or none: for colour
    share: float  # of the largest row, 0 to 1: the width of its bar
    before: str
    after: str
    blocks: str
    doubt: str
    place: str
    function: str
    excerpt: Optional[Markup]  # the source around it
    frames: Sequence[str]  # from the allocation outward


@dataclass(frozen=True)
class Node:
    """One step through a call tree in print order."""

    kind: str  # opens (a branch with others inside), leaf, or closes (the one opened last)
    amount: str = ""
    sign: str = ""
    name: str = ""
    is_large: bool = False  # unfolded from the start


@dataclass(frozen=True)
class Section:
    """One part of a page; what is empty is left out."""

    title: str
    sentence: str = ""
    lines: Sequence[Line] = ()
    is_change: bool = True
    others: Sequence[tuple[str, str]] = ()  # what is in no line, and the total
    tree: Sequence[Node] = ()
    picture: Optional[Markup] = None
    header: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()
    text: str = ""  # as a terminal would show it


@dataclass
class Page:
    """What is shown."""

    title: str
    subtitle: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def render(page: Page) -> str:
    """Return *page* as HTML."""
    from jinja2 import Environment, PackageLoader
    from pygments.formatters.html import HtmlFormatter

    environment = Environment(
        loader=PackageLoader("gdbmem.report", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    formatter = HtmlFormatter(style="default", classprefix="s-")
    styles = formatter.get_style_defs("pre.source")  # type: ignore[no-untyped-call]  # types-pygments lacks it
    return environment.get_template("page.html").render(page=page, source_styles=styles)


def diff_section(title: str, diff: Diff, query: Query, *, is_change: bool = True) -> Section:
    """Return the section of *diff*, or of a snapshot as a diff against nothing: answer, lines, call tree."""
    by_line = Query(top=_ROWS, by="line", known=query.known, source_folders=query.source_folders)
    ranking = rank(diff, by_line)
    sentence = answer_diff(diff, query) if is_change else answer_snapshot(diff, query, moment=title)
    paths = rank(diff, Query(known=query.known, source_folders=query.source_folders))
    return Section(
        title=printable(title),
        sentence=sentence,
        lines=_lines(ranking, SourceLines(query.source_folders), is_change=is_change),
        is_change=is_change,
        others=_others(ranking, is_change=is_change),
        tree=_tree(paths, is_change=is_change),
    )


def course_section(picture: Picture) -> Section:
    """Return the section that shows *picture*, the course of memory over time."""
    from markupsafe import Markup

    from gdbmem.report.series_plot import svg

    return Section("The course", picture=Markup(svg(picture)))


def _lines(ranking: Ranking, sources: SourceLines, *, is_change: bool) -> list[Line]:
    rows = [row for row in ranking.rows if row.amount.delta_bytes or row.amount.uncertain_bytes]
    largest = max((abs(row.amount.delta_bytes) for row in rows), default=0) or 1
    places = Places([frame for row in rows for frame in (row.site, *row.frames)])
    return [_line(row, largest, places, sources, is_change=is_change) for row in rows]


def _line(row: Row, largest: int, places: Places, sources: SourceLines, *, is_change: bool) -> Line:
    amount, site = row.amount, row.site
    blocks = amount.delta_blocks
    return Line(
        amount=_size(amount.delta_bytes, is_change=is_change),
        sign=_sign(amount.delta_bytes, is_change=is_change),
        share=abs(amount.delta_bytes) / largest,
        before=format_size(amount.before_bytes),
        after=format_size(amount.after_bytes),
        blocks="" if blocks is None else f"{blocks:+,}" if is_change and blocks else f"{blocks:,}",
        doubt=f"± {format_size(amount.uncertain_bytes)}" if amount.uncertain_bytes else "",
        place=unlisted_site(row) if site is None else places.place(site),
        function="" if site is None else function_name(site, room=_NAME_WIDTH),
        excerpt=None if site is None else sources.excerpt(site.file, site.line),
        frames=[f"{full_function(frame)}  {full_place(frame)}" for frame in row.frames],
    )


def _others(ranking: Ranking, *, is_change: bool) -> list[tuple[str, str]]:
    rows = [
        (ranking.rest, plural(ranking.rest.paths, "more line")),
        (ranking.known, f"known: {plural(ranking.known.paths, 'path')}"),
    ]
    found = [(amount, text) for amount, text in rows if amount.paths]
    return [
        (_size(amount.delta_bytes, is_change=is_change), text)
        for amount, text in [*found, (ranking.total, "total")]
    ]


def _tree(ranking: Ranking, *, is_change: bool) -> list[Node]:
    """Return the paths of *ranking* from main outward, small branches summed, at most some thousand nodes."""
    root = as_tree(ranking.rows)
    whole = sum(abs(row.amount.delta_bytes) for row in ranking.rows)
    nodes: list[Node] = []
    # (branch, depth) to open, None to close. A stack of its own: call paths may be thousands of frames deep.
    stack: list[Optional[tuple[Branch, int]]] = [(child, 1) for child in _large(root, whole)]
    while stack:
        top = stack.pop()
        if top is None:
            nodes.append(Node("closes"))
            continue
        branch, depth = top
        children = _large(branch, whole) if depth < _DEEPEST and len(nodes) < _MOST_BRANCHES else []
        nodes.append(_node(branch, whole, kind="opens" if children else "leaf", is_change=is_change))
        if children:
            stack += [None, *((child, depth + 1) for child in children)]
    return nodes


def _large(branch: Branch, whole: int) -> list[Branch]:
    """Return the branches under *branch* that are worth a line, the largest last."""
    least = max(_SMALLEST_SHARE * whole, 1)
    return sorted((child for child in branch.children.values() if _weight(child) >= least), key=_weight)


def _weight(branch: Branch) -> int:
    return sum(abs(amount.delta_bytes) for amount in branch.amounts)


def _node(branch: Branch, whole: int, *, kind: str, is_change: bool) -> Node:
    delta = sum_amounts(branch.amounts).delta_bytes
    return Node(
        kind,
        amount=_size(delta, is_change=is_change),
        sign=_sign(delta, is_change=is_change),
        name="" if branch.frame is None else _frame_name(branch.frame),
        is_large=_weight(branch) >= _LARGE_SHARE * whole,
    )


def _frame_name(frame: Frame) -> str:
    return f"{function_name(frame, room=_NAME_WIDTH)}  {Places([frame]).place(frame)}"


def _size(delta_bytes: int, *, is_change: bool) -> str:
    return format_delta(delta_bytes) if is_change else format_size(delta_bytes)


def _sign(delta_bytes: int, *, is_change: bool) -> str:
    if not is_change or not delta_bytes:
        return "none"
    return "grew" if delta_bytes > 0 else "shrank"
