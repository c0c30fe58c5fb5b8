"""Run `gdbmem baseline` and `gdbmem bisect`."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple, Optional

from gdbmem.api.recipes import load_recipe, measure_recipe
from gdbmem.cli.start import unwind_when_ended
from gdbmem.commands.arguments import ArgumentParser
from gdbmem.errors import ExitStatus, GdbmemError, InputError, MissingToolError, UsageError, failing
from gdbmem.files import read_small
from gdbmem.gates import baseline
from gdbmem.gates.reports import Judged, amount_text, ci_files, ci_reports
from gdbmem.model.judgement import Judgement, Unseen, exit_status
from gdbmem.recipes.recipe import Recipe
from gdbmem.runs.run import Run, is_run, timestamp
from gdbmem.terminal.console import open_output, say
from gdbmem.terminal.document import head, judgement_line, judgement_object, to_json
from gdbmem.text import plural, printable

_LARGEST_FILE_BYTES = 64 << 20
# The branch that a change is to be merged into, and the own one, as services of continuous integration name them.
_TARGETS = ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "CI_DEFAULT_BRANCH")
_OWN = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Run the recipes, and save or compare what they measured."""
    args = parser.parse_args(argv)
    if args.runs < 1:
        raise UsageError("--runs has to be at least 1")
    unwind_when_ended()
    return _save(args) if args.action == "save" else _check(args)


def _save(args: argparse.Namespace) -> int:
    branches = read_file(args.file) if Path(args.file).exists() else {}
    branch = args.branch or _branch()
    entries: dict[str, baseline.Entry] = {}
    for suite, runs in _measured(args).items():
        unseen = _unseen(runs)
        if unseen:
            raise InputError(f"{printable(suite)}: {unseen[0].message}", slug="not-measured")
        entries[suite] = baseline.together(runs, commit=git("rev-parse", "HEAD"), saved=timestamp())
    branches[branch] = {**branches.get(branch, {}), **entries}
    with open_output(args.file, force=True) as stream:
        stream.write(baseline.baselines_json(branches))
    for suite, entry in entries.items():
        measures = plural(len(entry.measures), "measure")
        print(f"{printable(suite)}: {measures} of {plural(entry.runs, 'run')} saved as {printable(branch)}")
    return ExitStatus.DONE


def _check(args: argparse.Namespace) -> int:
    with (
        failing(unjudged=True),
        ci_reports(ci_files(args), "baseline") as gate,
        open_output(args.output, force=args.force) as stream,
    ):
        branches = read_file(args.file)
        branch = args.against or _target(branches, args.file)
        judgements = list(_judgements(branches, branch, args))
        gate.judged += map(Judged, judgements)
        if args.json:
            listed = [judgement_object(one) for one in judgements]
            stream.write(to_json({**head("baseline", ()), "against": branch, "judged": listed}))
        else:
            stream.writelines(f"{printable(judgement_line(one))}\n" for one in judgements)
    return exit_status(judgements)


def _judgements(branches: baseline.Baselines, branch: str, args: argparse.Namespace) -> Iterator[Judgement]:
    for suite, runs in _measured(args, known=branches.get(branch, {})).items():
        now = baseline.together(runs, commit=None, saved=timestamp())
        found = baseline.judge_baseline(
            branches[branch][suite], now, branch=branch, allowed_bytes=args.allow, unseen=_unseen(runs)
        )
        for one in found:
            yield one._replace(name=f"{suite}: {one.name}", text=f"{suite}: {one.text}")


def _unseen(runs: Sequence[baseline.RunMeasures]) -> list[Unseen]:
    return list(dict.fromkeys(one for run in runs for one in run.unseen))


# Running, or reading what was run before.


def _measured(
    args: argparse.Namespace, known: Optional[Mapping[str, baseline.Entry]] = None
) -> dict[str, list[baseline.RunMeasures]]:
    """Return the runs of each recipe that *args* name, by its name; *known* are the recipes that have a baseline."""
    found: dict[str, list[baseline.RunMeasures]] = {}
    recipes = [load_recipe(word) for word in args.operands if not is_run(word)]
    earlier = [baseline.measures_of(Run(Path(word))) for word in args.operands if is_run(word)]
    for suite in [*(one.suite for one in earlier), *(Path(recipe.source).stem for recipe in recipes)]:
        if known is not None and suite not in known:  # before anything is run
            raise InputError(
                f"{printable(suite)} has no baseline; there are some of {', '.join(map(printable, known)) or 'none'}",
                slug="no-baseline",
                hint="gdbmem baseline save makes one, on the branch to compare with",
            )
    for measures in earlier:
        found.setdefault(measures.suite, []).append(measures)
    for recipe in recipes:
        for number in range(1, args.runs + 1):
            if not args.quiet:
                say(f"{printable(recipe.source)}: run {number} of {args.runs}")
            measures = measure_once(recipe)
            found.setdefault(measures.suite, []).append(measures)
    return found


def measure_once(recipe: Recipe) -> baseline.RunMeasures:
    """Return what one run of *recipe* measured; its folder is removed."""
    with tempfile.TemporaryDirectory(prefix="gdbmem-") as folder:
        return measure_recipe(recipe, run=Path(folder) / "run")


def read_file(file: str) -> baseline.Baselines:
    """Return the baselines in *file*; raises InputError."""

    def refuse(reason: str) -> InputError:
        return InputError(
            f"{printable(file)} can't be read as baselines: {reason}",
            slug="baseline-unreadable",
            hint="gdbmem baseline save writes it",
        )

    data = read_small(Path(file), limit_bytes=_LARGEST_FILE_BYTES, refuse=refuse)
    return baseline.read_baselines(data.decode("utf-8", "replace"), file)


# Branches.


def _target(branches: baseline.Baselines, file: str) -> str:
    """Return the branch to compare with: the one that CI merges into, main or master, or the only one of the file."""
    named = [os.environ.get(name, "") for name in _TARGETS]
    found = next((name for name in (*named, "main", "master") if name in branches), None)
    if found is None and len(branches) == 1:
        found = next(iter(branches))
    if found is None:
        raise InputError(
            f"{printable(file)} has baselines of {', '.join(map(printable, branches)) or 'no branch'}",
            slug="no-baseline",
            hint="name one: --against BRANCH",
        )
    return found


def _branch() -> str:
    """Return the name of the checked-out branch; main if there is none."""
    named = next((os.environ[name] for name in _OWN if os.environ.get(name)), "")
    return named or git("symbolic-ref", "--short", "-q", "HEAD") or "main"


def git(*words: str) -> Optional[str]:
    """Return what git prints; None without git, or outside of a checkout."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=True
        )
        return done.stdout.decode("utf-8", "replace").strip() or None
    return None


# For git bisect: which commit is good, and which is bad.


GOOD, BAD, SKIP = 0, 1, 125  # as git bisect run takes them


def run_bisect(argv: Sequence[str], parser: ArgumentParser) -> int:
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
        is_bad = baseline.decide(sides.measure, values)
        if not args.quiet:
            say(
                f"run {number}: {sides.measure.name} is {amount_text(values[-1], sides.measure.unit).lstrip('+')}"
            )
        if is_bad is not None:
            return _say_outcome(sides.measure, values, is_bad=is_bad)
    return _skip(f"{plural(args.runs, 'run')} can't tell whether it is good or bad")


class _Baselines(NamedTuple):
    """The good and the bad baseline, and the measure that tells them apart."""

    good: baseline.Entry
    measure: baseline.Sides


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
    return _Baselines(found[0], baseline.sides_between(found[0], found[1], args.measure or ""))


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


def _value(measures: baseline.RunMeasures, sides: _Baselines) -> float:
    different = baseline.describe_differences(sides.good.surroundings, measures.surroundings)
    if different:
        raise InputError(f"not comparable with the baselines: {different}", slug="not-comparable")
    name = sides.measure.name
    value, _ = measures.measures.get(name, (0.0 if name.startswith(baseline.OUTSIDE) else None, ""))
    if value is None:
        raise InputError(
            f"'{sides.measure.name}' was not measured",
            slug="no-measures",
            hint="keep the recipe out of the checkout",
        )
    return value


def _by_expectations(measures: baseline.RunMeasures) -> int:
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


def _say_outcome(sides: baseline.Sides, values: Sequence[float], *, is_bad: bool) -> int:
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
