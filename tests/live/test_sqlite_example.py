"""A program that was not written for the tests: the distribution's sqlite3, stripped, filling a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.live.user import GDBMEM, shell

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "sqlite3"),
    pytest.mark.usefixtures("no_process_left"),
]

RECIPE = Path(__file__).parents[2] / "examples" / "sqlite" / "transaction.yaml"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = Path(yaml.safe_load(RECIPE.read_text())["program"])
    if b"libsqlite3.so" not in command.read_bytes():
        pytest.skip(f"{command} is built without libsqlite3.so, whose functions the example stops at")
    words = ["launch", "--recipe", str(RECIPE), "--json"]
    ended = shell(GDBMEM, *words, folder=tmp_path_factory.mktemp("sqlite"))
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def test_a_library_without_debug_information_is_stopped_in_at_its_exported_functions(
    played: dict[str, Any],
) -> None:
    assert [point["name"] for point in played["points"]] == ["before", "during", "after", "closed"]
    assert [point["snapshots"] for point in played["points"]] == [
        ["before"],
        ["during"],
        ["after"],
        ["closed"],
    ]


def test_the_pages_of_a_transaction_stay_after_it_and_go_with_the_database(played: dict[str, Any]) -> None:
    before_during, during_after, after_closed = (diff["delta_bytes"] for diff in played["diffs"])
    assert before_during > 1_000_000
    assert -before_during / 4 < during_after <= 0
    assert after_closed < -before_during / 2


def test_the_growth_is_attributed_by_library_and_exported_name(played: dict[str, Any]) -> None:
    first = played["diffs"][0]["paths"][0]
    functions = [frame["function"] for frame in first["frames"]]
    assert "sqlite3BtreeInsert" in functions
    objects = {Path(frame["object"]).name for frame in first["frames"] if frame["object"]}
    assert any(name.startswith("libsqlite3.so") for name in objects)
