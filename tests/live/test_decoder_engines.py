"""The decoder's own recipe under the engines that run it natively, against what the program counts itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cover import cover
from tests.libraries import needs_library
from tests.live.test_decoder import Played, line_of, own_frames, play

pytestmark = [pytest.mark.needs("gdb", "make", "g++"), pytest.mark.usefixtures("no_process_left")]

SMALL = ("--", "--batches", "2", "--states", "2000", "--utterances", "500")
GUILTY = "tasks_[utterance.id]"


def left_behind(played: Played) -> tuple[int, int]:
    """Return the blocks and bytes of tasks that the program counted more at the last reset than at the first."""
    printed = (played.run / "stdout").read_text()
    found = re.findall(r"^reset .*\btasks (\d+) blocks (\d+) bytes", printed, re.M)
    return int(found[-1][0]) - int(found[0][0]), int(found[-1][1]) - int(found[0][1])


def of_classes(blocks: int, size_bytes: int) -> int:
    """Return what jemalloc counts of equal blocks from 129 to 256 bytes: its classes there are 32 bytes apart."""
    block = size_bytes // blocks
    assert 128 < block <= 256 and block * blocks == size_bytes
    return -(-block // 32) * 32 * blocks


# tests/live/test_native_engines.py has a recipe under each of them.
@pytest.mark.parametrize("engine", cover(["gperftools", "jemalloc"], lambda engine: engine == "gperftools"))
def test_the_recipe_names_the_guilty_line_and_its_bytes_at_native_speed(engine: str, tmp_path: Path) -> None:
    needs_library(engine)
    played = play(tmp_path, "--engine", engine, *SMALL)
    assert played.status == 4, played.messages
    (diff,) = played.result["diffs"]
    first, (blocks, size) = diff["paths"][0], left_behind(played)
    assert own_frames(first)[0][1] == line_of(GUILTY)
    assert first["delta_blocks"] == blocks > 0
    assert first["delta_bytes"] == (of_classes(blocks, size) if engine == "jemalloc" else size)


def test_samples_name_the_guilty_line_within_three_standard_errors(tmp_path: Path) -> None:
    needs_library("jemalloc")
    played = play(tmp_path, "--engine", "jemalloc", "--sample-rate", "2KiB", *SMALL, "--utterances", "3000")
    assert played.status == 4, played.messages  # it leaks far more than the limit and its samples' error
    (diff,) = played.result["diffs"]
    first, (blocks, size) = diff["paths"][0], left_behind(played)
    assert own_frames(first)[0][1] == line_of(GUILTY)
    assert first["standard_error_bytes"] > 0
    assert abs(first["delta_bytes"] - of_classes(blocks, size)) <= 3 * first["standard_error_bytes"]
