"""One HTML file that a colleague can open: pictures, tables, call trees; nothing is fetched, no script runs.

Pages are filled from a Jinja template that escapes everything; what is marked as safe here is made by
pygments (source lines) and by `series_plot` (pictures), which escape it themselves. Sections unfold with
HTML's own ``<details>``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Optional

from gdbmem.analysis.profiles.outward import Outward, outward
from gdbmem.analysis.profiles.query import Query
from gdbmem.analysis.profiles.ranking import Amount, Ranking, Row, paths_of_lines, rank
from gdbmem.analysis.profiles.sites import function_name
from gdbmem.model.calltree import Frame
from gdbmem.model.diff import Diff
from gdbmem.report.naming import Places, full_function, full_place, unlisted_callers, unlisted_site
from gdbmem.report.profiles.headline import answer_diff, answer_snapshot
from gdbmem.report.profiles.own_code import own_code_notices
from gdbmem.report.series.series_plot import svg
from gdbmem.report.source import SourceLines
from gdbmem.text import plural, printable
from gdbmem.units import format_delta, format_size

if TYPE_CHECKING:
    from markupsafe import Markup

    from gdbmem.report.series.series_plot import Picture

_ROWS = 25
_NAME_WIDTH = 90
_MOST_BRANCHES = 1500
_PATHS = 5  # of a line
_LEAST = 0.005  # of all; smaller branches are in their callers' sums only
_LARGE_SHARE = 0.2  # of all; unfolded from the start
_DEEPEST = 120  # a browser lays out no deeper nesting in reasonable time


@dataclass(frozen=True)
class PageLine:
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
    paths: Sequence[
        tuple[str, Sequence[str]]
    ]  # the largest, each with its bytes; from the allocation outward
    more: str  # what the others are together


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
    lines: Sequence[PageLine] = ()
    is_change: bool = True
    others: Sequence[tuple[str, str]] = ()  # what is in no line, and the total
    tree: Sequence[Node] = ()
    picture: Optional[Markup] = None
    header: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()
    text: str = ""  # as a terminal would show it
    rules: Sequence[
        str
    ] = ()  # by which callers are named, which sources are shown, and how that is overruled


@dataclass
class Page:
    """The content of the page."""

    title: str
    subtitle: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def render(page: Page) -> str:
    """Return *page* as HTML."""
    from jinja2 import Environment, PackageLoader  # 45 ms
    from pygments.formatters.html import HtmlFormatter  # 6 ms

    environment = Environment(
        loader=PackageLoader("gdbmem.report.page.page", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formatter = HtmlFormatter(style="default", classprefix="s-")
    styles = formatter.get_style_defs("pre.source")  # type: ignore[no-untyped-call]  # types-pygments lacks it
    return environment.get_template("page.html").render(page=page, source_styles=styles)


def diff_section(title: str, diff: Diff, query: Query, *, is_change: bool = True) -> Section:
    """Return the section of *diff*, or of a snapshot as a diff against nothing: answer, lines, call tree."""
    asked = Query(known=query.known, mine=query.mine)
    sources = SourceLines(query.source_folders, query.source_roots)
    ranking = rank(diff, replace(asked, top=_ROWS, by="line"))
    paths = paths_of_lines(diff, asked, ranking, _PATHS)
    sentence = answer_diff(diff, query) if is_change else answer_snapshot(diff, query, moment=title)
    return Section(
        title=printable(title),
        sentence=sentence,
        lines=_lines(ranking, paths, sources, is_change=is_change),
        is_change=is_change,
        others=_others(ranking, is_change=is_change),
        tree=_tree(outward(diff, asked, _LEAST), is_change=is_change),
        rules=[printable(one.message) for one in [*own_code_notices(ranking), *sources.notices()]],
    )


def course_section(picture: Picture) -> Section:
    """Return the section that shows *picture*, the course of memory over time."""
    from markupsafe import Markup  # 2 ms

    return Section("The course", picture=Markup(svg(picture)))


def _lines(
    ranking: Ranking, paths: Sequence[tuple[Sequence[Row], Amount]], sources: SourceLines, *, is_change: bool
) -> list[PageLine]:
    rows = [
        (row, of_row)
        for row, of_row in zip(ranking.rows, paths)
        if row.amount.delta_bytes or row.amount.uncertain_bytes
    ]
    largest = max((abs(row.amount.delta_bytes) for row, _ in rows), default=0) or 1
    places = Places([frame for row, _ in rows for frame in (row.site, *row.frames)])
    return [_line(row, of_row, largest, places, sources, is_change=is_change) for row, of_row in rows]


def _line(
    row: Row,
    paths: tuple[Sequence[Row], Amount],
    largest: int,
    places: Places,
    sources: SourceLines,
    *,
    is_change: bool,
) -> PageLine:
    amount, site = row.amount, row.site
    blocks = amount.delta_blocks
    return PageLine(
        amount=_size(amount.delta_bytes, is_change=is_change),
        sign=_sign(amount.delta_bytes, is_change=is_change),
        share=abs(amount.delta_bytes) / largest,
        before="" if amount.is_relative else format_size(amount.before_bytes),
        after="" if amount.is_relative else format_size(amount.after_bytes),
        blocks="" if blocks is None else f"{blocks:+,}" if is_change and blocks else f"{blocks:,}",
        doubt=f"± {format_size(amount.uncertain_bytes)}" if amount.uncertain_bytes else "",
        place=unlisted_site(row) if site is None else places.place(site),
        function="" if site is None else function_name(site, room=_NAME_WIDTH),
        excerpt=None if site is None else sources.excerpt(site.file, site.line),
        paths=[(_size(path.amount.delta_bytes, is_change=is_change), _frames(path)) for path in paths[0]],
        more=f"and {paths[1].paths:,} more, {_size(paths[1].delta_bytes, is_change=is_change)}"
        if paths[1].paths
        else "",
    )


def _frames(row: Row) -> list[str]:
    unlisted = [unlisted_callers(row)] if row.is_pruned and row.frames else []
    return [*(f"{full_function(frame)}  {full_place(frame)}" for frame in row.frames), *unlisted] or [
        unlisted_site(row)
    ]


def _others(ranking: Ranking, *, is_change: bool) -> list[tuple[str, str]]:
    rows = [
        (ranking.rest, plural(ranking.rest.paths, "more line")),
        (ranking.known, f"known: {plural(ranking.known.paths, 'path')}"),
    ]
    found = [(amount, text) for amount, text in rows if amount.paths]
    outside = [(amount, f"{name}, outside the heap") for amount, name in ranking.outside]
    total = "total, of the heap" if outside else "total"
    return [
        (_size(amount.delta_bytes, is_change=is_change), text)
        for amount, text in [*found, (ranking.total, total), *outside]
    ]


def _tree(root: Outward, *, is_change: bool) -> list[Node]:
    """Return the calls of *root* from main outward in print order, at most some thousand."""
    nodes: list[Node] = []
    # (call, depth) to open, None to close. A stack of its own: call paths may be thousands of frames deep.
    stack: list[Optional[tuple[Outward, int]]] = [(child, 1) for child in reversed(root.children())]
    while stack:
        top = stack.pop()
        if top is None:
            nodes.append(Node("closes"))
            continue
        call, depth = top
        children = call.children() if depth < _DEEPEST and len(nodes) < _MOST_BRANCHES else []
        nodes.append(_node(call, root.weight, kind="opens" if children else "leaf", is_change=is_change))
        if children:
            stack += [None, *((child, depth + 1) for child in reversed(children))]
    return nodes


def _node(call: Outward, whole: int, *, kind: str, is_change: bool) -> Node:
    return Node(
        kind,
        amount=_size(call.delta_bytes, is_change=is_change),
        sign=_sign(call.delta_bytes, is_change=is_change),
        name="" if call.frame is None else _frame_name(call.frame),
        is_large=call.weight >= _LARGE_SHARE * whole,
    )


def _frame_name(frame: Frame) -> str:
    return f"{function_name(frame, room=_NAME_WIDTH)}  {Places([frame]).place(frame)}"


def _size(delta_bytes: int, *, is_change: bool) -> str:
    return format_delta(delta_bytes) if is_change else format_size(delta_bytes)


def _sign(delta_bytes: int, *, is_change: bool) -> str:
    if not is_change or not delta_bytes:
        return "none"
    return "grew" if delta_bytes > 0 else "shrank"
