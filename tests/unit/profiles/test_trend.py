"""Series of snapshots: steady growth is distinguished from growth that happened once, came and went, or settled."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from gdbmem.cli.main import main
from gdbmem.model.diff import Diff
from gdbmem.profiles.diff import diff_series, diff_snapshots
from gdbmem.profiles.paths import Query
from gdbmem.profiles.ranking import rank
from gdbmem.profiles.text import answer_diff
from gdbmem.profiles.timeline import TRENDS, change_of, judge
from gdbmem.runs.run import Run
from gdbmem.text import format_delta, format_size
from tests.unit.massif_texts import massif, path
from tests.unit.stack_files import CAPTURES
from tests.unit.trees import PRUNED_NODE, at, snapshot, tree

LEAK, CACHE, MAIN = at("leak", "/src/a.cpp:1"), at("cache", "/src/a.cpp:2"), at("main", "/src/a.cpp:3")


@pytest.mark.parametrize(
    ("course", "kind"),
    [
        ([10, 20, 30], "steady"),
        ([10, 20, 30, 40, 40], "steady"),  # the last dump came at once
        ([0, 9, 22, 28, 41, 50, 63], "steady"),
        ([30, 110, 40, 120, 50, 130, 60, 140, 70], "steady"),  # a sawtooth whose troughs rise
        ([0, 0, 500, 500, 500], "at-once"),
        ([0, 500, 500], "at-once"),
        ([0, 50, 80, 95, 100, 100, 100, 100], "settled"),
        ([0, 100, 0], "went-back"),
        ([0, 100, 20, 90, 10, 95, 5], "went-back"),
        ([100, 80, 60], "shrank"),
        ([7, 7, 7], "unchanged"),
        ([0, 0, 0, 0, 0, 0, 30, 30, 70, 100], "uneven"),
    ],
)
def test_the_word_for_a_course_is_the_one_that_a_person_would_use(course: list[int], kind: str) -> None:
    assert judge(course).kind == kind


def test_growth_within_its_own_error_is_uncertain_not_steady() -> None:
    assert judge([10, 20, 30], uncertain_bytes=20).kind == "uncertain"
    assert judge([10, 20, 30], uncertain_bytes=19).kind == "steady"


def test_a_random_walk_without_drift_is_seldom_called_steady() -> None:
    chance = random.Random(3)
    called = 0
    for _ in range(400):
        course = [1000 + chance.randrange(-100, 101) for _ in range(10)]
        called += judge(course).kind == "steady"
    assert called <= 8


def test_what_is_kept_is_what_never_went_back() -> None:
    assert judge([100, 30, 110, 40, 120, 50]).kept_bytes == 20
    assert judge([0, 100, 0]).kept_bytes == 0


@pytest.mark.parametrize(
    ("before", "after", "hidden", "error", "word"),
    [
        (0, 5, 0, 0, "appeared"), (5, 0, 0, 0, "vanished"), (5, 9, 0, 0, "grew"), (9, 5, 0, 0, "shrank"),
        (0, 5, 1, 0, "grew"), (5, 0, 1, 0, "shrank"),  # under the threshold it may have been all along
        (0, 5, 0, 3, "grew"), (0, 9, 0, 3, "appeared"), (5, 5, 0, 0, "unchanged"),
    ],
)  # fmt: skip
def test_what_a_side_may_only_hide_neither_appeared_nor_vanished(
    before: int, after: int, hidden: int, error: int, word: str
) -> None:
    assert change_of(before, after, hidden_bytes=hidden, error_bytes=error) == word


def series(*courses: tuple[int, int]) -> Diff:
    """Return the diff of snapshots in which leak() and cache() hold so much."""
    sides = []
    for number, sizes in enumerate(courses):
        children = [(frame, size, (MAIN, size)) for frame, size in zip((LEAK, CACHE), sizes) if size]
        sides.append(snapshot(tree(sum(sizes), *children), f"s{number}"))
    return diff_series(sides)


def test_a_path_that_came_and_went_between_the_ends_is_its_own_row() -> None:
    found = series((10, 0), (20, 70), (30, 0))
    found.check()
    rows = rank(found, Query()).rows
    assert [(row.site, row.amount.trend.kind, row.amount.course) for row in rows] == [
        (LEAK, "steady", (10, 20, 30)),
        (CACHE, "went-back", (0, 70, 0)),
    ]
    assert rank(found, Query()).total.course == (10, 90, 30)


def test_what_grows_steadily_stands_before_what_grew_more() -> None:
    rows = rank(series((10, 0), (20, 900), (30, 900)), Query()).rows
    assert [row.amount.delta_bytes for row in rows] == [20, 900]


def test_what_a_threshold_leaves_is_not_named_beside_what_grows_steadily() -> None:
    sides = [tree(11 * n, (LEAK, 10 * n, (MAIN, 10 * n)), (PRUNED_NODE, n)) for n in (100, 200, 300)]
    answer = answer_diff(diff_series([snapshot(side) for side in sides]), Query())
    assert "steadily at a.cpp:1 (leak)" in answer and "threshold" not in answer


@pytest.mark.parametrize("order", ["122", "112"])
def test_what_grew_in_a_sampled_series_states_how_far_it_may_be_off(
    order: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(CAPTURES / f"go{number}.pb.gz") for number in order]
    assert main(["diff", *files, "--by", "line", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    most = max((row for row in found["paths"]), key=lambda row: int(row["delta_bytes"]))
    said = f"{format_delta(most['delta_bytes'])}, give or take {format_size(most['uncertain_bytes'])}"
    assert most["uncertain_bytes"] and f"the most is {said}, at " in found["answer"]


def test_a_series_of_two_is_their_diff() -> None:
    sides = [snapshot(tree(size, (LEAK, size, (MAIN, size)))) for size in (10, 25)]
    two, pair = diff_series(sides), diff_snapshots(*sides)
    assert (two.course, two.before, two.after) == ((), pair.before, pair.after)


def test_each_column_of_a_random_series_adds_up() -> None:
    chance = random.Random(11)
    for _ in range(50):
        sides = []
        for number in range(chance.randrange(3, 7)):
            parts: list[Any] = [(at(f"f{n}"), chance.randrange(1, 50)) for n in range(chance.randrange(5))]
            parts.append((PRUNED_NODE, chance.randrange(1, 9)))
            chance.shuffle(parts)
            sides.append(
                snapshot(tree(sum(size for _, size in parts), *parts, threshold_bytes=9), f"{number}")
            )
        found = diff_series(sides)
        found.check()
        ranking = rank(found, Query(top=2))
        listed = [row.amount.course for row in ranking.rows] + [ranking.rest.course or (0,) * len(sides)]
        assert list(map(sum, zip(*listed))) == [side.tree.bytes[0] for side in sides]
        assert all(row.amount.trend.kind in TRENDS for row in ranking.rows)


# -- as it is typed


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    trees = [
        [*path(100 * n, "leak (a.cpp:1)", "main (a.cpp:9)"), *path(5000, "load (a.cpp:7)")] for n in (1, 2, 3)
    ]
    Path("history").write_text(massif(*trees))
    made = Run.create("decoder", parent=tmp_path, pid=1, folder=tmp_path / "run")
    made.update(program="decoder")
    for lines in trees:
        for name in ("reset", "other"):
            relative = made.next_file("massif")
            (made.folder / relative).write_text(massif(lines))
            made.append(name, file=relative, engine="massif")
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["run:reset#1", "run:reset#2", "run:reset#3"], 3),
        (["--series", "run:reset"], 3),
        (["--series", "run"], 6),
        (["--series", "history"], 3),
        (["history:0", "run:reset#2", "history:2"], 3),
    ],
)
def test_files_runs_and_names_make_a_series(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], count: int
) -> None:
    found = document(capsys, "diff", *words)
    assert (found["kind"], len(found["snapshots"]), found["delta_bytes"]) == ("trend", count, 200)
    only, *others = found["paths"]
    assert {row["trend"] for row in others} <= {"unchanged"}
    assert found["rest"]["course_bytes"] == [0] * count, "nothing is left over"
    assert (only["site"]["line"], only["trend"], len(only["course_bytes"])) == (1, "steady", count)
    assert found["answer"].endswith(
        "steadily at a.cpp:1 (leak), +200 B, about " + f"{200 // (count - 1)} B each time"
    )


def test_what_is_no_series_is_reported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "--series", "run:nonsense"]) == 1
    assert main(["diff", "--series", "history:1"]) == 1
    assert main(["diff", "--series", "history", "run"]) == 2
    errors = capsys.readouterr().err
    assert "run:nonsense holds no series" in errors and "history:1 holds no series" in errors


def test_where_nothing_grows_steadily_the_largest_is_named_with_its_course(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("once").write_text(massif(*(path(size, "f (a.cpp:1)") for size in (10, 900, 900, 900))))
    assert main(["diff", "--series", "once"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.endswith("nothing grew steadily, the most is +890 B at a.cpp:1 (f) (at once)")
