"""Two moments of a pool: what came, what went, and whether it fell to pieces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gdbmem.api.pools import compare_pools, read_pools
from gdbmem.cli.main import main

CAPTURES = Path(__file__).parents[2] / "captures" / "bfc"


def test_the_changes_add_up_to_that_of_what_is_in_use() -> None:
    found = read_pools(CAPTURES / "tensorflow-2.21.log").allocators
    (diff,) = compare_pools(found[:1], found[1:])
    assert diff.is_complete
    assert (
        sum(one.delta_bytes for one in diff.sizes) == diff.after.in_use_bytes - diff.before.in_use_bytes < 0
    )
    assert (
        sum(one.after - one.before for one in diff.sizes)
        == diff.after.in_use_count - diff.before.in_use_count
    )


def test_a_log_and_a_memory_dump_of_the_same_moment_do_not_differ() -> None:
    log = read_pools(CAPTURES / "tensorflow-2.21.log").allocators
    dump = read_pools(CAPTURES / "tensorflow-2.21-second.pb").allocators
    (diff,) = compare_pools(log, dump)
    assert diff.sizes == []


def test_the_first_and_the_last_dump_of_one_log_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    log = str(CAPTURES / "tensorflow-2.21.log")
    assert main(["bfc", "diff", log, log, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "bfc-diff"
    assert document["pools"][0]["before"]["in_use_bytes"] == 94404608
    assert document["pools"][0]["after"]["in_use_bytes"] == 39878912
    assert main(["bfc", "diff", log, log]) == 0
    assert "-52.0 MiB in use, +52.0 MiB free" in capsys.readouterr().out


def test_pools_of_which_chunks_are_missing_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    log = str(CAPTURES / "onnxruntime-1.32.log")
    assert main(["bfc", "diff", log, log]) == 0
    out = capsys.readouterr().out
    assert "no sums can be compared" in out and " 0 B" not in out


def test_pools_of_other_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["bfc", "diff", str(CAPTURES / "tensorflow-2.21.log"), str(CAPTURES / "onnxruntime-1.32.log")])
        == 2
    )
    assert "the two sides have no pool in common" in capsys.readouterr().err
