"""The parser under the shell command and the gdb commands."""

from __future__ import annotations

from typing import Optional

import pytest

from gdbmem.commands.arguments import ArgumentParser, ParserExit, split_program
from gdbmem.commands.description import Command
from gdbmem.commands.options import OUTPUT
from gdbmem.errors import UsageError


def make_parser() -> ArgumentParser:
    return Command("gdbmem diff", "", f"  --minimum SIZE  a size\n  --top N\n  --least N\n{OUTPUT}").parser()


def test_a_wrong_word_raises_a_sentence_instead_of_ending_gdb() -> None:
    with pytest.raises(UsageError) as caught:
        make_parser().parse_args(["--tpo", "3"])
    assert "--tpo" in caught.value.message
    assert caught.value.hint == "did you mean --top?"


def test_help_is_printed_and_does_not_end_gdb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ParserExit):
        make_parser().parse_args(["--help"])
    assert "--minimum" in capsys.readouterr().out


def test_an_abbreviated_option_is_refused_since_a_later_release_may_make_it_ambiguous() -> None:
    with pytest.raises(UsageError, match="--mini"):
        make_parser().parse_args(["--mini", "1KiB"])


@pytest.mark.parametrize(
    ("words", "tried"),
    [
        (["--try", "4711"], "all"),
        (["--try", "trim", "4711"], "trim"),
        (["4711", "--try"], "all"),
        (["4711"], None),
    ],
)
def test_a_process_after_an_option_whose_value_may_be_left_out_is_not_taken_for_its_value(
    words: list[str], tried: Optional[str]
) -> None:
    parser = ArgumentParser(prog="gdbmem explain")
    parser.add_argument("--try", dest="tried", nargs="?", const="all", choices=("purge", "trim", "all"))
    parser.add_argument("pid", nargs="?")
    found = parser.parse_args(words)
    assert (found.pid, found.tried) == ("4711", tried)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["chek", "x"], "gdbmem recipe has no command 'chek'; did you mean 'check'?"),
        (["run", "x"], "gdbmem recipe has no command 'run'; it is one of: check"),
        (["\x1b[2J"], "gdbmem recipe has no command '\\x1b[2J'; it is one of: check"),
        (["--by", "lin"], "gdbmem recipe: --by can't be 'lin'; did you mean 'line'?"),
        (["--by", "x"], "gdbmem recipe: --by can't be 'x'; it is one of: path, line"),
    ],
)
def test_a_word_that_is_none_of_the_possible_ones_is_met_with_those(words: list[str], sentence: str) -> None:
    parser = ArgumentParser(prog="gdbmem recipe")
    parser.add_argument("--by", choices=("path", "line"))
    parser.add_subparsers(dest="action", metavar="check").add_parser("check").add_argument("file")
    with pytest.raises(UsageError) as caught:
        parser.parse_args(words)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--least", "many"],
            "gdbmem diff: --least takes a whole number, not 'many'; see 'gdbmem diff --help'",
        ),
        (["--tpo", "3"], "gdbmem diff has no option --tpo; did you mean --top?"),
        (["--wrong=3"], "gdbmem diff has no option --wrong; see 'gdbmem diff --help'"),
        (
            ["two", "words"],
            "gdbmem diff got an extra argument 'words'; quote a name that contains blanks, or see 'gdbmem diff --help'",
        ),
    ],
)
def test_what_argparse_would_say_in_pythons_words_is_reported_in_ours(
    words: list[str], sentence: str
) -> None:
    parser = make_parser()
    parser.add_argument("name", nargs="?")
    with pytest.raises(UsageError) as caught:
        parser.parse_args(words)
    assert str(caught.value) == sentence


def test_a_wrong_option_of_a_commands_second_word_is_that_words_error() -> None:
    parser = ArgumentParser(prog="gdbmem recipe")
    below = parser.add_subparsers(dest="action", prog="gdbmem recipe")
    below.add_parser("check", is_action=True).add_argument("--strict")
    with pytest.raises(UsageError) as caught:
        parser.parse_args(["check", "--strikt"])
    assert str(caught.value) == "gdbmem recipe check has no option --strikt; did you mean --strict?"


def test_a_bad_size_is_explained_by_our_own_sentence() -> None:
    with pytest.raises(UsageError) as caught:
        make_parser().parse_args(["--minimum", "10"])
    assert "argument --minimum: size '10' has no unit; write 10B, 10KiB or 10MiB" in str(caught.value)
    assert caught.value.slug == "bad-size", "whose paragraph 'gdbmem help' prints"


def test_a_good_size_arrives_as_bytes() -> None:
    assert make_parser().parse_args(["--minimum", "2KiB"]).minimum == 2048


def test_every_report_has_the_same_output_options() -> None:
    options = make_parser().parse_args(["--json", "-o", "-", "--force"])
    assert (options.json, options.output, options.force) == (True, "-", True)


@pytest.mark.parametrize(
    ("words", "own", "program"),
    [
        (["--massif", "./a"], ["--massif", "./a"], None),
        (["./a", "--"], ["./a"], []),
        (["./a", "--", "-x", "--", "y"], ["./a"], ["-x", "--", "y"]),  # the program's own -- is the program's
        ([], [], None),
    ],
)
def test_what_follows_the_first_double_dash_belongs_to_the_program(
    words: list[str], own: list[str], program: list[str] | None
) -> None:
    assert split_program(words) == (own, program)
