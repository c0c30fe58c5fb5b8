"""memwatch's steps: exact, as gdb's own, and gdb left as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.memwatching import line_of, run_gdb, steps

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


def at(text: str) -> int:
    return line_of("touches_pages.c", text)


def test_finish_advance_and_until_mean_what_gdb_means_by_them(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("touches_pages"),
        [
            f"break note if line == {at('touch(83, 1000)')}",
            "run",
            "up",
            "memwatch finish --json -o finish.json",
            "frame",
            "tbreak work",
            "continue",
            f"memwatch advance --json -o advance.json {at('touch(83, 1000)') - 1}",
            f"memwatch until --json -o until.json {at('touch(83, 1000)') + 2}",
        ],
        folder=scratch,
    )
    # `finish` in the caller's frame, which `up` selected, leaves the caller.
    (finished,) = steps(scratch, "finish.json")
    assert finished["function"] == "note"
    assert "in main () at" in said.output or "#0  main () at" in said.output
    (advanced,) = steps(scratch, "advance.json")
    assert advanced["delta_bytes"] // PAGE in range(83, 95) and advanced["line"] == line_of(
        "touches_pages.c", "touch(0, 1)"
    )
    (ran,) = steps(scratch, "until.json")
    assert ran["delta_bytes"] == 1000 * PAGE


def test_a_single_step_states_what_the_change_is_made_of(program: Program, scratch: Path) -> None:
    run_gdb(
        program("touches_pages"),
        ["break work if round == 1", "run", "memwatch next 4", "memwatch next --json -o steps.json"],
        folder=scratch,
    )
    (step,) = steps(scratch)
    assert step["parts"] == {"mmap": 16 * PAGE} and step["heap_delta_bytes"] == 0
    assert step["total_bytes"] == 19 * PAGE


def test_a_kernel_whose_statm_is_not_exact_is_read_through_smaps(
    program: Program, scratch: Path, own_cache: Path
) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    own_cache.mkdir(parents=True)
    (own_cache / f"kernel-{boot}").write_text("63 1\n")
    said = run_gdb(
        program("touches_pages"),
        [
            "break work if round == 1",
            "run",
            "memwatch sources",
            "memwatch next --json -o steps.json 3",
            "memwatch next --source statm",
        ],
        folder=scratch,
    )
    assert {step["source"] for step in steps(scratch)} == {"smaps"}
    assert "off by up to 63 pages" in said.output and "memwatch uses smaps here, exact" in said.output
    assert "[source statm, not exact on this kernel]" in said.output
