"""`gdbmem launch --recipe`: run it, then report the growth and judge the expectations."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional, TextIO

from gdbmem.api.recipes import Compared, compare_all, interruption
from gdbmem.cli.launch_job import engine_options, environment, make_job, resolve_engine
from gdbmem.containers import containers
from gdbmem.containers.containers import growth, print_container_growth
from gdbmem.engines.engine import options_of, table
from gdbmem.errors import ExitStatus, Notice
from gdbmem.gates.reports import Gate, GrownLine, Judged, Place, ci_files, ci_reports, grown_lines
from gdbmem.heap.text import growth_document
from gdbmem.heap.text import print_growth as print_heap_growth
from gdbmem.launch.interactive import shown
from gdbmem.launch.program import execute, find_program
from gdbmem.launch.recipe import Outcome, play_recipe
from gdbmem.launch.whole_run import show_whole_run
from gdbmem.ledger import document as ledger_document
from gdbmem.ledger.text import print_growth
from gdbmem.model.diff import ExpectationVerdict
from gdbmem.model.judgement import exit_status
from gdbmem.profiles.documents import diff_document
from gdbmem.profiles.paths import Query, read_known
from gdbmem.profiles.text import print_diff
from gdbmem.recipes.abilities import check_engine
from gdbmem.recipes.reader import load_recipe
from gdbmem.recipes.recipe import Recipe
from gdbmem.recipes.verdicts import PointOutcome, case_name, recipe_object
from gdbmem.runs.ranks import is_chosen, own_rank
from gdbmem.runs.run import Run
from gdbmem.terminal.console import make_console, open_output
from gdbmem.terminal.document import judgement_line, to_json
from gdbmem.text import printable

_MOST_PATHS = 10  # of containers that changed, as of call paths


def run_recipe(
    args: argparse.Namespace,
    program_arguments: Optional[list[str]],
    runs: list[Run],
    *,
    command: Sequence[str],
) -> int:
    """Play the recipe that *args* name and report; return the exit status. The run is added to *runs*.

    The files of --ci and --junit are written whatever fails: those of an earlier run must not stand for this.
    """
    with ci_reports(ci_files(args), Path(args.recipe).stem) as gate:
        return _run_recipe(args, program_arguments, runs, gate, command=command)


def _run_recipe(
    args: argparse.Namespace,
    program_arguments: Optional[list[str]],
    runs: list[Run],
    gate: Gate,
    *,
    command: Sequence[str],
) -> int:
    recipe = load_recipe(args.recipe)
    if not is_chosen(args.on_ranks):
        words = recipe.args if program_arguments is None else program_arguments
        path = str(find_program(recipe.program, folder=recipe.folder).path)
        execute(path, words, {**recipe.env, **environment(args.env)})
    query = Query(known=tuple(read_known(args.known)) if args.known else ())
    job = _job(args, recipe, program_arguments)
    whole_run = table(job.engine).whole_run
    recipe, left_out = _without_snapshots(recipe, job.engine) if whole_run else (recipe, None)
    check_engine(recipe, job.engine)
    progress = _silence if args.quiet else _Clock().progress
    outcome: Optional[Outcome] = None
    try:
        with open_output(args.output, force=args.force) as stream:
            outcome = play_recipe(recipe, job, progress=progress, command=command)
            runs.append(outcome.run)
            outcome.notices += [left_out] if left_out is not None else []
            result = compare_all(recipe, outcome, query)
            gate.judged += _judged(recipe, result, query)
            gate.seconds = outcome.seconds
            if args.json:
                _write_json(result, outcome, query, stream)
            else:
                _print(result, query, stream)
                if whole_run:
                    show_whole_run(outcome.run, stream)
        _say(outcome, result.reasons, json=args.json)
        status = _status(outcome, result.verdicts)
        return ExitStatus.FAILED if left_out is not None and own_rank() is None else status
    finally:
        # Also if a step after the run failed, or was interrupted because it took too long.
        # Nor does --quiet hide a name that only gdbmem knows.
        if outcome is not None and not (args.quiet and (args.run or args.json)):
            _say_where(outcome, quiet=args.quiet)


def _judged(recipe: Recipe, result: Compared, query: Query) -> Iterator[Judged]:
    """Yield the outcome of each expectation of *recipe*, with the lines that grew and its own line."""
    for verdict, diff in zip(result.verdicts, result.judged):
        expectation = verdict.expectation
        lines: Sequence[GrownLine] = ()
        if diff is not None:
            focus = re.compile(expectation.path) if expectation.path else None
            lines = grown_lines(diff, query._replace(focus=focus))
        origin = Place(recipe.source, expectation.position.line)
        yield Judged(verdict.judgement, lines, origin, case_name(expectation))


def _without_snapshots(recipe: Recipe, engine: str) -> tuple[Recipe, Optional[Notice]]:
    """Return the part of *recipe* that *engine*, which takes no snapshots, can do, and a notice on the rest."""
    points = []
    for point in recipe.points:
        actions = tuple(action for action in point.actions if action.kind != "snap")
        points += [point._replace(actions=actions)] if actions else []
    rest = recipe._replace(points=tuple(points), diffs=(), expectations=())
    if not recipe.diffs and not recipe.expectations:
        return rest, None
    text = f"{engine} takes no snapshots: the recipe's 'diff' and 'expect' are skipped and not judged"
    return rest, Notice("whole-run", text)


def _job(args: argparse.Namespace, recipe: Recipe, program_arguments: Optional[list[str]]) -> Any:
    program = find_program(recipe.program, folder=recipe.folder)
    engine, automatic = resolve_engine(args, program, recipe.engine)
    # The recipe's options are for its own engine; another engine does not take them.
    own = recipe.options if engine == recipe.engine else {}
    options = options_of(engine, {**automatic, **own, **engine_options(args)})
    arguments = recipe.args if program_arguments is None else program_arguments
    job = make_job(args, program, arguments, options, engine)
    to_stdout = args.json or args.output == "-"
    return job._replace(
        environment={**recipe.env, **job.environment},
        stdin=job.stdin if job.stdin is not None else recipe.stdin,
        # The standard output is reserved for the result; "" is the file `stdout` in the run folder.
        stdout=job.stdout if job.stdout is not None else ("" if to_stdout else None),
    )


class _Clock:
    """Progress lines on stderr, each with the time since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def progress(self, text: str) -> None:
        # Further lines of a backtrace are indented below the first.
        first, *rest = (printable(line.expandtabs()) for line in text.split("\n"))
        lines = [f"[{time.monotonic() - self._began:6.1f} s] {first}", *(f"{'':11}{line}" for line in rest)]
        print("\n".join(lines), file=sys.stderr, flush=True)


def _silence(text: str) -> None:
    """Drop progress (--quiet)."""


def _write_json(result: Compared, outcome: Outcome, query: Query, stream: TextIO) -> None:
    points = [
        PointOutcome(p.name, p.hits, p.snapshots, p.ledgers, p.containers, p.heaps) for p in outcome.points
    ]
    document = recipe_object(
        points,
        [diff_document(diff, query) for diff in result.diffs],
        result.verdicts,
        outcome.notices,
        ledger_diffs=[
            {**ledger_document.growth_document(*sides), "between": list(names)}
            for names, *sides in result.ledgers
        ],
        container_diffs=[
            {**containers.growth_document(*sides), "between": list(names)} for names, *sides in result.surveys
        ],
        heap_diffs=[{**growth_document(found), "between": list(names)} for names, found in result.heaps],
        status=outcome.status,
        run=str(outcome.run.folder),
    )
    stream.write(to_json(document))


def _print(result: Compared, query: Query, stream: TextIO) -> None:
    console = make_console(stream)
    for diff in result.diffs:
        print_diff(diff, query, console)
        stream.write("\n")
    for names, *ledgers in result.ledgers:
        print_growth(ledgers[0], ledgers[1], console, names)
        stream.write("\n")
    for names, *surveys in result.surveys:
        print_container_growth(growth(*surveys), console, query.top or _MOST_PATHS, names[0])
        stream.write("\n")
    for _, found in result.heaps:
        print_heap_growth(found, console, query.top or _MOST_PATHS)
        stream.write("\n")
    for verdict in result.verdicts:
        stream.write(f"{printable(judgement_line(verdict.judgement))}\n")


def _say(outcome: Outcome, reasons: Mapping[tuple[str, str], str], *, json: bool) -> None:
    """Print an error on stderr."""
    say: Callable[[str], None] = lambda text: print(f"gdbmem: {printable(text)}", file=sys.stderr)  # noqa: E731
    if not json:
        for notice in outcome.notices:
            say(notice.sentence)
    for (before, after), reason in reasons.items():
        say(f"no diff of {before} and {after}: {reason}")
    if outcome.failure:
        say(outcome.failure)
    if outcome.interrupted is not None:
        say(interruption(outcome.interrupted))


def _say_where(outcome: Outcome, *, quiet: bool) -> None:
    if outcome.run.folder.is_dir():
        folder = shown(outcome.run.folder)
        text = f"the run is kept in {folder}/"
        text += "" if quiet else f"; see more with  gdbmem show {shlex.quote(folder)}"
        print(f"gdbmem: {printable(text)}", file=sys.stderr)


def _status(outcome: Outcome, verdicts: Sequence[ExpectationVerdict]) -> int:
    if outcome.interrupted is not None:
        return 128 + outcome.interrupted
    if outcome.status is not None and own_rank() is not None:
        # Another status would make the launcher end the other ranks: 'gdbmem ranks' has it.
        return outcome.status
    if verdicts:
        # Data captured before a failure is still judged: an expectation that fails is a result.
        return exit_status(verdict.judgement for verdict in verdicts)
    if outcome.timed_out:
        return ExitStatus.TIMED_OUT
    if outcome.failure or outcome.status is None:
        return ExitStatus.FAILED
    if any(notice.slug.startswith("point-") for notice in outcome.notices):
        return ExitStatus.FAILED
    return outcome.status
