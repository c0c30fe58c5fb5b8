"""Tables without rich."""

from __future__ import annotations

import io

import pytest

from gdbmem.report.plain import PlainConsole, PlainTable, PlainText


def table() -> PlainTable:
    made = PlainTable(box=None)
    made.add_column("size", justify="right", no_wrap=True)
    made.add_column("where", overflow="fold")
    made.add_row(
        PlainText("+4.0 KiB", "red"), PlainText("a.c:1").append("\n    words that go on and on and on")
    )
    made.add_row("0 B", "b.c:2")
    return made


def test_numbers_stay_whole_and_the_last_column_is_broken_into_lines() -> None:
    assert table().lines(32) == [
        "    size  where",
        "+4.0 KiB  a.c:1",
        "              words that go on",
        "              and on and on",
        "     0 B  b.c:2",
    ]


def test_a_narrow_screen_still_shows_every_number() -> None:
    assert any(line.startswith("+4.0 KiB  a.c:1") for line in table().lines(10))


def test_a_column_that_is_cut_keeps_its_line() -> None:
    made = PlainTable()
    made.add_column("line", justify="right")
    made.add_column("source", no_wrap=True, overflow="ellipsis", ratio=1)
    made.add_row("7", "x" * 100)
    assert made.lines(40)[1] == "   7  " + "x" * 34


def test_the_console_prints_text_tables_and_empty_lines() -> None:
    stream = io.StringIO()
    console = PlainConsole(stream, 40)
    console.print(PlainText.assemble(("a", "bold"), "b"), soft_wrap=True)
    console.print()
    console.print(table())
    assert stream.getvalue().startswith("ab\n\n    size  where\n")


def test_numbers_of_a_column_that_may_be_folded_stay_in_line() -> None:
    made = PlainTable()
    made.add_column("what", overflow="fold")
    made.add_column("size", justify="right", overflow="fold", no_wrap=True)
    made.add_row("heap", "1")
    made.add_row("a longer name", "20")
    assert made.lines(60) == ["what           size", "heap              1", "a longer name    20"]


@pytest.mark.parametrize("draw", ["text", "table", "console"])
def test_what_cannot_be_drawn_without_rich_says_so_and_is_no_bug(draw: str) -> None:
    things = {"text": PlainText("x"), "table": table(), "console": PlainConsole(io.StringIO(), 40)}
    with pytest.raises(ImportError) as caught:
        things[draw].render_lines()
    assert caught.value.name == "rich"


def test_a_chart_is_not_printed_as_the_name_of_an_object() -> None:
    with pytest.raises(ImportError):
        PlainConsole(io.StringIO(), 40).print(object())  # type: ignore[arg-type]
