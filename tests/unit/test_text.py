"""Strangers' text must not reach a terminal as anything but visible characters."""

from __future__ import annotations

import os

import pytest

from gdbmem.text import plural, printable


@pytest.mark.parametrize(
    "text",
    [
        "",
        "main",
        "std::vector<int>::push_back(int&&)",
        "Größe",
        "函数",
        "naïve/файл.cpp",
        "a b",
        "~Decoder()",
        "👍",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),  # would clear the screen
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),  # would set the window's title
        ("\x9b31m", "\\x9b31m"),  # CSI in one byte
        ("a\rb", "a\\rb"),  # would overwrite the line
        ("a\nb", "a\\nb"),
        ("a\tb", "a\\tb"),
        ("a\x00b", "a\\x00b"),
        ("a\x7fb", "a\\x7fb"),
        ("\u202eevil", "\\u202eevil"),  # would reverse what follows
        ("a\u200bb", "a\\u200bb"),  # invisible
        ("a\u2028b", "a\\u2028b"),
        ("\ue000", "\\ue000"),
        ("\U000e0041", "\\U000e0041"),  # an invisible tag character
    ],
)
def test_what_a_terminal_would_obey_or_hide_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_bytes_of_a_file_name_that_are_no_utf8_are_shown_as_those_bytes() -> None:
    assert printable(os.fsdecode(b"caf\xe9.cpp")) == "caf\\xe9.cpp"


@pytest.mark.parametrize(
    "text", [chr(code) for code in range(32)] + ["\x7f", "\x80", "\x9f", "\ud800", "\udfff"]
)
def test_the_result_can_always_be_printed_and_encoded(text: str) -> None:
    result = printable(f"a{text}b")
    assert result.isprintable()
    result.encode("utf-8")


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 snapshots"), (1, "1 snapshot"), (2, "2 snapshots"), (12345, "12,345 snapshots")],
)
def test_counted_things_agree_with_their_number(count: int, words: str) -> None:
    assert plural(count, "snapshot") == words


def test_a_plural_that_has_its_own_form_is_used() -> None:
    assert plural(2, "entry", "entries") == "2 entries"
    assert plural(1, "entry", "entries") == "1 entry"


def test_words_in_y_have_their_plural() -> None:
    assert plural(2, "more library") == "2 more libraries"
    assert plural(2, "day") == "2 days"
