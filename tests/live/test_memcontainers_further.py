"""memcontainers: allocators with a state, lists without a count, and unreadable containers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Optional

import pytest

from tests.conftest import Program
from tests.live.test_memcontainers import rows, survey
from tests.live.test_memexplain import gdb

pytestmark = pytest.mark.needs("gdb")


@pytest.fixture(scope="module")
def found(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("further")
    gdb(folder, program("containers_further"), "break filled", "run", "memcontainers --json -o found.json")
    return folder / "found.json"


@pytest.mark.parametrize(
    ("path", "size", "held_bytes"),
    [
        ("server.numbers", 1000, 1024 * 8),
        ("server.ordered", 1000, 1000 * 40),
        ("server.texts[*].second", 53_000, 1000 * 54),
        ("server.listed", 1000, 1000 * 24),
        ("server.queued", 1000, None),
        ("server.name", 5000, 5001),
        ("server.chained", 1000, 1000 * 16),
        ("server.empty", 0, 0),
    ],
)
def test_what_a_container_holds_is_read_behind_its_allocator(
    found: Path, path: str, size: int, held_bytes: Optional[int]
) -> None:
    row = rows(found)[path]
    assert row["size"] == size
    assert held_bytes in (None, row["held_bytes"])


def test_how_much_of_the_live_heap_was_reached_is_known(found: Path) -> None:
    document = survey(found)
    # Beside the containers there are headers, the 72 KiB of libstdc++'s exceptions, and what starts a process.
    assert 0 < document["live_heap_bytes"] - document["held_bytes"] < 200_000


def test_containers_of_other_libraries_are_counted_and_reported_not_to_be_read(found: Path) -> None:
    notice = next(w["message"] for w in survey(found)["warnings"] if w["slug"] == "containers-unread")
    assert "3 objects of absl::flat_hash_map<int, int>" in notice
    assert "1 object of std::unique_ptr<int []" in notice, "one of the two is null"
    assert not [path for path in rows(found) if path.startswith(("server.flat", "server.raw", "server.none"))]


@pytest.fixture(scope="module")
def damaged(program: Program, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("damaged")
    path = program("containers_damaged")
    done = gdb(folder, path, "break filled", "run", "memcontainers --json -o found.json", "memcontainers")
    return folder / "found.json", done.stdout


def test_containers_that_something_wrote_over_are_counted_and_named_not_left_out(
    damaged: tuple[Path, str],
) -> None:
    found, said = damaged
    unsound = {one["path"]: one["objects"] for one in survey(found)["unsound"]}
    names = ("vector", "bits", "string", "deque", "list", "map", "table", "shared", "owned", "chain")
    assert unsound == {f"damaged.{name}": 1 for name in names}
    assert not [path for path in rows(found) if path.startswith("damaged.") and "chain" not in path]
    assert {"sound.vector", "sound.empty", "sound.list", "sound.map"} <= rows(found).keys()
    assert "(10 more objects can't be containers)" in said
    assert "10 objects not counted, because the content is not a container's" in said


def test_elements_of_an_owned_array_are_read_where_their_number_is_known(
    damaged: tuple[Path, str],
) -> None:
    found, _ = damaged
    sizes = {path: row["size"] for path, row in rows(found).items() if path.startswith("arrays.")}
    unread = {one["path"] for one in survey(found)["unread"]}
    expected = {
        "arrays.strings": 7, "arrays.strings[*]": 99, "arrays.vectors": 1000, "arrays.vectors[*]": 10_000,
    }  # fmt: skip
    read = subprocess.run(["gcc", "-dumpversion"], capture_output=True, text=True, check=True).stdout
    # The offset of the number depends on the alignment of the type, which compilers record since DWARF 5.
    if int(read.partition(".")[0]) < 11:
        unread.remove("arrays.wide")
    else:
        expected.update({"arrays.wide": 5, "arrays.wide[*].cells": 50})
        assert rows(found)["arrays.wide"]["held_bytes"] == 5 * 64 + 64
    assert sizes == expected
    assert rows(found)["arrays.vectors"]["held_bytes"] == 1000 * 24 + 8
    assert unread == {"arrays.numbers", "arrays.miscounted"}, "unknown is not zero"


def test_a_variable_that_has_no_value_here_is_counted_and_named_not_left_out(
    program: Program, tmp_path: Path
) -> None:
    gdb(
        tmp_path,
        program("forgets"),
        "break filled",
        "run",
        "up",
        "info args",
        "memcontainers --json -o found.json",
    )
    assert rows(tmp_path / "found.json")["kept"]["size"] == 1000
    (notice,) = [w for w in survey(tmp_path / "found.json")["warnings"] if w["slug"] == "variables-unread"]
    assert notice["message"].startswith("1 variable that may hold containers could not be read here")
    assert notice["message"].endswith("counts::lost")
