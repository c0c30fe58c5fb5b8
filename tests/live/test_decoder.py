"""The whole way, on examples/decoder: its recipe under massif, against what the program counts itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.examples import EXAMPLES, build
from tests.live.user import GDBMEM, shell

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "make", "g++"),
    pytest.mark.usefixtures("no_process_left"),
]

DECODER = EXAMPLES / "decoder"
SMALLER = ("--states", "2000", "--utterances", "500")  # tests/live/test_demo.py runs all of it


class Played(NamedTuple):
    status: int
    result: dict[str, Any]  # the output of launch --json
    run: Path
    messages: str

    def counted(self, when: str, what: str) -> list[int]:
        """Return the bytes of *what* that the program printed, each time it came to *when*."""
        printed = (self.run / "stdout").read_text()
        found = re.findall(rf"^{when} .*\b{what} (?:\d+ blocks )?(\d+) bytes", printed, re.M)
        assert found, printed
        return [int(number) for number in found]


def play(folder: Path, *arguments: str) -> Played:
    build("decoder")
    run = folder / "run"
    words = ["launch", "--recipe", str(DECODER / "leak.yaml"), "--run", str(run), "--json", *arguments]
    ended = shell(GDBMEM, *words, folder=folder)
    assert ended.stdout, ended.stderr
    return Played(ended.returncode, json.loads(ended.stdout), run, ended.stderr)


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("leaking")
    return play(folder, "--report", str(folder / "page.html"), "--", *SMALLER)


def test_the_page_of_the_run_is_there_when_the_launch_has_ended(leaking: Played) -> None:
    page = leaking.run.parent / "page.html"
    (diff,) = leaking.result["diffs"]
    assert f'data-value="{diff["delta_bytes"]}"' in page.read_text()
    assert f"the report is {page}" in leaking.messages


def line_of(text: str) -> int:
    lines = (DECODER / "decoder.cpp").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, start=1) if text in line]
    return number


def own_frames(path: dict[str, Any]) -> list[tuple[str, int]]:
    """Return (function, line) of the frames in decoder.cpp, from the allocation outward."""
    return [
        (frame["function"], frame["line"])
        for frame in path["frames"]
        if Path(frame["file"] or "").name == "decoder.cpp"
    ]


def test_the_first_path_of_the_diff_names_the_line_that_inserts_into_the_map(leaking: Played) -> None:
    (diff,) = leaking.result["diffs"]
    first = diff["paths"][0]
    assert own_frames(first)[0][1] == line_of("tasks_[utterance.id]")


def test_the_leak_is_exactly_as_big_as_the_program_counts_it(leaking: Played) -> None:
    (diff,) = leaking.result["diffs"]
    counted = leaking.counted("reset", "tasks")
    assert diff["paths"][0]["delta_bytes"] == counted[-1] - counted[0] > 0
    assert diff["delta_bytes"] == counted[-1] - counted[0], "nothing else grows between two resets"


def test_the_paths_of_the_diff_add_up_to_its_total(leaking: Played) -> None:
    (diff,) = leaking.result["diffs"]
    assert sum(path["delta_bytes"] for path in diff["paths"]) == diff["delta_bytes"]
    assert diff["delta_bytes"] == diff["after"]["total_bytes"] - diff["before"]["total_bytes"]


def test_the_recipe_fails_with_the_status_that_a_leak_test_needs(leaking: Played) -> None:
    (expectation,) = leaking.result["expectations"]
    assert leaking.status == 4
    assert expectation["met"] is False
    counted = leaking.counted("reset", "tasks")
    assert expectation["measured"] == counted[-1] - counted[0]


def report(*words: str) -> dict[str, Any]:
    ended = shell(GDBMEM, *words, "--json", check=True)
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def test_every_batch_left_its_three_snapshots(leaking: Played) -> None:
    names = [snapshot["name"] for snapshot in report("show", str(leaking.run))["snapshots"]]
    assert names == [f"{point}#{batch}" for batch in (1, 2, 3, 4) for point in ("loaded", "decoded", "reset")]


def bytes_through(diff: dict[str, Any], function: str, line: int = 0) -> int:
    return sum(
        path["delta_bytes"]
        for path in diff["paths"]
        if any(function in name and line in (0, number) for name, number in own_frames(path))
    )


def test_what_a_reset_gives_back_and_what_it_keeps_is_exact_to_the_byte(leaking: Played) -> None:
    diff = report("diff", f"{leaking.run}:loaded#1", f"{leaking.run}:reset#1", "--top", "1000")
    assert bytes_through(diff, "Decoder::load") == -leaking.counted("loaded", "graph")[0]
    push_back = line_of("features_.push_back")
    # Cleared, but a vector never gives its capacity back by itself.
    assert bytes_through(diff, "Decoder::decode_batch", push_back) == leaking.counted("reset", "features")[0]


def test_with_the_leak_mended_the_same_recipe_is_content(tmp_path: Path) -> None:
    fixed = play(tmp_path, "--", "--fixed", *SMALLER)
    assert fixed.status == 0, fixed.messages
    assert fixed.counted("reset", "tasks") == [0, 0, 0, 0]
    assert [expectation["met"] for expectation in fixed.result["expectations"]] == [True]
