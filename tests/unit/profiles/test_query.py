from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from gdbmem.commands.description import Command
from gdbmem.commands.options import query
from gdbmem.errors import InputError, UsageError
from gdbmem.model.calltree import Frame
from gdbmem.profiles.paths import Query, frame_text, parse_known, query_from
from tests.unit.trees import at


def parse(*words: str, by: str = "path") -> Query:
    command = Command("gdbmem diff", "", query(by), top=None, by=None, default_by=by)
    return query_from(command.parser().parse_args(words))


def test_without_options_the_largest_paths_are_listed() -> None:
    query = parse()
    assert (query.by, query.top, query.min_bytes, query.known) == ("path", None, 0, ())
    assert not query.filters


def test_every_option_reaches_the_query(tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("cache\n")
    words = ["--top", "3", "--by", "line", "--min", "2KiB", "--focus", "a+", "--ignore", "b", "--all-frames"]
    query = parse(*words, "--known", str(known), "--source", "/src", "--source", "/more")
    assert (query.top, query.by, query.min_bytes, query.all_frames) == (3, "line", 2048, True)
    assert query.focus is not None and query.ignore is not None and query.filters
    assert (query.focus.pattern, query.ignore.pattern) == ("a+", "b")
    assert [pattern.pattern for pattern in query.known] == ["cache"]
    assert query.source_folders == ["/src", "/more"]


def test_inverted_draws_paths_whatever_the_commands_default_is() -> None:
    assert parse("--inverted", by="line").by == "path"


def test_inverted_lines_are_refused_rather_than_ignored() -> None:
    with pytest.raises(UsageError, match="--by line"):
        parse("--inverted", "--by", "line")


@pytest.mark.parametrize("option", ["--focus", "--ignore"])
def test_a_bad_regex_is_a_sentence(option: str) -> None:
    with pytest.raises(UsageError, match=rf"{option}: 'operator\(' is not a regular expression") as caught:
        parse(option, "operator(")
    assert "\\(" in caught.value.hint


@pytest.mark.parametrize("words", [("--top", "0"), ("--top", "x"), ("--min", "10"), ("--by", "address")])
def test_a_value_that_says_nothing_is_refused(words: tuple[str, str]) -> None:
    with pytest.raises(UsageError):
        parse(*words)


def test_a_regex_of_a_former_python_makes_no_noise() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse("--focus", "[[a]").focus is not None


def test_a_known_file_may_explain_itself() -> None:
    patterns = parse_known("# the cache is bounded\n\n  Cache::insert  \r\n#x\nlog\\.cpp:\\d+\n", "known.txt")
    assert [pattern.pattern for pattern in patterns] == ["Cache::insert", "log\\.cpp:\\d+"]


def test_a_bad_line_of_a_known_file_is_named_with_its_number() -> None:
    with pytest.raises(InputError, match=r"known\.txt:3: .* is not a regular expression"):
        parse_known("a\n#\n*\n", "known.txt")


def test_a_known_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        parse("--known", str(tmp_path / "none"))


def test_a_known_file_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    known = tmp_path / "known"
    with known.open("wb") as stream:
        stream.truncate(5 << 30)
    with pytest.raises(InputError, match=r"over 1\.0 MiB"):
        parse("--known", str(known))


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (at("f(int)", "/src/a.cpp:3"), "f(int) (/src/a.cpp:3)"),
        (at("f", "libx.so"), "f (in libx.so)"),
        (Frame(), "??? (in ???)"),
        (Frame("f", "a.cpp"), "f (a.cpp)"),
    ],
)
def test_regexes_see_a_frame_as_massif_prints_it(frame: Frame, text: str) -> None:
    assert frame_text(frame) == text
