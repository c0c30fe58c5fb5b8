"""Tables of steps by line: of one function, and of the change between two recordings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import NamedTuple, Optional

from gdbmem.json_values import as_json
from gdbmem.model.steps import FunctionProfile, LineProfile, StepSum
from gdbmem.steps.steps import noun, place_of_sum
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_sentence
from gdbmem.terminal.document import head, to_json
from gdbmem.terminal.drawing import SourceLines
from gdbmem.text import format_delta, format_size, plural, printable

# One function, line by line: the table, and ``kind=function``.


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
        table.add_row(
            str(number), *_cells(line), sources.highlighted_line(profile.file, number) or drawing.Text("")
        )
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


# Differences by line between two recordings of steps.


GROUPINGS = ("line", "function", "file")  # threads of two runs are not the same
_ADDED = (
    "hits", "own_bytes", "shared_bytes", "shared_hits", "others_bytes", "doubtful_hits", "inexact_hits", "unknown_hits",
)  # fmt: skip


class StepChange(NamedTuple):
    """One line (function, file) in the two; None: it had no step in that one."""

    before: Optional[StepSum]
    after: Optional[StepSum]

    @property
    def place(self) -> StepSum:
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def delta_bytes(self) -> Optional[int]:
        """The difference of its memory changes in the two recordings; None if one of them is unknown."""
        if any(one is not None and one.unknown_hits for one in (self.before, self.after)):
            return None
        return _bytes(self.after) - _bytes(self.before)


def compare_steps(before: Iterable[StepSum], after: Iterable[StepSum], by: str = "line") -> list[StepChange]:
    """Return the differences of the sums of two recordings, both by line; by line, function or file; largest first."""
    old, new = _grouped(before, by), _grouped(after, by)
    rows = [StepChange(old.get(key), new.get(key)) for key in {**old, **new}]
    changed = [row for row in rows if row.delta_bytes != 0 or _hits(row.before) != _hits(row.after)]
    return sorted(changed, key=lambda row: (row.delta_bytes is not None, -abs(row.delta_bytes or 0)))


def known_bytes(sums: Sequence[StepSum]) -> int:
    """Return the known change of *sums*."""
    return sum(one.delta_bytes for one in sums)


def _grouped(sums: Iterable[StepSum], by: str) -> dict[object, StepSum]:
    found: dict[object, StepSum] = {}
    for one in sums:
        group = replace(
            one, line=one.line if by == "line" else None, function=None if by == "file" else one.function
        )
        key = (group.file, group.line, group.function if by == "function" or not group.file else None)
        known = found.get(key)
        found[key] = group if known is None else _together(known, group)
    return found


def _together(one: StepSum, other: StepSum) -> StepSum:
    heaps = [size for size in (one.heap_bytes, other.heap_bytes) if size is not None]
    added = {name: getattr(one, name) + getattr(other, name) for name in _ADDED}
    return replace(one, heap_bytes=sum(heaps) if heaps else None, **added)


def _bytes(one: Optional[StepSum]) -> int:
    return one.delta_bytes if one is not None else 0


def _hits(one: Optional[StepSum]) -> int:
    return one.hits if one is not None else 0


# Two recordings of steps, compared: as a table and as ``kind=steps-changes``.


def answer_changes(
    before: Sequence[StepSum], after: Sequence[StepSum], rows: Sequence[StepChange], name: str
) -> str:
    """Return the difference between the memory changes of both recordings, and the line with most of it."""
    sizes = [
        f"{format_delta(known_bytes(s))} in {plural(sum(one.hits for one in s), 'step')}"
        for s in (after, before)
    ]
    text = f"{sizes[0]}; {sizes[1]} in {printable(name)}"
    first = next((row for row in rows if row.delta_bytes), None)
    if first is None or first.delta_bytes is None:
        return text
    return f"{text}; most of the difference: {format_delta(first.delta_bytes)} at {_short(first.place)}"


def print_changes(
    sentence: str, rows: Sequence[StepChange], console: Console, sources: SourceLines, top: Optional[int]
) -> None:
    """Print *sentence*, then the *top* lines with their changes in each recording."""
    print_sentence(console, sentence, "bold")
    if not rows:
        return
    table = drawing.new_table("difference", "before", "now", "steps before", "now", last="where")
    for row in rows[:top]:
        delta = "?" if row.delta_bytes is None else format_delta(row.delta_bytes)
        sizes = (_size(one) for one in (row.before, row.after))
        hits = (f"{one.hits:,}" if one is not None else "" for one in (row.before, row.after))
        table.add_row(delta, *sizes, *hits, place_of_sum(row.place, sources))
    console.print()
    console.print(table)
    if top is not None and len(rows) > top:
        console.print(f"and {plural(len(rows) - top, 'smaller one')} (--top)")


def changes_json(sentence: str, rows: Sequence[StepChange]) -> str:
    """Return the comparison as ``kind=steps-changes``."""
    return to_json({**head("steps-changes", ()), "answer": sentence, "rows": [_row(row) for row in rows]})


def _row(row: StepChange) -> dict[str, object]:
    place = row.place
    sides = {
        f"{side}_{what}": None if one is None else one.hits if what == "hits" else _known(one)
        for side, one in (("before", row.before), ("after", row.after))
        for what in ("hits", "bytes")
    }
    return {
        "function": place.function, "file": place.file, "line": place.line, "delta_bytes": row.delta_bytes, **sides,
    }  # fmt: skip


def _known(one: StepSum) -> Optional[int]:
    return None if one.unknown_hits else one.delta_bytes


def _size(one: Optional[StepSum]) -> str:
    if one is None:
        return ""
    return "?" if one.unknown_hits else format_delta(one.delta_bytes)


def _short(place: StepSum) -> str:
    name = (place.file or place.function or "no source known").rpartition("/")[2]
    if place.line is not None:
        return f"{printable(name)}:{place.line}"
    return f"{printable(place.function or name)}"
