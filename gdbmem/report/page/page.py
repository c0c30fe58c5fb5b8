"""One HTML file that a colleague can open: pictures, tables, call trees; nothing is fetched.

Pages are filled from a Jinja template that escapes everything; what is marked as safe here is made by
pygments (source lines), `series_plot` and `pictures`, which escape it themselves. Sections unfold with
HTML's own ``<details>``. The scripts and the one style sheet are those whose digests the page's policy names;
without scripts all but the graph and its table is there, and pictures over time can't be zoomed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Optional, Union

from gdbmem.analysis.profiles.outward import Outward, outward
from gdbmem.analysis.profiles.query import Query
from gdbmem.analysis.profiles.ranking import Amount, Ranking, Row, paths_of_lines, rank
from gdbmem.analysis.profiles.sites import function_name, has_place_only
from gdbmem.errors import Notice
from gdbmem.model.profiles.calltree import Frame
from gdbmem.model.profiles.diff import Diff
from gdbmem.records import dataclass, field, replace
from gdbmem.report.naming import Places, full_function, full_place, unlisted_callers, unlisted_site
from gdbmem.report.page.explorer import Explored, digest, following, script, timeline_script
from gdbmem.report.page.pictures import icicle, spark
from gdbmem.report.page.profile_data import pack
from gdbmem.report.profiles.headline import answer_diff, answer_snapshot, trend_word
from gdbmem.report.profiles.own_code import own_code_notices
from gdbmem.report.series.series_plot import svg, zoomable
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
class Number:
    """A number as people read it, and its exact value."""

    text: str
    value: Union[int, float]


@dataclass(frozen=True)
class Keyed:
    """A name beside the colour that it has in the picture."""

    text: str
    color: str


Cell = Union[str, Number, Keyed]


@dataclass(frozen=True)
class PageLine:
    """One row of a table: what it changed, and what stands behind it."""

    amount: Number
    sign: str  # grew, shrank or none: for colour
    share: float  # of the largest row, 0 to 1: the width of its bar
    before: Optional[Number]
    after: Optional[Number]
    blocks: Optional[Number]
    doubt: Optional[Number]
    place: str
    function: str
    excerpt: Optional[Markup]  # the source around it
    paths: Sequence[
        tuple[Number, Sequence[str]]
    ]  # the largest, each with its bytes; from the allocation outward
    more: str  # what the others are together
    trend: str = ""  # of a series: a word
    spark: Optional[Markup] = None  # of a series: its course


@dataclass(frozen=True)
class Node:
    """One step through a call tree in print order."""

    kind: str  # opens (a branch with others inside), leaf, or closes (the one opened last)
    amount: Optional[Number] = None
    sign: str = ""
    name: str = ""
    is_large: bool = False  # unfolded from the start


@dataclass(frozen=True)
class MarginLine:
    """A line of a source file, and what it changed in the margin; one without a number stands for those left out."""

    number: str
    amount: Optional[Number] = None  # None: it did not run, or what it did is not known
    unknown: str = ""
    sign: str = ""
    hits: Optional[Number] = None
    text: Optional[str] = None  # Markup
    function: str = ""  # shown where there is no text


@dataclass(frozen=True)
class Section:
    """One part of a page; what is empty is left out."""

    title: str
    sentence: str = ""
    lines: Sequence[PageLine] = ()
    is_change: bool = True
    others: Sequence[tuple[Number, str]] = ()  # what is in no line, and the total
    tree: Sequence[Node] = ()
    picture: Optional[Markup] = None
    course: str = ""  # of a picture over time: the same as pack() has it, for the script that zooms it
    header: Sequence[str] = ()
    table: Sequence[Sequence[Cell]] = ()
    text: str = ""  # as a terminal would show it
    margin: Sequence[MarginLine] = ()
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
    explored: Optional[Explored] = None  # what the script draws
    # Of a page that is served: the address that tells whether there is a newer one, and what it says now.
    follows: Optional[tuple[str, str]] = None


@dataclass(frozen=True)
class IndexRow:
    """A page in the index of those that are served."""

    name: str
    address: str
    changed: float  # when it did last, seconds since the epoch


def render(page: Page) -> str:
    """Return *page* as HTML."""
    courses = [section.course for section in page.sections]
    courses += [page.explored.course] if page.explored is not None else []
    codes = [
        *([timeline_script()] if any(courses) else []),
        *([script()] if page.explored is not None else []),
        *([following()] if page.follows is not None else []),
    ]
    stack = page.explored.stack if page.explored is not None else ""
    return _filled("page.html", codes, follows=page.follows is not None, page=page, stack=markup(stack))


def render_index(entries: Sequence[IndexRow]) -> str:
    """Return a page with a link to each of *entries*, the newest first."""
    rows = [
        (one, datetime.fromtimestamp(one.changed).isoformat(sep=" ", timespec="seconds"))
        for one in sorted(entries, key=lambda one: -one.changed)
    ]
    return _filled("index.html", [], rows=rows)


def _filled(template: str, codes: Sequence[str], *, follows: bool = False, **content: object) -> str:
    from jinja2 import Environment, PackageLoader  # 45 ms

    environment = Environment(
        loader=PackageLoader("gdbmem.report.page.page", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = _style()
    policy = f"default-src 'none'; style-src {digest(style)}"
    if codes:
        policy += f"; script-src {' '.join(map(digest, codes))}"
    if follows:
        policy += "; connect-src 'self'"
    scripts = [markup(code) for code in codes]
    found = environment.get_template(template)
    return found.render(policy=policy, style=markup(style), scripts=scripts, **content)


def markup(text: str) -> Markup:
    """Return *text*, which has nothing of a stranger's in it unescaped, for the template."""
    from markupsafe import Markup  # 2 ms

    return Markup(text)


def _style() -> str:
    from pygments.formatters.html import HtmlFormatter  # 6 ms

    own = files("gdbmem.report.page").joinpath("web/page.css").read_text(encoding="utf-8")
    light, dark = (
        HtmlFormatter(style=name, classprefix="s-").get_style_defs(".source")  # type: ignore[no-untyped-call]  # types-pygments lacks it
        for name in ("default", "github-dark")
    )
    return f"{own}{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def known_size(size_bytes: Optional[float]) -> Cell:
    """Return *size_bytes* for people; None is unknown."""
    return "?" if size_bytes is None else Number(format_size(size_bytes), round(size_bytes))


def printable_rows(rows: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
    """Return *rows* with all text made safe."""
    return [[_printable_cell(cell) for cell in row] for row in rows]


def _printable_cell(cell: Cell) -> Cell:
    if isinstance(cell, Keyed):
        return Keyed(printable(cell.text), cell.color)
    return printable(cell) if isinstance(cell, str) else cell


def diff_section(title: str, diff: Diff, query: Query, *, is_change: bool = True) -> Section:
    """Return the section of *diff*, or of a snapshot as a diff against nothing: answer, picture, lines, call tree."""
    asked = Query(known=query.known, mine=query.mine)
    sources = SourceLines(query.source_folders, query.source_roots) if query.embed_source else None
    ranking = rank(diff, replace(asked, top=_ROWS, by="line"))
    paths = paths_of_lines(diff, asked, ranking, _PATHS)
    calls = outward(diff, asked, _LEAST)
    sentence = answer_diff(diff, query) if is_change else answer_snapshot(diff, query, moment=title)
    return Section(
        title=printable(title),
        sentence=sentence,
        lines=_lines(ranking, paths, sources, is_change=is_change),
        is_change=is_change,
        others=_others(ranking, is_change=is_change),
        tree=_tree(calls, is_change=is_change),
        picture=markup(icicle(calls, is_change=is_change)),
        rules=[printable(one.message) for one in [*own_code_notices(ranking), *source_notices(sources)]],
    )


def source_notices(sources: Optional[SourceLines]) -> list[Notice]:
    """Return whether a page holds lines of *sources*, None: of none, and which were withheld."""
    if sources is None:
        return []
    files = sources.shown_files
    held = [Notice("", f"this page holds lines of {plural(files, 'source file')}")] if files else []
    return [*held, *sources.notices()]


def course_section(picture: Picture) -> Section:
    """Return the section that shows *picture*, the course of memory over time."""
    has_line = any(len(curve.times) > 1 for curve in picture.curves)
    course = pack(zoomable(picture)) if has_line else ""
    return Section("The course", picture=markup(svg(picture)), course=course)


def _lines(
    ranking: Ranking,
    paths: Sequence[tuple[Sequence[Row], Amount]],
    sources: Optional[SourceLines],
    *,
    is_change: bool,
) -> list[PageLine]:
    rows = [
        (row, of_row)
        for row, of_row in zip(ranking.rows, paths)
        if row.amount.delta_bytes or row.amount.uncertain_bytes or row.amount.course
    ]
    largest = max((abs(row.amount.delta_bytes) for row, _ in rows), default=0) or 1
    places = Places([frame for row, _ in rows for frame in (row.site, *row.frames)])
    return [_line(row, of_row, largest, places, sources, is_change=is_change) for row, of_row in rows]


def _line(
    row: Row,
    paths: tuple[Sequence[Row], Amount],
    largest: int,
    places: Places,
    sources: Optional[SourceLines],
    *,
    is_change: bool,
) -> PageLine:
    amount, site = row.amount, row.site
    blocks = amount.delta_blocks
    return PageLine(
        amount=_size(amount.delta_bytes, is_change=is_change),
        sign=sign_of(amount.delta_bytes, is_change=is_change),
        share=abs(amount.delta_bytes) / largest,
        before=None if amount.is_relative else _size(amount.before_bytes, is_change=False),
        after=None if amount.is_relative else _size(amount.after_bytes, is_change=False),
        blocks=None
        if blocks is None
        else Number(f"{blocks:+,}" if is_change and blocks else f"{blocks:,}", blocks),
        doubt=Number(f"± {format_size(amount.uncertain_bytes)}", amount.uncertain_bytes)
        if amount.uncertain_bytes
        else None,
        place=unlisted_site(row) if site is None else places.place(site),
        function="" if site is None or has_place_only(site) else function_name(site, room=_NAME_WIDTH),
        excerpt=None if site is None or sources is None else sources.excerpt(site.file, site.line),
        paths=[(_size(path.amount.delta_bytes, is_change=is_change), _frames(path)) for path in paths[0]],
        more=f"and {paths[1].paths:,} more, {_size(paths[1].delta_bytes, is_change=is_change).text}"
        if paths[1].paths
        else "",
        trend=trend_word(amount.trend.kind) if amount.course else "",
        spark=markup(spark(amount.course)) if amount.course else None,
    )


def _frames(row: Row) -> list[str]:
    unlisted = [unlisted_callers(row)] if row.is_pruned and row.frames else []
    return [*(f"{full_function(frame)}  {full_place(frame)}" for frame in row.frames), *unlisted] or [
        unlisted_site(row)
    ]


def _others(ranking: Ranking, *, is_change: bool) -> list[tuple[Number, str]]:
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
    stack: list[Optional[tuple[Outward, int]]] = [(child, 1) for child in reversed(root.children)]
    while stack:
        top = stack.pop()
        if top is None:
            nodes.append(Node("closes"))
            continue
        call, depth = top
        children = call.children if depth < _DEEPEST and len(nodes) < _MOST_BRANCHES else []
        nodes.append(_node(call, root.weight, kind="opens" if children else "leaf", is_change=is_change))
        if children:
            stack += [None, *((child, depth + 1) for child in reversed(children))]
    return nodes


def _node(call: Outward, whole: int, *, kind: str, is_change: bool) -> Node:
    return Node(
        kind,
        amount=_size(call.delta_bytes, is_change=is_change),
        sign=sign_of(call.delta_bytes, is_change=is_change),
        name="" if call.frame is None else _frame_name(call.frame),
        is_large=call.weight >= _LARGE_SHARE * whole,
    )


def _frame_name(frame: Frame) -> str:
    place = Places([frame]).place(frame)
    return place if has_place_only(frame) else f"{function_name(frame, room=_NAME_WIDTH)}  {place}"


def _size(delta_bytes: int, *, is_change: bool) -> Number:
    return Number(format_delta(delta_bytes) if is_change else format_size(delta_bytes), delta_bytes)


def sign_of(delta_bytes: int, *, is_change: bool = True) -> str:
    """Return the word for the colour of a change."""
    if not is_change or not delta_bytes:
        return "none"
    return "grew" if delta_bytes > 0 else "shrank"
