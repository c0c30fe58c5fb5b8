"""The launcher's handling of messages from the gdb that plays a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import pytest

from gdbmem.launch.messages import ActionResult, Hit, PointReport
from gdbmem.launch.recipe import Outcome, PlayedPoint, _Player
from gdbmem.model.diff import Position
from gdbmem.recipes.recipe import HitFilter, Point
from gdbmem.runs.run import Run


def player(
    folder: Path, engine: str = "gperftools", point: Optional[Point] = None
) -> tuple[_Player, Outcome]:
    run = Run.create("program", parent=folder, pid=1)
    run.update(engine=engine)
    points = [PlayedPoint("here", "here", "r.yaml:4:5")]
    found = _Player(points, [point or Point("here", "here", Position(4, 5))], lambda line: None)
    found.outcome = Outcome(run, points)
    return found, found.outcome


def hit(**result: Any) -> Hit:
    return Hit(0, 1, None, None, (ActionResult("snap", "", **result),))


def snapped(heap_bytes: int, warning: Optional[str] = None) -> Hit:
    return hit(label="here", heap_bytes=heap_bytes, text="snapshot", warning=warning)


def test_what_fails_in_the_same_way_at_each_hit_is_reported_once_with_how_often(tmp_path: Path) -> None:
    heard, outcome = player(tmp_path)
    for _ in range(1000):
        heard.hear(hit(error="a snapshot at this point could deadlock"))
    heard.hear(hit(error="the disk is full"))
    assert [notice.message for notice in outcome.notices] == [
        "r.yaml:4:5: snap at here: a snapshot at this point could deadlock (1,000 times)",
        "r.yaml:4:5: snap at here: the disk is full",
    ]


def test_a_program_that_had_allocated_nothing_yet_is_not_reported_to_bring_its_own_allocator(
    tmp_path: Path,
) -> None:
    heard, outcome = player(tmp_path)
    heard.hear(snapped(0, "it counts 0 bytes"))
    assert [notice.slug for notice in outcome.notices] == ["own-allocator"], "it may be so"
    heard.hear(snapped(4096))
    heard.hear(snapped(0, "it counts 0 bytes"))
    assert outcome.notices == []


@pytest.mark.parametrize(
    ("fields", "hits", "text"),
    [
        ({}, 0, "was never hit"),
        ({"when": "n > 3"}, 0, "was never hit with n > 3 (when)"),
        ({"hits": HitFilter(only=frozenset({50}))}, 20, "was hit 20 times, never as required by 'hits'"),
        ({"after": True}, 20, "was hit 20 times, and never returned to its caller ('after')"),
        ({"after": True, "hits": HitFilter(every=50)}, 20, "was hit 20 times, never as required by 'hits'"),
    ],
)
def test_a_point_that_recorded_nothing_names_only_the_keys_that_it_has(
    fields: dict[str, Any], hits: int, text: str, tmp_path: Path
) -> None:
    heard, outcome = player(tmp_path, point=Point("here", "here", Position(4, 5), **fields))
    heard.hear(PointReport(0, hits, 0, pending=False, left=0))
    assert outcome.notices[0].message.startswith(f"r.yaml:4:5: 'here' {text}")


def test_the_hits_of_a_program_that_is_ended_are_not_told_as_none(tmp_path: Path) -> None:
    heard, outcome = player(tmp_path)
    heard.hear(snapped(4096))
    assert outcome.points[0].hits == 1


def test_the_last_failure_of_an_action_is_kept_until_it_succeeds(tmp_path: Path) -> None:
    heard, outcome = player(tmp_path)
    heard.hear(hit(error="the disk is full"))
    assert outcome.points[0].failed == {"snap": "the disk is full"}
    heard.hear(snapped(4096))
    assert outcome.points[0].failed == {}
