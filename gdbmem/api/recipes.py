"""Recipes: running a program with snapshots at points of its code, and judging expectations on them."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, NamedTuple, Optional, Union

from gdbmem.engines.engine import AUTO, options_of, table
from gdbmem.errors import InputError, Interrupted, Notice, ToolError
from gdbmem.formats.documents import read_heap, read_ledger, read_survey
from gdbmem.formats.opening import OpenOptions
from gdbmem.gates.baseline import RunMeasures, measures_of
from gdbmem.heap.growth import compared
from gdbmem.launch.engine_choice import choose_engine
from gdbmem.launch.job import Job
from gdbmem.launch.measured import MeasuredRun, trim_by_gdb
from gdbmem.launch.program import find_program
from gdbmem.launch.recipe import Outcome, PlayedPoint, play_recipe
from gdbmem.model.containers import Survey
from gdbmem.model.diff import GRAPH_METRICS, LEDGER_METRICS, Diff, Expectation, ExpectationVerdict
from gdbmem.model.heap_graph import HeapGrowth, SavedHeap
from gdbmem.model.judgement import Unseen
from gdbmem.model.ledger import Ledger
from gdbmem.profiles.diff import diff_snapshots
from gdbmem.profiles.paths import Query
from gdbmem.recipes.abilities import check_engine
from gdbmem.recipes.reader import load_recipe
from gdbmem.recipes.recipe import Point, Recipe
from gdbmem.recipes.verdicts import judge, judge_heaps, judge_ledgers, unjudged, verdict_object
from gdbmem.runs.distrust import split_name
from gdbmem.runs.operand import load_record
from gdbmem.runs.run import Run
from gdbmem.runs.saved_results import CONTAINERS, HEAP, LEDGER, MISSING, find_saved, saved_text
from gdbmem.runs.unseen import SNAP, RunEnd, check_order, unseen_in_run
from gdbmem.setup.gdb_python import find_gdb
from gdbmem.symbols.address_names import GdbSymbols
from gdbmem.text import plural, printable

__all__ = [
    "ExpectationVerdict",
    "MeasuredRun",
    "Recipe",
    "RecipeResult",
    "find_program",
    "load_recipe",
    "run_recipe",
    "trim_by_gdb",
]


# The diffs and verdicts of a recipe that was run, or the reasons why one can't be made.


class Diffs:
    """The diffs between snapshots of one run, each computed once, or the reasons why one can't be computed."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._reading = OpenOptions(symbols=GdbSymbols())
        self.made: dict[tuple[str, str], Optional[Diff]] = {}
        self.reasons: dict[tuple[str, str], str] = {}

    def between(self, before: str, after: str) -> Optional[Diff]:
        """Return the diff, or None if a snapshot is missing or unreadable (see `reasons`)."""
        pair = (before, after)
        if pair not in self.made:
            run = self._outcome.run
            at = before
            try:
                sides = []
                for at in pair:
                    sides.append(load_record(run, run.record(at), self._reading).snapshot)
                self.made[pair] = diff_snapshots(*sides)
            except InputError as error:
                self.made[pair] = None
                is_missing = error.slug == "no-such-snapshot"
                self.reasons[pair] = _why_missing(at, error, self._outcome) if is_missing else error.message
        return self.made[pair]


class SavedPairs:
    """The ledgers, surveys and heaps of one run, two at a time, each read once."""

    def __init__(self, points: Sequence[Point], outcome: Outcome) -> None:
        self._points = {point.name: point.records for point in points}
        self._outcome = outcome
        self._ledgers: dict[str, Ledger] = {}

    def ledgers(self, before: str, after: str) -> tuple[Ledger, Ledger]:
        """Return the two ledgers; raises InputError with the reason if one was not taken."""
        return self._ledger(before), self._ledger(after)

    def _ledger(self, name: str) -> Ledger:
        if name not in self._ledgers:
            self._ledgers[name] = read_ledger(self._text(LEDGER, name), name)
        return self._ledgers[name]

    def heaps(self, before: str, after: str) -> tuple[SavedHeap, SavedHeap]:
        """Return the two heaps; raises InputError with the reason if one was not taken."""
        first, second = (read_heap(self._text(HEAP, name), name) for name in (before, after))
        return first, second

    def surveys(self, before: str, after: str) -> tuple[Survey, Survey]:
        """Return the two container scans; raises InputError with the reason if one was not taken."""
        first, second = (read_survey(self._text(CONTAINERS, name), name) for name in (before, after))
        return first, second

    def _text(self, kind: str, name: str) -> str:
        run = self._outcome.run
        try:
            return saved_text(run, find_saved(run, kind, name))
        except InputError as error:
            if error.slug not in MISSING:
                raise
            why = _why_missing(name, error, self._outcome, kind)
            raise InputError(why, slug=error.slug, hint=error.hint) from None

    def recorded(self, kind: str, before: str, after: str) -> bool:
        """Return whether the recipe has both points of a pair record *kind*."""
        return all(kind in self._points.get(split_name(name)[0], ()) for name in (before, after))


@dataclass
class Compared:
    """The comparisons and verdicts that the recipe asks for; *reasons* explain why a pair has none."""

    diffs: list[Diff] = field(default_factory=list)
    ledgers: list[tuple[tuple[str, str], Ledger, Ledger]] = field(default_factory=list)
    surveys: list[tuple[tuple[str, str], Survey, Survey]] = field(default_factory=list)
    heaps: list[tuple[tuple[str, str], HeapGrowth]] = field(default_factory=list)
    verdicts: list[ExpectationVerdict] = field(default_factory=list)
    # The diff that each verdict is on; None: no diff.
    judged: list[Optional[Diff]] = field(default_factory=list)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)


def compare_all(recipe: Recipe, outcome: Outcome, query: Query) -> Compared:
    """Compare each pair of *recipe* in everything that both of its points record, and judge the expectations.

    The verdicts are also written into the run.
    """
    diffs, kept, result = Diffs(outcome), SavedPairs(recipe.points, outcome), Compared()
    for pair in recipe.diffs:
        names = (pair.before, pair.after)
        try:
            if kept.recorded(SNAP, *names):
                diff = diffs.between(*names)
                result.diffs += [diff] if diff is not None else []
            if kept.recorded("ledger", *names):
                result.ledgers.append((names, *kept.ledgers(*names)))
            if kept.recorded("containers", *names):
                result.surveys.append((names, *kept.surveys(*names)))
            if kept.recorded(HEAP, *names):
                result.heaps.append((names, compared(*kept.heaps(*names), names)))
        except InputError as error:
            result.reasons[names] = error.message
    result.verdicts = [verdict_of(one, diffs, kept, outcome, query.known) for one in recipe.expectations]
    result.judged = [diffs.made.get((one.before, one.after)) for one in recipe.expectations]
    result.reasons = {**result.reasons, **diffs.reasons}
    if result.verdicts and outcome.run.folder.is_dir():
        outcome.run.update(expectations=[verdict_object(verdict) for verdict in result.verdicts])
    return result


def verdict_of(
    expectation: Expectation,
    diffs: Diffs,
    kept: SavedPairs,
    outcome: Outcome,
    known: Sequence[re.Pattern[str]],
) -> ExpectationVerdict:
    """Judge *expectation*, less the *known* paths; the text names the results that were compared.

    An expectation that fails counts even if the program ended early; one that held until then could not be judged.
    """
    verdict = _judged(expectation, diffs, kept, outcome, known)
    judgement = verdict.judgement
    before, after = expectation.before, expectation.after
    first, last = (_recorded_as(name, expectation.metric, outcome) for name in (before, after))
    # Whoever writes BEFORE may mean its first result: growth until its last one is not judged.
    which = (
        f" (the last of {split_name(first)[1]:,})"
        if split_name(before)[1] is None and first != before
        else ""
    )
    told = judgement.text.replace(
        f"from {printable(before)} to {printable(after)}",
        f"from {printable(first)}{which} to {printable(last)}",
        1,
    )
    return verdict._replace(judgement=judgement._replace(text=told))


def _recorded_as(name: str, metric: str, outcome: Outcome) -> str:
    """Return the name with a number of the result that *name* means, if its point recorded several."""
    point = next((one for one in outcome.points if one.name == name), None)
    recorded = point.recorded(_kind_of(metric)) if point is not None else []
    return recorded[-1] if len(recorded) > 1 else name


def _judged(
    expectation: Expectation,
    diffs: Diffs,
    kept: SavedPairs,
    outcome: Outcome,
    known: Sequence[re.Pattern[str]],
) -> ExpectationVerdict:
    if outcome.interrupted is not None:
        return unjudged(expectation, Unseen("interrupted", interruption(outcome.interrupted)))
    names = (expectation.before, expectation.after)
    kind = _kind_of(expectation.metric)
    try:
        if kind == LEDGER:
            sides = kept.ledgers(*names)
            check_order(outcome.run, kind, names)
            return judge_ledgers(expectation, *sides, unseen_in_run(outcome.run, kind, names))
        if kind == HEAP:
            heaps = kept.heaps(*names)
            check_order(outcome.run, kind, names)
            return judge_heaps(expectation, *heaps, unseen_in_run(outcome.run, kind, names))
        diff = diffs.between(*names)
        if diff is None:
            reason = Unseen("expectation-unjudged", diffs.reasons[names])
            return unjudged(expectation, reason, *outcome.end.unseen())
        check_order(outcome.run, kind, names)
        return judge(expectation, diff, known, unseen_in_run(outcome.run, kind, names, unit=diff.unit))
    except InputError as error:
        return unjudged(expectation, Unseen(error.slug, error.message), *outcome.end.unseen())


def _kind_of(metric: str) -> str:
    """Return the kind of results that *metric* is measured by."""
    return LEDGER if metric in LEDGER_METRICS else HEAP if metric in GRAPH_METRICS else SNAP


def interruption(number: int) -> str:
    """Return the sentence on a launch that signal *number* ended."""
    what = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    return f"the launch was interrupted ({what})"


def _why_missing(name: str, error: InputError, outcome: Outcome, action: str = "snap") -> str:
    """Return the reason why *name*, recorded by *action*, was never taken, from the outcome of the program."""
    base = split_name(name)[0]
    point = next((point for point in outcome.points if point.name == base), None)
    return error.message if point is None else _course(point, outcome, action)


def _course(point: PlayedPoint, outcome: Outcome, action: str) -> str:
    name, at = printable(point.name), printable(point.at)
    recorded = point.recorded(action)
    if recorded:
        return f"'{name}' was recorded {plural(len(recorded), 'time')} only"
    said = f"{point.place}: "
    for notice in outcome.notices:
        # The message about the point on stderr, without its location in the recipe's file.
        if notice.slug.startswith("point-") and notice.message.startswith(said):
            return notice.message[len(said) :]
    if point.pending:
        return f"the program has no location '{at}'"
    if point.hits:
        why = f": {printable(point.failed[action])}" if point.failed.get(action) else ""
        return f"'{at}' was hit {plural(point.hits, 'time')}, but '{name}' was not recorded{why}"
    return f"'{at}' was never hit"


class RecipeResult(NamedTuple):
    """The outcome of a recipe."""

    run: str  # the run folder, which keeps the snapshots
    status: Optional[int]  # the program's exit status as in a shell; None: it did not end by itself
    diffs: Sequence[Diff]  # in the order of the recipe
    verdicts: Sequence[ExpectationVerdict]
    reasons: Sequence[str]  # why a pair of points could not be compared
    failure: str  # why the program could not be run to its end; "" if it could
    notices: Sequence[Notice]
    seconds: float
    end: RunEnd = RunEnd()  # how the program ended
    interrupted: Optional[int] = None  # the signal that ended the launch

    @property
    def passed(self) -> bool:
        """True if the program ended as the recipe says and every expectation was judged and met."""
        ended = not self.failure and not any(True for _ in self.end.unseen())
        return ended and all(verdict.met for verdict in self.verdicts)


def run_recipe(
    recipe: Union[str, os.PathLike[str], Recipe],
    *,
    arguments: Optional[Sequence[str]] = None,
    run: Optional[Union[str, os.PathLike[str]]] = None,
    query: Optional[Query] = None,
    progress: Optional[Callable[[str], None]] = None,
) -> RecipeResult:
    """Run the program of *recipe* under its engine, compare its snapshots and judge its expectations.

    *arguments* replace those of the recipe. *run* is the run folder to make (default: ``gdbmem.PROGRAM.PID`` in the
    current folder); the program's standard output goes to the file ``stdout`` in it. The paths that *query* knows
    are left out of the judgement. Call it in the main thread, which handles signals meanwhile. Raises InputError for
    an unsound recipe, ToolError if gdb or valgrind is missing.
    """
    plan = recipe if isinstance(recipe, Recipe) else load_recipe(os.fspath(recipe))
    job = _job(plan, arguments, Path(run) if run is not None else None)
    check_engine(plan, job.engine)
    if table(job.engine).whole_run:
        raise InputError(
            f"{job.engine} takes no snapshots, so run_recipe() has nothing to compare",
            slug="whole-run",
            hint="name another engine in the recipe, or type gdbmem launch --recipe",
        )
    command = ["gdbmem.api.run_recipe", plan.source]
    outcome = play_recipe(plan, job, progress=progress or (lambda text: None), command=command)
    found = compare_all(plan, outcome, query or Query())
    failure = outcome.failure
    if not failure and outcome.interrupted is not None:
        failure = interruption(outcome.interrupted)
    return RecipeResult(
        run=str(outcome.run.folder),
        status=outcome.status,
        diffs=found.diffs,
        verdicts=found.verdicts,
        reasons=list(found.reasons.values()),
        failure=failure,
        notices=outcome.notices,
        seconds=outcome.seconds,
        end=outcome.end,
        interrupted=outcome.interrupted,
    )


def measure_recipe(recipe: Recipe, *, run: Path) -> RunMeasures:
    """Run *recipe* once into the folder *run*; return what it measured.

    Raises as `run_recipe`; Interrupted, ToolError if gdb or valgrind failed.
    """
    result = run_recipe(recipe, run=run)
    if result.interrupted is not None:
        raise Interrupted(signal.Signals(result.interrupted))
    if result.failure:
        raise ToolError(result.failure, slug="launch-failed", hint=f"gdbmem launch --recipe {recipe.source}")
    return measures_of(Run(run))


def _job(recipe: Recipe, arguments: Optional[Sequence[str]], run: Optional[Path]) -> Job:
    program = find_program(recipe.program, folder=recipe.folder)
    options, engine = recipe.options, recipe.engine
    if engine == AUTO:
        choice = choose_engine(program)
        engine, options = choice.engine, choice.options
    return Job(
        program=program,
        arguments=list(recipe.args if arguments is None else arguments),
        options=options_of(engine, options),
        environment=recipe.env,
        stdin=recipe.stdin,
        stdout="",
        run_folder=run,
        gdb=find_gdb(None),
        engine=engine,
        reads_values=any(point.reads_values for point in recipe.points),
    )
