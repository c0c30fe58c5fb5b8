"""The page of Python's objects: a bar of the bytes by type, and for two moments the changes."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.analysis.python_objects import changes
from gdbmem.model.python import PythonObjects, TypeUse
from gdbmem.report.page.bars import BarPart, bars
from gdbmem.report.page.page import (
    Cell,
    Keyed,
    Number,
    Page,
    Section,
    known_share,
    known_size,
    markup,
    printable_rows,
)
from gdbmem.report.python.objects_text import beside_objects, growth_answer, objects_answer
from gdbmem.text import plural, printable
from gdbmem.units import format_delta, format_duration, format_size

_MOST_TYPES = 200
_DRAWN = 9
_COLORS = (
    "#2f6fb7", "#e07b39", "#4ca65b", "#8e6bbf", "#b8960b", "#20808d", "#a0604f", "#c2577f", "#7d8b99",
)  # fmt: skip
_OTHERS = "other types"
_OTHER_COLOR = "#94999e"


def objects_page(objects: PythonObjects) -> Page:
    """Return the page of *objects*."""
    colors = _colors([objects])
    page = Page(title=_title(objects), sections=_sections(objects, colors, "Python's objects"))
    page.notices = [printable(one.message) for one in objects.notices]
    return page


def objects_growth_page(moments: Sequence[PythonObjects], names: Sequence[str]) -> Page:
    """Return the page of two or more moments: the changes from the first to the last, then the last."""
    before, after = moments[0], moments[-1]
    colors = _colors(moments)
    rows: list[Sequence[Cell]] = [
        (
            Keyed(row.type, colors[row.type]) if row.type in colors else row.type,
            Number(format_delta(row.delta_bytes), row.delta_bytes),
            Number(f"{row.delta_count:+,}", row.delta_count),
            known_size(row.before.bytes),
            known_size(row.after.bytes),
            "",
        )
        for row in changes(before, after)[:_MOST_TYPES]
    ]
    rest = changes(before, after)[_MOST_TYPES:]
    if rest:
        size, count = sum(row.delta_bytes for row in rest), sum(row.delta_count for row in rest)
        name = plural(len(rest), "further type")
        rows.append((name, Number(format_delta(size), size), Number(f"{count:+,}", count), "", "", ""))
    page = Page(title=printable(f"{names[0]} → {names[-1]}"))
    page.sections = [
        Section(
            "Objects that came and went",
            sentence=growth_answer(before, after, names[0]),
            picture=markup(_bars(moments, names, colors)),
            header=("type", "change", "objects", "before", "after", ""),
            table=printable_rows(rows),
        ),
        *_sections(after, colors, f"Python's objects in {names[-1]}"),
    ]
    said = [printable(notice.message) for one in (before, after) for notice in one.notices]
    page.notices = list(dict.fromkeys(said))
    return page


def _title(objects: PythonObjects) -> str:
    pid = f" {objects.pid}" if objects.pid is not None else ""
    return printable(f"Python objects of {objects.program.rpartition('/')[2] or 'a process'}{pid}")


def _colors(moments: Sequence[PythonObjects]) -> dict[str, str]:
    """Return the colours of the types that are largest at any moment."""
    largest: dict[str, int] = {}
    for objects in moments:
        for one in objects.types:
            largest[one.type] = max(largest.get(one.type, 0), one.bytes)
    return dict(zip(sorted(largest, key=lambda name: -largest[name])[:_DRAWN], _COLORS))


def _bars(moments: Sequence[PythonObjects], names: Sequence[str], colors: dict[str, str]) -> str:
    rows = []
    for objects, name in zip(moments, names):
        parts = [
            BarPart(one.type, one.bytes, colors[one.type]) for one in objects.types if one.type in colors
        ]
        rest = objects.bytes - sum(part.size_bytes for part in parts)
        rows.append((name, [*parts, BarPart(_OTHERS, rest, _OTHER_COLOR)]))
    return bars(rows, "Python's objects, by type")


def _sections(objects: PythonObjects, colors: dict[str, str], title: str) -> list[Section]:
    whole = objects.bytes
    rows = [_row(one, whole, colors) for one in objects.types[:_MOST_TYPES]]
    rest = objects.types[_MOST_TYPES:]
    if rest:
        others = TypeUse(
            plural(len(rest), "further type"), sum(one.count for one in rest), sum(one.bytes for one in rest)
        )
        rows.append(_row(others, whole, {}))
    rows.append(_row(TypeUse("total", objects.count, whole), whole, {}))
    rules = [beside_objects(objects)]
    if objects.pause_seconds is not None:
        rules.append(f"The process was stopped for {format_duration(objects.pause_seconds)}.")
    return [
        Section(
            printable(title),
            sentence=objects_answer(objects),
            numbers=_numbers(objects),
            rules=[printable(one) for one in rules],
            picture=markup(_bars([objects], ["in live objects"], colors)) if whole else None,
            header=("type", "bytes", "of all", "objects", "mean", ""),
            table=printable_rows(rows),
        )
    ]


def _numbers(objects: PythonObjects) -> list[Number]:
    """Return the numbers of the sentence about *objects*."""
    found = [
        Number(f"{objects.count:,} Python objects", objects.count),
        Number(format_size(objects.bytes), objects.bytes),
    ]
    for one in objects.types[:1]:
        found += [Number(format_size(one.bytes), one.bytes), Number(f"{one.count:,} of type", one.count)]
    return found


def _row(one: TypeUse, whole: int, colors: dict[str, str]) -> Sequence[Cell]:
    name: Cell = Keyed(one.type, colors[one.type]) if one.type in colors else one.type
    share = known_share(one.bytes, whole)
    mean = known_size(round(one.bytes / one.count)) if one.count else ""
    return (name, known_size(one.bytes), share, Number(f"{one.count:,}", one.count), mean, "")
