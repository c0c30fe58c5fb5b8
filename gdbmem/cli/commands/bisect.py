"""Run `gdbmem bisect`."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from gdbmem.api.recipes import load_recipe
from gdbmem.cli.commands.baseline import measure_once, read_file
from gdbmem.cli.start import unwind_when_ended
from gdbmem.commands.arguments import ArgumentParser
from gdbmem.errors import ExitStatus, GdbmemError, InputError, MissingToolError, UsageError
from gdbmem.gates.baseline import Entry, RunMeasures, Sides, decide, differing, sides_between
from gdbmem.gates.reports import amount_text
from gdbmem.model.judgement import exit_status
from gdbmem.terminal.console import say
from gdbmem.terminal.document import judgement_line
from gdbmem.text import plural, printable

GOOD, BAD, SKIP = 0, 1, 125  # as git bisect run takes them


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Build, run as often as necessary, and return git's word for the outcome."""
    args = parser.parse_args(argv)
    if (args.good is None) != (args.bad is None):
        raise UsageError("--good and --bad name two baselines together", hint="--good good --bad bad")
    if args.runs < 1:
        raise UsageError("--runs has to be at least 1")
    unwind_when_ended()
    recipe = load_recipe(args.recipe)
    sides = _sides(args, Path(recipe.source).stem) if args.good is not None else None
    if args.build is not None and not _built(args.build):
        return _skip(f"'{printable(args.build)}' failed")
    values: list[float] = []
    for number in range(1, (args.runs if sides is not None else 1) + 1):
        try:
            measures = measure_once(recipe)
        except MissingToolError:
            raise
        except GdbmemError as error:  # there is no program, or it does not start
            return _skip(error.sentence)
        if sides is None:
            return _by_expectations(measures)
        if measures.unseen:
            return _skip(measures.unseen[0].message)
        values.append(_value(measures, sides))
        is_bad = decide(sides.measure, values)
        if not args.quiet:
            say(
                f"run {number}: {sides.measure.name} is {amount_text(values[-1], sides.measure.unit).lstrip('+')}"
            )
        if is_bad is not None:
            return _say_outcome(sides.measure, values, is_bad=is_bad)
    return _skip(f"{plural(args.runs, 'run')} can't tell whether it is good or bad")


class _Baselines(NamedTuple):
    """The good and the bad baseline, and the measure that tells them apart."""

    good: Entry
    measure: Sides


def _sides(args: argparse.Namespace, suite: str) -> _Baselines:
    branches = read_file(args.file)
    found = []
    for branch in (args.good, args.bad):
        entry = branches.get(branch, {}).get(suite)
        if entry is None:
            raise InputError(
                f"{printable(args.file)} has no baseline {printable(branch)} of {printable(suite)}",
                slug="no-baseline",
                hint=f"gdbmem baseline save --branch {printable(branch)} RECIPE, at that commit",
            )
        found.append(entry)
    return _Baselines(found[0], sides_between(found[0], found[1], args.measure or ""))


def _built(command: str) -> bool:
    try:
        words = shlex.split(command)
        # The builder's output is no result of this command.
        return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode == 0
    except (OSError, ValueError, IndexError) as error:
        raise InputError(
            f"--build '{printable(command)}' can't be run: {error}",
            slug="bad-build",
            hint="a script or sh -c '…' for more than one command",
        ) from None


def _value(measures: RunMeasures, sides: _Baselines) -> float:
    different = differing(sides.good.surroundings, measures.surroundings)
    if different:
        raise InputError(f"not comparable with the baselines: {different}", slug="not-comparable")
    value, _ = measures.measures.get(sides.measure.name, (None, ""))
    if value is None:
        raise InputError(
            f"'{sides.measure.name}' was not measured",
            slug="no-measures",
            hint="keep the recipe out of the checkout",
        )
    return value


def _by_expectations(measures: RunMeasures) -> int:
    if not measures.judgements:
        raise InputError(
            "the recipe expects nothing, so no commit is bad",
            slug="no-measures",
            hint="--good and --bad, or expect:",
        )
    status = exit_status(measures.judgements)
    for one in measures.judgements:
        say(printable(judgement_line(one)))
    if status == ExitStatus.NOT_JUDGED:
        return _skip("the expectations could not be judged")
    print(f"{'good' if status == ExitStatus.DONE else 'bad'} after 1 run")
    return GOOD if status == ExitStatus.DONE else BAD


def _say_outcome(sides: Sides, values: Sequence[float], *, is_bad: bool) -> int:
    size = amount_text(median(values), sides.unit).lstrip("+")
    good, bad = (amount_text(one, sides.unit).lstrip("+") for one in (sides.good, sides.bad))
    print(
        f"{'bad' if is_bad else 'good'} after {plural(len(values), 'run')}: {sides.name} is {size}"
        f" (good {good}, bad {bad})"
    )
    return BAD if is_bad else GOOD


def _skip(reason: str) -> int:
    print(f"skipped: {printable(reason)}")
    return SKIP
