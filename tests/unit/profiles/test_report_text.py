"""Printed output: the tables of a diff and of a snapshot, the timeline, the list of a run."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import pytest

from gdbmem.errors import Notice
from gdbmem.model.calltree import CallTree, Totals, peak_index, peak_tree_index
from gdbmem.profiles.diff import diff_snapshots
from gdbmem.profiles.paths import Query
from gdbmem.profiles.text import print_diff, print_sites, print_timeline
from gdbmem.profiles.timeline import columns_of, peak_sentence
from gdbmem.runs.listing import print_snapshots
from gdbmem.runs.run import SnapshotRecord
from gdbmem.terminal.console import make_console
from gdbmem.terminal.drawing import SourceLines
from tests.unit.trees import PRUNED_NODE, at, snapshot, tree

ALLOCATE = at("allocate", "/usr/include/c++/12/bits/new_allocator.h:137")
INSERT = at(
    "std::map<long, State, std::less<long> >::operator[](long)", "/usr/include/c++/12/bits/stl_map.h:511"
)
LEAK = at("Decoder::remember(long)", "/src/decoder.cpp:120")
LOAD = at("load", "/src/load.cpp:7")
MAIN = at("main", "/src/main.cpp:9")
MIB = 1 << 20


def drawn(before: CallTree, after: CallTree, *, width: int = 80, color: bool = False, **query: Any) -> str:
    stream = io.StringIO()
    difference = diff_snapshots(snapshot(before, "A"), snapshot(after, "B"))
    print_diff(difference, Query(**query), make_console(stream, width=width, color=color))
    return stream.getvalue()


def leak(*, line_bytes: int = 6 * MIB) -> tuple[CallTree, CallTree]:
    path = (ALLOCATE, line_bytes, (INSERT, line_bytes, (LEAK, line_bytes, (MAIN, line_bytes))))
    return tree(MIB, (LOAD, MIB, (MAIN, MIB))), tree(line_bytes + 512, path, (LOAD, 512, (MAIN, 512)))


def test_the_answer_comes_first_then_the_paths_then_the_total() -> None:
    lines = drawn(*leak()).splitlines()
    assert lines == [
        "heap grew by 5.0 MiB from A to B; decoder.cpp:120 (Decoder::remember) grew by 6.0 MiB, the rest"
        " shrank by 1,023.5 KiB",
        "",
        "      change  where",
        "    +6.0 MiB  decoder.cpp:120  Decoder::remember",
        "              by std::map<…>::operator[] (stl_map.h:511)",
        "              ← main.cpp:9  main",
        "-1,023.5 KiB  load.cpp:7  load",
        "              ← main.cpp:9  main",
        "    +5.0 MiB  total",
    ]


def test_a_wide_screen_shows_before_and_after() -> None:
    header = drawn(*leak(), width=120).splitlines()[2]
    assert header.split() == ["change", "before", "after", "where"]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("query", [{}, {"by": "line"}, {"inverted": True}, {"all_frames": True}])
def test_no_line_of_the_table_is_wider_than_the_screen(width: int, query: dict[str, Any]) -> None:
    lines = drawn(*leak(), width=width, **query).splitlines()[1:]
    assert max(map(len, lines)) <= width
    assert any("decoder.cpp:120" in line for line in lines), "a place is never shortened away"


@pytest.mark.parametrize("query", [{}, {"by": "line"}, {"inverted": True}])
def test_a_narrow_screen_gets_names_under_the_numbers_and_breaks_none(query: dict[str, Any]) -> None:
    before, after = leak()
    with_blocks = [one.with_columns(blocks=[n + 1 for n in range(len(one))][::-1]) for one in (before, after)]
    lines = drawn(*with_blocks, width=40, **query).splitlines()[1:]
    assert max(map(len, lines)) <= 40
    assert any("decoder.cpp:120  Decoder::remember" in line for line in lines)
    assert "by" in query or any("main.cpp:9  main" in line for line in lines)
    assert any("+6.0 MiB" in line and " blocks" in line for line in lines)
    assert any(line.startswith("+5.0 MiB") and line.endswith("  total") for line in lines)


def test_a_pipe_gets_the_answer_as_one_line_however_narrow() -> None:
    assert "Decoder::remember" in drawn(*leak(), width=40).splitlines()[0]


def test_nothing_but_text_goes_where_there_are_no_colours() -> None:
    assert "\x1b" not in drawn(*leak())
    colored = drawn(*leak(), color=True)
    assert "\x1b[31m+6.0 MiB" in colored and "\x1b[32m-1,023.5 KiB" in colored


def test_markup_and_escapes_in_symbols_are_text() -> None:
    evil = at("[red]f[/red][link=file:///etc]\x1b[31m", "/src/[bold]a.cpp:1")
    text = drawn(tree(0), tree(9, (evil, 9)), all_frames=True)
    assert "[red]f[/red][link=file:///etc]\\x1b[31m" in text
    assert "[bold]a.cpp:1" in text


def test_doubt_stands_under_the_amount_and_is_explained() -> None:
    before = tree(400, (LEAK, 400, (MAIN, 400)))
    text = drawn(before, tree(7, (PRUNED_NODE, 7), threshold_bytes=10))
    assert re.search(r"-400 B  decoder\.cpp:120  Decoder::remember\n *± 7 B  ← main", text)
    assert "call sites under the threshold, not listed" in text
    assert "note: call sites under 10 B are not listed" in text


def test_more_rows_than_asked_for_are_summed_up() -> None:
    frames = [at(f"f{n}", f"/src/a.cpp:{n}") for n in range(1, 21)]
    text = drawn(tree(0), tree(20 * MIB, *((frame, MIB) for frame in frames)))
    assert re.search(r"\+10\.0 MiB  … 10 more paths\n *\+20\.0 MiB  total\n", text)
    assert "… 1 more line\n" in drawn(tree(0), tree(9, (LEAK, 5), (LOAD, 4)), top=1, by="line")


def test_known_and_unasked_paths_have_rows_of_their_own() -> None:
    known = drawn(*leak(), known=[re.compile("remember")])
    assert re.search(r"\+6\.0 MiB  known: 1 path\n", known)
    assert "1 path not selected" in drawn(*leak(), focus=re.compile("remember"))


def test_recursion_is_counted_not_listed() -> None:
    again = at("walk", "/src/walk.cpp:5")
    path: Any = (MAIN, 9)
    for _ in range(25):
        path = (again, 9, path)
    text = drawn(tree(0), tree(9, (LEAK, 9, path)))
    assert "← walk.cpp:5  walk  25 times" in text


def test_a_long_path_keeps_both_its_ends() -> None:
    path: Any = (MAIN, 9)
    for number in range(25):
        path = (at(f"f{number}", f"/src/f.cpp:{number + 1}"), 9, path)
    text = drawn(tree(0), tree(9, (LEAK, 9, path)))
    assert "← … 19 more frames" in text
    assert "f24" in text and "main.cpp:9" in text and "f12" not in text


def test_files_of_one_name_are_distinguished_by_their_folders() -> None:
    one, two = at("f", "/src/net/io.cpp:3"), at("g", "/src/disk/io.cpp:3")
    text = drawn(tree(0), tree(9, (one, 5), (two, 4)))
    assert "net/io.cpp:3" in text and "disk/io.cpp:3" in text


def test_inverted_draws_what_paths_share_once() -> None:
    after = tree(9, (LEAK, 5, (MAIN, 5)), (LOAD, 4, (MAIN, 4)))
    lines = drawn(tree(0), after, inverted=True).splitlines()[2:]
    assert lines == [
        "change  where",
        "  +9 B  main.cpp:9  main",
        "  +5 B    decoder.cpp:120  Decoder::remember",
        "  +4 B    load.cpp:7  load",
        "  +9 B  total",
    ]


def test_inverted_every_line_has_its_number_and_stands_under_its_caller() -> None:
    work = at("work", "/src/pool.cpp:3")
    after = tree(9, (LEAK, 5, (work, 5, (MAIN, 5))), (LOAD, 4, (at("run", "/src/run.cpp:2"), 4)))
    lines = drawn(tree(0), after, inverted=True).splitlines()[2:]
    assert lines == [
        "change  where",
        "  +5 B  main.cpp:9  main",
        "  +5 B    pool.cpp:3  work",
        "  +5 B      decoder.cpp:120  Decoder::remember",
        "  +4 B  run.cpp:2  run",
        "  +4 B    load.cpp:7  load",
        "  +9 B  total",
    ]


def test_blocks_have_a_column_where_they_are_known() -> None:
    text = drawn(tree(0, blocks=[0]), tree(9000, (LEAK, 9000), blocks=[1500, 1500]))
    assert re.search(r"\+8\.8 KiB  \+1,500  decoder", text)


def test_an_ascii_terminal_gets_ascii_only() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    before = tree(400, (LEAK, 400, (MAIN, 400)))
    result = diff_snapshots(snapshot(before), snapshot(tree(7, (PRUNED_NODE, 7), threshold_bytes=10)))
    print_diff(result, Query(), make_console(stream, width=80))
    print_timeline(FakeProfile(series(1, 5, 3)), make_console(stream, width=80))
    stream.flush()
    assert b"~ 7 B" in raw.getvalue() and b"#" in raw.getvalue()


# --- the source line


def test_the_source_line_itself_is_shown_where_it_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "decoder.cpp"
    file.write_text("// one\n\tstates_[id] = State{id};\n")
    after = tree(9, (at("remember", f"{file}:2"), 9))
    assert "2 │ states_[id] = State{id};" in drawn(tree(0), after)
    colored = drawn(tree(0), tree(9, (at("remember", f"{file}:1"), 9)), color=True)
    assert re.search(r"\x1b\[90m// one", colored)


def test_a_bare_file_name_is_looked_for_in_the_folders_given_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.cpp").write_text("int x;\n")
    monkeypatch.chdir(tmp_path)
    assert SourceLines().line("a.cpp", 1) is None
    assert SourceLines([str(tmp_path)]).line("a.cpp", 1) == "int x;"
    assert SourceLines([str(tmp_path)]).line("src/a.cpp", 1) == "int x;"


def test_a_line_that_is_not_there_is_not_invented(tmp_path: Path) -> None:
    file = tmp_path / "a.cpp"
    file.write_text("int x;\n   \n")
    sources = SourceLines()
    assert [sources.line(str(file), number) for number in (0, 1, 2, 3, 99)] == [
        None,
        "int x;",
        None,
        None,
        None,
    ]
    assert sources.line(str(tmp_path / "none.cpp"), 1) is None
    assert sources.line(None, 1) is None and sources.line(str(file), None) is None


def test_a_fifo_a_folder_and_a_device_are_no_source(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    sources = SourceLines()
    assert [sources.line(str(path), 1) for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero"))] == [
        None
    ] * 3


def test_a_source_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.cpp").open("wb") as stream:
        stream.write(b"int x;\n")
        stream.truncate(3 << 30)
    assert SourceLines().line(str(tmp_path / "huge.cpp"), 1) is None


def test_a_source_line_can_not_drive_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "a.cpp"
    file.write_bytes(b"int x; // \x1b]0;gone\x07 \xff" + b"y" * 5000 + b"\n")
    line = SourceLines().line(str(file), 1)
    assert line is not None and "\x1b" not in line and "\\xff" in line
    assert len(line) < 500


# --- profiles and runs


@dataclass
class FakeProfile:
    snapshots: Sequence[Totals]
    source: str = "massif.out.1"
    source_format: str = "massif"
    command: str = "./decoder"
    time_unit: str = "i"
    unit: str = "bytes of heap"
    notices: Sequence[Notice] = ()
    marked_peak_index: Optional[int] = None

    @property
    def peak_index(self) -> int:
        return peak_index(self.snapshots)

    @property
    def peak_tree_index(self) -> Optional[int]:
        return peak_tree_index(self.snapshots)

    def tree(self, index: int) -> Optional[CallTree]:
        return tree(self.snapshots[index].heap_bytes)


def series(*sizes: int, trees: tuple[int, ...] = ()) -> list[Totals]:
    return [Totals(n, n * 1000.0, size, 0, 0, n in trees) for n, size in enumerate(sizes)]


def timeline(profile: FakeProfile, *, width: int = 60) -> list[str]:
    stream = io.StringIO()
    print_timeline(profile, make_console(stream, width=width))
    return stream.getvalue().splitlines()


def test_the_timeline_rises_to_the_peak_and_marks_it() -> None:
    lines = timeline(FakeProfile(series(0, 10, 80, 40, trees=(1, 2))))
    chart = [line for line in lines if "│" in line]
    assert len(chart) == 8
    assert chart[0].startswith("80 B │") and chart[0].endswith("█")
    assert max(map(len, chart)) <= 60
    marks = next(line for line in lines if "▲" in line)
    assert marks.count("▲") == 1 and marks.count("▴") == 1
    assert marks.index("▲") == chart[0].index("█"), "the mark stands under the peak's column"


def test_a_snapshot_is_never_lost_between_two_columns() -> None:
    totals = series(*([1] * 500 + [9999] + [1] * 500))
    columns = columns_of(totals, 40)
    assert len(columns) == 40
    assert max(column.total_bytes for column in columns) == 9999


def test_what_the_allocator_takes_is_drawn_above_the_heap() -> None:
    totals = [Totals(n, n, 40, 40, 0, False) for n in range(3)]
    assert any("░" in line for line in timeline(FakeProfile(totals)))


def test_the_timelines_key_is_not_torn_apart_on_a_usual_screen() -> None:
    totals = [Totals(n, n, 50 * MIB, MIB, 0, n == 1) for n in range(3)]
    for width in (50, 60, 80, 120):
        lines = timeline(FakeProfile(totals), width=width)
        assert max(len(line) for line in lines if "peak:" not in line) <= width
        for key in ("▲ peak", "▴ snapshot with a call tree", "░ allocator overhead and stacks"):
            assert any(key in line for line in lines)


def test_the_peak_is_the_largest_snapshot_not_massifs_mark() -> None:
    profile = FakeProfile(series(0, 100, 80, 20, trees=(2,)), marked_peak_index=2)
    assert peak_sentence(profile) == (
        "peak: 100 B in snapshot 1, at 1.0 k instructions; the largest call tree is that of snapshot 2,"
        " with 80 B (80 % of the peak); massif's own mark is on snapshot 2, which is 20.0 % smaller"
    )


@pytest.mark.parametrize(
    ("trees", "end"),
    [
        ((1,), ", with a call tree"),
        ((), "; no snapshot has a call tree"),
        ((3,), "; the largest call tree is that of snapshot 3, with 20 B (20 % of the peak)"),
    ],
)
def test_the_tree_nearest_to_the_peak_is_named(trees: tuple[int, ...], end: str) -> None:
    assert end in peak_sentence(FakeProfile(series(0, 100, 100, 20, trees=trees)))


@pytest.mark.parametrize("sizes", [(5,), (0, 0, 0)])
def test_a_series_of_nothing_draws_no_chart(sizes: tuple[int, ...]) -> None:
    assert not any("│" in line for line in timeline(FakeProfile(series(*sizes))))


def test_sites_are_shown_with_their_share_of_the_heap() -> None:
    stream = io.StringIO()
    held = snapshot(tree(1000, (LEAK, 750), (LOAD, 250)))
    print_sites(held, Query(by="line"), make_console(stream, width=80), moment="snapshot 3")
    assert stream.getvalue().splitlines() == [
        "heap holds 1,000 B at snapshot 3; 75 % of it from decoder.cpp:120 (Decoder::remember)",
        "",
        "  bytes    share  where",
        "  750 B   75.0 %  decoder.cpp:120  Decoder::remember",
        "  250 B   25.0 %  load.cpp:7  load",
        "1,000 B  100.0 %  total",
    ]


def record(
    name: str,
    heap_bytes: Optional[int] = None,
    place: Optional[str] = None,
    thread: Optional[int] = None,
    hit: Optional[int] = None,
    seconds: Optional[float] = None,
    process: Optional[int] = None,
) -> SnapshotRecord:
    return SnapshotRecord(
        name,
        1,
        "snapshots/0001.massif",
        "massif",
        place,
        thread,
        hit,
        seconds,
        heap_bytes,
        process,
        name=name,
    )


def test_what_another_process_dumped_is_distinguished_and_compared_with_its_own() -> None:
    stream = io.StringIO()
    records = [
        record("here#1", 2 * MIB, "main at a.c:1", 1, 1, 0.5, process=7),
        record("own#1", 9 * MIB, seconds=0.6, process=8),
        record("own#2", 3 * MIB, seconds=0.7, process=7),
        record("own#3", 10 * MIB, seconds=0.8, process=8),
        record("here#2", 1 * MIB, "main at a.c:1", 1, 2, 0.9, process=9),
    ]
    print_snapshots(records, make_console(stream, width=100))
    lines = [line.split() for line in stream.getvalue().splitlines()[1:]]
    assert lines[1] == ["own#1", "9.0", "MiB", "600", "ms", "process", "8"]
    assert lines[2] == ["own#2", "3.0", "MiB", "+1.0", "MiB", "700", "ms"], "the program's, after its own"
    assert lines[3][3:5] == ["+1.0", "MiB"] and lines[3][-2:] == ["process", "8"]
    assert lines[4][3:] == ["900", "ms", "2", "main", "at", "a.c:1", "(process", "9)"], (
        "of the program started again, from anew"
    )


def test_a_run_on_a_narrow_screen_breaks_neither_names_nor_places() -> None:
    stream = io.StringIO()
    records = [
        record("loaded#1", 13 * MIB, "main at decoder.cpp:313", 1, 1, 1.9),
        record("decoded#1", 17 * MIB, "main at decoder.cpp:316", 1, 1, 2.5),
    ]
    print_snapshots(records, make_console(stream, width=40))
    assert stream.getvalue().splitlines() == [
        "loaded#1  13.0 MiB  after 1.9 s  hit 1",
        "  main at decoder.cpp:313",
        "decoded#1  17.0 MiB  +4.0 MiB",
        "after 2.5 s  hit 1",
        "  main at decoder.cpp:316",
    ]


def test_a_run_lists_what_is_known_of_each_snapshot() -> None:
    stream = io.StringIO()
    records = [
        record("loaded", 1000, "Decoder::load at decoder.cpp:30", 1, 1, 0.25),
        record("unnamed-0002"),
        record("a[red]b\x1b", 3048, "reset at decoder.cpp:99", 3, 1000, 90.0),
    ]
    print_snapshots(records, make_console(stream, width=100))
    lines = stream.getvalue().splitlines()
    assert lines[0].split() == ["name", "heap", "change", "after", "hit", "where"]
    assert lines[1].split() == [
        "loaded",
        "1,000",
        "B",
        "250",
        "ms",
        "1",
        "Decoder::load",
        "at",
        "decoder.cpp:30",
    ]
    assert lines[2].split() == ["unnamed-0002", "?"]
    assert (
        "a[red]b\\x1b" in lines[3]
        and "+2.0 KiB" in lines[3]
        and "reset at decoder.cpp:99 (thread 3)" in lines[3]
    )
