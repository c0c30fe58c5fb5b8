"""Sizes and durations: what is printed, what is read, what is refused."""

from __future__ import annotations

import pytest

from gdbmem.errors import InputError
from gdbmem.text import format_delta, format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1.0 MiB"),  # never "1,024.0 KiB"
        (1024**2, "1.0 MiB"),
        (int(2.25 * 1024**3), "2.2 GiB"),
        (5 * 1024**6, "5,120.0 PiB"),  # beyond the last unit the number grows
        (-2048, "-2.0 KiB"),
        (-1, "-1 B"),
    ],
)
def test_a_size_is_printed_in_the_unit_that_keeps_it_short(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(("size", "text"), [(1536, "+1.5 KiB"), (0, "0 B"), (-3, "-3 B")])
def test_a_delta_always_shows_which_way_it_went(size: int, text: str) -> None:
    assert format_delta(size) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("0.0", 0),
        ("12B", 12),
        ("1KiB", 1024),
        ("1kB", 1000),
        ("1KB", 1000),
        ("10MiB", 10 * 1024**2),
        ("1.5 GiB", 3 * 1024**3 // 2),
        (".5MiB", 512 * 1024),
        ("+4kib", 4096),
        ("-4KiB", -4096),
        ("  2 TiB  ", 2 * 1024**4),
        ("3PB", 3 * 1000**5),
    ],
)
def test_a_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_a_huge_size_is_read_exactly_where_a_float_would_round() -> None:
    assert parse_size("9007199254740993B") == 9007199254740993


@pytest.mark.parametrize(
    "text", ["", "ten", "1.2.3MiB", "1 MiB of heap", "MiB", "1e6B", "0x10B", "- -1B", "∞B"]
)
def test_what_is_no_size_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_size(text)
    assert f"'{text}'" in caught.value.message
    assert caught.value.slug == "bad-size"


def test_a_bare_number_is_refused_with_the_spellings_that_would_do() -> None:
    with pytest.raises(InputError) as caught:
        parse_size("10")
    assert "no unit" in str(caught.value)
    assert "10MiB" in caught.value.hint


def test_an_unknown_unit_is_named() -> None:
    with pytest.raises(InputError, match="unknown unit 'Mo'"):
        parse_size("10Mo")


@pytest.mark.parametrize("size", [0, 7, 1000, 1024, 3 * 1024**2, 17 * 1024**4])
def test_what_is_printed_can_be_typed_back(size: int) -> None:
    printed = format_size(size).replace(",", "")
    assert parse_size(printed) == pytest.approx(size, rel=0.05)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("500ms", 0.5),
        ("0.2s", 0.2),
        ("10 sec", 10),
        ("10min", 600),
        ("2m", 120),
        ("2h", 7200),
        ("1.5d", 129600),
    ],
)
def test_a_duration_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "-1s", "soon", "3 weeks", "1:30", "nan s"])
def test_what_is_no_duration_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_duration(text)
    assert f"'{text}'" in caught.value.message
    assert caught.value.slug == "bad-duration"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0851, "85 ms"),
        (2.44, "2.4 s"),
        (59.9, "59.9 s"),
        (700, "11 min 40 s"),
        (12000, "3 h 20 min"),
    ],
)
def test_a_duration_is_printed_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("seconds", [0.9996, 59.96, 59.999])
def test_a_duration_on_the_edge_of_a_unit_never_overflows_it(seconds: float) -> None:
    assert format_duration(seconds) not in ("1000 ms", "60.0 s")
