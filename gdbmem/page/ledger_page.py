"""The page of a ledger: one bar that adds up to the resident set, the remedies, the map of the heap."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from gdbmem.ledger import text
from gdbmem.ledger.answer import DAMAGES, answer_ledger, doubt_of
from gdbmem.ledger.heap_map import render_svg
from gdbmem.ledger.remedies import gain_text
from gdbmem.model.heap_blocks import HeapMap
from gdbmem.model.ledger import (
    FREE_CHUNKS,
    FREE_IN_POOLS,
    FREE_POOLS,
    HEADERS,
    INTERNAL_WASTE,
    LIVE,
    Entry,
    Ledger,
)
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
from gdbmem.text import format_delta, format_size, printable

if TYPE_CHECKING:
    from markupsafe import Markup

_MOST_MAPPINGS = 30
_MOST_LEDGERS_NOTICES = 50
# By the beginning of a category; dark enough for a white page and light enough for a dark one.
_COLORS = (
    ("heap.live", "#2f6fb7"), ("arena.live", "#5b93cf"),
    ("heap.metadata", "#7d8b99"), ("arena.metadata", "#9aa5b1"),
    ("heap.mmapped", "#20808d"),
    ("heap.free.releasable", "#4ca65b"), ("arena.free.releasable", "#7cc088"),
    ("heap.free.pinned", "#e07b39"), ("arena.free.pinned", "#eaa577"),
    ("heap.free.cached", "#8e6bbf"), ("arena.free.cached", "#b39ad6"),
    ("stack", "#b8960b"), ("file.code", "#6d7278"), ("file", "#94999e"),
    ("shared", "#c2577f"), ("device", "#555b61"),
    ("allocator", "#13766f"), ("anonymous.lazyfree", "#9ac26a"), ("anonymous.named", "#a0604f"),
)  # fmt: skip
_OTHER = "#c24b3a"
_PARTS = {  # of allocators with divided entries
    LIVE: "#13766f", HEADERS: "#7fa8a4", FREE_IN_POOLS: "#d9a05b", FREE_POOLS: "#a8cfa0",
    INTERNAL_WASTE: "#9b8f6a", FREE_CHUNKS: "#7cc0a8",
}  # fmt: skip


def ledger_page(ledger: Ledger, heap: Optional[HeapMap]) -> Page:
    """Return the page of *ledger*, with a map of its heap if there is one."""
    page = Page(title=_title(ledger), facts=_facts(ledger))
    title = "Resident memory" if ledger.pid is not None else "Memory in the core"
    page.sections = ledger_sections(ledger, heap, title=title)
    said = answer_ledger(ledger)
    page.notices = [printable(one.message) for one in ledger.notices if one.message not in said]
    return page


def ledger_growth_page(ledgers: Sequence[Ledger], names: Sequence[str]) -> Page:
    """Return the page of two or more ledgers: the change from the first to the last, then all of the last."""
    first, last = ledgers[0], ledgers[-1]
    page = Page(title=printable(f"{names[0]} → {names[-1]}"), facts=_facts(last))
    rows: list[Sequence[Cell]] = [
        (
            Keyed(key[0], _color(*key)),
            Number(format_delta(new - old), new - old),
            known_size(old),
            known_size(new),
            text.what_grew(*key),
        )
        for key, old, new in text.growth(first, last)
    ]
    page.sections.append(
        Section(
            "What changed",
            sentence=text.growth_sentence(first, last, (names[0], names[-1])),
            value=last.rss_bytes - first.rss_bytes,
            numbers=[
                Number(format_delta(new - old), new - old) for _, old, new in text.growth(first, last)[:1]
            ],
            picture=_bars(ledgers, names),
            header=("entry", "change", "before", "after", "what"),
            table=printable_rows(rows),
        )
    )
    page.sections += ledger_sections(last, None, title=f"Resident memory in {names[-1]}")
    said = [printable(notice.message) for ledger in (first, last) for notice in ledger.notices]
    page.notices = list(dict.fromkeys(said))[:_MOST_LEDGERS_NOTICES]
    return page


def ledger_sections(ledger: Ledger, heap: Optional[HeapMap] = None, *, title: str) -> list[Section]:
    """Return the sections of *ledger*: the sentence and the bar first."""
    found = [
        Section(
            printable(title),
            sentence=answer_ledger(ledger),
            value=ledger.rss_bytes,
            numbers=_numbers(ledger),
            rules=[printable(one) for one in text.beside(ledger)],
            picture=_bars([ledger], [ledger.program]),
            header=("entry", _noun(ledger), "of all", "what"),
            table=_entries(ledger),
        )
    ]
    if ledger.remedies:
        found.append(_remedies(ledger))
    if heap is not None:
        picture = render_svg(heap, ledger.program)
        found.append(Section("The heap, page by page", picture=markup(picture)))
    if ledger.heap is not None and ledger.heap.arenas:
        found.append(_arenas(ledger))
    if ledger.heap is not None and ledger.heap.sizes:
        found.append(_sizes(ledger))
    return [*found, _mappings(ledger)] if ledger.shares else found


def _numbers(ledger: Ledger) -> list[Number]:
    """Return the resident set and what remedies return, as the sentence may name them."""
    sizes = [ledger.rss_bytes, *(one.predicted_bytes for one in ledger.remedies if one.predicted_bytes)]
    return [Number(format_size(size), size) for size in dict.fromkeys(sizes)]


def _title(ledger: Ledger) -> str:
    pid = f" {ledger.pid}" if ledger.pid is not None else ""
    return printable(f"{os.path.basename(ledger.program) or 'process'}{pid}")  # noqa: PTH119  (a stranger's text)


def _facts(ledger: Ledger) -> list[tuple[str, str]]:
    heap = ledger.heap
    found = [
        ("program", printable(ledger.program)),
        ("process", "" if ledger.pid is None else str(ledger.pid)),
        ("malloc's structures by", "" if heap is None else printable(heap.source)),
        (
            "malloc's blocks",
            "" if heap is None else "counted exactly" if heap.is_exact else "not all counted",
        ),
    ]
    return [(name, value) for name, value in found if value]


def _bars(ledgers: Sequence[Ledger], names: Sequence[str]) -> Optional[Markup]:
    rows = [
        (f"{_noun(ledger)}, {name}" if len(ledgers) == 1 else str(name), _parts(ledger))
        for ledger, name in zip(ledgers, names)
    ]
    if not any(ledger.rss_bytes for ledger in ledgers):
        return None
    return markup(bars(rows, "the resident set, divided"))


def _noun(ledger: Ledger) -> str:
    """Return the noun for the bytes of *ledger*: a core has no process, and no resident set."""
    return "resident" if ledger.pid is not None else "in the core"


def _parts(ledger: Ledger) -> list[BarPart]:
    """Return the entries by category: further arenas, and mappings of one kind, are one part each."""
    sums: dict[tuple[str, str], int] = {}
    for entry in ledger.entries:
        key = _name(entry), _color(*entry.key)
        sums[key] = sums.get(key, 0) + entry.resident_bytes
    return [BarPart(name, size, color) for (name, color), size in sums.items()]


def _name(entry: Entry) -> str:
    is_divided = entry.category.startswith("allocator.") and entry.label
    return f"{entry.category}, {entry.label}" if is_divided else entry.category


def _color(category: str, label: str) -> str:
    if label in _PARTS and category.startswith("allocator."):
        return _PARTS[label]
    return next((color for start, color in _COLORS if category.startswith(start)), _OTHER)


def _entries(ledger: Ledger) -> list[list[Cell]]:
    is_sound = doubt_of(ledger, DAMAGES) is None
    rows = [
        (
            Keyed(entry.category, _color(*entry.key)),
            known_size(entry.resident_bytes),
            known_share(entry.resident_bytes, ledger.rss_bytes),
            text.what_holds(entry, is_sound=is_sound),
        )
        for entry in text.folded_entries(ledger)
    ]
    return printable_rows(
        [*rows, ("total", known_size(ledger.rss_bytes), known_share(ledger.rss_bytes, ledger.rss_bytes), "")]
    )


def _remedies(ledger: Ledger) -> Section:
    rows = [
        (
            remedy.setting,
            Number(gain_text(remedy), remedy.high_bytes if remedy.predicted_bytes is None else remedy.predicted_bytes),
            remedy.cost,
        )
        for remedy in ledger.remedies
    ]  # fmt: skip
    rule = (
        "Simulated on the heap as it was. Those that begin with glibc. are set by GLIBC_TUNABLES=REMEDY when the"
        " program starts; 'gdbmem compare --remedies -- PROGRAM' measures them."
    )
    header = ("remedy", "would return", "what it costs")
    return Section("What would return memory", rules=[rule], header=header, table=printable_rows(rows))


def _arenas(ledger: Ledger) -> Section:
    assert ledger.heap is not None
    rows = [
        (
            f"arena {one.number}",
            known_size(one.live_bytes),
            Number(f"{one.live_chunks:,}", one.live_chunks),
            known_size(one.free_bytes),
            known_size(one.cached_bytes),
            known_size(one.top_bytes),
            known_size(one.system_bytes),
            ", ".join(map(str, one.threads)),
        )
        for one in ledger.heap.arenas
    ]
    header = ("", "live", "blocks", "free", "cached", "top", "from the system", "threads")
    rule = "Bytes of blocks, resident or not."
    return Section("Arenas", rules=[rule], header=header, table=printable_rows(rows))


def _sizes(ledger: Ledger) -> Section:
    assert ledger.heap is not None
    shown = text.heaviest(ledger.heap.sizes)
    rows = [
        (
            f"{one.size_bytes - 8:,}",
            Number(f"{one.live:,}", one.live),
            known_size(one.live * one.size_bytes),
            Number(f"{one.free:,}", one.free),
            known_size(one.free * one.size_bytes),
            known_size(round(one.pinned_bytes)),
            "",
        )
        for one in shown
    ]
    rule = "Usable bytes of a block; the last column is the free memory that live ones pin."
    if len(shown) < len(ledger.heap.sizes):
        rule += f" The {len(shown)} of {len(ledger.heap.sizes):,} sizes that hold most."
    header = ("block size", "live", "bytes", "free", "bytes", "pinned", "")
    return Section("Blocks by size", rules=[rule], header=header, table=printable_rows(rows))


def _mappings(ledger: Ledger) -> Section:
    shares = sorted((one for one in ledger.shares if one.rss_bytes), key=lambda one: -one.rss_bytes)
    rows = [
        (
            f"{one.start:x}-{one.end:x}",
            known_size(one.rss_bytes),
            known_size(one.end - one.start),
            one.name or "anonymous",
        )
        for one in shares[:_MOST_MAPPINGS]
    ]
    rest = shares[_MOST_MAPPINGS:]
    if rest:
        size = sum(one.rss_bytes for one in rest)
        mapped = sum(one.end - one.start for one in rest)
        rows.append((f"{len(rest):,} further ones", known_size(size), known_size(mapped), ""))
    header = ("mapping", _noun(ledger), "address space", "of")
    return Section("Mappings", header=header, table=printable_rows(rows))
