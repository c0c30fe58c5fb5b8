"""What the how-to pages show is what comes when it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.libraries import needs_library
from tests.transcripts import PAGES, ROOT, Block, blocks, check, differences


@pytest.mark.thorough
@pytest.mark.needs("gdb", "valgrind", "vgdb", "gcc", "make")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_a_reader_who_types_a_page_sees_what_it_shows(page: Path) -> None:
    needs_library("jemalloc")
    assert check(page, write=False) == 0


@pytest.mark.parametrize(
    ("came", "is_same"),
    [
        ("$ x\nmassif.1.9.out 12 ms at 0x12345\nend\n", True),
        ("$ x\nmassif.1.9.out 12 ms at 0x12345\nmore\nend\n", False),
        ("$ x\nmemcheck.1.9.out 12 ms at 0x12345\nend\n", False),
    ],
)
def test_only_numbers_that_vary_may_differ_from_a_page(came: str, is_same: bool) -> None:
    page = ROOT / "docs" / "how-to" / "running-process.md"
    text = "$ x\nmassif.1.4711.out  7.5 s at 0x7fff1234\nend\n"
    block = Block(page, "examples/how-to", "", "", text, False, False, 0, 0)
    assert (differences(block, came, Path("/nowhere")) == []) == is_same
