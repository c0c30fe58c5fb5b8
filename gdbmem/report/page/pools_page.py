"""The page of pools of memory: for each the answer, its regions as rows of chunks, and the text report."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Optional

from gdbmem.analysis.bfc.explanation import headline, pool_name
from gdbmem.errors import Notice
from gdbmem.model.bfc.pools import Allocator, Decision
from gdbmem.report.bfc.bfc_text import PoolView, print_pool
from gdbmem.report.bfc.pool_map import render_pools
from gdbmem.report.console import make_console
from gdbmem.report.page.page import Cell, Number, Page, Section, known_size, markup, printable_rows
from gdbmem.text import printable
from gdbmem.units import format_size

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
