"""Recipes: running a program with snapshots at points of its code, and judging expectations on them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Optional, Union

from gdbmem.analysis.profiles.query import Query
from gdbmem.api.recipe_verdicts import compare_all, interruption
from gdbmem.engines.engine import options_of, table
from gdbmem.errors import InputError, Notice
from gdbmem.launch.engine_choice import AUTO, choose_engine
from gdbmem.launch.job import Job
from gdbmem.launch.program import find_program
from gdbmem.launch.unattended import play_recipe
from gdbmem.model.profiles.diff import Diff
from gdbmem.model.profiles.expectation import ExpectationVerdict as ExpectationVerdict
from gdbmem.recipes.abilities import check_engine
from gdbmem.recipes.reader import load_recipe
from gdbmem.recipes.recipe import Recipe
from gdbmem.records import dataclass
from gdbmem.runs.unseen import RunEnd
from gdbmem.setup.gdb_python import find_gdb

__all__ = ["ExpectationVerdict", "Recipe", "RecipeResult", "load_recipe", "run_recipe"]


@dataclass(frozen=True)
class RecipeResult:
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
    )


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
