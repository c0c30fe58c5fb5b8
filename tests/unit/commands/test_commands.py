"""The descriptions of commands: the options, values and defaults that users and their scripts rely on."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from gdbmem import line_recorder
from gdbmem.api.profiles import FORMATS
from gdbmem.cli.main import load
from gdbmem.commands.description import Command, Option
from gdbmem.commands.in_gdb import GDB_COMMANDS, LAUNCHED_COMMANDS
from gdbmem.commands.options import LEDGER, OUTPUT, READING, query
from gdbmem.commands.shell import SHELL_COMMANDS
from gdbmem.engines import engine, massif
from gdbmem.errors import UsageError
from gdbmem.profiles import export
from gdbmem.profiles import paths as queries
from gdbmem.steps import steps
from tests.unit.sources import PACKAGE

# What each command takes: {command: [option, …]}. An option may join; one that goes, or changes, is missed by somebody.
RECORDED = Path(__file__).with_name("command_options.json")


def every_command() -> dict[str, Command]:
    """Return each command of the shell and, under each of its names, of gdb."""
    found = {}
    for command in SHELL_COMMANDS.values():
        found[command.name] = command
        found.update({action.name: action for action in command.actions})
    return {**found, **{name: command for command in GDB_COMMANDS for name in command.names}}


def taken(parser: argparse.ArgumentParser) -> set[str]:
    """Return each option and operand with what the parser makes of it."""
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    return {
        f"{'/'.join(action.option_strings) or action.dest} {type(action).__name__} nargs={action.nargs}"
        f" type={getattr(action.type, '__name__', None)} choices={'|'.join(action.choices or ())}"
        f" default={parser.get_default(action.dest)!r}"
        for action in actions
    }


def test_no_option_operand_default_or_choice_is_lost() -> None:
    commands = every_command()
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert {
        name: sorted(set(options) - taken(commands[name].parser())) for name, options in recorded.items()
    } == {name: [] for name in recorded}


def test_what_is_described_is_there_to_run() -> None:
    for name in SHELL_COMMANDS:
        assert callable(load(name)), name
    modules = {load(name).__module__.rpartition(".")[2] for name in SHELL_COMMANDS if name != "help"}
    assert modules == {path.stem for path in (PACKAGE / "cli/commands").glob("[!_]*.py")}
    for command in (*GDB_COMMANDS, *LAUNCHED_COMMANDS):
        module, _, name = command.implementation.partition(":")
        source = PACKAGE / "debugger" / f"{module.replace('.', '/')}.py"
        assert f"\nclass {name}(" in source.read_text(encoding="utf-8"), command.name


def option(table: str, name: str) -> Option:
    return next(one for one in Command("x", "", table).options() if name in one.names)


def option_of(command: str, name: str) -> Option:
    return option(every_command()[command].table, name)


def test_the_values_that_a_help_lists_are_those_that_are_read() -> None:
    assert tuple(option(query("path"), "--by").choices) == queries.GROUPINGS
    assert tuple(option_of("memwatch report", "--by").choices) == steps.GROUPINGS
    assert tuple(option_of("gdbmem export", "--to").choices) == (
        *export.NAMES,
        export.TRACE,
        export.PYROSCOPE,
    )
    assert tuple(option_of("gdbmem launch", "--time-unit").choices) == massif.TIME_UNITS
    assert tuple(option_of("gdbmem python lines", "--backend").choices) == line_recorder.BACKENDS
    assert f": {', '.join(engine.NAMES)};" in option_of("gdbmem launch", "--engine").help
    assert f": {', '.join(FORMATS)} (" in option(READING, "--format").help


@pytest.mark.parametrize("name", ["gdbmem explain", "memexplain"])
def test_the_shell_and_gdb_show_a_ledger_by_the_same_options(name: str) -> None:
    assert LEDGER in every_command()[name].table


def test_an_option_is_shown_in_one_wording_wherever_it_means_the_same() -> None:
    wordings: dict[str, set[str]] = {}
    for command in every_command().values():
        for one in command.options():
            if one.names and one.names[-1] in (
                "--swapped",
                "--json",
                "--known",
                "--mine",
                "--sizes",
                "--holders",
            ):
                wordings.setdefault(one.names[-1], set()).add(one.help)
    assert {name: texts for name, texts in wordings.items() if len(texts) > 1} == {}
    assert len(wordings) == 6


def test_help_in_gdb_names_each_option_and_fits_the_terminal() -> None:
    for command in (*GDB_COMMANDS, *LAUNCHED_COMMANDS):
        for name in command.names:
            text = command.help_for(name)
            assert "COMMAND" not in text and not text.endswith("\n")
            assert max(map(len, text.splitlines())) < 120, name
            for one in command.options():
                spoken = one.names and one.names[-1] != "--output"  # as -o
                assert not spoken or one.names[-1] in text, f"help {name}"


def test_a_value_out_of_place_is_refused_with_the_slug_that_help_explains() -> None:
    for words, slug in (
        (["--for", "soon"], "bad-duration"),
        (["--top", "0"], "bad-count"),
        (["--top", "x"], "bad-count"),
    ):
        with pytest.raises(UsageError) as caught:
            every_command()["memgrow"].parser().parse_args(words)
        assert caught.value.slug == slug


def test_a_wrong_value_of_a_command_of_two_words_is_reported_under_these() -> None:
    with pytest.raises(UsageError, match="gdbmem python objects: argument --top: '0' is not a number"):
        SHELL_COMMANDS["python"].parser().parse_args(["objects", "--top", "0", "4711"])


def test_the_default_that_a_help_states_is_the_one_that_is_taken() -> None:
    table = f"  --top N   rows (default: 7)\n  --wait TIME  (default: 200ms; or so)\n  --on a|b  (default: b)\n{OUTPUT}"
    found = Command("x", "", table).parser().parse_args([])
    assert (found.top, found.wait, found.on, found.output) == (7, 0.2, "b", None)


def test_a_table_has_repeated_options_operands_and_options_of_which_one_can_be_given() -> None:
    table = (
        "  first [RUN …]  runs\n  --env NAME=VALUE …\n      set it\neither:\n  --a  A\n  --b  B\n\n  --c  C\n"
    )
    command = Command("x", "Do it.\nUsage: COMMAND [RUN …]\n\nProse.\n", table)
    parser = command.parser()
    found = parser.parse_args(["--env", "A=1", "--env", "B=2", "--a", "--c", "r1", "r2"])
    assert (found.first, found.env, found.a, found.b, found.c) == (
        ["r1", "r2"],
        ["A=1", "B=2"],
        True,
        False,
        True,
    )
    with pytest.raises(UsageError, match="not allowed with"):
        parser.parse_args(["--a", "--b"])
    assert (command.summary, command.prose, command.usage_lines()) == (
        "do it",
        "Do it.\n\nProse.",
        ["x [RUN …]"],
    )
