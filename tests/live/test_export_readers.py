"""What gdbmem exports, opened by the tools that it is meant for."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.live.user import GDBMEM, environment

STACKS = Path(__file__).parents[1] / "captures" / "stacks"
needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="go (a large package) is not here")

pytestmark = pytest.mark.usefixtures("no_process_left")


def export(kind: str, target: Path, *operands: str) -> Path:
    words = [GDBMEM, "export", "--to", kind, "-o", str(target), *(str(STACKS / name) for name in operands)]
    subprocess.run(words, env=environment(), check=True, capture_output=True)
    return target


def shown(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.needs("ms_print")
@pytest.mark.parametrize(("name", "total"), [("dhat.json", "25,000"), ("many.0001.heap.gz", "155,643")])
def test_ms_print_opens_a_snapshot_of_any_format(tmp_path: Path, name: str, total: str) -> None:
    text = shown("ms_print", str(export("massif", tmp_path / "out.massif", name)))
    assert f"({total}B) (heap allocation functions)" in text


@needs_go
@pytest.mark.parametrize(
    ("name", "total"), [("dhat.json", 25_000), ("xtree.kcg", 25_000), ("ht.zst", 29_129)]
)
def test_go_tool_pprof_opens_a_snapshot_of_any_format(tmp_path: Path, name: str, total: int) -> None:
    text = shown("go", "tool", "pprof", "-top", "-unit=B", str(export("pprof", tmp_path / "out.pb.gz", name)))
    assert f"of {total}B total" in text
    assert re.search(r"^ +0 +0% .* main$", text, re.M)


@needs_go
def test_go_tool_pprof_shows_what_shrank_as_negative(tmp_path: Path) -> None:
    file = export("pprof", tmp_path / "out.pb.gz", "tc.0002.heap", "tc.0001.heap")
    text = shown("go", "tool", "pprof", "-top", "-unit=B", "-nodefraction=0", str(file))
    sizes = [int(size) for size in re.findall(r"^ *(-?\d+)B? +-?[\d.]+%", text, re.M)]
    assert sum(sizes) == -42_300
