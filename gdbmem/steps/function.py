"""One function, line by line: the table, and ``kind=function``."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from gdbmem.json_values import as_json
from gdbmem.model.steps import FunctionProfile, LineProfile
from gdbmem.steps.steps import noun
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console
from gdbmem.terminal.document import head, to_json
from gdbmem.text import format_delta, format_size, plural, printable

if TYPE_CHECKING:
    from gdbmem.terminal.source import SourceLines

_FURTHEST_GAP = 12  # lines without code that are shown between two with code


def print_function(profile: FunctionProfile, console: Console, sources: SourceLines) -> None:
    """Print the table of *profile*, with the source of the whole function."""
    name = PurePath(profile.file).name if profile.file else "no source known"
    heading = f"{profile.function}  {name}  {plural(profile.calls, 'call')}"
    console.print(drawing.Text(printable(heading), "bold"))
    # The source gets the remaining width.
    table = drawing.Table(header_style="dim")
    table.add_numbers("line", "hits", noun(profile.source), "per hit", "total after")
    table.add_column("source", no_wrap=True, overflow="ellipsis")
    for number, line in _rows(profile):
        table.add_row(str(number), *_cells(line), _source(profile, number, sources))
    console.print(table)
    for remark in remarks(profile):
        console.print(drawing.Text(remark, "dim"))


def remarks(profile: FunctionProfile) -> list[str]:
    """Return the remarks below the table."""
    said = [_total(profile)]
    if profile.own_only:
        outside = ("~" if profile.is_outside_shared else "") + format_delta(profile.outside_bytes)
        said.append(f"changes made by the lines' calls are left out: {outside}")
    if profile.has_inlined:
        said.append("functions are inlined into it: their changes count for the line that calls them")
    if profile.recursive_calls:
        calls = plural(profile.recursive_calls, "recursive call")
        said.append(f"{calls}: each change is counted once, at the line of the innermost call")
    if profile.abandoned_calls:
        calls = plural(profile.abandoned_calls, "call")
        unseen = plural(profile.unseen_calls, "last line") if profile.unseen_calls else ""
        lost = f": {unseen} not counted, because their times are unknown" if unseen else ""
        said.append(f"{calls} left by an exception or longjmp{lost}")
    if profile.under_way_from is not None:
        said.append(f"the first call was under way: it is counted from line {profile.under_way_from} on")
    if profile.shared_hits and noun(profile.source) == "heap":
        said.append(
            "~ malloc doesn't record the thread: a change is charged to the thread that reached a line next"
        )
    elif profile.shared_hits:
        said.append("~ other threads took memory meanwhile: each is charged for its own page faults")
    return said


def _total(profile: FunctionProfile) -> str:
    mark = "~" if profile.shared_hits else ""
    total = f"{mark}{format_delta(profile.delta_bytes)} in all, by source {profile.source}"
    outside = profile.outside_bytes if profile.own_only else 0
    if profile.process_bytes is None or profile.process_bytes == profile.delta_bytes + outside:
        return total
    rest = profile.process_bytes - profile.delta_bytes - outside
    return (
        f"{total}; the process changed by {format_delta(profile.process_bytes)} meanwhile, "
        f"{mark}{format_delta(rest)} of it by other code or threads"
    )


def _rows(profile: FunctionProfile) -> list[tuple[int, LineProfile | None]]:
    rows: list[tuple[int, LineProfile | None]] = []
    for line in profile.lines:
        if rows and 1 < line.line - rows[-1][0] <= _FURTHEST_GAP:
            rows += [(between, None) for between in range(rows[-1][0] + 1, line.line)]
        rows.append((line.line, line))
    return rows


def _cells(line: LineProfile | None) -> list[drawing.Text]:
    if line is None or not (line.hits or line.delta_bytes):
        return [drawing.Text("")] * 4
    style = "red" if line.delta_bytes > 0 else "green" if line.delta_bytes < 0 else "dim"
    mark = "~" if line.shared_hits else ""
    return [
        drawing.Text(f"{line.hits:,}"),
        drawing.Text(f"{mark}{format_delta(line.delta_bytes)}", style),
        drawing.Text(
            f"{mark}{format_delta(round(line.delta_bytes / line.hits))}" if line.hits else "", style
        ),
        drawing.Text("" if line.total_bytes is None else format_size(line.total_bytes)),
    ]


def _source(profile: FunctionProfile, number: int, sources: SourceLines) -> drawing.Text:
    return sources.highlighted_line(profile.file, number) or drawing.Text("")


def function_json(profile: FunctionProfile, sources: SourceLines) -> str:
    """Return *profile* as ``kind=function``."""
    names = (
        "function", "file", "calls", "source", "own_only", "delta_bytes", "process_bytes", "outside_bytes",
        "abandoned_calls", "unseen_calls", "recursive_calls", "under_way_from", "has_inlined",
    )  # fmt: skip
    lines = [
        {**line._asdict(), "source_text": sources.line(profile.file, line.line)} for line in profile.lines
    ]
    return to_json({**head("function", ()), **as_json(profile, *names), "lines": lines})
