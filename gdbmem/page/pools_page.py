"""The page of pools of memory: for each the answer, its regions as rows of chunks, and the text report."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.model.bfc import Allocator, Decision
from gdbmem.model.python import PythonObjects, TypeUse
from gdbmem.page.page import (
    BarPart,
    Cell,
    Keyed,
    Number,
    Page,
    Section,
    bars,
    known_share,
    known_size,
    markup,
    printable_rows,
)
from gdbmem.pools.explanation import headline, pool_name
from gdbmem.pools.output import render_pools
from gdbmem.pools.text import PoolView, print_pool
from gdbmem.python.objects import beside_objects, changes, growth_answer, objects_answer
from gdbmem.terminal.console import make_console
from gdbmem.text import format_delta, format_duration, format_size, plural, printable

_MOST_POOLS = 50


def pools_page(
    allocators: Sequence[Allocator],
    decisions: Sequence[Optional[Decision]],
    notices: Sequence[Notice],
    title: str,
) -> Page:
    """Return the page of *allocators*, each with the outcome of its recorded request, if there is one."""
    page = Page(title=printable(title), notices=[printable(one.message) for one in notices])
    for allocator, decision in list(zip(allocators, decisions))[:_MOST_POOLS]:
        page.sections.append(_section(allocator, decision))
        page.notices += [printable(one.message) for one in allocator.notices]
    page.notices = list(dict.fromkeys(page.notices))
    left_out = len(allocators) - _MOST_POOLS
    if left_out > 0:
        page.notices.append(
            f"the page shows the first {_MOST_POOLS} pools: {left_out} more are in 'gdbmem bfc'"
        )
    return page


def _section(allocator: Allocator, decision: Optional[Decision]) -> Section:
    shown = io.StringIO()
    print_pool(allocator, decision, PoolView(), make_console(shown))
    return Section(
        pool_name(allocator),
        sentence=printable(headline(allocator, decision)),
        numbers=_numbers(allocator, decision),
        picture=markup(render_pools([allocator], [decision], "svg")),
        header=("of the pool", "bytes", "chunks", ""),
        table=printable_rows(_sums(allocator)),
        text=shown.getvalue(),
    )


def _numbers(allocator: Allocator, decision: Optional[Decision]) -> list[Number]:
    """Return the numbers of the sentence about *allocator* that its JSON has, too, in the sentence's order."""
    counted = allocator.counters
    sizes: list[Optional[int]] = [allocator.limit_bytes]
    counts: list[Number] = []
    if allocator.is_complete:
        sizes += [allocator.pool_bytes, allocator.in_use_bytes, allocator.pending_bytes]
        sizes += [allocator.free_bytes, allocator.largest_free_bytes]
        counts.append(Number(f"{allocator.free_count:,} pieces", allocator.free_count))
    else:
        sizes += [counted.pool_bytes, counted.in_use_bytes]
    if decision is not None:
        sizes += [decision.request_bytes, decision.extends_bytes]
        sizes += [] if decision.chunk is None else [allocator.chunks.size[decision.chunk]]
    return [*(Number(format_size(size), size) for size in sizes if size is not None), *counts]


def _sums(allocator: Allocator) -> list[Sequence[Cell]]:
    """Return the sums of *allocator*; of one with missing chunks, what it counted itself."""
    if not allocator.is_complete:
        counted = allocator.counters
        return [
            (name, known_size(size), "", "")
            for name, size in (("all", counted.pool_bytes), ("in use", counted.in_use_bytes))
        ]
    in_use, free = allocator.in_use_count, allocator.free_count
    return [
        ("all", known_size(allocator.pool_bytes), Number(f"{in_use + free:,}", in_use + free), ""),
        ("in use", known_size(allocator.in_use_bytes), Number(f"{in_use:,}", in_use), ""),
        ("free", known_size(allocator.free_bytes), Number(f"{free:,}", free), ""),
        ("largest free", known_size(allocator.largest_free_bytes), "", ""),
    ]


# The page of Python's objects: a bar of the bytes by type, and for two moments the changes.


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
            numbers=_object_numbers(objects),
            rules=[printable(one) for one in rules],
            picture=markup(_bars([objects], ["in live objects"], colors)) if whole else None,
            header=("type", "bytes", "of all", "objects", "mean", ""),
            table=printable_rows(rows),
        )
    ]


def _object_numbers(objects: PythonObjects) -> list[Number]:
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
