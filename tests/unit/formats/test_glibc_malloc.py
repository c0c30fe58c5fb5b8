"""The output of malloc_info: read in full, refused if it was cut; and each difference to the ledger has its reason."""

from __future__ import annotations

import pytest

from gdbmem.errors import InputError
from gdbmem.formats.reports.glibc_malloc import MallocInfo, MallocInfoSums, parse_malloc_info
from gdbmem.ledger.malloc_info import explained
from gdbmem.model.ledger import Arena, Heap, Ledger

# gdb's Debian 12, glibc 2.36: `call (int)malloc_info(0, stdout)` in a program with two arenas.
WRITTEN = """<malloc version="1">
<heap nr="0">
<sizes>
</sizes>
<total type="fast" count="0" size="0"/>
<total type="rest" count="1" size="133936"/>
<system type="current" size="135168"/>
<system type="max" size="135168"/>
<aspace type="total" size="135168"/>
<aspace type="mprotect" size="135168"/>
</heap>
<heap nr="1">
<sizes>
  <size from="17" to="32" total="26528" count="829"/>
  <unsorted from="145" to="22465" total="1867166" count="4142"/>
</sizes>
<total type="fast" count="3945" size="300832"/>
<total type="rest" count="4143" size="1869646"/>
<system type="current" size="3874816"/>
<system type="max" size="3874816"/>
<aspace type="total" size="3874816"/>
<aspace type="mprotect" size="3874816"/>
<aspace type="subheaps" size="1"/>
</heap>
<total type="fast" count="3945" size="300832"/>
<total type="rest" count="4144" size="2003582"/>
<total type="mmap" count="2" size="327680"/>
<system type="current" size="4009984"/>
<system type="max" size="4009984"/>
<aspace type="total" size="4009984"/>
<aspace type="mprotect" size="4009984"/>
</malloc>
"""


def test_the_sums_of_each_arena_and_of_all_are_read() -> None:
    assert parse_malloc_info(WRITTEN) == MallocInfo(
        [MallocInfoSums(0, 0, 1, 133936, 135168), MallocInfoSums(3945, 300832, 4143, 1869646, 3874816)],
        MallocInfoSums(3945, 300832, 4144, 2003582, 4009984),
        2,
        327680,
    )


# glibc 2.43, which has no fastbins.
WITHOUT_FASTBINS = """<malloc version="1">
<heap nr="0">
<sizes>
  <size from="2017" to="2017" total="2017" count="1"/>
  <size from="3009" to="3009" total="3009" count="1"/>
</sizes>
<total type="rest" count="3" size="125698"/>
<system type="current" size="135168"/>
<system type="max" size="135168"/>
<aspace type="total" size="135168"/>
<aspace type="mprotect" size="135168"/>
</heap>
<total type="rest" count="3" size="125698"/>
<total type="mmap" count="1" size="1052672"/>
<system type="current" size="135168"/>
<system type="max" size="135168"/>
<aspace type="total" size="135168"/>
<aspace type="mprotect" size="135168"/>
</malloc>
"""


def test_a_malloc_without_fastbins_has_none_of_their_blocks() -> None:
    sums = MallocInfoSums(0, 0, 3, 125698, 135168)
    assert parse_malloc_info(WITHOUT_FASTBINS) == MallocInfo([sums], sums, 1, 1052672)


def test_what_was_cut_anywhere_is_no_number() -> None:
    lines = WRITTEN.splitlines(keepends=True)
    for count in range(len(lines)):
        with pytest.raises(InputError, match="can't be read"):
            parse_malloc_info("".join(lines[:count]))
        if lines[count].startswith(('<total type="rest"', '<total type="mmap"')) and count > len(lines) - 9:
            with pytest.raises(InputError, match="can't be read"):
                parse_malloc_info("".join(lines[:count] + lines[count + 1 :]))


def said(theirs: MallocInfoSums) -> list[str]:
    arena = Arena(0, 1, 0, 0, 5000, 10, 0, 0, 3000, 9000, 0)
    heap = Heap([arena], (), 0, 0, 0, 0, 0, 0, True, "layouts")
    ledger = Ledger("prog", 1, 0, (), (), 0, heap=heap)
    return [text for text in explained(MallocInfo([theirs], theirs, 0, 0), ledger, 472) if "Arena" in text]


def test_each_difference_has_its_own_reason() -> None:
    same = MallocInfoSums(0, 0, 10, 5000, 9000)
    assert said(same) == []
    assert (
        "flags in their lowest bits, which makes 9 bytes too many" in said(same._replace(rest_bytes=5009))[0]
    )
    assert "leaves out its end, 3,000 bytes" in said(same._replace(rest_count=9, rest_bytes=2000))[0]
    assert said(same._replace(rest_bytes=6000, rest_count=11)) == [
        "Arena 0 differs: malloc_info counts 0 + 11 free blocks, gdbmem 0 + 10."
    ]
