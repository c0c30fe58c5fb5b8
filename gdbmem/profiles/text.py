"""A heap profile or a diff as text: the answer in one sentence, its history, and the table of allocation sites."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, takewhile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, Optional, Union

from gdbmem.errors import Notice
from gdbmem.model.calltree import GROWN_BYTES, LATER, Frame, Profile, Snapshot, holds, memory_noun
from gdbmem.model.diff import Diff
from gdbmem.profiles import own_code, timeline
from gdbmem.profiles.diff import as_growth
from gdbmem.profiles.paths import DEFAULT_TOP, Query, matches
from gdbmem.profiles.ranking import Amount, Annotation, Ranking, Row, RowUses, Uses, annotate, rank
from gdbmem.python.frames import INTERPRETER, fold_interpreter, is_interpreters
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, Glyphs, glyphs_for, print_notices, print_sentence
from gdbmem.terminal.drawing import SourceLines, Stacked, sparkline, thinned
from gdbmem.text import format_delta, format_size, format_time, plural, printable

if TYPE_CHECKING:
    from gdbmem.model.containers import Holding

# The table of a ranking: amounts, the user's own line with its source, and amounts in no row.


Rows = Union[drawing.Table, Stacked]

_CALLERS_FIRST, _CALLERS_LAST = 5, 2
_MARKS = {timeline.APPEARED: "new", timeline.VANISHED: "gone"}
_PLAIN = ("function", "file", "library", "size", "thread")  # rows without a source line
_COURSE = 24  # columns
_WIDE = 110  # width that has room for before and after
_GAP = 2
_DOUBT_SHOWN = 0.05  # of a size: what is less is below its last digits
_NARROW = 32  # columns that names need beside the numbers


class RowLayout(NamedTuple):
    """The layout of rows: with or without a former snapshot, their kind, and their sources."""

    console: Console
    query: Query
    sources: SourceLines
    is_change: bool  # deltas with signs and colours; else sizes with shares
    known_from: str = ""  # the file of --known, for its row
    uses: RowUses = RowUses()  # how the blocks of rows were used
    is_relative: bool = False  # the earlier bytes are unknown

    @property
    def glyphs(self) -> Glyphs:
        return glyphs_for(self.console)

    def source_text(self, file: str, line: str) -> drawing.Text:
        """Return *line* of *file*, highlighted only if there are colours, because that takes time."""
        is_colored = self.console.has_colors
        return self.sources.highlighted(file, line) if is_colored else drawing.Text(line, no_wrap=True)

    @property
    def shows_before_and_after(self) -> bool:
        return self.is_change and not self.is_relative and self.console.width >= _WIDE


def rows_table(ranking: Ranking, layout: RowLayout) -> Rows:
    """Return the table: one row for each row of *ranking*, the amounts in none of them, and the total."""
    table, places = new_table(ranking, layout)
    for row in ranking.rows:
        table.add_row(*row_cells(row.amount, ranking, layout), places.lines(row))
    add_other_rows(table, ranking, layout)
    return table


def new_table(ranking: Ranking, layout: RowLayout) -> tuple[Rows, Drawing]:
    """Return a table with its columns, and the renderer of the last one."""
    titles = _titles(ranking, layout)
    room = layout.console.width - _width_of_numbers(titles, ranking, layout)
    if room < _NARROW:
        room = Stacked.room(layout.console.width)
        return Stacked(titles), Drawing(layout, _places(ranking), room=room)
    return _columns(titles), Drawing(layout, _places(ranking), room=room)


def _columns(titles: Sequence[str]) -> drawing.Table:
    table = drawing.Table(header_style="dim")
    for title in titles:
        table.add_column(title, justify="left" if title == "course" else "right", no_wrap=True)
    table.add_column("where")
    return table


def _width_of_numbers(titles: Sequence[str], ranking: Ranking, layout: RowLayout) -> int:
    widths = [len(title) for title in titles]
    others = [ranking.rest, ranking.unmatched, ranking.known, ranking.total]
    others += [amount for amount, _ in ranking.outside]
    for amount in [*(row.amount for row in ranking.rows), *others]:
        for column, cell in enumerate(row_cells(amount, ranking, layout)):
            widths[column] = max(widths[column], *(len(line) for line in cell.plain.split("\n")))
    return sum(widths) + _GAP * len(widths)


def add_other_rows(table: Rows, ranking: Ranking, layout: RowLayout) -> None:
    """Add the amounts in no row of *ranking*, and the total."""
    rest = f"{layout.glyphs.ellipsis} {plural(ranking.rest.paths, f'more {layout.query.by}')}"
    for amount, text in _other_rows(ranking, (ranking.rest, rest), layout.known_from):
        table.add_row(*row_cells(amount, ranking, layout), drawing.Text(text, "dim"))
    total = drawing.Text("total of the heap" if ranking.outside else "total", "bold")
    table.add_row(*row_cells(ranking.total, ranking, layout), total)
    for amount, name in ranking.outside:
        table.add_row(*row_cells(amount, ranking, layout), drawing.Text(own_code.outside_row(name), "dim"))


def _titles(ranking: Ranking, layout: RowLayout) -> list[str]:
    titles = ["change"] if layout.is_change else ["bytes", "share"]
    if ranking.total.course:
        titles.append("course")
    if layout.query.compare:
        titles.append("of before")
    if layout.shows_before_and_after:
        titles += ["before", "after"]
    return [*titles, "blocks"] if ranking.total.delta_blocks is not None else titles


def row_cells(amount: Amount, ranking: Ranking, layout: RowLayout) -> list[drawing.Text]:
    """Return the columns of numbers for *amount*."""
    delta, total = amount.delta_bytes, ranking.total
    if layout.is_change:
        style = "red" if delta > 0 else "green" if delta < 0 else ""
        cells = [drawing.Text.assemble((format_delta(delta), style))]
        shows_doubt = amount.uncertain_bytes > 0
    else:
        percent = f"{100 * delta / total.delta_bytes:.1f} %" if total.delta_bytes and amount.paths else ""
        cells = [drawing.Text(format_size(delta)), drawing.Text(percent, "dim")]
        shows_doubt = ranking.has_doubtful_paths and amount.uncertain_bytes > _DOUBT_SHOWN * abs(delta)
    if shows_doubt:
        cells[0].append(f"\n{layout.glyphs.plus_minus} {format_size(amount.uncertain_bytes)}", "yellow")
    if total.course:
        cells.append(_course_cell(amount, layout) if amount.course else drawing.Text(""))
    if layout.is_change and layout.query.compare:
        cells.append(drawing.Text(_percent(amount), "dim"))
    if layout.shows_before_and_after:
        cells += [
            drawing.Text(format_size(amount.before_bytes), "dim"),
            drawing.Text(format_size(amount.after_bytes), "dim"),
        ]
    if total.delta_blocks is not None:
        if amount.delta_blocks is None:
            return [*cells, drawing.Text("")]
        blocks = amount.delta_blocks
        cells.append(drawing.Text(f"{blocks:+,}" if layout.is_change and blocks else f"{blocks:,}"))
    return cells


def _percent(amount: Amount) -> str:
    if amount.change in _MARKS:
        return _MARKS[amount.change]
    if amount.is_relative or not amount.before_bytes:
        return ""
    return f"{100 * amount.delta_bytes / amount.before_bytes:+,.1f} %"


def _course_cell(amount: Amount, layout: RowLayout) -> drawing.Text:
    line = sparkline(thinned(amount.course, _COURSE), layout.glyphs.levels)
    kind = amount.trend.kind
    style = "bold red" if kind == timeline.STEADY else "dim"
    return drawing.Text.assemble(line, ("" if kind == timeline.UNCHANGED else f"\n{trend_word(kind)}", style))


def _other_rows(ranking: Ranking, rest: tuple[Amount, str], known_from: str) -> list[tuple[Amount, str]]:
    rows = [rest] if rest[0].paths else []
    if ranking.unmatched.delta_bytes or ranking.unmatched.uncertain_bytes:
        rows.append((ranking.unmatched, f"{plural(ranking.unmatched.paths, 'path')} not selected"))
    if ranking.known.paths:
        source = f" ({known_from})" if known_from else ""
        rows.append((ranking.known, f"known: {plural(ranking.known.paths, 'path')}{source}"))
    return rows


def _places(ranking: Ranking) -> own_code.Places:
    frames: list[Optional[Frame]] = []
    for row in ranking.rows:
        frames += [row.site, row.call, row.allocator, *row.frames]
    return own_code.Places(frames)


def _library_name(site: Frame) -> str:
    return printable(PurePosixPath(site.object).name) if site.object else "program or library unknown"


class Drawing:
    """Render the cells of the last column."""

    def __init__(self, layout: RowLayout, places: own_code.Places, *, room: int) -> None:
        self.layout, self.places, self.room = layout, places, room
        self.glyphs = layout.glyphs

    def branch(self, frame: Optional[Frame], rows: Sequence[Row], *, indent: int) -> drawing.Text:
        """Return one frame of a tree, with the source and the library's part at the end of rows."""
        margin = " " * indent
        narrow = Drawing(self.layout, self.places, room=max(self.room - indent, 20))
        lines = [narrow._frame(frame, "bold" if rows else "")] if frame is not None else []
        for row in rows:
            if row.is_pruned:
                lines.append(drawing.Text(own_code.unlisted_callers(row), "italic"))
            elif frame is row.site:
                lines += [*narrow._source(row), *narrow._library(row)]
        return drawing.Text("\n").join([drawing.Text.assemble(margin, line) for line in lines])

    def lines(self, row: Row) -> drawing.Text:
        """Return the cell of *row*: site, source line, library frames and callers."""
        if self.layout.query.by == "path" and self.layout.query.all_frames:
            lines = self._all_frames(row)
        else:
            lines = [self.site(row), *self._source(row), *self._library(row)]
            if self.layout.query.by == "path":
                lines += self._callers(row)
        lines += [drawing.Text(text, "dim") for text in self.layout.uses.sentences(row, self.layout.query)]
        return drawing.Text("\n").join(lines)

    def site(self, row: Row) -> drawing.Text:
        """Return the user's own place of *row*."""
        if row.site is None:
            return drawing.Text(self._nobody(row), "italic")
        if row.site.is_size_class or row.site.is_thread:
            text = drawing.Text(printable(row.site.function or ""), "bold")
        elif self.layout.query.by == "library":
            text = drawing.Text(_library_name(row.site), "bold" if row.site.object else "italic")
        elif self.layout.query.by == "function":
            text = drawing.Text(
                (row.site.function and own_code.full_function(row.site)) or self.places.place(row.site),
                "bold",
            )
        elif self.layout.query.by == "file":
            text = drawing.Text(self.places.place(row.site._replace(line=None)), "bold")
        else:
            text = self._frame(row.site, "bold")
        return text

    def _nobody(self, row: Row) -> str:
        if row.is_pruned or self.layout.query.hide is None:
            return own_code.unlisted_site(row)
        return "no frame left by --hide"

    def _frame(self, frame: Frame, style: str = "", *, indent: int = 0) -> drawing.Text:
        place = self.places.place(frame)
        if own_code.has_place_only(frame):
            return drawing.Text(place, style)
        address = self.layout.sources.link(self.layout.console.links, frame.file, frame.line)
        style = f"{style} {drawing.LINK}{address}" if address else style
        room = max(self.room - indent - len(place) - _GAP, 8)
        name = own_code.function_name(frame, room=room, ellipsis=self.glyphs.ellipsis)
        first, second = (place, name) if frame.file is not None else (name, place)
        return drawing.Text.assemble((first, style), " " * _GAP, second)

    def _source(self, row: Row) -> list[drawing.Text]:
        site = row.site
        if site is None or site.file is None or self.layout.query.by in _PLAIN:
            return []
        line = self.layout.sources.line(site.file, site.line)
        if line is None:
            return []
        margin = f"{site.line} {self.glyphs.bar} "
        highlighted = self.layout.source_text(site.file, line)
        room = self.room - len(margin)
        if len(highlighted) > room:
            highlighted.truncate(room - 1)
            highlighted.append(self.glyphs.ellipsis)
        return [drawing.Text.assemble((margin, "dim"), highlighted)]

    def _library(self, row: Row) -> list[drawing.Text]:
        if self.layout.query.by in _PLAIN:
            return [] if row.amount.paths < 2 else [drawing.Text(plural(row.amount.paths, "path"), "dim")]
        more = f", and {row.amount.paths - 1:,} more" if row.amount.paths > 1 else ""
        if row.call is None or row.allocator is None:
            return []
        for room in (0, self.room // 3):
            inner = self._library_frame(row.call, room)
            outer = "" if row.allocator is row.call else self._library_frame(row.allocator, room)
            text = f"by {inner} {self.glyphs.ellipsis} {outer}" if outer else f"by {inner}"
            if len(text + more) <= self.room:
                break
        else:
            text = f"by {self._library_frame(row.call, self.room // 2)}"
        return [drawing.Text(text + more, "dim")]

    def _library_frame(self, frame: Frame, room: int) -> str:
        place = self.places.place(frame)
        if own_code.has_place_only(frame):
            return place
        return f"{own_code.function_name(frame, room=room, ellipsis=self.glyphs.ellipsis)} ({place})"

    def _callers(self, row: Row) -> list[drawing.Text]:
        at = next((n for n, frame in enumerate(row.frames) if frame is row.site), -1)
        frames = row.frames[at + 1 :]
        if row.site is not None and not is_interpreters(row.site):
            frames = fold_interpreter(frames)
        callers = [(frame, len(list(same))) for frame, same in groupby(frames)]
        hidden = max(len(callers) - _CALLERS_FIRST - _CALLERS_LAST, 0)
        if hidden < 2:
            lines = [self._caller(*caller) for caller in callers]
        else:
            count = sum(times for _, times in callers[_CALLERS_FIRST:-_CALLERS_LAST])
            lines = [self._caller(*caller) for caller in callers[:_CALLERS_FIRST]]
            lines.append(
                drawing.Text(f"{self.glyphs.caller} {self.glyphs.ellipsis} {count} more frames", "dim")
            )
            lines += [self._caller(*caller) for caller in callers[-_CALLERS_LAST:]]
        return [*lines, *self._unlisted(row)]

    def _unlisted(self, row: Row) -> list[drawing.Text]:
        # The tool pruned callers: they are further out than the listed part of the path.

        if not row.is_pruned or row.site is None:
            return []
        return [
            drawing.Text.assemble(
                (f"{self.glyphs.caller} ", "dim"), (own_code.unlisted_callers(row), "italic")
            )
        ]

    def _caller(self, frame: Frame, times: int) -> drawing.Text:
        repeated = f"  {times} times" if times > 1 else ""
        if frame.object == INTERPRETER:
            line = drawing.Text(frame.function or "")
        else:
            line = self._frame(frame, indent=2 + len(repeated))
        return drawing.Text.assemble((f"{self.glyphs.caller} ", "dim"), line, (repeated, "dim"))

    def _all_frames(self, row: Row) -> list[drawing.Text]:
        lines: list[drawing.Text] = []
        for frame in row.frames:
            is_site = frame is row.site
            margin = f"{self.glyphs.caller} " if lines else ""
            address = self.layout.sources.link(self.layout.console.links, frame.file, frame.line)
            link = f" {drawing.LINK}{address}" if address else ""
            place = (own_code.full_place(frame), f"bold{link}" if is_site else link)
            lines.append(
                drawing.Text.assemble((margin, "dim"), place, " " * _GAP, own_code.full_function(frame))
            )
            if is_site:
                lines += self._source(row)
        return [*lines, *self._unlisted(row)] if lines else [self.site(row)]


# The own-code rules applied to a ranking's rows, and how to disable them.


_MOST_NAMED = 4


def applied_rules(ranking: Ranking) -> list[str]:
    """Return the names of the rules that matched frames inside the sites of *ranking*'s rows."""
    found = [own_code.installed_rule(frame) for frame in _passed(ranking) if not _is_wrapper(frame, ranking)]
    return list(dict.fromkeys(rule.name for rule in found if rule is not None))


def applied_wrappers(ranking: Ranking) -> list[str]:
    """Return the allocation wrappers and copying functions inside the sites of *ranking*'s rows."""
    return list(dict.fromkeys(own_code.function_name(f) for f in _passed(ranking) if _is_wrapper(f, ranking)))


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
    return frame.function in ranking.wrappers or (
        frame.function is not None and own_code.is_copy_name(frame.function)
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    shown = [*names[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


# The rows of a ranking as one tree from main: common beginnings of paths are drawn once.


_STEP = 2  # columns of indent of a call from its caller
_DEEPEST = 12  # deeper calls are not indented further: the names need the space
_DEEPEST_STACKED = 6
_ENDS = 10  # number of first and last calls drawn of a long chain without branches


class Branch:
    """A call, the calls it made, and the rows that end in it."""

    def __init__(self, frame: Optional[Frame] = None) -> None:
        self.frame = frame
        self.children: dict[object, Branch] = {}
        self.rows: list[Row] = []  # that end here
        self.amounts: list[Amount] = []  # of all rows through here


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
    table, places = new_table(ranking, layout)
    _add_branches(table, places, root, ranking, layout)
    add_other_rows(table, ranking, layout)
    return table


def _add_branches(table: Rows, places: Drawing, root: Branch, ranking: Ranking, layout: RowLayout) -> None:
    is_narrow = isinstance(table, Stacked)
    for row in root.rows:  # places below the threshold without a listed caller
        table.add_row(*row_cells(row.amount, ranking, layout), places.site(row))
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
            where = places.branch(call.frame, call.rows, indent=indent)
            if hidden and number == _ENDS + hidden:
                more = f"{' ' * indent}{layout.glyphs.ellipsis} {hidden:,} more calls\n"
                where = drawing.Text(more, "dim").append(where)
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
    print_sentence(console, timeline.peak_sentence(profile))
    course = timeline.course_sentence(profile)
    if course:
        print_sentence(console, course)
    print_notices(profile.notices, console)


def print_sites(
    snapshot: Snapshot,
    query: Query,
    console: Console,
    *,
    moment: str,
    known_from: str = "",
    uses: Optional[Uses] = None,
) -> None:
    """Print where the memory of *snapshot* is, and how its blocks were used; *moment* is its name in the sentence."""
    growth = as_growth(snapshot)
    if query.annotate is not None:
        print_annotated(growth, query, console, moment=f"at {moment}")
        return
    sentence = answer_snapshot(growth, query, moment=moment)
    print_sentence(console, sentence, "bold")
    ranking = rank(growth, query._replace(top=query.top or DEFAULT_TOP))
    if not ranking.total.after_bytes:
        return
    sources = SourceLines(query.source_folders, query.source_roots)
    layout = RowLayout(
        console, query, sources, is_change=False, known_from=known_from, uses=RowUses(uses or {})
    )
    console.print()
    console.print(inverted_table(ranking, layout) if query.inverted else rows_table(ranking, layout))
    print_notices([*own_code_notices(ranking), *sources.notices()], console)


# The lines of one source file in its order, each with its memory.


_AROUND, _LONGEST_GAP = 5, 3  # lines that are shown on each side of one with memory, and left out at least


def print_annotated(
    diff: Diff,
    query: Query,
    console: Console,
    *,
    moment: str = "",
    known_from: str = "",
    notices: Iterable[Notice] = (),
) -> None:
    """Print the lines of the source file ``query.annotate`` with their memory; *moment*: of a snapshot, its name."""
    found = annotate(diff, query, query.annotate or "")
    ranking, is_change = found.ranking, not moment
    shown = format_delta if is_change else format_size
    when = moment or f"from {printable(diff.before_side.name)} to {printable(diff.after_side.name)}"
    inside, total = shown(found.inside.delta_bytes), shown(ranking.total.delta_bytes)
    print_sentence(console, f"{printable(found.file)}: {inside} of {total} {when}", "bold")
    sources = SourceLines(query.source_folders, query.source_roots)
    said = source_doubts(found, sources, query.annotate or "", diff)
    table = drawing.Table(header_style="dim")
    table.add_numbers(*_annotated_titles(ranking, is_change=is_change))
    table.add_column("source", no_wrap=True, overflow="ellipsis")
    glyphs, after = glyphs_for(console), 0

    def add(amount: Optional[Amount], through: str, where: drawing.Text) -> None:
        table.add_row(*_annotated_cells(amount, ranking, glyphs, is_change=is_change), through, where)

    by_line = {one.line: one for one in found.lines}
    for number in lines_around(by_line, sources.source(found.file)):
        if after and number > after + 1:
            add(None, "", drawing.Text(glyphs.ellipsis, "dim"))
        one = by_line.get(number)
        through = shown(one.through_bytes) if one is not None and one.through_bytes else ""
        add(None if one is None else one.amount, through, _source_line(found.file, number, sources, console))
        after = number
    if None in by_line:
        one = by_line[None]
        add(one.amount, shown(one.through_bytes), drawing.Text("of this file, at an unknown line", "italic"))
    elsewhere = f"{plural(found.elsewhere.paths, 'place')} not in this file"
    for amount, text in _other_rows(ranking, (found.elsewhere, elsewhere), known_from):
        add(amount, "", drawing.Text(text, "dim"))
    add(ranking.total, "", drawing.Text("total of the heap" if ranking.outside else "total", "bold"))
    for amount, name in ranking.outside:
        add(amount, "", drawing.Text(own_code.outside_row(name), "dim"))
    console.print()
    console.print(table)
    print_notices([*own_code_notices(ranking), *notices, *said, *sources.notices()], console)


def _annotated_titles(ranking: Ranking, *, is_change: bool) -> list[str]:
    titles = ["change"] if is_change else ["bytes", "share"]
    return [*titles, *(["blocks"] if ranking.total.delta_blocks is not None else []), "through"]


def _annotated_cells(
    amount: Optional[Amount], ranking: Ranking, glyphs: Glyphs, *, is_change: bool
) -> list[drawing.Text]:
    """Return the columns of numbers for *amount*, as row_cells() does; empty ones for None."""
    console = Console(io.StringIO())  # whose width has no room for further columns
    layout = RowLayout(console, Query(by="line"), SourceLines(), is_change)
    plain = ranking._replace(total=ranking.total._replace(course=()))
    cells = row_cells(amount or ranking.total, plain, layout)
    return cells if amount is not None else [drawing.Text("") for _ in cells]


def lines_around(places: Iterable[Optional[int]], source: Optional[drawing.Source]) -> list[int]:
    """Return the lines of *places* and those near to them that *source* has; without it only the former."""
    lines = [line for line in places if line is not None]
    count = len(source.lines) if source is not None else 0
    shown = {
        near for line in lines for near in range(line - _AROUND, line + _AROUND + 1) if 1 <= near <= count
    }
    gaps = {
        near
        for line in shown
        for near in range(line, line + _LONGEST_GAP + 1)
        if line + _LONGEST_GAP + 1 in shown
    }
    return sorted({*lines, *shown, *gaps})


def _source_line(file: str, number: int, sources: SourceLines, console: Console) -> drawing.Text:
    text = sources.indented_line(file, number)
    address = sources.link(console.links, file, number)
    margin = drawing.Text.assemble(
        (f"{number:>5}", f"dim {drawing.LINK}{address}" if address else "dim"),
        (f" {glyphs_for(console).bar} ", "dim"),
    )
    if text is None:
        return margin
    shown = sources.highlighted(file, text) if console.has_colors and text else drawing.Text(text)
    return drawing.Text.assemble(margin, shown)


_SLACK_SECONDS = 2.0  # of file systems that keep no fractions


def source_doubts(found: Annotation, sources: SourceLines, wanted: str, diff: Diff) -> list[Notice]:
    """Find the source of *found*, the user's own file *wanted* first; return the reasons why it may be another one."""
    sources.use(found.file, wanted)
    source = sources.source(found.file)
    if source is None:
        text = f"{printable(found.file)} was not found, so its lines are not shown; --source FOLDER names its folder"
        return sources.notices() or [Notice("source-missing", text)]
    name, last = printable(source.path), max((one.line or 0 for one in found.lines), default=0)
    blank = [
        one.line for one in found.lines if one.line and sources.indented_line(found.file, one.line) == ""
    ]
    if last > len(source.lines):
        text = f"{name} has {plural(len(source.lines), 'line')}, but there is memory of line {last}"
        return [Notice("source-differs", f"{text}: it is not the file that was compiled")]
    if blank:
        text = f"line {blank[0]} of {name} is empty, but has memory: it is not the file that was compiled"
        return [Notice("source-differs", text)]
    for what, time in _times_to_compare(diff):
        if source.changed > time + _SLACK_SECONDS:
            return [Notice("source-newer", f"{name} was changed after {what}: lines may have moved")]
    return []


def _times_to_compare(diff: Diff) -> Iterator[tuple[str, float]]:
    """Yield when the program was built, and when the profile was written, as far as these files are there."""
    program, file = diff.after_side.command.split(" ")[0], diff.after_side.source
    built = (f"{printable(program)} was built", program) if "/" in program else None
    for what, path in filter(None, (built, ("the profile was written", file))):
        with contextlib.suppress(OSError, ValueError):
            yield what, os.stat(path).st_mtime  # noqa: PTH116  (quicker)


# The answer in one sentence: the amount, the two sides, and the line.


_MOST_NAMED = 3
# A part may remain after the memory went back: "+4.0 MiB, went back" would be contradictory.
_TREND_WORDS = {timeline.WENT_BACK: "most went back"}
_NAMED_AS_GROUPED = ("function", "file", "library")  # the noun for each value of --by
_SPREAD = 0.05  # a line with less than this share is not an answer


def answer_diff(diff: Diff, query: Query) -> str:
    """Return the answer of *diff* to "what grew?", as in ``heap grew by …``; for a series: the steady growth."""
    query = _of_headline(query)
    ranking = rank(diff, query)
    change, left_out = _heap_change(diff, query, ranking), _left_out(ranking, query)
    if diff.course:
        change += f" ({len(diff.course)} snapshots){left_out}{_trend(ranking, query.by)}"
    elif query.by_blocks:
        blocks = f"{ranking.total.delta_blocks or 0:+,} blocks"
        change += f", {blocks}{left_out}{_most_blocks(ranking, query.by, sign='+')}"
    else:
        change += f"{left_out}{_culprit(ranking, query)}"
    return f"{change}{_outside(diff)}"  # last: "all of it" is of the heap alone


def answer_snapshot(diff: Diff, query: Query, *, moment: str) -> str:
    """Return where the memory of a snapshot (as a diff against nothing) is; *moment* names the snapshot."""
    query = _of_headline(query)
    ranking = rank(diff, query)
    verb = " holds" if holds(diff.unit) else ":"
    held = f"{memory_noun(diff.unit)}{verb} {format_size(diff.after[0])} at {moment}"
    if query.by_blocks:
        blocks = plural(ranking.total.delta_blocks or 0, "block")
        return f"{held} in {blocks}{_left_out(ranking, query)}{_most_blocks(ranking, query.by, sign='')}"
    return f"{held}{_left_out(ranking, query)}{_culprit(ranking, query)}"


def _of_headline(query: Query) -> Query:
    by = query.by if query.by in _NAMED_AS_GROUPED else "line"
    return query._replace(by=by, top=None, min_bytes=0, all_frames=False)


def site_name(row: Row, by: str = "line") -> str:
    """Return the label for the place of *row*, one of rows by *by*, also if the file does not list it."""
    if row.site is not None:
        return _group_name(row.site, by) if by in _NAMED_AS_GROUPED else own_code.describe_site(row.site)
    if not row.is_pruned:
        return "stacks without frames"
    return "call sites that the file leaves out" if row.is_cut else "call sites that are under the threshold"


def _outside(diff: Diff) -> str:
    parts, later = [], ""
    for one in diff.outside:
        verb = f"{'grew' if one.delta_bytes > 0 else 'shrank'} by {format_size(abs(one.delta_bytes))}"
        if one.delta_bytes and one.name == LATER:
            later = f"; memory in later snapshots {verb}"
        elif one.delta_bytes:
            parts.append(f"{one.name} {verb}")
    outside = f"; outside the heap, {' and '.join(parts)}" if parts else ""
    return f"{outside}{later}"


def _group_name(site: Frame, by: str) -> str:
    if by == "function" and (site.function is not None or own_code.has_place_only(site)):
        return own_code.full_function(site) or own_code.describe_site(site)
    name = site.file if by == "file" and site.file is not None else site.object
    return "an unknown library" if name is None else printable(PurePosixPath(name).name)


def _heap_change(diff: Diff, query: Query, ranking: Ranking) -> str:
    noun = "resident memory" if diff.unit == GROWN_BYTES else memory_noun(diff.unit)  # growth does not grow
    before, after = printable(diff.before_side.name), printable(diff.after_side.name)
    delta = diff.delta_bytes
    if delta:
        verb = "grew" if delta > 0 else "shrank"
        return f"{noun} {verb} by {format_size(abs(delta))} from {before} to {after}"
    size = format_size(diff.after[0])
    if query.normalized:
        same = "the same" if not ranking.rows else "other"
        return f"scaled to the {size} of {after}, {before} has its {noun} in {same} places"
    if ranking.rows or ranking.known.delta_bytes or ranking.unmatched.delta_bytes:
        return f"{noun} is as large at {after} as at {before} ({size}), but not in the same places"
    return f"{noun} did not change from {before} to {after} ({size} at both)"


def _trend(ranking: Ranking, by: str) -> str:
    # They come first.
    steady = list(takewhile(lambda row: row.amount.trend.kind == timeline.STEADY, ranking.rows))
    # The remainder below a threshold is not a place, and grows with the total that the threshold refers to.
    steady = [row for row in steady if row.site is not None] or steady
    if not steady:
        grown = list(ranking.rows.deltas())
        if max(grown, default=0) <= 0:
            return "; nothing grew steadily"
        first = ranking.rows[grown.index(max(grown))]
        kind = trend_word(first.amount.trend.kind)
        comma = "," if first.amount.uncertain_bytes else ""
        return f"; nothing grew steadily, the most is {_grown(first.amount)}{comma} at {site_name(first, by)} ({kind})"
    steps = len(steady[0].amount.course) - 1
    named = [
        f"{site_name(row, by)}, {_grown(row.amount)}, about {format_size(row.amount.delta_bytes // steps)} each time"
        for row in steady[:_MOST_NAMED]
    ]
    more = len(steady) - len(named)
    return f"; steadily at {'; '.join(named)}{f'; and {more:,} more' if more else ''}"


def _grown(amount: Amount) -> str:
    return f"{format_delta(amount.delta_bytes)}{_doubt(amount)}"


def _doubt(amount: Amount) -> str:
    return f", give or take {format_size(amount.uncertain_bytes)}" if amount.uncertain_bytes else ""


def trend_word(kind: str) -> str:
    """Return the text for a trend."""
    return _TREND_WORDS.get(kind, kind.replace("-", " "))


def _most_blocks(ranking: Ranking, by: str, *, sign: str) -> str:
    blocks = [amount.delta_blocks or 0 for amount in ranking.rows.amounts()]
    total = ranking.total.delta_blocks or 0
    same_way = next((at for at, count in enumerate(blocks) if count * total > 0), None)
    first = same_way if same_way is not None else next((at for at, count in enumerate(blocks) if count), None)
    if first is None:
        return ""
    return f"; most blocks at {site_name(ranking.rows[first], by)}, {blocks[first]:{sign},}"


def _left_out(ranking: Ranking, query: Query) -> str:
    parts = []
    if ranking.known.paths:
        parts.append(f"{format_delta(ranking.known.delta_bytes)} of it known")
    if query.filters:
        parts.append(f"{format_delta(ranking.delta_matched_bytes)} of it in the selected paths")
    return "".join(f", {part}" for part in parts)


def _culprit(ranking: Ranking, query: Query) -> str:
    whole = ranking.delta_matched_bytes
    if not ranking.moved:
        return ""
    by = query.by
    first = _first(ranking, whole)
    amount, name = first.amount, site_name(first, by)
    rest = whole - amount.delta_bytes
    if amount.uncertain_bytes >= abs(amount.delta_bytes):
        return (
            f"; no {by} can be named, because {name} may have changed by up to"
            f" {format_size(abs(amount.delta_bytes) + amount.uncertain_bytes)}"
        )
    doubt = _doubt(amount)
    if whole == 0 or rest * whole < 0:
        verb = "grew" if amount.delta_bytes > 0 else "shrank"
        other = "grew" if rest > 0 else "shrank"
        size = format_size(abs(amount.delta_bytes))
        return f"; {name} {verb} by {size}{doubt}, the rest {other} by {format_size(abs(rest))}"
    of_what = "that" if query.filters else "the rest" if ranking.known.paths else "it"
    portion = own_code.share(amount.delta_bytes, whole)
    via = _via(first, ranking)
    if amount.delta_bytes / whole < _SPREAD:
        return (
            f"{via and f'; {via}'}; spread over {plural(ranking.moved, by)}, most at {name}: {portion}{doubt}"
        )
    if via and first.via_bytes == amount.delta_bytes:
        portion = own_code.share(amount.delta_bytes, ranking.via_bytes[_wrapper(first)])
        return f"; {via}, {portion} of that from {name}{doubt}"
    return f"; {portion} of {of_what} from {name}{doubt}"


def _wrapper(row: Row) -> str:
    return row.via.function or "" if row.via is not None else ""


def _via(first: Row, ranking: Ranking) -> str:
    # The wrapper through which most of a row's bytes were allocated, with its part of the whole.
    if first.via is None:
        return ""
    whole, part = ranking.delta_matched_bytes, ranking.via_bytes[_wrapper(first)]
    if part * whole <= 0 or abs(part) > abs(whole) or first.via_bytes * 2 < first.amount.delta_bytes:
        return ""
    return f"{own_code.share(part, whole)} via {own_code.describe_site(first.via)}"


def _first(ranking: Ranking, whole: int) -> Row:
    # The line that explains the change has the same sign with certainty; a threshold's remainder
    # explains nothing while there is a line to name.
    first: Optional[int] = None
    named: Optional[Row] = None
    for at, delta in enumerate(ranking.rows.deltas()):
        if not delta or delta * whole < 0:
            continue
        first = at if first is None else first
        if whole and delta / whole < _SPREAD:
            break  # all further rows are smaller
        row = ranking.rows[at] if whole or delta > 0 else None
        if row is None or row.site is None:
            continue
        if row.amount.uncertain_bytes < abs(row.amount.delta_bytes):
            return row
        named = named or row
    return named or ranking.rows[first or 0]


# One call path in a table's cell: the user's own line with its source, and its callers.


_CALLERS = 4


def path_text(frames: Sequence[Frame], sources: SourceLines) -> drawing.Text:
    """Return *frames*, from the allocation outward, from the user's own innermost one on."""
    places = own_code.Places(frames)
    text = drawing.Text()
    for number, frame in enumerate(_shortened(_frames_of_answer(frames))):
        if number == 0:
            text.append(f"{places.place(frame)}  ", "bold")
            text.append(own_code.full_function(frame))
            line = sources.highlighted_line(frame.file, frame.line)
            if line is not None:
                text.append("\n    ")
                text.append(line)
        else:
            text.append(f"\n  {places.place(frame)}  {own_code.full_function(frame)}", "dim")
    return text


def _frames_of_answer(frames: Sequence[Frame]) -> list[Frame]:
    """Return the user's own innermost frame and its callers, without a library's in between."""
    first = max(own_code.own_frame(frames), 0)
    own, callers = frames[first], frames[first + 1 :]
    if any(map(_is_python, callers)):
        # The frames between C and Python are the interpreter and its libraries, such as libffi.
        callers = [frame for frame in callers if own_code.own_rank(frame) == own_code.OWN]
    elif own_code.own_rank(own) != own_code.OTHER:
        callers = [frame for frame in callers if own_code.own_rank(frame) != own_code.OTHER]
    return [own, *callers]


def _shortened(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return the first of *frames*; the innermost two Python frames replace the last ones."""
    first = frames[: 1 + _CALLERS]
    python = next((number for number, frame in enumerate(frames) if _is_python(frame)), 0)
    of_python = frames[python : python + 2] if python >= len(first) - 1 and python else ()
    return [*first[: 1 + _CALLERS - len(of_python)], *of_python] if of_python else first


def _is_python(frame: Frame) -> bool:
    return frame.file is not None and frame.file.endswith(".py")


# A diff as text: the answer in one sentence, then its rows.


def print_diff(
    diff: Diff,
    query: Query,
    console: Console,
    *,
    notices: Iterable[Notice] = (),
    known_from: str = "",
    held: Sequence[Holding] = (),
    uses: RowUses = RowUses(),  # noqa: B008  (a constant)
) -> None:
    """Print *diff* according to *query* on *console*; *known_from* is the file of the known paths.

    *held* are the containers that hold what grew, *uses* say how the blocks of each row were used.
    """
    if query.annotate is not None:
        print_annotated(diff, query, console, known_from=known_from, notices=[*notices, *diff.notices])
        return
    print_sentence(console, answer_diff(diff, query), "bold")
    sources = SourceLines(query.source_folders, query.source_roots)
    ranking = rank(diff, query._replace(top=query.top or DEFAULT_TOP))
    grew = any(one.delta_bytes for one in diff.outside)
    if ranking.rows or ranking.rest.paths or ranking.known.paths or ranking.unmatched.paths or grew:
        layout = RowLayout(
            console,
            query,
            sources,
            is_change=True,
            known_from=known_from,
            is_relative=diff.is_relative,
            uses=uses,
        )
        console.print()
        console.print(inverted_table(ranking, layout) if query.inverted else rows_table(ranking, layout))
    if held:
        from gdbmem.profiles.containers_behind_growth import print_holdings  # few have any

        print_holdings(held, console)
    said = [*own_code_notices(ranking), *unused_known(diff, query), *notices, *diff.notices]
    print_notices([*said, *sources.notices()], console)


# A timeline drawn in a terminal: the heap over time, where trees are, where the peak is.


_HEIGHT = 8
_WIDEST = 100
_HEAP, _MORE = "blue", "bright_black"


def print_chart(profile: Profile, console: Console) -> None:
    """Print the history of *profile*: the heap, and above it allocator overhead and stacks."""
    if len(profile.snapshots) < 2:
        return
    peak = profile.snapshots[profile.peak_index]
    if not peak.total_bytes:
        return
    glyphs = glyphs_for(console)
    scale = format_size(peak.total_bytes)
    count = min(console.width - len(scale) - 3, _WIDEST)
    columns = timeline.columns_of(profile.snapshots, count)
    for row in range(_HEIGHT, 0, -1):
        label = scale if row == _HEIGHT else ""
        console.print(_row(columns, row, peak.total_bytes, f"{label:>{len(scale)}}", glyphs))
    margin = " " * len(scale)
    console.print(f"{margin} {glyphs.corner}{glyphs.rule * count}")
    marks = _marks(columns, glyphs)
    console.print(f"{margin}  {marks}", style="yellow")
    start, end = profile.snapshots[0].time, profile.snapshots[-1].time
    first, last = format_time(start, profile.time_unit), format_time(end, profile.time_unit)
    times = f"{first}{last:>{max(count - len(first), 0)}}"
    for line in [times] if len(first) + len(last) < count else [f"{first} to", last]:
        console.print(f"{margin}  {line}", style="dim")
    keys = [f"{glyphs.peak} peak"]
    if glyphs.tree in marks:
        keys.append(f"{glyphs.tree} snapshot with a call tree")
    if any(totals.total_bytes > totals.heap_bytes for totals in profile.snapshots):
        keys.append(f"{glyphs.shade} allocator overhead and stacks")
    for line in _course_lines(keys, console.width - len(margin) - 2):
        console.print(f"{margin}  {line}", style="dim")


def _course_lines(keys: list[str], width: int) -> list[str]:
    lines = keys[:1]
    for key in keys[1:]:
        together = f"{lines[-1]}   {key}"
        if len(together) <= width:
            lines[-1] = together
        else:
            lines.append(key)
    return lines


def _row(
    columns: list[timeline.Column], row: int, top_bytes: int, label: str, glyphs: Glyphs
) -> drawing.Text:
    text = drawing.Text.assemble((label, "dim"), f" {glyphs.bar}")
    for column in columns:
        level = 8 * (column.total_bytes * _HEIGHT / top_bytes - (row - 1))
        heap = 8 * (column.heap_bytes * _HEIGHT / top_bytes - (row - 1))
        if level < 0.5:
            text.append(" ")
        elif heap < 0.5 or (level >= 8 and heap < 4):
            text.append(glyphs.shade, _MORE)
        else:
            text.append(glyphs.levels[min(round(min(heap, level)), 8)], _HEAP)
    text.rstrip()
    return text


def _marks(columns: list[timeline.Column], glyphs: Glyphs) -> str:
    peak = max(range(len(columns)), key=lambda number: columns[number].total_bytes)
    marks = [glyphs.tree if column.has_tree else " " for column in columns]
    marks[peak] = glyphs.peak
    return "".join(marks).rstrip()
