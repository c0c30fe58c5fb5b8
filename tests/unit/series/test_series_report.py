"""A series drawn, printed, exported; strangers' names stay text."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, Optional

import pytest

from gdbmem.api.series import _MOST_CURVES, picture_of
from gdbmem.api.series import compare as compare_runs
from gdbmem.cli.main import main
from gdbmem.cli.monitor_reporting import next_commands
from gdbmem.commands.arguments import parse_fail_on
from gdbmem.commands.shell import SHELL_COMMANDS
from gdbmem.errors import InputError
from gdbmem.linux.monitoring.tree import Look
from gdbmem.linux.process.process import stat_of
from gdbmem.model.judgement import exit_status
from gdbmem.model.series import (
    TREE,
    Comparison,
    Component,
    Mark,
    ProcessSample,
    SeriesFacts,
    SeriesLine,
    Slope,
    Verdict,
)
from gdbmem.page.page import Page, course_section, render
from gdbmem.series.charts import Curve, Picture, svg
from gdbmem.series.comparison import Figures, compare, conclusion, leftover, levels_of
from gdbmem.series.document import write_series_csv, write_series_json, write_series_trace
from gdbmem.series.gate import judge_verdict
from gdbmem.series.live import Keyboard, LiveView
from gdbmem.series.store import Recording, SeriesWriter
from gdbmem.series.summary import summarize
from gdbmem.series.text import details, draw_course, print_summary, slope_text
from gdbmem.series.verdict import judge
from gdbmem.terminal.console import columns_that_fit, make_console
from gdbmem.text import printable

MIB = 1 << 20
EVIL = "<script>alert(1)</script>\x1b[2J=cmd"


def growing(verdict_slope: float = 100.0) -> Verdict:
    slope = Slope(verdict_slope, verdict_slope * 0.9, verdict_slope * 1.1)
    return Verdict("growing", "rss_bytes", "it grows", 100, slope, 1.0)


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    facts = SeriesFacts(EVIL, 0.2, 1.7e9, "boot", 0.0, 8 << 30, "the machine", exact_threads=True)
    writer = SeriesWriter(tmp_path, facts)
    line = SeriesLine(1, 999_999_999, 5, EVIL, EVIL, 0, 0.0)
    for number in range(120):
        reading = ProcessSample(
            rss_bytes=(50 + number) * MIB,
            pss_bytes=None,
            threads=4,
            threads_started=number * 10,
            anonymous_bytes=number * MIB,
        )
        writer.append(number / 5, [(1, reading), (TREE, reading)], [line] if number == 0 else [])
    writer.mark(Mark(5.0, EVIL))
    writer.close()
    return Recording(tmp_path)


def test_the_json_document_is_valid_and_states_what_was_measured(recording: Recording) -> None:
    stream = io.StringIO()
    summary = summarize(recording)
    write_series_json(
        stream, summary, recording.samples(), recording.marks, recording.lines, next_commands=["x"]
    )
    document = json.loads(stream.getvalue())
    assert (document["kind"], document["format_version"]) == ("series", 1)
    assert document["verdict"]["kind"] == "growing"
    assert len(document["samples"]) == 240
    tree, process = document["samples"][0], document["samples"][1]
    assert (tree["pid"], process["pid"]) == (None, 999_999_999)
    assert process["rss_bytes"] == 50 * MIB
    assert process["pss_bytes"] is None
    assert document["threads_started"] == 1190


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_csv_has_a_row_a_sample_and_no_cell_that_a_spreadsheet_would_run(
    recording: Recording, blank: str
) -> None:
    stream = io.StringIO()
    lines = [SeriesLine(1, 7, 5, f"{blank}=cmd|' /C calc'!A0", "", 0, 0.0)]
    write_series_csv(stream, recording.samples(), lines)
    rows = list(csv.DictReader(io.StringIO(stream.getvalue())))
    assert len(rows) == 240
    assert {row["name"] for row in rows} == {"(tree)", f"'{blank}=cmd|' /C calc'!A0"}
    assert rows[0]["pss_bytes"] == "", "unknown is empty, not 0"


def picture() -> Picture:
    times = [float(n) for n in range(50)]
    curve = Curve(EVIL, times, [n * MIB for n in times])
    return Picture(EVIL, [curve], [Mark(10.0, EVIL)], [EVIL])


def test_strangers_names_are_text_in_svg_and_html() -> None:
    page = render(Page(printable(EVIL), sections=[course_section(picture())]))
    assert page.count("<script") == 2, "the numbers, and what zooms them"
    page = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    drawing = svg(picture())
    for text in (page, drawing):
        assert "<script" not in text
        assert "\x1b" not in text
        assert "&lt;script&gt;" in text
    ET.fromstring(drawing)
    assert not re.search(r"(?:src|href)=|url\(", page), "nothing is fetched"


def test_a_gap_is_left_open_in_the_drawing() -> None:
    curve = Curve("a", [0.0, 1.0, 2.0, 60.0, 61.0], [1.0 * MIB] * 5)
    assert svg(Picture("t", [curve], gap_seconds=5.0)).count("M") == svg(Picture("t", [curve])).count("M") + 1


def test_no_line_is_drawn_from_a_worker_that_died_to_its_heir(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    writer = SeriesWriter(tmp_path, SeriesFacts("x", 1.0, 1.7e9, "boot", 0.0))
    parent, worker = (
        SeriesLine(1, 10, 1, "parent", "", 0, 0.0),
        SeriesLine(2, 20, 2, "worker", "", 1, 0.0, respawns=1),
    )
    reading = ProcessSample(rss_bytes=MIB, pss_bytes=MIB, uss_bytes=MIB)
    for t in range(30):
        both = [(1, reading), (2, reading)] if not 10 <= t < 13 else [(1, reading)]
        writer.append(float(t), [*both, (TREE, reading)], [parent, worker] if t == 0 else [])
    writer.close()
    assert main(["monitor", str(tmp_path), "--plot", str(tmp_path / "x.svg")]) == 0
    paths = {
        path[0].text: path.get("d", "").count("M")
        for path in ET.parse(tmp_path / "x.svg").iter()
        if path.tag.endswith("path")
    }
    assert paths["worker 20"] == 2
    assert paths["parent 10"] == 1


@pytest.mark.parametrize("values", [[], [0.0]])
def test_an_empty_course_is_drawn_empty_not_crashed(values: list[float]) -> None:
    ET.fromstring(svg(Picture("t", [Curve("a", [0.0] * len(values), values)])))


def test_the_terminal_gets_no_escape_from_a_process_name(recording: Recording) -> None:
    stream = io.StringIO()
    print_summary(summarize(recording), make_console(stream, color=False))
    text = stream.getvalue()
    assert "\x1b" not in text
    assert "growing: " in text
    assert "threads started: 1,190" in text


@pytest.mark.parametrize(
    ("heap", "said"), [(0, "[heap] does not grow"), (3 * MIB, "little of that is [heap]")]
)
def test_heap_that_grows_a_little_is_not_reported_to_stay(
    recording: Recording, heap: float, said: str
) -> None:
    summary = summarize(recording)._replace(
        components=[Component("anonymous", 119.0 * MIB), Component("[heap]", heap)]
    )
    assert any(sentence.startswith(said) for sentence in details(summary))


def test_a_terminal_chart_fits_its_size_and_has_its_unit() -> None:
    times = [float(n) for n in range(100)]
    chart = draw_course(times, [n * MIB for n in times], 60, 10, color=False)
    lines = chart.splitlines()
    assert len(lines) <= 10
    assert max(len(line) for line in lines) <= 60
    assert "MiB" in chart
    assert "\x1b" not in chart


@pytest.mark.parametrize("color", [False, True])
def test_a_chart_for_an_output_that_is_not_utf_8_has_no_character_that_it_lacks(color: bool) -> None:
    times = [float(n) for n in range(100)]
    chart = draw_course(
        times, [n * MIB for n in times], 60, 10, marks=[Mark(50.0, "")], color=color, in_ascii=True
    )
    assert chart.isascii()
    assert "*" in chart and "MiB" in chart


def test_fail_on_reads_a_verdict_and_a_slope() -> None:
    assert parse_fail_on("growing") == ("growing", 0.0)
    assert parse_fail_on("growing:1MiB/h") == ("growing", MIB / 3600)
    for wrong in ("bigger", "growing:1MiB", "growing:1MiB/week", "growing:fast/h", "growing:"):
        with pytest.raises(InputError):
            parse_fail_on(wrong)


def status_of(verdict: Verdict, fail_on: tuple[str, float]) -> int:
    return exit_status([judge_verdict(verdict, fail_on)])


def test_fail_on_is_4_when_met_125_when_nobody_could_tell_else_0() -> None:
    unclear = Verdict("inconclusive", "rss_bytes", "too short", 3)
    flat = Verdict("plateau", "rss_bytes", "level", 100, Slope(0, -1, 1), 1.0)
    rising = Verdict("sawtooth", "rss_bytes", "teeth", 100, Slope(5, 4, 6), 1.0, floor="rising")
    on = ("growing", 0.0)
    assert status_of(growing(), on) == 4
    assert status_of(rising, on) == 4, "a floor that rises is growth"
    assert status_of(flat, on) == 0
    assert status_of(unclear, on) == 125
    teeth = Verdict("sawtooth", "rss_bytes", "three teeth", 100, floor="unclear")
    assert status_of(teeth, on) == 125, "whether its floor rises is what was asked"
    assert status_of(teeth, ("step", 0.0)) == 0
    assert status_of(growing(10.0), ("growing", 1000.0)) == 0, "slower than what counts"


def test_a_gate_never_passes_a_slope_that_the_recording_could_not_have_shown() -> None:
    limit = ("growing", 1.0)
    level = Verdict("plateau", "rss_bytes", "level", 100, Slope(0, -1, 1), resolution=20.0)
    teeth = Verdict("sawtooth", "rss_bytes", "teeth", 100, Slope(0, -1, 1), 20.0, floor="flat")
    assert status_of(level, limit) == status_of(teeth, limit) == 125
    assert status_of(level, ("growing", 30.0)) == 0
    assert status_of(level, ("growing", 0.0)) == 0, "asked for growth that was seen"
    assert status_of(growing(0.95), limit) == 125, "its interval ends above the limit"
    assert status_of(growing(0.5), limit) == 0
    falling = Verdict("shrinking", "rss_bytes", "it shrinks", 100, Slope(-9, -10, -8), resolution=20.0)
    assert status_of(falling, limit) == 0


def test_a_growing_program_that_has_ended_is_to_be_launched_under_a_profiler(recording: Recording) -> None:
    commands = next_commands(recording, summarize(recording), ["./a b", "x;y"])
    assert commands == ["gdbmem launch --massif './a b' -- 'x;y'"]


def test_a_growing_python_program_is_not_to_be_launched_under_massif_which_sees_no_object_of_it(
    tmp_path: Path,
) -> None:
    line = SeriesLine(1, 1 << 30, 5, "python3.11", "python3.11 serve.py", 0, 0.0, gone=41.0)
    writer = SeriesWriter(tmp_path, SeriesFacts("python3.11", 1.0, 1.7e9, "boot", 0.0))
    for t in range(41):
        sample = ProcessSample(rss_bytes=t * MIB, pss_bytes=t * MIB)
        writer.append(float(t), [(1, sample), (TREE, sample)], [line])
    writer.close()
    recording = Recording(tmp_path)
    commands = next_commands(recording, summarize(recording), ["python3.11", "serve.py"])
    assert commands == ["gdbmem grow -- python3.11 serve.py"]


def test_teeth_whose_troughs_were_missed_are_to_be_recorded_with_marks(recording: Recording) -> None:
    teeth = Verdict("sawtooth", "rss_bytes", "three teeth", 100, floor="unclear")
    summary = summarize(recording)._replace(verdict=teeth)
    recording.marks[:] = []
    assert next_commands(recording, summary, ["./a b"]) == ["gdbmem monitor --mark REGEX -- './a b'"]
    recording.marks.append(Mark(1.0, "epoch 1"))
    assert next_commands(recording, summary, ["./a b"]) == []


@pytest.mark.parametrize(
    ("name", "commands"), [("server", ["explain"]), ("python3.11", ["python objects", "explain"])]
)
def test_a_growing_process_that_lives_is_handed_over_by_its_number(
    tmp_path: Path, name: str, commands: list[str]
) -> None:
    stat = stat_of(os.getpid())
    assert stat is not None
    lines = [
        SeriesLine(1, os.getpid(), stat.start_ticks, name, "", 0, 0.0),
        SeriesLine(2, 1, 0, "other", "", 1, 0.0),
    ]
    writer = SeriesWriter(tmp_path, SeriesFacts("t", 1.0, 1.7e9, "boot", 0.0, 8 << 30, "the machine"))
    for t in range(120):
        grown = ProcessSample(rss_bytes=(50 + t) * MIB, pss_bytes=(50 + t) * MIB)
        level = ProcessSample(rss_bytes=900 * MIB, pss_bytes=900 * MIB)
        total = ProcessSample(pss_bytes=(950 + t) * MIB)
        writer.append(float(t), [(1, grown), (2, level), (TREE, total)], lines if t == 0 else ())
    writer.close()
    recording = Recording(tmp_path)
    found = next_commands(recording, summarize(recording), ["./server"])
    assert found == [f"gdbmem {command} {os.getpid()}" for command in commands], "what grew, not what is big"
    for command in found:
        name, *words = command.split()[1:]
        SHELL_COMMANDS[name].parser().parse_args(words)


def figures(values: list[float], slope: Optional[Slope], *, started: float) -> Figures:
    return Figures(
        *levels_of(values), slope, most_threads=4, threads_started=started, threads_per_second=started / 2
    )


def test_two_groups_that_differ_are_distinguished_and_two_that_do_not_are_not() -> None:
    def runs(level: float) -> list[float]:
        return [level * MIB] * 40

    small = [figures(runs(level), None, started=0.0) for level in (50.0, 50.4, 49.7)]
    large = [figures(runs(level), None, started=900.0) for level in (80.0, 80.9, 79.2)]
    found = {row.metric: row for row in compare(small, large)}
    assert found["peak"].is_shown
    assert found["peak"].low is not None
    assert found["peak"].low < 30 * MIB < (found["peak"].high or 0)
    assert found["threads started"].is_shown
    assert found["thread churn"].is_shown
    same = compare(small, [figures(runs(level), None, started=0.0) for level in (50.1, 49.9, 50.2)])
    assert not [row.metric for row in same if row.is_shown]
    assert conclusion(Comparison(["a"], ["b"], same)) == "no difference that these runs can show"


def test_one_run_on_either_side_claims_no_difference_but_in_slope() -> None:
    one = [figures([MIB] * 40, Slope(100, 90, 110), started=0.0)]
    other = [figures([9 * MIB] * 40, Slope(10, 5, 15), started=0.0)]
    assert [row.metric for row in compare(one, other) if row.is_shown] == ["slope"]


def test_in_a_narrow_terminal_a_long_name_is_cut_and_no_number(tmp_path: Path) -> None:
    facts = SeriesFacts("x", 1.0, 1.7e9, "boot", 0.0)
    writer = SeriesWriter(tmp_path, facts)
    lines = [
        SeriesLine(n, 31000 + n, 7, "a_worker_with_quite_a_long_name", "", 0, 0.0, respawns=9) for n in (1, 2)
    ]
    big = ProcessSample(pss_bytes=int(723.6 * MIB), rss_bytes=1, private_dirty_bytes=1, threads=3)
    for number in range(20):
        more = big._replace(private_dirty_bytes=int(406.6 * MIB)) if number else big
        writer.append(float(number), [(1, more), (2, more), (TREE, more)], lines if not number else [])
    writer.close()
    stream = io.StringIO()
    console = make_console(stream, color=False)
    console.width = 80
    print_summary(summarize(Recording(tmp_path)), console)
    rows = [row for row in stream.getvalue().splitlines() if row.startswith("a_")]
    assert len(rows) == 2
    for row in rows:
        assert row.count("723.6 MiB") == 3
        assert "+406.6 MiB" in row
        assert "…" in row.split("31")[0]
    assert "private dirty change" in stream.getvalue()  # else 0 B would be told of a process that has much


def test_a_process_too_short_lived_to_be_read_is_counted_below_the_table_and_no_empty_row(
    tmp_path: Path,
) -> None:
    writer = SeriesWriter(tmp_path, SeriesFacts("t", 0.2, 1.7e9, "boot", 0.0, 8 << 30, "the machine"))
    lines = [
        SeriesLine(n, 100 + n, 1, name, "", 0, 0.0)
        for n, name in enumerate(("sh", "shim", "python3"), start=1)
    ]
    for t in range(20):
        known = [(n, ProcessSample(rss_bytes=MIB, pss_bytes=MIB, threads=1)) for n in (1, 3)]
        total = (TREE, ProcessSample(pss_bytes=2 * MIB))
        writer.append(float(t), [*known, (2, ProcessSample(threads=1)), total], lines if t == 0 else ())
    writer.close()
    text = printed(Recording(tmp_path))
    assert not re.search(r"^shim\b", text, re.M), text
    assert "1 line of processes that had gone before their PSS was read" in text


def test_where_nothing_came_nothing_is_reported_of_noise_or_gaps(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, SeriesFacts("user x", 0.2, 1.7e9, "boot", 0.0, 8 << 30, "the machine"))
    for t in (0.0, 2.0):
        writer.append(t, [(TREE, ProcessSample(cgroup_bytes=MIB))])
    writer.close()
    text = printed(Recording(tmp_path))
    assert "inconclusive: there was no process to watch" in text
    assert "note: " not in text


def printed(recording: Recording) -> str:
    stream = io.StringIO()
    print_summary(summarize(recording), make_console(stream, color=False))
    return stream.getvalue()


@pytest.mark.parametrize("width", [40, 50, 60, 70, 80, 100])
def test_a_table_that_is_too_wide_loses_columns_not_digits(width: int) -> None:
    rows = [
        ["process", "pid", "RSS", "PSS"],
        ["a_worker_with_a_long_name", "4194303", "1,023.9 MiB", "512.0 KiB"],
    ]
    shown = columns_that_fit(rows, width, give_up=(1, 2), shortest=8)
    assert 8 + sum(len(rows[1][column]) + 2 for column in shown[1:]) <= width
    assert {0, 3} <= set(shown)
    assert len(shown) == 4 or width < 8 + 9 + 13 + 11


def test_the_numbers_of_one_interval_are_per_the_same_unit_of_time() -> None:
    for resolution in (1.0, 60_000.0):
        text = slope_text(Slope(-130.0, -24_000.0, 30_000.0), resolution)
        assert len(set(re.findall(r"/(s|min|h)\b", text))) == 1, text


def test_each_curve_of_a_full_picture_has_its_own_colour() -> None:
    # The tree, its biggest processes, the cgroup, and its limit.
    curves = [Curve(f"curve {n}", [0.0, 1.0], [MIB, MIB]) for n in range(1 + _MOST_CURVES + 2)]
    colors = re.findall(r'<path [^>]*stroke="([^"]+)"', svg(Picture("all", curves)))
    assert len(set(colors)) == len(colors) == len(curves)


@pytest.mark.parametrize(
    ("seconds", "label"), [(0.5, "200 ms"), (20.0, "10 s"), (5000.0, "1 h"), (200_000.0, "24 h")]
)
def test_the_time_axis_in_a_terminal_states_its_unit(seconds: float, label: str) -> None:
    times = [seconds * n / 50 for n in range(51)]
    chart = draw_course(times, [float(MIB)] * 51, 80, 12, color=False)
    assert label in chart.splitlines()[-2]


def test_the_key_and_the_sentences_of_a_picture_of_many_runs_stay_inside_it() -> None:
    curves = [
        Curve(f"gdbmem.compare.{'ab'[n % 2]}{n}.with-a-long-name", [0.0, 1.0], [MIB, MIB]) for n in range(9)
    ]
    sentence = "gdbmem.compare.a1: growing: " + "it went up and up and " * 12
    drawing = ET.fromstring(svg(Picture("many", curves, sentences=[sentence] * 2)))
    width, height = float(drawing.get("width", 0)), float(drawing.get("height", 0))
    texts = [node for node in drawing.iter() if node.tag.endswith("text")]
    shift = max(float(move) for move in re.findall(r"translate\(0,(\d+)\)", svg(Picture("many", curves))))
    for node in texts:
        if node.get("text-anchor") is None:
            assert float(node.get("x", 0)) + 5 * len(node.text or "") < width, node.text
        assert float(node.get("y", 0)) + shift < height


@pytest.mark.parametrize("size", [(20, 5), (39, 30), (40, 10), (44, 12), (60, 7), (80, 24), (200, 60)])
def test_what_is_drawn_while_it_runs_never_takes_more_than_the_terminal_has(size: tuple[int, int]) -> None:
    console = make_console(io.StringIO(), color=False)
    view = LiveView(console, "a_server_with_a_long_name", lambda: judge(range(9), [1000.0 * MIB] * 9))
    lines = [SeriesLine(n, 4_194_300 + n, 7, "a_worker_with_a_long_name", "", 0, 0.0) for n in range(1, 30)]
    for t in range(9):
        reading = ProcessSample(
            rss_bytes=1023 * MIB, pss_bytes=1000 * MIB + t, uss_bytes=999 * MIB, threads=12
        )
        readings = [(line.number, reading) for line in lines] + [(TREE, reading)]
        view.show(Look(float(t), readings, lines if t == 0 else [], True, len(lines)))
    drawn = view.picture(*size)
    assert len(drawn) < size[1]
    assert max(map(len, drawn)) <= size[0]
    assert not [row for row in drawn[1:] if re.search(r"\d(?:\.\d)?…", row)], "a number that is cut is none"


def test_the_chart_states_what_the_verdict_is_so_far_and_sorts_as_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    verdict = judge(range(120), [(100.0 + t) * MIB for t in range(120)])
    view = LiveView(make_console(stream, color=False), "a_server", lambda: verdict)
    monkeypatch.setattr(Keyboard, "read", lambda _: "s")
    monkeypatch.setattr("gdbmem.series.live.in_foreground", lambda: True)
    lines = [SeriesLine(n, 100 + n, 7, name, "", 0, 0.0) for n, name in enumerate(("small", "large"), 1)]
    for t in range(120):
        total = ProcessSample(pss_bytes=(100 + t) * MIB)
        small = ProcessSample(rss_bytes=MIB, pss_bytes=3 * MIB, uss_bytes=9 * MIB)
        large = ProcessSample(rss_bytes=8 * MIB, pss_bytes=5 * MIB, uss_bytes=4 * MIB)
        readings = [(TREE, total), (1, small), (2, large)]
        view.show(Look(float(t), readings, lines if t == 0 else [], True, 2))
    order = []
    for _ in range(4):
        view.judge()
        drawn = "\n".join(view.picture(80, 24))
        assert "so far growing, +1.0 MiB/s (95 %:" in drawn
        order.append("small" if drawn.index("small") < drawn.index("large") else "large")
        view.key()
    assert order == ["large", "large", "small", "small"]  # by RSS, PSS, USS and pid
    assert "sort (by RSS)" in view.picture(80, 24)[-1]


@pytest.mark.parametrize("words", [["'x", "--vs", "true"], ["", "--vs", "true"], ["true", "--vs", " "]])
def test_a_command_that_is_none_is_a_usage_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--runs", "1", "--", *words]) == 2
    assert "please report" not in capsys.readouterr().err


def test_a_run_without_a_reading_is_not_compared_as_nought(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        SeriesWriter(tmp_path / name, SeriesFacts("x", 1.0, 1.7e9, "boot", 0.0)).close()
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "a holds no sample" in captured.err


def test_a_spike_that_no_sample_saw_is_in_the_peak_of_a_tree_and_of_a_comparison(tmp_path: Path) -> None:
    runs = []
    for name, peak in (("flat", None), ("spiky", 200 * MIB)):
        runs.append(tmp_path / name)
        runs[-1].mkdir()
        writer = SeriesWriter(runs[-1], SeriesFacts("x", 1.0, 1.7e9, "boot", 0.0))
        lines = [SeriesLine(n, 31000 + n, 7, "w", "", 0, 0.0) for n in (1, 2)]
        one = ProcessSample(pss_bytes=5 * MIB, rss_bytes=6 * MIB)
        for number in range(20):
            tree = ProcessSample(pss_bytes=10 * MIB, peak_rss_bytes=peak if number == 19 else None)
            writer.append(float(number), [(1, one), (2, one), (TREE, tree)], [] if number else lines)
        writer.close()
    flat, spiky = (Recording(run) for run in runs)
    assert "peak 10.0 MiB" in printed(flat)
    assert "peak at least 200.0 MiB" in printed(spiky)
    rows = {row.metric: row for row in compare_runs([runs[0]], [runs[1]]).differences}
    assert (rows["peak"].first, rows["peak"].second) == (10 * MIB, 200 * MIB)


def test_what_came_to_its_limit_between_two_samples_is_not_reported_to_have_held_less(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, SeriesFacts("x", 1.0, 1.7e9, "boot", 0.0))
    line = SeriesLine(1, 31000, 7, "w", "", 0, 0.0)
    for number in range(20):
        around = ProcessSample(
            rss_bytes=9 * MIB,
            cgroup_bytes=2 * number * MIB,
            cgroup_limit_bytes=64 * MIB,
            cgroup_peak_bytes=64 * MIB,  # by an earlier program
            cgroup_limit_hits=7 if number < 19 else 60,
            cgroup_kills=0 if number < 19 else 1,
        )
        writer.append(float(number), [(1, ProcessSample(rss_bytes=9 * MIB)), (TREE, around)], [line])
    writer.close()
    assert "64.0 MiB at most; it reached its limit 53 times; 1 process was killed" in printed(
        Recording(tmp_path)
    )


def test_several_runs_as_json_are_one_array(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(recording.folder)
    (recording.folder / "run.json").write_text("{}")
    plot = str(recording.folder / "both.svg")
    assert main(["monitor", "--json", "--plot", plot, run, run]) == 0
    assert [each["kind"] for each in json.loads(capsys.readouterr().out)] == ["series", "series"]


def busy_recording(folder: Path, *, busy: bool) -> Recording:
    writer = SeriesWriter(folder, SeriesFacts("a server", 0.2, 1.7e9, "boot", 0.0, 8 << 30, "the machine"))
    line = SeriesLine(1, 999_999_999, 5, "a server", "a server", 0, 0.0)
    used = 0.0
    for number in range(150):
        used += 0.15 if busy and number >= 75 else 0.002
        reading = ProcessSample(rss_bytes=50 * MIB, threads=4, cpu_seconds=used)
        writer.append(number / 5, [(1, reading), (TREE, reading)], [line] if number == 0 else [])
    writer.close()
    return Recording(folder)


def test_the_picture_has_a_panel_of_cpu_use_where_it_changes_and_none_where_it_does_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "busy").mkdir()
    (tmp_path / "idle").mkdir()
    recordings = [busy_recording(tmp_path / name, busy=name == "busy") for name in ("busy", "idle")]
    summaries = [summarize(recording) for recording in recordings]
    alone = picture_of(recordings[:1], summaries[:1])
    assert [panel.name for panel in alone.panels] == ["CPU, % of one"]
    percents = alone.panels[0].curves[0].values
    assert max(percents) == pytest.approx(75, abs=1) and min(percents) == pytest.approx(1, abs=1)
    assert "CPU, % of one" in svg(alone)
    assert not picture_of(recordings[1:], summaries[1:]).panels
    assert [len(panel.curves) for panel in picture_of(recordings, summaries).panels] == [2]


def test_one_interval_of_cpu_use_makes_no_empty_panel(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, SeriesFacts("x", 0.1, 1.7e9, "boot", 0.0))
    for number in range(16):
        reading = ProcessSample(rss_bytes=MIB, cpu_seconds=0.09 * number)
        writer.append(number / 10, [(1, reading), (TREE, reading)], [SeriesLine(1, 9, 5, "x", "x", 0, 0.0)])
    writer.close()
    recording = Recording(tmp_path)
    assert not picture_of([recording], [summarize(recording)]).panels


def test_growth_while_threads_are_started_all_the_time_is_reported_as_unproven(recording: Recording) -> None:
    (told,) = [text for text in details(summarize(recording)) if "for each thread started" in text]
    assert told.startswith(
        "it grew by 102.4 KiB for each thread started; that they are the cause is not proven"
    )


def test_a_comparison_tells_what_goes_with_each_thread_that_is_started_more() -> None:
    churning = [figures([(80 + n) * MIB] * 40, None, started=4000.0) for n in (0.0, 0.1, 0.2)]
    steady = [figures([(2 + n) * MIB] * 40, None, started=3.0) for n in (0.0, 0.1, 0.2)]
    found = Comparison(["a"], ["b"], compare(churning, steady))
    assert leftover(found).startswith("each additional thread corresponds to +20.0 KiB at the peak")
    assert not leftover(Comparison(["a"], ["b"], compare(steady, steady)))
    large = [figures([(80 + n) * MIB] * 40, None, started=3.0) for n in (0.0, 0.1, 0.2)]
    assert not leftover(Comparison(["a"], ["b"], compare(large, steady)))


def test_what_triggers_did_is_in_the_picture_as_marks_and_sentences(tmp_path: Path) -> None:
    recording = busy_recording(tmp_path, busy=False)
    trigger = {
        "t": 12.0, "pid": 7, "when": f"rss > 1MiB {EVIL}", "value": "50.0 MiB", "do": "bundle",
        "folder": "triggers/0001", "failed": False,
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps({"triggers": [trigger]}))
    picture = picture_of([recording], [summarize(recording)])
    assert [(mark.t, mark.text.startswith("rss > 1MiB")) for mark in picture.marks] == [(12.0, True)]
    drawn = svg(picture)
    assert "after 12.0 s, when rss &gt; 1MiB" in drawn and "in triggers/0001" in drawn
    assert "<script>" not in drawn


def test_the_stretches_of_the_verdict_are_in_the_picture_and_on_the_page_with_the_values_of_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "gdbmem.monitor.1"
    run.mkdir()
    (run / "run.json").write_text("{}")
    writer = SeriesWriter(run, SeriesFacts("a server", 0.2, 1.7e9, "boot", 0.0, 8 << 30, "the machine"))
    line = SeriesLine(1, 999_999_999, 5, "a server", "a server", 0, 0.0)
    for number in range(300):
        size = 50 * MIB + max(number - 150, 0) * (MIB // 4) + number % 3 * 4096
        reading = ProcessSample(rss_bytes=size, pss_bytes=size, threads=4)
        writer.append(number / 5, [(1, reading), (TREE, reading)], [line] if number == 0 else [])
    writer.close()
    assert main(["monitor", "--json", str(run)]) == 0
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    regimes = verdict["regimes"]
    assert [one["kind"] for one in regimes][-1] == "growing" and len(regimes) > 1
    page = tmp_path / "page.html"
    assert main(["report", str(run), "-o", str(page)]) == 0
    text = page.read_text()
    assert text.count('class="regime"') == len(regimes)
    for one in regimes:
        assert f'data-value="{round(one["change_bytes"])}"' in text, "in the picture"
        assert f'data-value="{one["change_bytes"]}"' in text, "in the table"
    sentence = re.search(r'<p class="sentence">.*?</p>', text)
    assert sentence is not None
    values = [float(value) for value in re.findall(r'data-value="([^"]+)"', sentence[0])]
    assert regimes[-1]["change_bytes"] in values and verdict["slope_bytes_per_second"] in values


def trace_of(recording: Recording) -> list[dict[str, Any]]:
    stream = io.StringIO()
    write_series_trace(stream, recording.facts, recording.samples(), recording.marks, recording.lines)
    events: list[dict[str, Any]] = json.loads(stream.getvalue())["traceEvents"]
    for event in events:  # as the format's description has them
        assert (
            event["ph"] in ("M", "C", "i") and isinstance(event["pid"], int) and isinstance(event["ts"], int)
        )
        assert event["ph"] != "C" or all(type(value) in (int, float) for value in event["args"].values())
        assert event["ph"] != "i" or event["s"] == "g"
    return events


def test_the_counters_of_a_trace_add_up_to_the_series_own_numbers(recording: Recording) -> None:
    events = trace_of(recording)
    sums: dict[tuple[int, str], float] = {}
    for event in events:
        if event["ph"] == "C":
            key = event["pid"], event["name"]
            sums[key] = sums.get(key, 0) + event["args"]["value"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert printable(EVIL) in names.values()
    for metric in ("rss_bytes", "anonymous_bytes", "threads", "threads_started"):
        expected = sum(recording.values(1, metric))
        assert [total for (_, name), total in sums.items() if name == metric] == [expected, expected]
    assert not any(name == "pss_bytes" for _, name in sums), "what was not read is no zero"
    (mark,) = [event for event in events if event["ph"] == "i"]
    assert (mark["name"], mark["ts"]) == (printable(EVIL), 5_000_000)


def test_a_trace_ends_the_counters_of_a_process_that_has_gone_and_shows_the_cgroup_by_itself(
    tmp_path: Path,
) -> None:
    writer = SeriesWriter(tmp_path, SeriesFacts("job", 1.0, 1.7e9, "boot", 0.0))
    first, heir = SeriesLine(1, 70, 5, "a", "a", 0, 0.0), SeriesLine(2, 70, 9, "b", "b", 0, 2.0)
    process = ProcessSample(rss_bytes=4096, threads=1, minor_faults=7)
    tree = process._replace(cgroup_bytes=9 * MIB, cgroup_limit_bytes=16 * MIB)
    writer.append(0.0, [(1, process), (TREE, tree)], [first])
    writer.append(2.0, [(2, process), (TREE, tree)], [first._replace(gone=1.0), heir])
    writer.close()
    counters: dict[tuple[int, str], list[tuple[int, float]]] = {}
    events = trace_of(Recording(tmp_path))
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    for event in events:
        if event["ph"] == "C":
            counters.setdefault((event["pid"], event["name"]), []).append(
                (event["ts"], event["args"]["value"])
            )
    of = {(names[pid], name): points for (pid, name), points in counters.items()}
    assert of["a", "rss_bytes"] == [(0, 4096), (1_000_000, 0)]
    assert of["a", "minor_faults"] == [(0, 7)], "a counter keeps what it has counted"
    assert of["b", "rss_bytes"] == [(2_000_000, 4096)], "another process of the same pid has its own track"
    assert of["cgroup", "cgroup_bytes"] == [(0, 9 * MIB), (2_000_000, 9 * MIB)]


def test_the_rows_of_processes_that_free_their_memory_as_they_end_add_up_to_the_trees_change(
    tmp_path: Path,
) -> None:
    writer = SeriesWriter(tmp_path, SeriesFacts("job", 0.2, 1.7e9, "boot", 0.0))
    lines = [SeriesLine(n, 70 + n, 5, "worker", "worker", 0, 0.0) for n in (1, 2)]
    for number in range(41):
        size = (2 + number if number < 40 else 3) * MIB  # the last sample is of their end
        process = ProcessSample(pss_bytes=size, heap_bytes=size, private_dirty_bytes=size)
        tree = ProcessSample(pss_bytes=2 * size, heap_bytes=2 * size)
        gone = [line._replace(gone=8.0) for line in lines] if number == 40 else lines
        writer.append(0.2 * number, [(1, process), (2, process), (TREE, tree)], gone)
    writer.close()
    summary = summarize(Recording(tmp_path))
    assert summary.first_bytes is not None and summary.last_bytes is not None
    changes = [(row.last_bytes or 0) - (row.first_bytes or 0) for row in summary.lines]
    assert sum(changes) == summary.last_bytes - summary.first_bytes == 78 * MIB
    assert [row.private_dirty_change_bytes for row in summary.lines] == [39 * MIB] * 2
    assert [one.change_bytes for one in summary.components] == [78 * MIB]


def test_the_rows_of_ranks_that_start_and_helpers_that_end_meanwhile_add_up_and_advice_names_the_program(
    tmp_path: Path,
) -> None:
    writer = SeriesWriter(tmp_path, SeriesFacts("mpirun", 0.2, 1.7e9, "boot", 0.0))
    mpirun = SeriesLine(1, 70, 5, "mpirun", "mpirun -n 2 python3 solve.py", 0, 0.0)
    helper = SeriesLine(2, 71, 6, "sh", "sh", 1, 0.0)
    ranks = [SeriesLine(n, 70 + n, 7, "python3", "/usr/bin/python3 solve.py", 1, 0.6) for n in (3, 4)]
    for number in range(41):
        sizes = {1: 4 * MIB}
        sizes |= {2: 3 * MIB} if number < 10 else {3: number * MIB, 4: number * MIB}
        rows = [(n, ProcessSample(pss_bytes=size)) for n, size in sizes.items()]
        tree = ProcessSample(pss_bytes=sum(sizes.values()))
        lines = [mpirun, helper] if number < 3 else [mpirun, helper._replace(gone=2.0), *ranks]
        if number == 40:
            lines = [line._replace(gone=line.gone or 9.0) for line in lines]
        writer.append(0.2 * number, [*rows, (TREE, tree)], lines)
    writer.close()
    recording = Recording(tmp_path)
    summary = summarize(recording)
    changes = {row.line.number: (row.last_bytes or 0) - (row.first_bytes or 0) for row in summary.lines}
    assert changes == {1: 0, 2: -3 * MIB, 3: 40 * MIB, 4: 40 * MIB}
    assert sum(changes.values()) == (summary.last_bytes or 0) - (summary.first_bytes or 0)
    words = ["mpirun", "-n", "2", "python3", "solve.py"]
    assert next_commands(recording, summary, words) == ["mpirun -n 2 gdbmem grow -- python3 solve.py"]
