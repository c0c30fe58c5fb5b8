"""memexplain --malloc-info: malloc's own figures of each arena beside ours, and no trace left in the process."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gdbmem.formats.reports.glibc_malloc import parse_malloc_info
from tests.conftest import Program
from tests.cover import cover
from tests.live.explaining import running
from tests.live.test_memexplain import document, gdb

pytestmark = pytest.mark.needs("gdb")

FILES = "python import os; print('files', sorted(os.listdir(f'/proc/{gdb.selected_inferior().pid}/fd')))"


@pytest.mark.parametrize(
    ("mode", "threads"), cover([("pairs", 2), ("middle", 0)], lambda mode, _: mode == "pairs")
)
def test_each_arena_is_as_malloc_info_has_it_and_the_process_as_it_was(
    program: Program, tmp_path: Path, mode: str, threads: int
) -> None:
    done = gdb(
        tmp_path, program("heap_known"), "break read", f"run {mode} {threads} </dev/zero",
        "up", FILES, "print $xmm0", "print $sp", "memexplain --malloc-info --json -o 1.json",
        "frame", FILES, "print $xmm0", "print $sp",
        "memexplain --malloc-info", "memexplain --mallinfo", "delete", "continue",
    )  # fmt: skip
    assert (tmp_path / "1.json").exists(), done.stderr
    found = document(tmp_path / "1.json")
    assert len(found["arenas"]) == threads + 1
    for sums in (*found["arenas"], found["total"]):
        theirs, ours = sums["malloc_info"], sums["ledger"]
        assert (theirs["fast"], theirs["system_bytes"]) == (ours["fast"], ours["system_bytes"])
        count = ours["rest"]["count"]
        assert theirs["rest"]["count"] == count
        assert 0 <= theirs["rest"]["bytes"] - ours["rest"]["bytes"] <= 7 * count, "flags are added up, too"
    assert found["mmapped"]["malloc_info"] == found["mmapped"]["ledger"]
    assert found["stream_bytes"] > 200
    assert "differ" not in done.stdout
    # The output of the program's own call of malloc_info before gdb stopped it, without the stream's block.
    own = parse_malloc_info(re.findall(r"<malloc.*?</malloc>", done.stdout, re.S)[0])
    for before, sums in zip(own.arenas[1:], found["arenas"][1:]):
        assert before.rest_bytes == sums["malloc_info"]["rest"]["bytes"]
        assert before.fast_count == sums["malloc_info"]["fast"]["count"]
    files = [line for line in done.stdout.splitlines() if line.startswith("files ")]
    values = [line.split(" = ", 1)[1] for line in done.stdout.splitlines() if line.startswith("$")]
    assert (files[0], values[:2]) == (files[1], values[2:])
    assert "\n#1 " in done.stdout
    if not threads:  # gdb 13 alone, too, loses a threaded program's exit now and then
        assert "exited normally" in done.stdout


@pytest.mark.parametrize(
    ("name", "mode", "stop", "reason"),
    [
        ("heap_faults", "locked", "break read", "with an arena locked"),
        ("heap_faults", "handler", "break handling", "in a signal handler"),
        ("vectors_known", "", "break fopen", " is in "),
    ],
)
def test_it_is_refused_where_it_could_hang(
    program: Program, tmp_path: Path, name: str, mode: str, stop: str, reason: str
) -> None:
    words = (f"run {mode} </dev/zero", stop, "handle SIGUSR1 nostop noprint", "continue", FILES)
    done = gdb(tmp_path, program(name), "break main", *words, "memexplain --malloc-info", FILES)
    assert reason in done.stderr, done.stdout
    assert "fastbins" not in done.stdout
    first, second = (line for line in done.stdout.splitlines() if line.startswith("files "))
    assert first == second


def test_in_a_core_and_beside_what_it_would_leave_unheard_it_is_refused(
    program: Program, tmp_path: Path
) -> None:
    with running([program("heap_known"), "none"]) as target:
        subprocess.run(["gcore", "-o", tmp_path / "core", str(target.pid)], capture_output=True, check=True)
        core = tmp_path / f"core.{target.pid}"
    words = (f"core {core}", "memexplain --malloc-info", "memexplain --malloc-info --sizes")
    done = gdb(tmp_path, program("heap_known"), *words, "memexplain --mallinfo --malloc-info")
    assert "a core can't run malloc_info" in done.stderr
    assert "--malloc-info can't be shown together with --sizes" in done.stderr
    assert "--mallinfo can't be shown together with --malloc-info" in done.stderr


def test_where_no_file_can_be_opened_nothing_is_left_behind(program: Program, tmp_path: Path) -> None:
    limit = "python import resource as r; r.prlimit(gdb.selected_inferior().pid, r.RLIMIT_NOFILE, (3, 4096))"
    done = gdb(
        tmp_path, program("heap_known"), "break read", "run none 0 </dev/zero", FILES,
        limit, "memexplain --malloc-info", FILES,
    )  # fmt: skip
    assert "can't create a file in memory" in done.stderr, done.stdout
    first, second = (line for line in done.stdout.splitlines() if line.startswith("files "))
    assert first == second
