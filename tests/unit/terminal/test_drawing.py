"""Text and tables: what does not fit is broken between words, and numbers stay whole."""

from __future__ import annotations

import io

import pytest

from gdbmem.terminal.console import Console, make_console
from gdbmem.terminal.drawing import ELLIPSIS, Table, Text, cells_of, new_table


def lines(made: Table, width: int) -> list[str]:
    return [line.plain for line in made.lines(width)]


def table() -> Table:
    made = Table()
    made.add_column("size", justify="right", no_wrap=True)
    made.add_column("where", overflow="fold")
    made.add_row(Text("+4.0 KiB", "red"), Text("a.c:1").append("\n    words that go on and on and on"))
    made.add_row("0 B", "b.c:2")
    return made


def test_numbers_stay_whole_and_the_last_column_is_broken_into_lines() -> None:
    assert lines(table(), 32) == [
        "    size  where",
        "+4.0 KiB  a.c:1",
        "              words that go on",
        "              and on and on",
        "     0 B  b.c:2",
    ]


def test_a_narrow_screen_still_shows_every_number() -> None:
    assert any(line.startswith("+4.0 KiB  a.c:1") for line in lines(table(), 10))


def test_a_column_that_is_cut_keeps_its_line_and_shows_that_it_was_cut() -> None:
    made = Table()
    made.add_column("line", justify="right", no_wrap=True)
    made.add_column("source", no_wrap=True, overflow="ellipsis")
    made.add_row("7", "x" * 100)
    assert lines(made, 40)[1] == "   7  " + "x" * 33 + "…"


def test_of_two_columns_of_words_the_wider_one_gives_way() -> None:
    made = Table()
    made.add_column("remedy")
    made.add_column("what it costs")
    made.add_row("malloc_trim(0)", "a pause as long as the heap is large, " * 3)
    found = lines(made, 60)
    assert found[1].startswith("malloc_trim(0)  a pause as long")
    assert max(map(len, found)) <= 60


def test_numbers_of_a_column_that_may_be_folded_stay_in_line() -> None:
    made = Table()
    made.add_column("what", overflow="fold")
    made.add_column("size", justify="right", overflow="fold", no_wrap=True)
    made.add_row("heap", "1")
    made.add_row("a longer name", "20")
    assert lines(made, 60) == ["what           size", "heap              1", "a longer name    20"]


def test_wide_letters_leave_the_columns_in_line() -> None:
    made = Table()
    made.add_column("name")
    made.add_column("size", justify="right", no_wrap=True)
    made.add_row("日本", "1")
    made.add_row("abcd", "2")
    assert lines(made, 40) == ["name  size", "日本     1", "abcd     2"]


@pytest.mark.parametrize("text", ["one two three four", "日本語 の 名前 です", "x" * 50, "a  " * 20, ""])
@pytest.mark.parametrize("width", [1, 2, 5, 9, 100])
def test_broken_text_loses_no_letter_and_fits(text: str, width: int) -> None:
    found = Text(text).wrapped(width)
    assert "".join("".join(line.plain for line in found).split()) == "".join(text.split())
    assert max(cells_of(line.plain) for line in found) <= max(width, 2)


def test_the_console_prints_text_tables_and_empty_lines() -> None:
    stream = io.StringIO()
    console = Console(stream, width=40)
    console.print(Text.assemble(("a", "bold"), "b"), soft_wrap=True)
    console.print()
    console.print(table())
    assert stream.getvalue().startswith("ab\n\n    size  where\n")


def test_colours_end_where_their_text_does_and_are_kept_where_a_line_is_broken() -> None:
    stream = io.StringIO()
    console = Console(stream, width=40, has_colors=True)
    console.print(Text.assemble(("grew", "bold red"), " by 4"))
    console.print(Text("word " * 10, "dim"))
    first, *others = stream.getvalue().splitlines()
    assert first == "\x1b[1;31mgrew\x1b[0m by 4"
    assert [line.startswith("\x1b[2mword") and line.endswith("\x1b[0m") for line in others] == [True, True]


@pytest.mark.parametrize("width", [40, 80])
def test_a_path_in_the_last_column_can_be_copied_whole(width: int) -> None:
    path = "/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache"
    table = new_table("resident", last="what")
    table.add_row("28.0 KiB", f"pages of other mapped files; {path} 28.0 KiB")
    lines = [line.plain for line in table.lines(width)]
    assert any(path in line for line in lines)
    assert {len(line) - len(line.lstrip()) for line in lines[2:]} == {10}


def test_what_is_cut_off_is_marked_in_the_characters_that_the_terminal_has() -> None:
    for encoding, mark in (("ascii", "~"), ("utf-8", ELLIPSIS)):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        table = Table()
        table.add_column("source", no_wrap=True, overflow="ellipsis")
        table.add_row("x" * 60)
        console = make_console(stream, width=40)
        console.print(table)
        stream.flush()
        assert stream.buffer.getvalue().decode(encoding).splitlines()[1] == "x" * 39 + mark
