"""Tab after a command's options: the options, what an option takes, and gdb's own words after them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Callable

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.needs("gdb", "gcc")]

LOAD = (
    f"python import sys; sys.path.insert(0, {str(ROOT)!r}); import gdbmem.debugger; gdbmem.debugger.install()"
)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("membreak --ev", "membreak --every"),
        ("membreak --every 5 all_th", "membreak --every 5 all_there"),
        ("membreak all_th", "membreak all_there"),
        ("massif-diff --by li", "massif-diff --by line"),
        ("memwatch growth --ab", "memwatch growth --above"),
        ("memwatch function --calls 3 all_th", "memwatch function --calls 3 all_there"),
        ("memexplain --si", "memexplain --since"),
        ("memcontainers --every", "memcontainers --everywhere"),
    ],
)
def test_tab_completes_options_and_what_stands_behind_them(
    program: Callable[..., Path], typed: str, offered: str
) -> None:
    words = [
        "gdb",
        "-nx",
        "-q",
        "-batch",
        "-ex",
        LOAD,
        "-ex",
        f"complete {typed}",
        str(program("many_stacks")),
    ]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert offered in ended.stdout.splitlines(), ended.stderr
