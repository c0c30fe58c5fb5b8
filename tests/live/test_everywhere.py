"""memcontainers --everywhere: the vectors it finds without types are those that the program has."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program
from tests.live.test_memexplain import gdb

pytestmark = pytest.mark.needs("gdb", "g++")


@pytest.fixture(scope="module")
def found(
    program: Program, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[dict[str, Any]], str, str]:
    folder = tmp_path_factory.mktemp("everywhere")
    documents, shown, messages = [], "", ""
    for number, python in enumerate((None, "")):
        done = gdb(
            folder,
            program("vectors_known"),
            "break checkpoint",
            "run",
            f"memcontainers --everywhere --json -o {number}.json",
            "memcontainers --everywhere --top 2",
            "memcontainers --everywhere --since x",
            f"generate-core-file {number}.core",
            "frame",
            "next",
            "next",
            environment={"GDBMEM_PYTHON": sys.executable if python is None else python},
        )
        assert (folder / f"{number}.json").exists(), done.stderr
        documents.append(json.loads((folder / f"{number}.json").read_text()))
        shown, messages = done.stdout, done.stderr
    core = gdb(folder, program("vectors_known"), "core 1.core", "memcontainers --everywhere --json -o 2.json")
    assert (folder / "2.json").exists(), core.stderr
    documents.append(json.loads((folder / "2.json").read_text()))
    return documents, shown, messages


def test_their_number_capacity_and_slack_are_what_the_program_counts_by_both_ways_and_in_a_core(
    found: tuple[list[dict[str, Any]], str, str],
) -> None:
    documents, shown, _ = found
    counted = re.search(r"vectors (\d+) capacity (\d+) slack (\d+)", shown)
    assert counted is not None
    for document in documents:
        sums = [document[key] for key in ("count", "capacity_bytes", "slack_bytes")]
        assert sums == [int(number) for number in counted.groups()]


def test_the_largest_is_named_by_what_holds_it(found: tuple[list[dict[str, Any]], str, str]) -> None:
    documents, shown, messages = found
    first = documents[0]["largest"][0]
    assert (first["capacity_bytes"], first["used_bytes"], first["owner"]) == (3 << 20, 0, "main()")
    owners = {vector["owner"] for vector in documents[0]["largest"]}
    assert documents[0]["empty"] == 1000 // 10 + 250 + 1
    assert "main() (on a stack, 0x" in shown
    assert "#0  checkpoint" in shown, "the selected frame stays so"
    assert owners <= {None, "main()", "nodes"}
    assert "which can't be compared or picked out; leave out --save, --since and EXPR" in messages


def test_the_ledgers_first_line_has_the_capacity_that_the_program_counts_as_unused(
    program: Program, tmp_path: Path
) -> None:
    words = ("break checkpoint", "run", "memexplain --json -o 1.json", "memexplain", "next", "next")
    done = gdb(tmp_path, program("vectors_known"), *words)
    counted = re.search(r"slack (\d+)", done.stdout)
    assert counted is not None, done.stderr
    unused = json.loads((tmp_path / "1.json").read_text())["beside"]["unused_in_vectors"]
    assert 0 <= int(counted[1]) - unused < 16 << 12, (
        "all of it lies on pages that were touched, but for a few"
    )
    assert re.search(
        r"MiB resident; 3\.\d MiB of it is capacity that vectors, or buffers kept like them, hold and don't use",
        done.stdout,
    )
    plain = gdb(tmp_path, program("vectors_known"), *words[:2], "memexplain --json -o 2.json",
                environment={"GDBMEM_PYTHON": ""})  # fmt: skip
    assert json.loads((tmp_path / "2.json").read_text())["beside"]["unused_in_vectors"] == unused, (
        plain.stderr
    )


def test_a_program_without_a_vector_has_none(program: Program, tmp_path: Path) -> None:
    done = gdb(
        tmp_path, program("many_blocks"), "break read", "run 5000 </dev/zero", "memcontainers --everywhere"
    )
    assert "no vector was found in the heap" in done.stdout, done.stderr
