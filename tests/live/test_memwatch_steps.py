"""memwatch's steps: exact, as gdb's own, and gdb left as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.memwatching import run_gdb, steps

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
PAGE = 4096


def pages_by_line(folder: Path) -> dict[int, int]:
    return {s["line"]: s["delta_bytes"] // PAGE for s in steps(folder) if s["function"] == "work"}


@pytest.mark.parametrize("source", ["auto", "smaps", "pagemap"])
def test_every_line_is_charged_exactly_the_pages_that_the_program_itself_counts(
    program: Program, scratch: Path, source: str
) -> None:
    said = run_gdb(
        program("touches_pages"),
        [
            "break work if round == 1",
            "run",
            "delete",
            f"memwatch next --source {source} --json -o steps.json 21",
            "continue",
        ],
        folder=scratch,
    )
    rows = [line.split() for line in said.output.splitlines()]
    counted = {int(row[0]): int(row[1]) for row in rows if len(row) == 2 and row[0].isdigit()}
    assert len(counted) == 10
    measured = pages_by_line(scratch)
    assert {line: measured[line] for line in counted} == counted
