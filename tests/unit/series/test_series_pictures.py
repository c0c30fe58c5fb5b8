"""Pictures of recordings: groups, threads, origin, round ticks, pauses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.model.series import TREE, ProcessSample, SeriesFacts, SeriesLine
from gdbmem.series.charts import Curve, Panel, Picture, svg
from gdbmem.series.store import SeriesWriter
from gdbmem.series.text import draw_course, round_ticks
from tests.series_set import MIB


def record(folder: Path, command: str, threads: int) -> Path:
    folder.mkdir()
    words = command.split()
    (folder / "run.json").write_text(json.dumps({"monitor": {"program": words}}))
    writer = SeriesWriter(folder, SeriesFacts(Path(words[0]).name, 1.0, 1.7e9, "boot", 0.0))
    line = SeriesLine(1, 10, 1, "x", command, 0, 0.0)
    for t in range(30):
        reading = ProcessSample(rss_bytes=(20 + t % 3) * MIB, threads=threads if t > 3 else 1)
        writer.append(float(t), [(1, reading), (TREE, reading)], [line] if t == 0 else [])
    writer.close()
    return folder


def test_a_comparison_shows_two_groups_by_their_commands_in_two_colours_with_their_threads(
    tmp_path: Path,
) -> None:
    first = [record(tmp_path / f"a{number}", "./omp 8 4", 8) for number in range(3)]
    second = [record(tmp_path / f"b{number}", "./omp 4 4", 4) for number in range(3)]
    picture = tmp_path / "x.svg"
    groups = [*map(str, first), "--vs", *map(str, second)]
    assert main(["compare", *groups, "--plot", str(picture), "-o", str(tmp_path / "text")]) == 0
    drawn = picture.read_text()
    assert len(set(re.findall(r'<path d="[^"]*" fill="none" stroke="(#\w+)"', drawn))) == 2
    key = re.findall(r"<rect [^>]*fill=\"#\w+\"/><text[^>]*>([^<]*)</text>", drawn)
    assert key == ["./omp 8 4", "./omp 4 4"]
    assert ">threads</text>" in drawn and drawn.count("<path") == 12
    assert "2023-11-1" in drawn  # when it was recorded; where, only of this boot


def test_recordings_in_the_order_of_a_shell_are_compared_with_the_one_of_the_smallest_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(record(tmp_path / f"gdbmem.{number}", "./omp 8 4", 8)) for number in (9, 10, 11)]
    assert main(["compare", *sorted(runs), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["first"] == ["gdbmem.9"] and found["second"] == ["gdbmem.10", "gdbmem.11"]
    assert [one["slug"] for one in found["warnings"]] == ["series-ordered"]
    assert main(["compare", *sorted(runs)]) == 0
    assert "series-ordered" in capsys.readouterr().out
    assert main(["compare", runs[1], runs[0], "--json"]) == 0, "the user's choice of what to compare with"
    assert json.loads(capsys.readouterr().out)["first"] == ["gdbmem.10"]


def test_two_groups_of_one_command_are_distinguished(tmp_path: Path) -> None:
    runs = [str(record(tmp_path / name, "./omp 8 4", 8)) for name in ("before", "after")]
    picture = tmp_path / "x.svg"
    assert (
        main(["compare", runs[0], "--vs", runs[1], "--plot", str(picture), "-o", str(tmp_path / "text")]) == 0
    )
    assert re.findall(r"/><text[^>]*>(\./omp[^<]*)</text>", picture.read_text()) == [
        "./omp 8 4 (first)",
        "./omp 8 4 (second)",
    ]


def test_a_process_that_outlives_what_was_judged_stays_inside_the_picture() -> None:
    longer = Panel("threads", [Curve("x", [0.0, 20.0], [1.0, 2.0])])
    drawn = svg(Picture("x", [Curve("x", [0.0, 10.0], [1.0, 2.0])], panels=[longer]))
    assert max(float(x) for x in re.findall(r"[ML]([\d.]+) ", drawn)) <= 940


def test_one_thread_that_stays_one_gets_no_panel(tmp_path: Path) -> None:
    run, picture = record(tmp_path / "a", "./one", 1), tmp_path / "x.svg"
    assert main(["monitor", str(run), "--plot", str(picture), "-o", str(tmp_path / "text")]) == 0
    assert ">threads</text>" not in picture.read_text()


@pytest.mark.parametrize(
    ("top", "most", "ticks"),
    [(21.2, 4, [0, 10, 20, 30]), (16, 4, [0, 5, 10, 15, 20]), (0.9, 3, [0, 0.5, 1]), (4, 4, [0, 1, 2, 3, 4])],
)
def test_the_size_axis_of_a_terminal_has_round_numbers(top: float, most: int, ticks: list[float]) -> None:
    assert round_ticks(top, most) == ticks


def test_nothing_is_drawn_across_a_pause() -> None:
    times = [*(float(t) for t in range(30)), *(float(t) for t in range(100, 130))]
    values = [(10.0 if t < 60 else 40.0) * MIB for t in times]
    rows = draw_course(times, values, 80, 16, color=False).splitlines()
    middle = [row[32:55] for row in rows if "┤" in row or "│" in row]
    assert middle and not any(re.search("[\u2801-\u28ff]", part) for part in middle)


def test_a_program_that_held_nothing_is_drawn_too() -> None:
    assert draw_course([0.0, 1.0, 2.0], [0.0, 0.0, 0.0], 60, 12, color=False)


def test_workers_that_overlap_for_a_moment_are_as_many_as_run_at_a_time(tmp_path: Path) -> None:
    folder, picture = tmp_path / "run", tmp_path / "x.svg"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    writer = SeriesWriter(folder, SeriesFacts("loader", 1.0, 1.7e9, "boot", 0.0))
    lines = [SeriesLine(1, 10, 1, "loader", "loader", 0, 0.0)]
    lines += [SeriesLine(number, 10 + number, 1, "worker", "worker", 1, 0.0) for number in range(2, 6)]
    reading = ProcessSample(rss_bytes=20 * MIB, pss_bytes=10 * MIB, uss_bytes=5 * MIB, threads=1)
    for t in range(30):
        pair = (2, 3) if t < 15 else (4, 5)
        found = [(number, reading) for number in (1, *pair)]
        writer.append(float(t), [*found, (TREE, reading)], lines if t == 0 else [])
    writer.close()
    assert main(["monitor", str(folder), "--plot", str(picture), "-o", str(tmp_path / "text")]) == 0
    assert "worker, 2 at a time" in picture.read_text()
