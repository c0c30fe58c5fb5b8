"""A gate passes no file that lacks bytes: cut anywhere, `gdbmem diff --fail-on` does not return 0."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gdbmem.api.profiles import diff, read_snapshot
from gdbmem.api.runs import judge_growth
from gdbmem.cli.main import main
from gdbmem.errors import GdbmemError
from gdbmem.model.judgement import NOT_JUDGED
from gdbmem.profiles.paths import Query
from tests.unit.stack_files import capture

CUTS = 12  # of each file

FOLDED = b"".join(b"main;f%d;g 1000\n" % number for number in range(40))
LEAK = b"""==7== 3,145,728 bytes in 3 blocks are definitely lost in loss record 2 of 2
==7==    at 0x109170: lose (lost.c:5)
==7==    by 0x1091F8: main (lost.c:9)
==7==
"""
SUMS = b"""==7== LEAK SUMMARY:
==7==    definitely lost: 3,145,728 bytes in 3 blocks
==7==    indirectly lost: 0 bytes in 0 blocks
==7==      possibly lost: 0 bytes in 0 blocks
==7==    still reachable: 1,000 bytes in 1 blocks
==7==         suppressed: 0 bytes in 0 blocks
"""
SMALL = b"==7== 1,000 bytes in 1 blocks are definitely lost in loss record 1 of 2\n==7==    at 0x109156: f (a.c:4)\n"
LIST = b"""==7== 3,145,728 (16 direct, 3,145,712 indirect) bytes in 1 blocks are definitely lost in loss record 1 of 2
==7==    at 0x109170: push (list.c:5)
"""
LIST_SUMS = b"""==7== LEAK SUMMARY:
==7==    definitely lost: 16 bytes in 1 blocks
==7==    indirectly lost: 3,145,712 bytes in 3 blocks
==7==      possibly lost: 0 bytes in 0 blocks
==7==    still reachable: 1,000 bytes in 1 blocks
==7==         suppressed: 0 bytes in 0 blocks
"""
CLEAN = b"==8== Command: ./parent\n==8== All heap blocks were freed -- no leaks are possible\n"


@pytest.mark.parametrize(
    "name",
    ["exact-first.jeheap", "sampled-first.jeheap", "lost.kcg", "lost.log", "../memcheck/lost.xml",
     "go1.txt", "go1.callgrind", "tc.0001.heap", "samples.heap.gz", "folded"],
)  # fmt: skip
def test_a_file_cut_anywhere_passes_no_gate_if_it_lost_bytes(name: str, tmp_path: Path) -> None:
    data = FOLDED if name == "folded" else capture(name)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.write_bytes(data)
    lost = 0
    for number in range(1, CUTS):
        end = data.rindex(b" ", 0, number * len(data) // CUTS)
        cut.write_bytes(data[:end])
        try:
            found = diff(read_snapshot(whole), read_snapshot(cut))
        except GdbmemError:
            continue
        if found.delta_bytes < 0:
            lost += 1
            assert judge_growth(found, Query(), 0).judged == NOT_JUDGED, end
    assert lost or name in ("tc.0001.heap", "exact-first.jeheap"), "their first lines count all"


@pytest.mark.parametrize("data", [FOLDED * 1000, capture("ht.zst")], ids=["folded", "heaptrack"])
def test_a_packed_file_cut_at_the_end_of_a_line_passes_no_gate(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = gzip.compress(data, 0)
    (tmp_path / "whole.gz").write_bytes(gzip.compress(FOLDED * 1000))
    end = packed.index(b"\n", len(packed) // 2) + 1
    (tmp_path / "cut.gz").write_bytes(packed[:end])
    words = ["diff", str(tmp_path / "whole.gz"), str(tmp_path / "cut.gz"), "--fail-on", "0"]
    assert main(words) == 125
    assert "ends early: its last part is missing" in capsys.readouterr().err


def test_blocks_of_two_kinds_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lost.log").write_bytes(CLEAN)
    (tmp_path / "held.log").write_bytes(SUMS.replace(b"definitely lost", b"bogus"))
    words = ["diff", str(tmp_path / "lost.log"), str(tmp_path / "held.log"), "--fail-on", "64KiB"]
    assert main(words) == 125
    assert "counts lost, " in capsys.readouterr().err and "held.log" in words[2]


@pytest.mark.parametrize(
    ("log", "status", "said"),
    [
        pytest.param(SMALL + LEAK + SUMS, 4, "grew by 3.0 MiB", id="whole"),
        pytest.param(SMALL + LEAK, 4, "grew by 3.0 MiB", id="valgrind -q"),
        pytest.param(
            LIST + LIST_SUMS, 4, "grew by 3.0 MiB", id="a list of which only the first block is lost directly"
        ),
        pytest.param(LIST_SUMS, 4, "grew by 3.0 MiB", id="the sums of such a list"),
        pytest.param(
            LIST.replace(b"1 of 2", b"2 of 2"), 4, "grew by 3.0 MiB", id="such a list with valgrind -q"
        ),
        pytest.param(SMALL, 125, "records or sums may be missing", id="cut before a record"),
        pytest.param(SMALL + SUMS[-150:], 125, "records or sums may be missing", id="written over"),
        pytest.param(LEAK + SUMS + CLEAN, 4, "grew by 3.0 MiB", id="the leak of a child"),
        pytest.param(CLEAN + SMALL + LEAK + SUMS, 4, "grew by 3.0 MiB", id="the leak of a parent"),
        pytest.param(
            CLEAN + b"==7== Command: ./child\n", 125, "1 made no leak search", id="a child that was killed"
        ),
    ],
)
def test_a_log_of_memchecks_passes_a_gate_only_if_all_of_it_is_known(
    log: bytes, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "before.log").write_bytes(CLEAN)
    (tmp_path / "after.log").write_bytes(log)
    words = ["diff", str(tmp_path / "before.log"), str(tmp_path / "after.log"), "--fail-on", "64KiB"]
    assert main(words) == status
    assert said in capsys.readouterr().err
