"""memexplain --map: the picture holds the bytes that the ledger counts."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.conftest import Program
from tests.cover import cover
from tests.live.explaining import running
from tests.live.test_memexplain import gdb
from tests.live.user import GDBMEM, shell

pytestmark = pytest.mark.needs("gdb", "g++")


def parts(page: Path) -> list[int]:
    """Return the bytes of each part, over all cells."""
    found = re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    sums = [0] * 5
    for region in json.loads(found[1])["regions"]:
        for number, size in enumerate(region["cells"]):
            sums[number % 5] += size
    return sums


def entries(document: dict[str, Any], *categories: str) -> int:
    return sum(e["resident_bytes"] for e in document["entries"] if e["category"] in categories)


@pytest.mark.parametrize("python", cover([None, ""], lambda python: python is None), ids=["worker", "gdb"])
def test_the_parts_of_the_picture_are_the_entries_of_the_ledger(
    python: Optional[str], program: Program, tmp_path: Path
) -> None:
    done = gdb(
        tmp_path, program("keeps_half"), "break holed", "run",
        "memexplain --map heap.html --json -o 1.json", "memexplain --map heap.svg", "memexplain --map heap.html",
        "memexplain --map heap.png", "memexplain --html page.html --json -o 2.json", "memexplain --html page.html",
        environment={"GDBMEM_PYTHON": sys.executable if python is None else python},
    )  # fmt: skip
    assert (tmp_path / "1.json").exists(), done.stderr
    document = json.loads((tmp_path / "1.json").read_text())
    live, cached, pinned, releasable, _ = parts(tmp_path / "heap.html")
    assert (
        live
        == entries(document, "heap.live", "heap.mmapped") + 8 * document["heap"]["arenas"][0]["live_chunks"]
    )
    assert cached == entries(document, "heap.free.cached")
    assert pinned == entries(document, "heap.free.pinned") > 4 << 20
    assert releasable == entries(document, "heap.free.releasable")
    assert (tmp_path / "heap.svg").read_text().startswith("<svg")
    if python is None:
        page = (tmp_path / "page.html").read_text()
        rss = json.loads((tmp_path / "2.json").read_text())["rss_bytes"]
        assert f'data-value="{rss}"' in page and 'class="heap"' in page
        assert "page.html exists" in done.stderr
    else:
        assert "a page needs the Python that gdbmem was installed into" in done.stderr
    assert "heap.html exists" in done.stderr and "--map makes .svg and .html, not 'heap.png'" in done.stderr


def test_the_shell_command_draws_it_too_of_a_copy_and_makes_a_page_that_adds_up(
    program: Program, tmp_path: Path
) -> None:
    page, whole = tmp_path / "heap.html", tmp_path / "whole.html"
    with running([program("block_types"), "wait"]) as process:
        words = [GDBMEM, "explain", str(process.pid), "--fork", "--json", "--map", str(page)]
        words += ["--html", str(whole)]
        done = shell(*words)
    assert done.returncode == 0, done.stderr
    bar = re.search(r'<svg [^>]*class="bars".*?</svg>', whole.read_text(), re.DOTALL)
    assert bar is not None
    sizes = [int(size) for size in re.findall(r'<rect [^>]*data-value="(\d+)"', bar[0])]
    assert sum(sizes) == json.loads(done.stdout)["rss_bytes"]
    assert parts(page)[1] == entries(json.loads(done.stdout), "heap.free.cached")
