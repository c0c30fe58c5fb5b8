"""The map of a heap: its cells add up to the heap, it stays small, and a stranger's name is only a name."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from gdbmem.allocators.glibc import heap as glibc_heap
from gdbmem.allocators.glibc.arenas import ArenaState, MmappedChunk
from gdbmem.allocators.glibc.caches import Caches
from gdbmem.allocators.glibc.heap import ArenaReading, HeapReading
from gdbmem.allocators.glibc.tallies import FASTBIN, FREE, LIVE, TCACHE, HeapTally, trim_range
from gdbmem.errors import UsageError
from gdbmem.ledger.heap_map import map_heap, render_html, render_map, render_svg
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model.heap_blocks import PARTS, HeapMap, MapRegion
from gdbmem.terminal.console import picture_kind
from tests.unit.heaps import make_heap

EVIL = "</title><script>alert(1)</script><svg onload='x'>&\x1b[31m"


def reading() -> tuple[HeapReading, HeapTally]:
    heap = make_heap(4000, 5)
    tally = HeapTally(heap.start, heap.end)
    glibc_heap.walk(heap.memory, tally, heap.top, heap.cached)
    tally.add_top(heap.top, heap.end)
    arena = ArenaReading(ArenaState(0, 0x1000, heap.top, 0, 0, locked=False, fastbins=()))
    arena.tallies, arena.releasable = [tally], [trim_range(*run) for run in tally.runs]
    found = HeapReading(None, None, Caches())  # type: ignore[arg-type]
    found.arenas = [arena]
    found.mmapped = [
        MmappedChunk(0x7F0000000000, 0x7F0000003000),
        MmappedChunk(0x7F0000010000, 0x7F0000011000),
    ]
    return found, tally


@pytest.mark.parametrize("most_cells", [10, 100, 20_000])
def test_the_cells_add_up_to_what_the_walk_found_whatever_their_size(most_cells: int) -> None:
    heap, tally = reading()
    everything = Ranges([(0, 1 << 47)])
    drawn = map_heap(heap, everything, most_cells=most_cells)
    live, cached, pinned, releasable, absent = drawn.totals()
    assert live == tally.bytes[LIVE] + 0x4000
    assert cached + pinned + releasable == tally.bytes[FREE] + tally.bytes[TCACHE] + tally.bytes[FASTBIN]
    assert releasable == sum(high - low for low, high in heap.arenas[0].releasable)
    assert absent == 0
    assert sum(len(region.cells) for region in drawn.regions) <= 2 * most_cells + 4
    for region in drawn.regions:
        assert all(sum(cell) <= drawn.cell_bytes for cell in region.cells)


def test_pages_that_are_not_in_memory_are_absent_not_free() -> None:
    heap, tally = reading()
    middle = (tally.start + tally.end) // 2 & -4096
    drawn = map_heap(heap, Ranges([(0, middle)]))
    assert drawn.totals()[PARTS.index("absent")] == tally.end - middle + 0x4000
    assert sum(drawn.totals()) == tally.end - tally.start + 0x4000


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.island = ""
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside = dict(attrs).get("id") == "data"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.island += data
            self._inside = False


def a_map(name: str = "main heap", cells: int = 3) -> HeapMap:
    return HeapMap(4096, [MapRegion(name, 0x1000, 0x1000 + 4096 * cells, [[96, 0, 4000, 0, 0]] * cells)])


def test_the_page_holds_the_cells_and_a_strangers_name_only_as_text() -> None:
    text = render_html(a_map(EVIL), EVIL)
    page = Page(text)
    assert page.tags.count("script") == 2
    assert "svg" not in page.tags
    assert "\x1b" not in text
    data = json.loads(page.island)
    assert data["regions"][0]["cells"] == [96, 0, 4000, 0, 0] * 3
    assert data["regions"][0]["name"].startswith(EVIL.partition("\x1b")[0])
    assert not re.search(r"https?:|src=|url\(", text), "nothing is fetched"


def test_the_svg_is_well_formed_and_a_strangers_name_only_text() -> None:
    root = ElementTree.fromstring(render_svg(a_map(EVIL), EVIL))
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names == {"svg", "text", "rect", "g", "title"}
    tips = [element.text for element in root.iter() if element.tag.endswith("title")]
    assert tips[1] == "0x2000: 96 B live, 3.9 KiB pinned"


def test_a_picture_of_a_very_large_heap_stays_small() -> None:
    large = a_map(cells=20_000)
    assert len(render_svg(large, "x")) < 1_500_000
    assert len(render_html(large, "x")) < 1_000_000


def test_another_kind_of_picture_is_refused() -> None:
    assert [picture_kind(name, "--map") for name in ("a.svg", "b.HTML", "c.htm")] == ["svg", "html", "html"]
    assert render_map(a_map(), "x", "svg").startswith("<svg")
    with pytest.raises(UsageError, match=r"not 'a\.png'"):
        picture_kind("a.png", "--map")
